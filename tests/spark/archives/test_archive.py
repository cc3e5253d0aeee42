"""Archives: made once, opened again, committed to, and read."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.archive import open_archive, open_or_create_archive
from barnabas.spark.archives.manifest import ArchiveDescription, Commit, OffsetRange, commit_name
from barnabas.spark.errors import PipelineError
from barnabas.spark.schema import spark_schema

ORDERS = ArchiveDescription(topic="orders", topic_id="abc")


def ranged(number: int, start: int, end: int, files: dict[str, int] | None = None) -> Commit:
    ranges = (OffsetRange(partition=0, start=start, end=end, records=end - start),)
    return Commit(number=number, timestamp_ms=0, ranges=ranges, files=files or {})


def test_an_archive_grows_by_commits(spark: SparkSession, tmp_path: Path) -> None:
    archive = open_or_create_archive(spark, str(tmp_path), ORDERS)
    assert (archive.commits(), archive.end_offsets()) == ([], {})
    assert archive.records().schema == spark_schema(include_headers=True)
    record = (b"k", b"v", "orders", 0, 0, datetime(2025, 5, 1, tzinfo=UTC), 0, None)
    rows = spark.createDataFrame([record], spark_schema(include_headers=True))
    rows.coalesce(1).write.parquet(str(tmp_path / "data/1"))
    rows.coalesce(1).write.parquet(str(tmp_path / "data/left-behind"))
    (file,) = (tmp_path / "data/1").glob("*.parquet")
    archive.add(ranged(0, 0, 5))
    archive.add(ranged(1, 5, 9, {f"data/1/{file.name}": file.stat().st_size}))
    again = open_archive(spark, str(tmp_path))
    assert again.end_offsets() == {0: 9}
    assert [row.value for row in again.records().collect()] == [b"v"]
    with pytest.raises(PipelineError, match=r"commit 1 of the archive .* another job writes to it"):
        archive.add(ranged(1, 9, 10))
    (tmp_path / commit_name(0)).unlink()
    with pytest.raises(PipelineError, match=r"commit 0 of the archive .* is missing"):
        again.commits()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"topic": "payments"}, "is the archive of topic 'orders', and not of 'payments'"),
        ({"topic_id": "xyz"}, "deleted and created again"),
        ({"mode": "upsert"}, "was made with mode 'append', and not with 'upsert'"),
    ],
)
def test_an_archive_of_something_else_is_refused(
    spark: SparkSession, tmp_path: Path, other: dict[str, str], reason: str
) -> None:
    open_or_create_archive(spark, str(tmp_path), ORDERS)
    with pytest.raises(PipelineError, match=reason):
        open_or_create_archive(spark, str(tmp_path), replace(ORDERS, **other))  # type: ignore[arg-type]


def test_a_folder_that_is_no_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"is not an archive: there is no _barnabas/archive\.json in it"):
        open_archive(spark, str(tmp_path))
