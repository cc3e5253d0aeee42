"""What a batch has by Spark's checkpoint, and whether the archive has it."""

import json
from typing import Any
from uuid import UUID

import pytest

from barnabas.model import TopicPartition
from barnabas.spark.archives.batch_ranges import (
    count_offsets,
    is_archived,
    ranges_of_batch,
    read_place,
    start_of_batch,
    starting_offsets,
)
from barnabas.spark.archives.manifest import OffsetRange
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.source.stream_offsets import StreamOffset, to_json

ID = UUID(int=7)


def place(*offsets: int, topic_id: UUID = ID, began: StreamOffset | None = None) -> StreamOffset:
    by_partition = {TopicPartition("orders", number): offset for number, offset in enumerate(offsets)}
    return StreamOffset(offsets=by_partition, topic_ids={"orders": topic_id}, began=began)


def ranged(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end, records=0)


def of_batch(before: StreamOffset | None, end: StreamOffset, earliest: dict[int, int] | None = None) -> Any:
    start = start_of_batch(before, end, "orders", {0: 2})
    return ranges_of_batch(start, end, "orders", str(ID), earliest or {})


def test_a_place_is_read_from_spark_s_file() -> None:
    wanted = place(3, 4, began=place(0, 1))
    text = f"v1\n{{}}\n{json.dumps(to_json(wanted))}"
    assert read_place(text, "here") == wanted
    for wrong in ("v2\n{}\n{}", "v1\n{}", "", "v1\n{}\nnothing"):
        with pytest.raises(PipelineError, match="here"):
            read_place(wrong, "here")


def test_a_batch_is_what_lies_between_two_places() -> None:
    assert of_batch(None, place(3, 4, began=place(0, 4))) == [ranged(0, 0, 3)]
    assert of_batch(place(3, 4), place(3, 9)) == [ranged(1, 4, 9)]
    assert of_batch(place(3), place(3, 9)) == [ranged(1, 0, 9)], "a partition that is new"
    assert of_batch(place(3, 4), place(3, 4)) == []
    assert of_batch(None, place(3, 4)) == [ranged(0, 2, 3), ranged(1, 0, 4)], "where the archive ends"
    assert of_batch(None, place(1, 0)) == [], "it has more than that"
    assert of_batch(place(3, 4), place(8, 9), {0: 6, 1: 20}) == [ranged(0, 6, 8)], "records are gone"


def test_a_topic_that_was_made_again_is_lost() -> None:
    with pytest.raises(DataLossError, match="deleted and created again"):
        of_batch(place(3, topic_id=ID), place(9, topic_id=UUID(int=8)))
    with pytest.raises(DataLossError, match="deleted and created again"):
        of_batch(place(3, topic_id=UUID(int=8)), place(9, topic_id=UUID(int=8)))


def test_commits_say_what_is_archived() -> None:
    ranges = [ranged(0, 5, 9), ranged(1, 0, 3)]
    assert is_archived({0: 9, 1: 3}, ranges)
    assert is_archived({0: 12, 1: 3}, ranges)
    assert not is_archived({0: 5}, ranges)
    for ends in ({0: 9, 1: 0}, {0: 4}, {0: 6}):
        with pytest.raises(PipelineError, match="delete the folder _barnabas/checkpoint"):
            is_archived(ends, ranges)
    assert not is_archived({0: 4}, ranges, may_have_gaps=True)


def test_a_query_goes_on_where_the_commits_end() -> None:
    assert json.loads(starting_offsets("orders", 3, {0: 7, 2: 1})) == {"orders": {"0": 7, "1": 0, "2": 1}}
    assert count_offsets({0: 7}, {TopicPartition("orders", 0): 9, TopicPartition("orders", 1): 4}) == 6
