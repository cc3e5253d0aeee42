"""The files of an archive, made by the tasks that read its topic: columns stay columns on the way to Parquet.

Spark's JVM would make rows of the columns that tasks give it, and columns of the rows when it writes them, which takes
most of the time of an archive. Here no row passes through it:

    driver   share_out    offset ranges of a batch  ->  the ranges of each file
    task     write_file   ranges  ->  RecordBatches of `source.range_rows`  ->  row groups of a file

Rule 1: this is for archives on a disk that every task sees, with values as they are. All else is left to Spark, and so
is a session that says more about Parquet than how to compress it, such as how to encrypt it.
Rule 2: only files that a task has told of belong to a commit, and the driver sees each of them. What was left by tasks
that were lost, or ran twice, is deleted.
Rule 3: a file is on the disk before it is told of.
"""

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.decoding import NONE
from barnabas.spark.archives.manifest import APPEND, DATA, PARQUET
from barnabas.spark.connecting import Cluster
from barnabas.spark.errors import PipelineError
from barnabas.spark.schema import arrow_schema
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.range_partition import RangePartition
from barnabas.spark.source.range_rows import read_rows

_CODEC_SETTING = "spark.sql.parquet.compression.codec"
# By Spark's names: what Arrow calls them, and how Spark ends the names of such files.
_CODECS = {
    "none": ("none", ""),
    "uncompressed": ("none", ""),
    "snappy": ("snappy", ".snappy"),
    "gzip": ("gzip", ".gz"),
    "zstd": ("zstd", ".zstd"),
    "lz4_raw": ("lz4", ".lz4raw"),
}
# What may repeat in a file. To look for that in values and offsets takes as long as to write them, and finds nothing.
_REPEATING = ["key", "topic", "partition", "timestamp", "timestampType", "headers.list.element.key"]
# A row group is in memory as it was read and, column by column, as it is written.
_ROW_GROUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFiles:
    """How tasks read the topic, and how they compress files; it travels to every task."""

    cluster: Cluster
    options: SourceOptions
    codec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPlan:
    """What the files of one batch are made of."""

    how: TopicFiles
    ranges: Sequence[OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """One file: where it goes, and what is in it."""

    number: int
    folder: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that is there, and how many records it has of each partition."""

    name: str
    size: int
    records: Mapping[int, int]


def topic_files(archive: Archive, cluster: Cluster, options: SourceOptions) -> TopicFiles | None:
    """Return how tasks write the files of an archive themselves; None where Spark has to."""
    kept = archive.description
    if (kept.mode, kept.table_format, kept.decode) != (APPEND, PARQUET, NONE) or archive.files.local_path(DATA) is None:
        return None
    session: Any = archive.spark._jsparkSession
    configuration = session.sessionState().newHadoopConf()
    codec = str(archive.spark.conf.get(_CODEC_SETTING)).lower()
    if codec not in _CODECS or not configuration.getPropsWithPrefix("parquet.").isEmpty():
        return None
    return TopicFiles(cluster=cluster, options=options, codec=codec)


def share_out(ranges: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Divide ranges into so many parts with about the same number of offsets, in their order; none is empty."""
    total = sum(each.size for each in ranges)
    shares: list[list[OffsetRange]] = [[] for _ in range(count)]
    done = 0
    for each in ranges:
        start = each.start_offset
        while start < each.end_offset:
            number = done * count // total
            # The share ends before the first offset that is one of the next.
            room = -(-(number + 1) * total // count) - done
            end = min(each.end_offset, start + room)
            _add(shares[number], replace(each, start_offset=start, end_offset=end))
            done += end - start
            start = end
    return [tuple(share) for share in shares if share]


def _add(share: list[OffsetRange], part: OffsetRange) -> None:
    """Add a part to a share, as one with that before it where they follow each other."""
    before = share[-1] if share else None
    if before is not None and (before.partition, before.end_offset) == (part.partition, part.start_offset):
        share[-1] = replace(before, end_offset=part.end_offset)
    else:
        share.append(part)


def write_files(archive: Archive, plan: FilesPlan, folder: str, count: int) -> list[WrittenFile]:
    """Write about so many files, those without a record left out, into a folder that is not there yet.

    Raises:
        PipelineError: A task can not read or write, or has written where the driver does not see it.
        DataLossError: Records are gone.
    """
    path = archive.files.local_path(folder)
    assert path is not None, "topic_files looks at that"
    os.makedirs(path)
    shares = share_out(plan.ranges, count)
    tasks = [FileTask(number=number, folder=path, ranges=share) for number, share in enumerate(shares)]
    told = archive.spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(write_file, plan.how)).collect()
    written = [each for each in told if each is not None]
    _settle(archive, folder, written)
    return written


def _settle(archive: Archive, folder: str, written: Sequence[WrittenFile]) -> None:
    """See that the files are there as tasks have told, and nothing else."""
    there = archive.files.sizes(folder)
    for each in written:
        if there.pop(f"{folder}/{each.name}", None) != each.size:
            raise PipelineError(
                f"a task has written {archive.files.path(folder)}/{each.name}, and it is not there for the driver: an "
                "archive has to be on a disk that all of Spark's workers share"
            )
    for name in there:
        archive.files.delete(name)
    if not written:
        archive.files.delete(folder)


def write_file(how: TopicFiles, task: FileTask) -> WrittenFile | None:
    """Write the records of some ranges into a file, in a task; return None where there are none."""
    records: Counter[int] = Counter()
    groups = _row_groups(_batches(how, task.ranges, records))
    first = next(groups, None)
    if first is None:
        return None
    arrow_codec, ending = _CODECS[how.codec]
    # A task that runs again must not meet the file of the first one.
    name = f"part-{task.number:05d}-{uuid.uuid4()}{ending}.parquet"
    path = os.path.join(task.folder, name)
    try:
        with open(path, "xb") as file:
            writer = pq.ParquetWriter(
                file,
                arrow_schema(include_headers=True),
                compression=arrow_codec,
                use_dictionary=_REPEATING,
                store_schema=False,
            )
            with writer:
                writer.write_table(first)
                for group in groups:
                    writer.write_table(group)
            file.flush()
            os.fsync(file.fileno())
            return WrittenFile(name=name, size=file.tell(), records=dict(records))
    except OSError as error:
        raise PipelineError(f"{path} can not be written: {error.strerror or error}") from None


def _batches(how: TopicFiles, ranges: Sequence[OffsetRange], records: Counter[int]) -> Iterator[pa.RecordBatch]:
    for each in ranges:
        for batch in read_rows(how.cluster, how.options, RangePartition(each)):
            records[each.partition.partition] += batch.num_rows
            yield batch


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
