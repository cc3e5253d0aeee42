"""Summaries: the same from one batch as from many tasks' parts."""

import random
from itertools import pairwise

import pyarrow as pa

from barnabas.spark.jobs.summary import Summary

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key_hash", pa.int64()),
        ("key_head", pa.binary()),
        ("key_size", pa.int32()),
        ("value_size", pa.int32()),
        ("header_size", pa.int64()),
    ]
)
Row = tuple[int, int, int, int, bytes | None, int | None, int | None, int]


def summarized(rows: list[Row]) -> Summary:
    summary = Summary()
    columns = [pa.array(list(column), kind) for column, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    summary.add(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return summary


def test_parts_make_the_whole_in_whatever_order_they_come() -> None:
    chance = random.Random(3)
    rows: list[Row] = []
    for partition in range(2):
        for offset in range(60):
            key = None if chance.random() < 0.2 else b"%d" % chance.randrange(9)
            size = None if key is None else len(key)
            value = None if chance.random() < 0.2 else chance.randrange(500)
            row = (partition, offset, chance.randrange(10_000), 42 if key is None else hash(key), key, size, value, 3)
            rows.append(row)
    whole = summarized(rows)
    parts = [summarized(rows[start : start + 7]) for start in range(0, len(rows), 7)]
    chance.shuffle(parts)
    merged = parts[0]
    for part in parts[1:]:
        assert merged.merge(part) is merged
    assert merged.total() == whole.total()
    assert merged.partitions == whole.partitions
    assert (merged.times, merged.value_sizes, merged.key_sizes) == (whole.times, whole.value_sizes, whole.key_sizes)
    assert sorted(merged.top.top(20)) == sorted(whole.top.top(20))
    total = whole.total()
    assert total.records == 120
    assert total.without_key == sum(row[4] is None for row in rows)
    assert total.tombstones == sum(row[6] is None for row in rows)
    assert total.value_bytes == sum(row[6] or 0 for row in rows)
    assert total.header_bytes == 360
    assert total.out_of_order == sum(
        later[2] < earlier[2] for earlier, later in pairwise(rows) if earlier[0] == later[0]
    )


def test_nothing_is_nothing() -> None:
    assert Summary().merge(Summary()).total().records == 0
