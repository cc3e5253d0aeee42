"""Batches to Arrow and back: what a RecordBatch holds is what the records hold, and the other way round."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.fetched import whole_batches
from barnabas.client.partitioner import partition_of_key
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.records.legacy import NO_TIMESTAMP_TYPE
from barnabas.spark.columns import (
    BatchEncoder,
    OpenBatch,
    RowBuilder,
    chosen_rows,
    partitions_of_keys,
    row_columns,
    rows_by_partition,
)
from barnabas.spark.errors import PipelineError
from barnabas.spark.schema import arrow_schema
from tests.records.message_sets import build_message_set

ORDERS = TopicPartition("orders", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOME = [
    (1_000, b"a", b"1", ()),
    (2_000, None, b"2", ((b"who", b"me"), (b"why", None))),
    (3_000, b"c", None, ()),
    (4_000, b"", b"", ((b"", b""),)),
]


def rows_of(batches: Sequence[bytes | bytearray], start: int = 0, end: int = 1 << 62) -> list[dict[str, Any]]:
    builder = RowBuilder(ORDERS, include_headers=True)
    for data in batches:
        for batch in whole_batches(memoryview(data)):
            builder.add(batch, start, end)
    return list(builder.take().to_pylist())


READING = """
import sys
from barnabas.client.fetched import whole_batches
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.spark.columns import RowBuilder

rows = RowBuilder(TopicPartition("orders", 3), include_headers=True)
for batch in whole_batches(memoryview(build_batch([(1_000, b"a", b"1", ((b"who", b"me"),))], base_offset=10))):
    rows.add(batch, 0, 100)
assert rows.take().num_rows == 1
assert "pandas" not in sys.modules, "the first task of every worker would wait for it"
"""


def test_reading_does_not_import_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", READING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_of_batches(codec: Codec) -> None:
    rows = rows_of([build_batch(SOME, base_offset=10, codec=codec), build_batch(SOME[:1], base_offset=20)], 11, 30)
    assert [(row["offset"], row["key"], row["value"], row["headers"]) for row in rows] == [
        (11, None, b"2", [{"key": "who", "value": b"me"}, {"key": "why", "value": None}]),
        (12, b"c", None, None),
        (13, b"", b"", [{"key": "", "value": b""}]),
        (20, b"a", b"1", None),
    ]
    assert [row["timestamp"] for row in rows] == [EPOCH + timedelta(seconds=each) for each in (2, 3, 4, 1)]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("orders", 3, 0)}


def test_the_schema_is_the_one_that_spark_compares() -> None:
    for include_headers in (False, True):
        builder = RowBuilder(ORDERS, include_headers=include_headers)
        builder.add(next(whole_batches(memoryview(build_batch(SOME)))), 0, 9)
        assert builder.rows == 4
        taken = builder.take()
        taken.validate(full=True)
        assert taken.schema.equals(arrow_schema(include_headers=include_headers))
        assert builder.rows == 0


def test_kinds_of_time_and_formats_in_one_record_batch() -> None:
    old = build_message_set(0, [(7, -1, b"k", b"old")])
    rows = rows_of([old, build_batch(SOME[:2], base_offset=8, log_append_time=9_000), build_batch(SOME[:1])])
    assert [(row["timestampType"], row["value"]) for row in rows] == [
        (NO_TIMESTAMP_TYPE, b"old"),
        (1, b"1"),
        (1, b"2"),
        (0, b"1"),
    ]
    assert rows[1]["timestamp"] == rows[2]["timestamp"] == EPOCH + timedelta(seconds=9)


def test_what_was_taken_does_not_change_when_more_is_added() -> None:
    builder = RowBuilder(ORDERS, include_headers=False)
    batches = [next(whole_batches(memoryview(build_batch([(0, b"k", b"%d" % n, ())] * 5_000)))) for n in range(3)]
    taken = []
    for batch in batches:
        builder.add(batch, 0, 1 << 62)
        taken.append(builder.take())
    assert [set(each.column("value").to_pylist()) for each in taken] == [{b"0"}, {b"1"}, {b"2"}]


nullable = st.none() | st.binary(max_size=9)


@given(
    rows=st.lists(st.tuples(nullable, nullable, st.none() | st.integers(0, 10**15)), min_size=1, max_size=50),
    codec=st.sampled_from(Codec),
    batch_size=st.integers(1, 400),
    offset=st.integers(0, 3),
)
def test_batches_of_rows(rows: list[Any], codec: Codec, batch_size: int, offset: int) -> None:
    times = pa.array([None if time is None else EPOCH + timedelta(milliseconds=time % 10**12) for _, _, time in rows])
    table = pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _, _ in rows], pa.binary()),
            pa.array([value for _, value, _ in rows], pa.binary()),
            times.cast(pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "timestamp"],
    ).slice(min(offset, len(rows) - 1))
    encoder = BatchEncoder(codec=codec, batch_size=batch_size)
    found = []
    for data in encoder.batches(table, None, 42):
        (batch,) = whole_batches(memoryview(data))
        batch.check()
        found += batch.records()
    assert [(record.key, record.value, record.timestamp) for record in found] == [
        (key, value, 42 if time is None else time % 10**12) for key, value, time in rows[min(offset, len(rows) - 1) :]
    ]


def test_headers_and_text_and_chosen_rows() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [None, [{"key": "who", "value": b"me"}], [], [{"key": "a", "value": None}, {"key": "b", "value": b""}]]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["w", "x", None, "z"]), pa.array(headers, kind), pa.array([1, 2, 3, 4])], ["value", "headers", "more"]
    )
    (data,) = BatchEncoder().batches(rows, pa.array([3, 1, 0], pa.int32()), 42)
    records = next(whole_batches(memoryview(data))).records()
    assert [(record.key, record.value, record.headers) for record in records] == [
        (None, b"z", ((b"a", None), (b"b", b""))),
        (None, b"x", ((b"who", b"me"),)),
        (None, b"w", ()),
    ]


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("timestamp", pa.array([-2_000_000], pa.timestamp("us", "UTC")), "before 1970"),
        ("key", pa.array([1.5]), "a column of double can not be written"),
        ("headers", pa.array([7]), "headers of int64 can not be written"),
        (
            "headers",
            pa.array(
                [[{"key": None, "value": b""}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
            "header without a name",
        ),
    ],
)
def test_what_no_record_can_have_is_refused(column: str, values: pa.Array, reason: str) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"]), values], ["value", column])
    with pytest.raises(PipelineError, match=reason):
        list(BatchEncoder().batches(rows, None, 0))


def test_a_record_without_a_time_stays_one() -> None:
    (data,) = BatchEncoder().batches(
        pa.RecordBatch.from_arrays(
            [pa.array([b"v"]), pa.array([-1_000], pa.timestamp("us", "UTC"))], ["value", "timestamp"]
        ),
        None,
        42,
    )
    assert next(whole_batches(memoryview(data))).records()[0].timestamp == -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_an_open_batch_takes_rows_of_several_pieces_and_is_used_again(codec: Codec) -> None:
    open_batch = OpenBatch(codec=codec, batch_size=100)
    pieces = [[b"a" * 30, b"b" * 30], [b"c" * 30, b"d" * 500, b"e" * 30], [b"f", b"g"]]
    found: list[list[tuple[bytes | None, int]]] = []

    def seal() -> None:
        (batch,) = whole_batches(open_batch.seal())
        batch.check()
        found.append([((record.value or b"")[:1], record.timestamp) for record in batch.records()])
        assert open_batch.is_empty

    for time, values in enumerate(pieces):
        rows = pa.RecordBatch.from_arrays([pa.array(values)], ["value"])
        columns, chosen = row_columns(rows, 42 + time), chosen_rows(rows, None)
        first = open_batch.add(columns, chosen, 0)
        while first < len(chosen):
            seal()
            first = open_batch.add(columns, chosen, first)
    seal()
    # A row that is larger than any batch has one for itself, and those behind it have the usual size again.
    assert found == [[(b"a", 42), (b"b", 42)], [(b"c", 43)], [(b"d", 43)], [(b"e", 43), (b"f", 44), (b"g", 44)]]


def test_headers_count_as_bytes_too() -> None:
    batch = next(whole_batches(memoryview(build_batch([(0, b"k", b"v", ((b"name", b"x" * 1000),))] * 3))))
    for include_headers, size in ((False, 6), (True, 6 + 3 * 1004)):
        builder = RowBuilder(ORDERS, include_headers=include_headers)
        builder.add(batch, 0, 9)
        assert builder.bytes == size


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_layouts_of_the_same_bytes(kind: pa.DataType) -> None:
    values = pa.array(["w", None, "z"]).cast(kind) if kind != pa.binary_view() else pa.array([b"w", None, b"z"], kind)
    (data,) = BatchEncoder().batches(pa.RecordBatch.from_arrays([values], ["value"]), None, 42)
    assert [record.value for record in next(whole_batches(memoryview(data))).records()] == [b"w", None, b"z"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary()])
def test_partitions_of_keys(kind: pa.DataType) -> None:
    keys = [b"a", None, b"order-17", b""]
    found = partitions_of_keys(pa.array(keys, pa.binary()).cast(kind), 7)
    assert found.to_pylist() == [None if key is None else partition_of_key(key, 7) for key in keys]


def test_rows_by_partition() -> None:
    found = rows_by_partition(pa.array([9, 2, 0, 2, 1], pa.int32()).slice(1), 3)
    assert [(partition, rows.to_pylist()) for partition, rows in found] == [(0, [1]), (1, [3]), (2, [0, 2])]
    assert rows_by_partition(pa.array([], pa.int32()), 3) == []
