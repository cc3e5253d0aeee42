"""The last record of every key. Whole archives of this kind are in tests/spark/jobs/test_archive.py."""

from pyspark.sql import SparkSession

from barnabas.spark.archives.upserting import files_of_buckets, last_of_keys, with_keys_needed, without_deleted


def test_the_last_record_of_a_key_is_that_of_its_partition(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(0, 1, b"a", b"1"), (0, 2, b"a", None), (1, 0, b"a", b"2"), (0, 0, b"b", b"3")],
        "partition INT, offset LONG, key BINARY, value BINARY",
    )
    assert {(row.partition, row.offset) for row in last_of_keys(rows).collect()} == {(0, 2), (1, 0), (0, 0)}
    keyless = spark.createDataFrame([(0, 3, None, b"1"), (0, 4, None, None), (0, 5, b"c", None)], rows.schema)
    left = without_deleted(last_of_keys(rows.unionAll(keyless)))
    assert {(row.partition, row.offset) for row in left.collect()} == {(1, 0), (0, 0), (0, 3), (0, 4)}
    marked = spark.createDataFrame([(None, False), (b"a", False)], "key BINARY, undecodable BOOLEAN")
    assert [row.undecodable for row in with_keys_needed(marked).collect()] == [True, False]


def test_a_bucket_is_in_the_path() -> None:
    names = ["data/0-a/bucket=3/x", "data/0-a/bucket=13/x", "data/0-b/bucket=4/x", "data/x"]
    assert files_of_buckets(names, [3, 4]) == ["data/0-a/bucket=3/x", "data/0-b/bucket=4/x"]
