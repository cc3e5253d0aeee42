"""Serves `df.write.format("barnabas-segments")`: bulk load. Tasks write sealed segments, and a broker adopts them.

    driver   finds the folders of the topic's partitions
    task     writes segments into a folder of the load inside each partition's folder, under names of its attempt
    driver   commit: writes a manifest for each partition with the segments of the attempts that succeeded, and asks the
             broker to adopt; or starts one on the directories, where none is running
             abort: removes the folders of the load

Rule 1: only what is in a manifest is adopted, so that attempts that failed or ran twice leave no record behind.
Rule 2: offsets are in the order of Spark's partitions, and of the rows in them.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.spark.columns import BatchEncoder, rows_by_partition
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.segments.adopting import LoadTarget, adopt, find_target
from barnabas.spark.segments.options import WriteOptions, read_write_options
from barnabas.spark.segments.sealed_segment import SealedSegment
from barnabas.spark.sink.partitioning import partitions_of_rows
from barnabas.spark.sink.schema import check_schema
from barnabas.storage.files import OsFiles
from barnabas.storage.staged_load import (
    LoadError,
    StagedPartition,
    StagedSegment,
    check_load_id,
    staging_folder,
    write_manifest,
)

# Rows wait until there are so many bytes of them, so that every partition gets a large batch.
GATHERED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class SegmentsWritten(WriterCommitMessage):
    """What one task wrote, by partition, in order."""

    task: int
    segments: tuple[tuple[int, StagedSegment], ...]


class SegmentsWriter(DataSourceArrowWriter):
    """Loads rows into one topic."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = read_write_options(options)
        if overwrite:
            raise PipelineError("a load appends to its topic: mode 'append' is needed, not 'overwrite'")
        check_schema(schema, self._options.topic)
        self._load_id = self._options.load_id or uuid4().hex
        try:
            check_load_id(self._load_id)
        except LoadError as error:
            raise OptionError("loadId", f"can not be used: {error}") from None
        self._target = find_target(self._options, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SegmentsWritten:
        """Write the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        with _TaskFiles(self._options, self._target, self._load_id, task, context.taskAttemptId()) as files:
            for rows in _gathered(iterator):
                files.add(rows)
            return SegmentsWritten(task, files.close())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Let the broker adopt what the tasks wrote."""
        by_partition: dict[int, list[StagedSegment]] = {}
        written = [message for message in messages if isinstance(message, SegmentsWritten)]
        for message in sorted(written, key=lambda message: message.task):
            for partition, segment in message.segments:
                by_partition.setdefault(partition, []).append(segment)
        for partition, segments in by_partition.items():
            staged = StagedPartition(
                load_id=self._load_id,
                partition=TopicPartition(self._target.topic, partition),
                directory=self._target.folders[partition],
                segments=tuple(segments),
            )
            try:
                write_manifest(OsFiles(), staged)
            except OSError as error:
                raise PipelineError(f"{error.filename} can not be written: {error.strerror}") from None
        if by_partition:
            adopt(self._target, self._options, self._load_id, sorted(by_partition))
        self._remove()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote."""
        self._remove()

    def _remove(self) -> None:
        for folder in self._target.folders:
            shutil.rmtree(staging_folder(folder, self._load_id), ignore_errors=True)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger pieces."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for rows in batches:
        if rows.num_rows:
            waiting.append(rows)
            size += rows.nbytes
        if size >= GATHERED_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
    return rows.rename_columns([name.lower() for name in rows.schema.names])


class _TaskFiles(contextlib.AbstractContextManager["_TaskFiles"]):
    """The segments that one attempt of a task writes; what is not closed is removed."""

    def __init__(self, options: WriteOptions, target: LoadTarget, load_id: str, task: int, attempt: int) -> None:
        self._options = options
        self._target = target
        self._load_id = load_id
        self._names = f"{task:06d}-{attempt}"
        self._encoder = BatchEncoder(codec=options.codec, batch_size=options.batch_bytes)
        self._turn = task
        self._clock = SystemClock()
        self._open: dict[int, SealedSegment] = {}
        self._finished: list[tuple[int, StagedSegment]] = []
        self._numbers = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows to their partitions."""
        now_ms = self._clock.now_ms()
        for partition, indexes in self._split(rows):
            for batch in self._encoder.batches(rows, indexes, now_ms):
                self._check_size(batch)
                self._segment(partition, batch).append(batch)

    def _split(self, rows: pa.RecordBatch) -> Sequence[tuple[int, pa.Int32Array | None]]:
        """Return the partitions with the indexes of their rows; None is all of them."""
        count = len(self._target.folders)
        if count == 1 and "partition" not in rows.schema.names:
            return [(0, None)]
        self._turn += 1
        partitions = partitions_of_rows(
            rows, self._target.topic, count, first_partition=self._turn % count, rows_together=rows.num_rows
        )
        return rows_by_partition(partitions, count)

    def _check_size(self, batch: bytearray) -> None:
        if len(batch) > self._target.max_message_bytes:
            raise PipelineError(
                f"a batch has {len(batch)} bytes, but max.message.bytes of topic {self._target.topic} is "
                f"{self._target.max_message_bytes}: option 'batchBytes' makes batches smaller"
            )

    def _segment(self, partition: int, batch: bytearray) -> SealedSegment:
        found = self._open.get(partition)
        if found is not None and not found.has_room(batch, self._options.segment_bytes):
            self._finished.append((partition, found.close()))
            found = None
        if found is None:
            folder = staging_folder(self._target.folders[partition], self._load_id)
            try:
                os.makedirs(folder, exist_ok=True)
                found = SealedSegment(folder, f"{self._names}-{self._numbers}")
            except OSError as error:
                raise PipelineError(f"{folder} can not be written to: {error.strerror}") from None
            self._numbers += 1
            self._open[partition] = found
        return found

    def close(self) -> tuple[tuple[int, StagedSegment], ...]:
        """Finish all segments, and return them in order."""
        for partition in sorted(self._open):
            self._finished.append((partition, self._open[partition].close()))
            del self._open[partition]
        return tuple(self._finished)

    def __exit__(self, *_: object) -> None:
        for segment in self._open.values():
            segment.abandon()
