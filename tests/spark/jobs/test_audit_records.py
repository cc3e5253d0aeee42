"""Records compared over several blocks; what differs is named, however far it is from the rest."""

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from barnabas.spark.jobs.audit_records import BLOCK_OFFSETS, compare
from barnabas.spark.jobs.topic import Span
from barnabas.spark.schema import spark_schema

SCHEMA = spark_schema(include_headers=True)
TIME = datetime(2026, 1, 1, tzinfo=UTC)


def record(
    offset: int, key: bytes | None = b"k", value: bytes | None = b"v", headers: object = None
) -> tuple[object, ...]:
    return key, value, "orders", 0, offset, TIME, 0, headers


def test_differences_in_far_blocks(spark: SparkSession) -> None:
    last = 5 * BLOCK_OFFSETS
    topic = [
        record(0),
        record(1),
        record(2, None, b"x"),
        record(3, headers=[("h", None)]),
        record(last),
        record(last + 1),
    ]
    archive = [
        record(0),
        record(1),
        # The hash of what is null is that of nothing, and must not hide that key and value changed their places.
        record(2, b"x", None),
        record(3, headers=[("h", b"")]),
        record(last),
        record(last),
        record(last + 2),
        # Beyond what is compared: fine once, and not twice.
        record(last + 100),
        record(last + 101),
        record(last + 101),
    ]
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in (topic, archive)]
    counts = compare(frames[0], frames[1], {0: Span(start=0, end=last + 10)})[0]
    assert counts.examples == {
        "changed": [2, 3],
        "doubled": [last, last + 101],
        "missing": [last + 1],
        "unknown": [last + 2],
    }
    assert (counts.missing, counts.doubled, counts.changed, counts.unknown) == (1, 2, 2, 1)
    assert (counts.topic_records, counts.archive_records, counts.other_records) == (6, 7, 3)
    same = compare(frames[0], frames[0].orderBy("offset", ascending=False), {0: Span(start=0, end=last + 10)})[0]
    assert same.topic_checksum == same.archive_checksum != 0
    assert (same.topic_records, same.examples) == (6, {})
