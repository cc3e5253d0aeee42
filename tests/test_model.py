"""The nouns that every layer shares."""

import pytest

from barnabas.model import ZERO_TOPIC_ID, LogOffsetMetadata, TimestampOffset, TopicPartition


def test_a_partition_is_named_like_its_folder() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert f"{TopicPartition('my-topic.v2', 0)}" == "my-topic.v2-0"


def test_partitions_are_equal_by_value_and_sorted_by_topic_then_number() -> None:
    partitions = {TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 2), TopicPartition("b", 1)}
    assert sorted(partitions) == [("a", 2), ("a", 10), ("b", 1)]


def test_offsets_of_one_segment_are_bytes_apart() -> None:
    start, end = LogOffsetMetadata(100, 90, 1_000), LogOffsetMetadata(120, 90, 4_500)
    assert end.position_difference(start) == 3_500
    assert start.position_difference(end) == -3_500
    assert not start.is_on_older_segment_than(end)


def test_offsets_of_two_segments_are_not_subtracted() -> None:
    older, newer = LogOffsetMetadata(100, 90, 1_000), LogOffsetMetadata(120, 110, 500)
    assert older.is_on_older_segment_than(newer)
    assert not newer.is_on_older_segment_than(older)
    with pytest.raises(AssertionError):
        newer.position_difference(older)


def test_the_topic_id_of_none_is_all_zeros() -> None:
    assert ZERO_TOPIC_ID.bytes == bytes(16)


def test_a_timestamp_comes_before_its_offset() -> None:
    assert TimestampOffset(timestamp=7, offset=9) == (7, 9)
