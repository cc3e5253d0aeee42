"""Files that tasks make of a topic: like Spark's, shared out evenly, and never taken for there when they are not.

What becomes of them in an archive is tested with the job itself, in tests/spark/jobs/test_archive.py.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barnabas.model import TopicPartition
from barnabas.spark.archives import topic_files as module
from barnabas.spark.archives.archive import Archive, open_archive, open_or_create_archive
from barnabas.spark.archives.manifest import ArchiveDescription
from barnabas.spark.archives.topic_files import (
    FilesPlan,
    FileTask,
    TopicFiles,
    WrittenFile,
    files_by_tasks,
    share_out,
    write_file,
    write_files,
)
from barnabas.spark.connecting import read_cluster
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.archive import archive
from barnabas.spark.source.options import read_stream_options
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.reader import BatchReader
from tests.spark.jobs.moving import filled_topic, our_servers, produce, rows_of, topic_rows
from tests.spark.session_settings import saying
from tests.spark.sink.topics import make_topic

__all__ = ["our_servers"]

ID = UUID(int=7)
CODEC = "spark.sql.parquet.compression.codec"
OF_SPARK = {"parquet.block.size": "1048576"}
"""A setting of Parquet's own, with which files are Spark's affair."""


def ranged(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=TopicPartition("orders", partition), topic_id=ID, start_offset=start, end_offset=end)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 31, 100])
def test_offsets_are_shared_out_evenly_in_their_order(count: int) -> None:
    ranges = [ranged(0, 5, 25), ranged(0, 25, 30), ranged(1, 0, 1), ranged(2, 7, 12)]
    offsets = [(each.partition, one) for each in ranges for one in range(each.start_offset, each.end_offset)]
    shares = share_out(ranges, count)
    found = [[(each.partition, one) for each in s for one in range(each.start_offset, each.end_offset)] for s in shares]
    assert [one for share in found for one in share] == offsets
    assert len(found) == min(count, len(offsets))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_ranges_that_follow_each_other_are_read_as_one() -> None:
    assert share_out([ranged(0, 0, 10), ranged(0, 10, 20), ranged(0, 30, 40)], 1) == [
        (ranged(0, 0, 20), ranged(0, 30, 40))
    ]
    assert share_out([], 3) == []


def options_of(servers: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}


def how(servers: str, topic: str, codec: str = "snappy") -> TopicFiles:
    given = options_of(servers, topic)
    return TopicFiles(cluster=read_cluster(given), options=read_stream_options(given), codec=codec)


def whole_topic(servers: str, topic: str) -> tuple[OffsetRange, ...]:
    return tuple(each.offset_range for each in BatchReader(options_of(servers, topic)).partitions())


def archive_at(spark: SparkSession, folder: Path, **kept: Any) -> Archive:
    return open_or_create_archive(spark, str(folder), ArchiveDescription(topic="orders", topic_id=str(ID), **kept))


@pytest.mark.parametrize("codec", ["none", "uncompressed", "snappy", "gzip", "zstd", "lz4_raw"])
def test_files_are_like_those_that_spark_writes(
    spark: SparkSession, our_servers: str, tmp_path: Path, codec: str
) -> None:
    topic = filled_topic(our_servers, 60)
    with saying(spark, {CODEC: codec}):
        archive(spark, topic, str(tmp_path / "tasks"), bootstrap_servers=our_servers)
        with saying(spark, OF_SPARK):
            archive(spark, topic, str(tmp_path / "spark"), bootstrap_servers=our_servers)
    (ours,) = (tmp_path / "tasks/data").glob("*/*.parquet")
    (theirs,) = (tmp_path / "spark/data").glob("*/*.parquet")
    made, expected = pq.ParquetFile(ours), pq.ParquetFile(theirs)
    assert made.metadata.created_by.startswith("parquet-cpp")
    assert expected.metadata.created_by.startswith("parquet-mr")
    columns = [
        [(column.path, column.physical_type, str(column.logical_type)) for column in file.schema]
        for file in (made, expected)
    ]
    assert columns[0] == columns[1]
    codecs = [
        {file.metadata.row_group(0).column(i).compression for i in range(len(file.schema))} for file in (made, expected)
    ]
    assert codecs[0] == codecs[1]
    assert ours.name.split(".", 1)[1] == theirs.name.split(".", 1)[1]
    # Found by Spark itself, without a schema: as people read what lies in a folder.
    found, wanted = spark.read.parquet(str(ours)), spark.read.parquet(str(theirs))
    assert [(each.name, each.dataType) for each in found.schema] == [
        (each.name, each.dataType) for each in wanted.schema
    ]
    assert rows_of(found) == rows_of(wanted) == topic_rows(spark, our_servers, topic)


def test_what_is_not_plain_is_left_to_spark(
    spark: SparkSession, our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options_of(our_servers, "orders")
    arguments = read_cluster(given), read_stream_options(given)
    plain = archive_at(spark, tmp_path / "plain")
    assert files_by_tasks(plain, *arguments) is not None
    for number, kept in enumerate(
        ({"mode": "upsert"}, {"decode": "json", "schema": "a INT"}, {"table_format": "delta"})
    ):
        assert files_by_tasks(archive_at(spark, tmp_path / str(number), **kept), *arguments) is None, kept
    others = {
        CODEC: "lz4",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.files.maxRecordsPerFile": "10",
    }
    for name, value in {**OF_SPARK, **others}.items():
        with saying(spark, {name: value}):
            assert files_by_tasks(plain, *arguments) is None, name
    assert files_by_tasks(plain, *arguments) is not None
    # No other file system than the machine's is at hand here.
    monkeypatch.setattr(plain.files, "local_path", lambda _: None)
    assert files_by_tasks(plain, *arguments) is None


def test_a_large_file_has_several_row_groups(
    spark: SparkSession, our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(our_servers)
    produce(our_servers, topic, [b"%d" % number * 100 for number in range(900)])
    monkeypatch.setattr(module, "_ROW_GROUP_BYTES", 1)
    task = FileTask(number=3, folder=str(tmp_path), ranges=whole_topic(our_servers, topic))
    written = write_file(how(our_servers, topic), task)
    assert written is not None
    assert (sum(written.records.values()), set(written.records)) == (900, {0, 1, 2})
    assert (tmp_path / written.name).stat().st_size == written.size
    assert pq.ParquetFile(tmp_path / written.name).num_row_groups == 3
    assert rows_of(spark.read.parquet(str(tmp_path / written.name))) == topic_rows(spark, our_servers, topic)


def test_offsets_without_records_make_no_file(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, folder = make_topic(our_servers), tmp_path / "lake"
    produce(our_servers, topic, [b"never there"] * 9, is_aborted=True)
    told = archive(spark, topic, str(folder), bootstrap_servers=our_servers)
    assert (told.commits, told.records, told.files) == (1, 0, 0)
    assert sum(open_archive(spark, str(folder)).end_offsets().values()) > 9
    assert list((folder / "data").iterdir()) == []


def die_once(how: TopicFiles, task: FileTask) -> WrittenFile | None:
    """Write a file, and be killed before anybody is told of it; the next time, be told of it."""
    written = write_file(how, task)
    died = Path(task.folder).parent.parent / f"died-{task.number}"
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return written


def test_what_a_killed_worker_left_is_not_read_and_goes_away(
    spark: SparkSession, our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does not try again here. What is left of the first run is whole, but nobody was told of it."""
    topic, folder = filled_topic(our_servers, 30), tmp_path / "lake"
    monkeypatch.setattr(module, "write_file", die_once)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        archive(spark, topic, str(folder), bootstrap_servers=our_servers)
    (left,) = (folder / "data").iterdir()
    assert left.name.startswith("_")
    assert len(list(left.iterdir())) == 1
    assert ds.dataset(folder / "data").count_rows() == 0
    assert archive(spark, topic, str(folder), bootstrap_servers=our_servers).records == 30
    assert not left.exists()
    assert ds.dataset(folder / "data").count_rows() == 30
    assert rows_of(open_archive(spark, str(folder)).records()) == topic_rows(spark, our_servers, topic)


def leave_half(how: TopicFiles, task: FileTask) -> WrittenFile | None:
    """Write a file after a task that was lost in the middle of it."""
    Path(task.folder, f"part-{task.number}-lost.parquet").write_bytes(b"half")
    return write_file(how, task)


def test_what_lost_tasks_left_is_deleted(
    spark: SparkSession, our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, opened = filled_topic(our_servers, 30), archive_at(spark, tmp_path)
    monkeypatch.setattr(module, "write_file", leave_half)
    plan = FilesPlan(how=how(our_servers, topic), ranges=whole_topic(our_servers, topic))
    written = write_files(opened, plan, "data/0", 3)
    assert len(written) == 3
    assert {each.name for each in (tmp_path / "data/0").iterdir()} == {each.name for each in written}
    assert write_files(opened, FilesPlan(how=plan.how, ranges=[]), "data/1", 3) == []


def lie(_how: TopicFiles, task: FileTask) -> WrittenFile:
    """Tell of a file that is not there."""
    return WrittenFile(name=f"part-{task.number}.parquet", size=8, records={0: 1})


def lie_about_size(how: TopicFiles, task: FileTask) -> WrittenFile:
    """Tell of a file that is another one."""
    written = write_file(how, task)
    assert written is not None
    return replace(written, size=written.size + 1)


@pytest.mark.parametrize("liar", [lie, lie_about_size])
def test_a_file_that_the_driver_does_not_see_is_an_error(
    spark: SparkSession,
    our_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    liar: Callable[[TopicFiles, FileTask], WrittenFile],
) -> None:
    monkeypatch.setattr(module, "write_file", liar)
    topic, folder = filled_topic(our_servers, 30), tmp_path / "lake"
    with pytest.raises(
        PipelineError, match=r"part-\S+ into \S+, and the driver does not find it there: an archive has"
    ):
        archive(spark, topic, str(folder), bootstrap_servers=our_servers)
    assert open_archive(spark, str(folder)).commits() == []


def test_a_folder_that_can_not_be_made_is_one_sentence(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, folder = filled_topic(our_servers, 3), tmp_path / "lake"
    folder.mkdir()
    (folder / "data").touch()
    with pytest.raises(PipelineError, match=r"lake/data/_\S+ can not be written: Not a directory$"):
        archive(spark, topic, str(folder), bootstrap_servers=our_servers)


@pytest.mark.parametrize("name", ["br{a,b}", "x[1]", "back\\slash", "star*", "q?m", "sp ace%20", "\u4e2d"])
def test_a_folder_may_have_any_name(spark: SparkSession, our_servers: str, tmp_path: Path, name: str) -> None:
    """Spark's readers take some of them for patterns, and `star*` for two archives."""
    topic = filled_topic(our_servers, 20)
    for each in (name, "stars"):
        archive(spark, topic, str(tmp_path / each), bootstrap_servers=our_servers)
    assert rows_of(open_archive(spark, str(tmp_path / name)).records()) == topic_rows(spark, our_servers, topic)


def test_an_archive_goes_on_whoever_wrote_it(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, folder = filled_topic(our_servers, 20), str(tmp_path)
    for number, is_sparks in enumerate((True, False, True)):
        with saying(spark, OF_SPARK if is_sparks else {}):
            archive(spark, topic, folder, bootstrap_servers=our_servers)
        produce(our_servers, topic, [b"more"] * 5, first=20 + 5 * number)
    files = [*tmp_path.glob("data/*/*.parquet")]
    makers = sorted(pq.ParquetFile(each).metadata.created_by.split()[0] for each in files)
    assert makers == ["parquet-cpp-arrow", "parquet-mr", "parquet-mr"]
    archived = rows_of(open_archive(spark, folder).records())
    assert len(archived) == 30
    assert archived.items() <= topic_rows(spark, our_servers, topic).items()


def test_memory_stays_below_a_limit_whatever_the_records_are(
    our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers have room for more than is in them, so that bytes alone do not tell when a row group is large."""
    topic = make_topic(our_servers)
    produce(our_servers, topic, [bytes(500_000)] * 60)
    limit = 8 * 1024 * 1024
    monkeypatch.setattr(module, "_ROW_GROUP_MEMORY", limit)
    most, before = 0, pa.total_allocated_bytes()

    class Watching(pq.ParquetWriter):  # type: ignore[misc]
        def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
            nonlocal most
            most = max(most, pa.total_allocated_bytes() - before)
            super().write_table(table, row_group_size)

    monkeypatch.setattr(pq, "ParquetWriter", Watching)
    task = FileTask(number=0, folder=str(tmp_path), ranges=whole_topic(our_servers, topic))
    written = write_file(how(our_servers, topic), task)
    assert written is not None
    assert sum(written.records.values()) == 60
    assert 0 < most < 4 * limit


def test_a_file_that_can_not_be_written_is_one_sentence(our_servers: str, tmp_path: Path) -> None:
    topic = filled_topic(our_servers, 3)
    task = FileTask(number=0, folder=str(tmp_path / "nowhere"), ranges=whole_topic(our_servers, topic))
    with pytest.raises(PipelineError, match=r"nowhere/part-00000-\S+ can not be written: No such file or directory$"):
        write_file(how(our_servers, topic), task)


def test_a_full_disk_is_one_sentence(our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk can not be filled here without filling it for others, so that syncing fails as it would."""

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    topic = filled_topic(our_servers, 3)
    monkeypatch.setattr(os, "fsync", full)
    task = FileTask(number=0, folder=str(tmp_path), ranges=whole_topic(our_servers, topic))
    with pytest.raises(PipelineError, match=r"can not be written: No space left on device$"):
        write_file(how(our_servers, topic), task)
