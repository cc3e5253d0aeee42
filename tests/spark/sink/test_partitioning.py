"""Where rows go: topics, partitions given, keys, and neither."""

from typing import Any

import pyarrow as pa
import pytest

from barnabas.client.partitioner import partition_of_key
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.partitioning import partitions_of_rows, rows_by_topic


def rows(**columns: Any) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "key": pa.binary(), "topic": pa.string(), "value": pa.binary()}
    return pa.record_batch({name: pa.array(values, types[name]) for name, values in columns.items()})


def partitions(batch: pa.RecordBatch, count: int = 3, *, first: int = 0, together: int = 2) -> list[int]:
    chosen = partitions_of_rows(batch, "t", count, first_partition=first, rows_together=together)
    assert chosen.type == pa.int32()
    found: list[int] = chosen.to_pylist()
    return found


def test_rows_are_divided_by_topic_and_keep_their_order() -> None:
    batch = rows(topic=["a", "b", "a", "c", "b"], value=[b"1", b"2", b"3", b"4", b"5"])
    divided = {name: part.column("value").to_pylist() for name, part in rows_by_topic(batch, None)}
    assert divided == {"a": [b"1", b"3"], "b": [b"2", b"5"], "c": [b"4"]}
    assert [(name, part.num_rows) for name, part in rows_by_topic(batch, "x")] == [("x", 5)]
    assert [(name, part.num_rows) for name, part in rows_by_topic(batch.slice(0, 1), None)] == [("a", 1)]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(PipelineError, match="a row has null in column 'topic', and the option 'topic' is not given"):
        rows_by_topic(rows(topic=["a", None], value=[b"", b""]), None)


def test_a_key_goes_where_kafka_would_put_it() -> None:
    keys = [b"", b"a", b"bc", b"some longer key"]
    assert partitions(rows(key=keys), 7) == [partition_of_key(key, 7) for key in keys]


def test_a_partition_goes_before_a_key_and_a_key_before_neither() -> None:
    batch = rows(partition=[2, None, None, 0, None], key=[b"k", b"k", None, None, None])
    assert partitions(batch, first=1) == [2, partition_of_key(b"k", 3), 2, 0, 0]


def test_rows_with_neither_stay_together_and_go_round() -> None:
    assert partitions(rows(value=[b""] * 7)) == [0, 0, 1, 1, 2, 2, 0]
    assert partitions(rows(key=[None] * 3), first=5, together=1) == [2, 0, 1]
    assert partitions(rows(value=[b""] * 2), together=100) == [0, 0]


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_partition_that_the_topic_has_not_is_refused(wrong: int) -> None:
    with pytest.raises(PipelineError, match=f"a row has {wrong} in column 'partition', but topic 't' has 3 partitions"):
        partitions(rows(partition=[0, wrong, None]))
