"""Which record of a key is the latest."""

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from barnabas.spark.jobs.latest import COLUMNS, latest_in_partitions, latest_of_keys
from barnabas.spark.schema import spark_schema


def test_offsets_count_in_a_partition_and_times_between_them(spark: SparkSession) -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)

    rows = [
        (b"a", b"early", "t", 0, 1, at(50), 0, None),
        (b"a", b"late", "t", 0, 2, at(10), 0, [("h", b"1")]),
        (b"b", b"one", "t", 0, 9, at(10), 0, None),
        (b"b", b"two", "t", 1, 3, at(11), 0, None),
        (b"c", b"same time", "t", 0, 5, at(1), 0, None),
        (b"c", None, "t", 1, 6, at(1), 0, None),
        (None, b"no key", "t", 1, 7, at(59), 0, None),
    ]
    records = spark.createDataFrame(rows, spark_schema(include_headers=True))
    latest = {bytes(row.key): row for row in latest_of_keys(records).collect()}
    assert {key: (row.value, row.partitions) for key, row in latest.items()} == {
        b"a": (b"late", 1),
        b"b": (b"two", 2),
        b"c": (None, 2),
    }
    assert [tuple(header) for header in latest[b"a"].headers] == [("h", b"1")]
    in_partitions = latest_in_partitions(records)
    assert tuple(in_partitions.columns) == COLUMNS
    assert in_partitions.count() == 5
