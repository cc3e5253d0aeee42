"""Serves `spark.read.format("barnabas-segments")`: the driver plans ranges of bytes, and each task reads its own.

Files are opened by path, on the driver and on every worker: they have to be on a disk that all of them see.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.model import TopicPartition
from barnabas.spark.columns import RowBuilder
from barnabas.spark.errors import PipelineError
from barnabas.spark.segments.log_files import (
    PartitionFiles,
    SegmentFile,
    aborted_in,
    batch_at,
    end_of,
    index_entries,
    last_stable_offset,
    partitions_in,
    place_before,
)
from barnabas.spark.segments.options import ReadOptions, read_read_options
from barnabas.spark.segments.planning import (
    ByteRange,
    OffsetRange,
    bytes_per_task,
    choose,
    cut_positions,
    offset_ranges,
    pack,
)
from barnabas.spark.segments.range_reader import BatchFilter, batches_of
from barnabas.spark.task_memory import spare_imports
from barnabas.storage.files import OsFiles
from barnabas.storage.transaction_index import AbortedTransaction

# So many rows make a RecordBatch, unless their bytes are many before.
ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH = 8 * 1024 * 1024


@dataclass
class SegmentsPartition(InputPartition):
    """What one task reads: ranges of one partition, in order."""

    partition: TopicPartition
    ranges: tuple[ByteRange, ...]
    aborted: tuple[AbortedTransaction, ...] = ()


class SegmentsReader(DataSourceReader):
    """Reads log directories."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = read_read_options(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks, on the driver."""
        return plan(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task."""
        assert isinstance(partition, SegmentsPartition)
        return read_task(partition, self._options)


def plan(options: ReadOptions) -> list[SegmentsPartition]:
    """Look at the directories, and return what each task reads; raises PipelineError."""
    known = partitions_in(options.paths)
    chosen = choose(known, options, INTERNAL_TOPICS)
    bounds = {partition: _bounds(known[partition], options) for partition in chosen}
    ranges = offset_ranges(bounds, options)
    total_bytes = sum(
        segment.size
        for partition, wanted in ranges.items()
        if wanted.start_offset < wanted.end_offset
        for segment in known[partition].segments_from(wanted.start_offset)
        if segment.base_offset < wanted.end_offset
    )
    bytes_max = bytes_per_task(total_bytes, options)
    tasks = []
    for partition, wanted in ranges.items():
        if wanted.start_offset >= wanted.end_offset:
            continue
        files = known[partition]
        aborted: list[AbortedTransaction] = []
        if options.is_committed_only:
            aborted = aborted_in(files, wanted.start_offset, wanted.end_offset)
        for task in pack(_ranges(files, wanted, bytes_max), bytes_max):
            start, end = task[0].start_offset, task[-1].end_offset
            touching = [each for each in aborted if each.last_offset >= start and each.first_offset < end]
            tasks.append(SegmentsPartition(partition, task, tuple(touching)))
    return tasks


def _bounds(files: PartitionFiles, options: ReadOptions) -> OffsetRange:
    end_offset = max(end_of(files), files.log_start_offset)
    if options.is_committed_only:
        end_offset = max(last_stable_offset(files, end_offset), files.log_start_offset)
    return OffsetRange(start_offset=files.log_start_offset, end_offset=end_offset)


def _ranges(files: PartitionFiles, wanted: OffsetRange, bytes_max: int) -> Iterator[ByteRange]:
    segments = files.segments_from(wanted.start_offset)
    for number, segment in enumerate(segments):
        if segment.base_offset >= wanted.end_offset:
            return
        following = segments[number + 1].base_offset if number + 1 < len(segments) else wanted.end_offset
        within = OffsetRange(start_offset=wanted.start_offset, end_offset=min(wanted.end_offset, following))
        yield from _segment_ranges(segment, within, bytes_max)


def _segment_ranges(segment: SegmentFile, wanted: OffsetRange, bytes_max: int) -> Iterator[ByteRange]:
    try:
        file = OsFiles().open(segment.path)
    except OSError as error:
        raise PipelineError(f"{segment.path} can not be read: {error.strerror}") from None
    start = 0 if wanted.start_offset <= segment.base_offset else place_before(segment, file, wanted.start_offset)
    entries = {entry.position: entry for entry in index_entries(segment) if entry.position > start}
    places = [start]
    end = segment.size
    for cut in cut_positions(sorted(entries), start, segment.size, bytes_max):
        base_offset = batch_at(file, entries[cut])
        if base_offset is None:
            continue  # The index is damaged, or of another time than the log in a copy: then there are fewer cuts.
        if base_offset >= wanted.end_offset:
            end = cut
            break
        places.append(cut)
    for start_position, end_position in pairwise([*places, end]):
        yield ByteRange(
            path=segment.path,
            start_position=start_position,
            end_position=end_position,
            start_offset=wanted.start_offset,
            end_offset=wanted.end_offset,
        )


def read_task(task: SegmentsPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task; raises PipelineError for what is damaged, DataLossError for what is gone."""
    spare_imports()
    builder = RowBuilder(task.partition, include_headers=options.include_headers)
    chosen = BatchFilter(task.aborted if options.is_committed_only else ())
    for each in task.ranges:
        for batch in batches_of(each, chosen, options):
            builder.add(batch, each.start_offset, each.end_offset)
            if builder.rows >= ROWS_PER_BATCH or builder.bytes >= BYTES_PER_BATCH:
                yield builder.take()
    if builder.rows:
        yield builder.take()
