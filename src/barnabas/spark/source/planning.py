"""From offset ranges to the work of tasks, and how much a batch of a stream takes: arithmetic, with no cluster in it.

    ranges of partitions  --split_ranges-->  ranges of tasks
    what there is  --limit_offsets, is_worth_a_batch-->  what the next batch has

The rules are those of Spark's own source, with one more: a range of many bytes is split too.
Rule 1: tasks of one partition are in the order of its offsets, without overlap and without a gap.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from barnabas.model import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """What one task reads of a partition: start_offset <= offset < end_offset. The id is that of the topic."""

    partition: TopicPartition
    topic_id: UUID
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """How many offsets there are in it; some of them may have no record."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """How work is divided. A limit that is None, or 0 for bytes, is none."""

    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = 0


def split_ranges(
    ranges: Sequence[OffsetRange], rules: SplitRules, bytes_per_offset: Mapping[TopicPartition, float]
) -> list[OffsetRange]:
    """Return the ranges of tasks; empty ranges have none.

    Args:
        ranges: One for each partition.
        rules: How to divide.
        bytes_per_offset: An estimate for partitions where there is one; others are not split by bytes.
    """
    wanted = [each for each in ranges if each.size > 0]
    parts = [_parts(each, rules, bytes_per_offset.get(each.partition, 0.0)) for each in wanted]
    if rules.min_partitions is not None and rules.min_partitions > sum(parts):
        parts = [max(pair) for pair in zip(parts, _shares(wanted, rules.min_partitions), strict=True)]
    return [part for each, count in zip(wanted, parts, strict=True) for part in divide(each, count)]


def _parts(given: OffsetRange, rules: SplitRules, bytes_per_offset: float) -> int:
    parts = 1
    if rules.max_records_per_partition is not None:
        parts = math.ceil(given.size / rules.max_records_per_partition)
    if rules.max_bytes_per_partition:
        parts = max(parts, math.ceil(given.size * bytes_per_offset / rules.max_bytes_per_partition))
    return parts


def _shares(ranges: Sequence[OffsetRange], count: int) -> list[int]:
    """Share so many parts out: ranges too small for two get one, and the others what is left, by their sizes."""
    total = sum(each.size for each in ranges)
    is_small = [_round(each.size / total * count) <= 1 for each in ranges]
    left = max(count - sum(is_small), 1)
    large_total = sum(each.size for each, small in zip(ranges, is_small, strict=True) if not small)
    return [
        1 if small else max(_round(each.size / large_total * left), 1)
        for each, small in zip(ranges, is_small, strict=True)
    ]


def _round(number: float) -> int:
    """Round as Java does: a half goes up."""
    return math.floor(number + 0.5)


def divide(given: OffsetRange, parts: int) -> list[OffsetRange]:
    """Divide a range into parts whose sizes differ by one at most; a range has no more parts than offsets."""
    parts = max(1, min(parts, given.size))
    size, more = divmod(given.size, parts)
    divided = []
    start = given.start_offset
    for index in range(parts):
        # The larger parts come last.
        end = start + size + (1 if index >= parts - more else 0)
        divided.append(replace(given, start_offset=start, end_offset=end))
        start = end
    return divided


def limit_offsets(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the end of a batch of about `limit` offsets, shared among the partitions by what each has.

    A small partition is never left out: it gets one offset at least, so a batch may have a few more than asked for.
    """
    sizes = {partition: end - start.get(partition, 0) for partition, end in latest.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(latest)
    ends = {}
    for partition, end in latest.items():
        size = sizes[partition]
        if size <= 0:
            ends[partition] = end
            continue
        share = max(limit * size // total, 1)
        ends[partition] = min(end, start.get(partition, 0) + share)
    return ends


def is_worth_a_batch(start: Offsets, latest: Offsets, least: int, waited_ms: float, max_delay_ms: int) -> bool:
    """Tell whether there are `least` new offsets, or it has been waited for them long enough."""
    if waited_ms >= max_delay_ms:
        return True
    return sum(max(0, end - start.get(partition, 0)) for partition, end in latest.items()) >= least


def missing_and_unwanted(
    named: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return which partitions are not named though they are there, and which are named though they are not."""
    return sorted(set(partitions) - set(named)), sorted(set(named) - set(partitions))
