"""Ranges of tasks, and how much a batch has."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.model import TopicPartition
from barnabas.spark.source.planning import (
    OffsetRange,
    SplitRules,
    divide,
    is_worth_a_batch,
    limit_offsets,
    missing_and_unwanted,
    split_ranges,
)

TOPIC_ID = UUID(int=7)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def ranged(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=tp(partition), topic_id=TOPIC_ID, start_offset=start, end_offset=end)


def shape(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.partition.partition, each.start_offset, each.end_offset) for each in ranges]


def test_without_limits_a_partition_is_a_task() -> None:
    ranges = [ranged(0, 0, 5), ranged(1, 3, 3), ranged(2, 9, 4), ranged(3, 1, 2)]
    assert shape(split_ranges(ranges, SplitRules(), {})) == [(0, 0, 5), (3, 1, 2)]
    assert split_ranges([], SplitRules(min_partitions=5), {}) == []


def test_a_task_has_no_more_offsets_than_it_may() -> None:
    found = split_ranges([ranged(0, 0, 10), ranged(1, 0, 4)], SplitRules(max_records_per_partition=4), {})
    assert shape(found) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 4)]


def test_large_ranges_are_split_by_bytes() -> None:
    rules = SplitRules(max_bytes_per_partition=100)
    found = split_ranges([ranged(0, 0, 10), ranged(1, 0, 10), ranged(2, 0, 10)], rules, {tp(0): 30.0, tp(1): 9.9})
    assert shape(found) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 10), (2, 0, 10)]


def test_small_ranges_stay_whole_when_more_tasks_are_wanted() -> None:
    found = split_ranges([ranged(0, 0, 100), ranged(1, 0, 2)], SplitRules(min_partitions=4), {})
    assert shape(found) == [(0, 0, 33), (0, 33, 66), (0, 66, 100), (1, 0, 2)]
    # There are enough already.
    assert len(split_ranges([ranged(0, 0, 100), ranged(1, 0, 2)], SplitRules(min_partitions=2), {})) == 2


def test_both_limits_hold_at_once() -> None:
    rules = SplitRules(min_partitions=6, max_records_per_partition=30)
    found = split_ranges([ranged(0, 0, 100), ranged(1, 0, 10)], rules, {})
    assert len(found) >= 6
    assert all(each.size <= 30 for each in found)


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 50))
def test_parts_are_whole_and_even(start: int, size: int, parts: int) -> None:
    divided = divide(ranged(0, start, start + size), parts)
    assert divided[0].start_offset == start
    assert divided[-1].end_offset == start + size
    assert [each.end_offset for each in divided[:-1]] == [each.start_offset for each in divided[1:]]
    sizes = {each.size for each in divided}
    assert max(sizes) - min(sizes) <= 1
    assert len(divided) == min(parts, size)


def test_a_limit_is_shared_by_what_partitions_have() -> None:
    start = {tp(0): 100, tp(1): 0, tp(2): 5}
    latest = {tp(0): 190, tp(1): 10, tp(2): 5}
    assert limit_offsets(start, latest, 10) == {tp(0): 109, tp(1): 1, tp(2): 5}
    assert limit_offsets(start, latest, 100) == latest
    # The smallest partition gets one offset, even where its share is less.
    assert limit_offsets(start, latest, 5) == {tp(0): 104, tp(1): 1, tp(2): 5}
    # A partition that is behind where it was is none to take from.
    assert limit_offsets({tp(0): 50, tp(1): 0}, {tp(0): 40, tp(1): 100}, 10) == {tp(0): 40, tp(1): 10}


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1000), min_size=1), st.integers(1, 500))
def test_batches_under_a_limit_reach_the_end(sizes: dict[int, int], limit: int) -> None:
    latest = {tp(partition): size for partition, size in sizes.items()}
    place = dict.fromkeys(latest, 0)
    for _ in range(sum(sizes.values()) + 1):
        end = limit_offsets(place, latest, limit)
        assert sum(end.values()) - sum(place.values()) <= limit + len(latest)
        if end == place:
            break
        place = end
    assert place == latest


def test_a_batch_waits_for_enough_or_long_enough() -> None:
    start, latest = {tp(0): 10}, {tp(0): 14, tp(1): 3}
    assert is_worth_a_batch(start, latest, 7, 0.0, 1000)
    assert not is_worth_a_batch(start, latest, 8, 999.0, 1000)
    assert is_worth_a_batch(start, latest, 8, 1000.0, 1000)


def test_partitions_that_are_named_are_compared_with_those_there_are() -> None:
    assert missing_and_unwanted([tp(0), tp(1)], [tp(1), tp(2)]) == ([tp(2)], [tp(0)])
