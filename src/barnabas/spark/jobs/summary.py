"""What a profile knows of records: figures of each partition, and sketches of sizes, times and keys.

A task of Spark feeds its records, batch by batch, into a Summary of its own; these are merged into one, which is small
whatever the topic's size is. Only sizes, hashes and the beginnings of keys come here, and no values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy
import pyarrow as pa

from barnabas.spark.jobs.sketches import DistinctKeys, Numbers, SizeHistogram, TimeBuckets, TopKeys

KEY_HEAD_BYTES = 64


@dataclass(slots=True)
class Run:
    """Records of a partition that one task has read one after the other: the first and the last of them."""

    first_offset: int
    first_timestamp_ms: int
    last_offset: int
    last_timestamp_ms: int


@dataclass(slots=True)
class PartitionSummary:
    """The figures of one partition."""

    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    without_key: int = 0
    tombstones: int = 0
    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0
    # Records with a timestamp before that of their predecessor, as far as both are in the same run.
    out_of_order: int = 0
    runs: list[Run] = field(default_factory=list)

    def merge(self, other: PartitionSummary) -> None:
        """Add the figures of other records."""
        if not other.records:
            return
        is_first = not self.records
        first, last = other.first_timestamp_ms, other.last_timestamp_ms
        self.first_timestamp_ms = first if is_first else min(self.first_timestamp_ms, first)
        self.last_timestamp_ms = last if is_first else max(self.last_timestamp_ms, last)
        for name in ("records", "key_bytes", "value_bytes", "header_bytes", "without_key", "tombstones"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.out_of_order += other.out_of_order
        self.runs += other.runs

    def join_runs(self) -> None:
        """Make one run of all of them, and count what is out of order from one to the next."""
        self.runs.sort(key=lambda run: run.first_offset)
        while len(self.runs) > 1:
            second = self.runs.pop(1)
            self.out_of_order += second.first_timestamp_ms < self.runs[0].last_timestamp_ms
            self.runs[0].last_offset = second.last_offset
            self.runs[0].last_timestamp_ms = second.last_timestamp_ms


@dataclass(slots=True)
class Summary:
    """All that a profile knows."""

    partitions: dict[int, PartitionSummary] = field(default_factory=dict)
    key_sizes: SizeHistogram = field(default_factory=SizeHistogram)
    value_sizes: SizeHistogram = field(default_factory=SizeHistogram)
    times: TimeBuckets = field(default_factory=TimeBuckets)
    distinct: DistinctKeys = field(default_factory=DistinctKeys)
    top: TopKeys = field(default_factory=TopKeys)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records: partition, offset, timestamp_ms, key_hash, key_head, key_size, value_size, header_size."""
        partitions, offsets, timestamps = (_numbers(batch, name) for name in ("partition", "offset", "timestamp_ms"))
        has_key = _are_there(batch, "key_size")
        has_value = _are_there(batch, "value_size")
        key_sizes, value_sizes, header_sizes = (
            _numbers(batch, name) for name in ("key_size", "value_size", "header_size")
        )
        self.key_sizes.add(key_sizes[has_key])
        self.value_sizes.add(value_sizes[has_value])
        self.times.add(timestamps, key_sizes + value_sizes + header_sizes)
        hashes = _numbers(batch, "key_hash")[has_key]
        if len(hashes):
            self.distinct.add(hashes)
            self.top.add(hashes, batch.column("key_head").filter(pa.array(has_key)))
        for partition in numpy.unique(partitions).tolist():
            these = partitions == partition
            part = PartitionSummary(
                records=int(these.sum()),
                key_bytes=int(key_sizes[these].sum()),
                value_bytes=int(value_sizes[these].sum()),
                header_bytes=int(header_sizes[these].sum()),
                without_key=int((~has_key[these]).sum()),
                tombstones=int((~has_value[these]).sum()),
            )
            _add_times(part, offsets[these], timestamps[these])
            known = self.partitions.setdefault(partition, PartitionSummary())
            known.merge(part)
            known.join_runs()

    def merge(self, other: Summary) -> Summary:
        """Add what another task has seen, and return this."""
        for partition, part in other.partitions.items():
            self.partitions.setdefault(partition, PartitionSummary()).merge(part)
        self.key_sizes.merge(other.key_sizes)
        self.value_sizes.merge(other.value_sizes)
        self.times.merge(other.times)
        self.distinct.merge(other.distinct)
        self.top.merge(other.top)
        return self

    def total(self) -> PartitionSummary:
        """Return the figures of all partitions together, after the runs of each were joined."""
        whole = PartitionSummary()
        for part in self.partitions.values():
            part.join_runs()
            whole.merge(part)
        whole.runs = []
        return whole


def _numbers(batch: pa.RecordBatch, name: str) -> Numbers:
    """Return a column of numbers; 0 where there is none."""
    column = batch.column(name)
    filled = column.fill_null(0) if column.null_count else column
    return numpy.asarray(filled.to_numpy(zero_copy_only=False), dtype=numpy.int64)


def _are_there(batch: pa.RecordBatch, name: str) -> numpy.typing.NDArray[numpy.bool_]:
    return numpy.asarray(batch.column(name).is_valid().to_numpy(zero_copy_only=False), dtype=numpy.bool_)


def _add_times(part: PartitionSummary, offsets: Numbers, timestamps: Numbers) -> None:
    part.first_timestamp_ms, part.last_timestamp_ms = int(timestamps.min()), int(timestamps.max())
    part.out_of_order = int((numpy.diff(timestamps) < 0).sum())
    part.runs = [Run(int(offsets[0]), int(timestamps[0]), int(offsets[-1]), int(timestamps[-1]))]
