"""The files of an archive, made by the tasks that read its topic: columns stay columns on the way to Parquet.

Spark's JVM would make rows of the columns that tasks give it, and columns of the rows when it writes them, which takes
most of the time of an archive. Here no row passes through it:

    driver   share_out    offset ranges of a batch  ->  the ranges of each file
    task     write_file   ranges  ->  RecordBatches of `source.range_rows`  ->  row groups of a file

Rule 1: this is for archives on a disk that every task sees, with values as they are. All else is left to Spark, and so
is a session that says more about files than how to compress them, such as how to encrypt them.
Rule 2: tasks write into a folder whose name readers pass over, and it gets its own name when all are done. Only files
that a task has told of are in a commit, and the driver sees each of them; what lost tasks have left is deleted.
Rule 3: files and their names are on the disk before a commit names them.
"""

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from barnabas.storage.files import OsFiles

_CODEC = "spark.sql.parquet.compression.codec"
# By Spark's names: what Arrow calls them, and how Spark ends the names of such files.
_CODECS = {
    "none": ("none", ""),
    "uncompressed": ("none", ""),
    "snappy": ("snappy", ".snappy"),
    "gzip": ("gzip", ".gz"),
    "zstd": ("zstd", ".zstd"),
    "lz4_raw": ("lz4", ".lz4raw"),
}
# What a session may say of files besides, and what it says where it says nothing.
_UNSAID = {"spark.sql.parquet.writeLegacyFormat": "false", "spark.sql.files.maxRecordsPerFile": "0"}
# Everything but offsets may repeat in a file.
_DICTIONARIES = [
    *("key", "value", "topic", "partition", "timestamp", "timestampType"),
    *("headers.list.element.key", "headers.list.element.value"),
]
# A row group is collected before it is written, of about so many bytes. Batches take more memory than they have bytes,
# many times more where values are large: their buffers have room for what might have come.
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_ROW_GROUP_MEMORY = 128 * 1024 * 1024
# Readers take what is in a folder with such a name for somebody's who is not done.
_UNFINISHED = "_"


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


def files_by_tasks(archive: Archive, cluster: Cluster, options: SourceOptions) -> TopicFiles | None:
    """Return how tasks write the files of an archive themselves; None where Spark has to."""
    kept = archive.description
    if (kept.mode, kept.table_format, kept.decode) != (APPEND, PARQUET, NONE) or archive.files.local_path(DATA) is None:
        return None
    session: Any = archive.spark._jsparkSession
    configuration = session.sessionState().newHadoopConf()
    settings = archive.spark.conf
    codec = str(settings.get(_CODEC)).lower()
    says_more = any(str(settings.get(name)).lower() != unsaid for name, unsaid in _UNSAID.items())
    if codec not in _CODECS or says_more or not configuration.getPropsWithPrefix("parquet.").isEmpty():
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
    shares = share_out(plan.ranges, count)
    if not shares:
        return []
    path = archive.files.local_path(folder)
    assert path is not None, "files_by_tasks looks at that"
    parent, name = os.path.split(path)
    unfinished = os.path.join(parent, f"{_UNFINISHED}{name}")
    with _plain_error(unfinished):
        os.makedirs(unfinished)
    tasks = [FileTask(number=number, folder=unfinished, ranges=share) for number, share in enumerate(shares)]
    told = archive.spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(write_file, plan.how)).collect()
    written = [each for each in told if each is not None]
    with _plain_error(path):
        # From here on a task that was thought dead finds no folder to write into.
        os.rename(unfinished, path)
        _settle(path, written)
        OsFiles().sync_directory(parent)
    return written


def _settle(path: str, written: Sequence[WrittenFile]) -> None:
    """See that the files are there as tasks have told, and nothing else."""
    there = {entry.name: entry.stat().st_size for entry in os.scandir(path)}
    for each in written:
        if there.pop(each.name, None) != each.size:
            raise PipelineError(
                f"a task has written {each.name} into {path}, and the driver does not find it there: an archive has to "
                "be on a disk that all of Spark's workers share"
            )
    for name in there:
        os.unlink(os.path.join(path, name))
    if written:
        OsFiles().sync_directory(path)
    else:
        os.rmdir(path)


@contextmanager
def _plain_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{path} can not be written: {error.strerror or error}") from None


def write_file(how: TopicFiles, task: FileTask) -> WrittenFile | None:
    """Write the records of some ranges into a file, in a task; return None where there are none."""
    arrow_codec, ending = _CODECS[how.codec]
    # A task that runs again must not meet the file of the first one.
    name = f"part-{task.number:05d}-{uuid.uuid4()}{ending}.parquet"
    path = os.path.join(task.folder, name)
    records: Counter[int] = Counter()
    with _plain_error(path):
        with open(path, "xb") as file:
            writer = pq.ParquetWriter(
                file,
                arrow_schema(include_headers=True),
                compression=arrow_codec,
                use_dictionary=_DICTIONARIES,
                write_page_index=True,
                store_schema=False,
            )
            with writer:
                _write_row_groups(writer, _batches(how, task.ranges, records))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if not records:
            os.unlink(path)
            return None
    return WrittenFile(name=name, size=size, records=dict(records))


def _batches(how: TopicFiles, ranges: Sequence[OffsetRange], records: Counter[int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ranges, and count them by partition."""
    for each in ranges:
        for batch in read_rows(how.cluster, how.options, RangePartition(each)):
            records[each.partition.partition] += batch.num_rows
            yield batch


def _write_row_groups(writer: pq.ParquetWriter, batches: Iterator[pa.RecordBatch]) -> None:
    waiting: list[pa.RecordBatch] = []
    size, others = 0, pa.total_allocated_bytes()
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES or pa.total_allocated_bytes() - others >= _ROW_GROUP_MEMORY:
            writer.write_table(pa.Table.from_batches(waiting))
            # Nothing may hold them any longer: the next row group needs the room.
            waiting.clear()
            size = 0
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting))
