"""Which task reads which bytes of which segments: pure functions from what lies on the disk to ranges.

    segment   |batch|batch|batch|batch|batch|batch|batch|
    index           ^           ^           ^               places at which a batch starts
    ranges    [                 )[                       )  cut at the first such place after every `bytes_max`

Rule 1: the ranges of a segment follow each other without a gap, so that every batch is in just one of them. A task
makes sure that the batches end where its range ends.
Rule 2: small ranges that follow each other in a partition are one task together.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError, PipelineError
from barnabas.spark.segments.options import ReadOptions
from barnabas.spark.source.offset_limits import Named, SpecificOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """What is read of a partition: from an offset up to, and without, another."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """What is read of a segment: whole batches from a position up to another, and of their records those in a range."""

    path: str
    start_position: int
    end_position: int
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """How many bytes are read."""
        return self.end_position - self.start_position


def cut_positions(positions: Sequence[int], start: int, end: int, bytes_max: int) -> list[int]:
    """Return where to cut the bytes from `start` to `end`, at some of the positions, in pieces of about `bytes_max`."""
    cuts: list[int] = []
    piece_start = start
    while end - piece_start > bytes_max:
        slot = bisect_left(positions, piece_start + bytes_max)
        if slot == len(positions) or positions[slot] >= end:
            break
        piece_start = positions[slot]
        cuts.append(piece_start)
    return cuts


class Sized(Protocol):
    """Something to read that has so many bytes."""

    @property
    def size(self) -> int:
        """How many bytes are read."""
        ...


Piece = TypeVar("Piece", bound=Sized)


def pack(ranges: Iterable[Piece], bytes_max: int) -> list[tuple[Piece, ...]]:
    """Return what follows each other as tasks, each with about `bytes_max`."""
    tasks: list[tuple[Piece, ...]] = []
    waiting: list[Piece] = []
    size = 0
    for each in ranges:
        if waiting and size + each.size > bytes_max:
            tasks.append(tuple(waiting))
            waiting, size = [], 0
        waiting.append(each)
        size += each.size
    return [*tasks, tuple(waiting)] if waiting else tasks


def bytes_per_task(total_bytes: int, options: ReadOptions) -> int:
    """Return about how much a task reads: no more than is allowed, and so little that there are enough tasks."""
    return max(1, min(options.max_bytes_per_partition, -(-total_bytes // options.min_partitions)))


def choose(known: Iterable[TopicPartition], options: ReadOptions, internal: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that a query is about, in order; raises PipelineError when it names one that is not there.

    Args:
        known: What is there.
        options: What is asked for.
        internal: The topics that are read only where they are named.
    """
    partitions = sorted(known)
    topics = {partition.topic for partition in partitions}
    where = ", ".join(options.paths)
    if options.partitions:
        for partition in options.partitions:
            if partition not in partitions:
                raise PipelineError(f"option 'assign' names {partition}, which is not in {where}")
        return list(options.partitions)
    if options.topics:
        for topic in options.topics:
            if topic not in topics:
                raise PipelineError(f"option 'subscribe' names topic {topic!r}, which is not in {where}")
        chosen = set(options.topics)
    elif options.pattern:
        chosen = {topic for topic in topics if re.fullmatch(options.pattern, topic)}
    else:
        chosen = topics - set(internal)
    return [partition for partition in partitions if partition.topic in chosen]


def offset_ranges(
    bounds: Mapping[TopicPartition, OffsetRange], options: ReadOptions
) -> dict[TopicPartition, OffsetRange]:
    """Return what is read of each partition; raises OptionError, or DataLossError for offsets that are not there.

    Args:
        bounds: Where each log starts and ends.
        options: What is asked for.
    """
    for limit in (options.start, options.end):
        _check_names(limit, bounds)
    ranges = {}
    for partition, bound in bounds.items():
        start = _offset(options.start, partition, bound)
        end = _offset(options.end, partition, bound)
        if start > end:
            raise OptionError("startingOffsets", f"is {start} for {partition}, which is after its end at {end}")
        for offset in (start, end):
            if not bound.start_offset <= offset <= bound.end_offset and options.fail_on_data_loss:
                there = f"{bound.start_offset} to {bound.end_offset}"
                raise DataLossError(
                    f"{partition} has offsets from {there}, but {offset} is asked for; "
                    "with option 'failOnDataLoss' false, what there is would be read"
                )
        start = min(max(start, bound.start_offset), bound.end_offset)
        ranges[partition] = OffsetRange(start_offset=start, end_offset=max(start, min(end, bound.end_offset)))
    return ranges


def _check_names(limit: Named | SpecificOffsets, bounds: Mapping[TopicPartition, OffsetRange]) -> None:
    if isinstance(limit, SpecificOffsets):
        for partition in bounds.keys() - limit.offsets.keys():
            raise OptionError(limit.option, f"has no offset for {partition}, which is read too")
        for partition in limit.offsets.keys() - bounds.keys():
            raise OptionError(limit.option, f"has an offset for {partition}, which is not read")


def _offset(limit: Named | SpecificOffsets, partition: TopicPartition, bound: OffsetRange) -> int:
    if isinstance(limit, Named):
        return bound.start_offset if limit is Named.EARLIEST else bound.end_offset
    offset = limit.offsets[partition]
    return {EARLIEST: bound.start_offset, LATEST: bound.end_offset}.get(offset, offset)
