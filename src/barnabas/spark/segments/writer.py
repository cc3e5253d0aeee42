"""Serves `df.write.format("barnabas-segments")`: bulk load. Tasks write sealed segments, and a broker adopts them.

    driver   finds the folders of the topic's partitions, and makes the folders of the load in them
    task     writes segments into the folder of the load inside each partition's folder, under names of its attempt
    driver   commit: writes a manifest for each partition with the segments of the attempts that succeeded, and asks the
             broker to adopt; or starts one on the directories, where none is running
             abort: removes the folders of the load

Rule 1: only what is in a manifest is adopted, so that attempts that failed or ran twice leave no record behind.
Rule 2: offsets are in the order of Spark's partitions, and of the rows in them.
Rule 3: a task makes no folder, so that one which goes on after its load was given up leaves nothing behind.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.records.columns import RowColumns
from barnabas.spark.columns import OpenBatch, chosen_rows, row_columns, rows_by_partition
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.segments.adopting import LoadTarget, adopt, find_target
from barnabas.spark.segments.options import WriteOptions, read_write_options
from barnabas.spark.segments.sealed_segment import SealedSegment
from barnabas.spark.sink.partitioning import partitions_of_rows
from barnabas.spark.sink.schema import check_schema
from barnabas.spark.task_memory import spare_imports
from barnabas.storage.files import OsFiles
from barnabas.storage.staged_load import (
    LoadError,
    StagedPartition,
    StagedSegment,
    check_load_id,
    staging_folder,
    write_manifest,
)

# Batches stay open, so that every partition gets large ones, until they take so much memory together.
OPEN_BYTES_MAX = 32 * 1024 * 1024
# No load has such a name.
LEAVING_SUFFIX = "~"
# Syncs wait for the disk, and those of several files together take hardly longer than that of one.
SYNCS_AT_ONCE = 4


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
        for folder in map(self._staging, self._target.folders):
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                self._remove()
                raise PipelineError(f"{folder} can not be written to: {error.strerror}") from None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SegmentsWritten:
        """Write the rows of one task."""
        spare_imports()
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        with _TaskFiles(self._options, self._target, self._load_id, task, context.taskAttemptId()) as files:
            for rows in iterator:
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

    def _staging(self, folder: str) -> str:
        return staging_folder(folder, self._load_id)

    def _remove(self) -> None:
        for folder in map(self._staging, self._target.folders):
            # Under another name first: a task that still runs can not put a file into it meanwhile.
            leaving = folder + LEAVING_SUFFIX
            shutil.rmtree(leaving, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rename(folder, leaving)
            shutil.rmtree(leaving, ignore_errors=True)


class _TaskFiles(contextlib.AbstractContextManager["_TaskFiles"]):
    """The segments that one attempt of a task writes; what is not closed is removed."""

    def __init__(self, options: WriteOptions, target: LoadTarget, load_id: str, task: int, attempt: int) -> None:
        self._options = options
        self._target = target
        self._load_id = load_id
        self._names = f"{task:06d}-{attempt}"
        self._turn = task
        self._clock = SystemClock()
        self._batches: dict[int, OpenBatch] = {}
        self._open: dict[int, SealedSegment] = {}
        self._closed: list[tuple[int, Future[StagedSegment]]] = []
        self._syncs = ThreadPoolExecutor(SYNCS_AT_ONCE)
        self._numbers = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows to their partitions."""
        if rows.num_rows == 0:
            return
        rows = rows.rename_columns([name.lower() for name in rows.schema.names])
        columns = row_columns(rows, self._clock.now_ms())
        for partition, indexes in self._split(rows):
            self._add(partition, columns, chosen_rows(rows, indexes))
        if sum(batch.touched for batch in self._batches.values()) >= OPEN_BYTES_MAX:
            self._write_open()

    def _add(self, partition: int, columns: RowColumns, chosen: memoryview) -> None:
        batch = self._batches.get(partition)
        if batch is None:
            batch = OpenBatch(codec=self._options.codec, batch_size=self._options.batch_bytes)
            self._batches[partition] = batch
        first = batch.add(columns, chosen, 0)
        while first < len(chosen):
            self._write(partition, batch)
            first = batch.add(columns, chosen, first)

    def _write_open(self) -> None:
        """Write the batches that are not full, and give their memory back."""
        for partition in sorted(self._batches):
            batch = self._batches.pop(partition)
            if not batch.is_empty:
                self._write(partition, batch)

    def _write(self, partition: int, batch: OpenBatch) -> None:
        sealed = batch.seal()
        self._check_size(sealed)
        self._segment(partition, sealed).append(sealed)

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

    def _check_size(self, batch: memoryview) -> None:
        if len(batch) > self._target.max_message_bytes:
            raise PipelineError(
                f"a batch has {len(batch)} bytes, but max.message.bytes of topic {self._target.topic} is "
                f"{self._target.max_message_bytes}: option 'batchBytes' makes batches smaller"
            )

    def _segment(self, partition: int, batch: memoryview) -> SealedSegment:
        found = self._open.get(partition)
        if found is not None and not found.has_room(batch, self._options.segment_bytes):
            self._close(partition)
            found = None
        if found is None:
            folder = staging_folder(self._target.folders[partition], self._load_id)
            try:
                found = SealedSegment(folder, f"{self._names}-{self._numbers}", self._syncs)
            except OSError as error:
                raise PipelineError(f"{folder} can not be written to: {error.strerror}") from None
            self._numbers += 1
            self._open[partition] = found
        return found

    def _close(self, partition: int) -> None:
        """Finish a segment on a thread, while rows are encoded or others are finished."""
        self._closed.append((partition, self._syncs.submit(self._open.pop(partition).close)))

    def close(self) -> tuple[tuple[int, StagedSegment], ...]:
        """Finish all segments, and return them in order."""
        self._write_open()
        for partition in sorted(self._open):
            self._close(partition)
        return tuple((partition, closing.result()) for partition, closing in self._closed)

    def __exit__(self, *_: object) -> None:
        self._syncs.shutdown()
        for segment in self._open.values():
            segment.abandon()
