"""Small summaries of many records, which can be added to batch by batch and merged in any order.

SizeHistogram   how many records have which size; exact below 128 bytes, and within 1.6 % above
TimeBuckets     records and bytes over time, in intervals that grow until there are few enough of them
DistinctKeys    how many different keys there are; exact up to KEPT_HASHES of them, and within about 1.6 % above
TopKeys         the most frequent keys; exact as long as there are no more than KEPT_KEYS different ones

They take arrays of numbers and know nothing of Spark. A task fills its own, and the driver merges all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy
import pyarrow as pa
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[numpy.int64]

# A power of two is divided into so many buckets.
_STEPS_BITS = 6
_STEPS = 1 << _STEPS_BITS

BUCKETS_MAX = 4096
KEPT_HASHES = 4096
KEPT_KEYS = 2048

_SECOND_MS, _DAY_MS = 1000, 86_400_000
# Every one divides the next, so that buckets can be put together; they are times that people count in.
INTERVALS_MS = (
    1,
    10,
    100,
    _SECOND_MS,
    10 * _SECOND_MS,
    60 * _SECOND_MS,
    600 * _SECOND_MS,
    3600 * _SECOND_MS,
    6 * 3600 * _SECOND_MS,
    _DAY_MS,
    7 * _DAY_MS,
    28 * _DAY_MS,
    364 * _DAY_MS,
    3640 * _DAY_MS,
    364_000 * _DAY_MS,
    364_000_000 * _DAY_MS,
)
assert all(larger % smaller == 0 for smaller, larger in pairwise(INTERVALS_MS))


def bucket_of(sizes: Numbers) -> Numbers:
    """Return the bucket of each size: the size itself below 128, and then 64 buckets for every power of two."""
    exponents = numpy.maximum(numpy.frexp(numpy.maximum(sizes, 1))[1] - 1 - _STEPS_BITS, 0).astype(numpy.int64)
    buckets: Numbers = exponents * _STEPS + (sizes >> exponents)
    return buckets


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the smallest and the largest size of a bucket."""
    exponent = max(bucket // _STEPS - 1, 0)
    smallest = (bucket - exponent * _STEPS) << exponent
    return smallest, smallest + (1 << exponent) - 1


@dataclass(slots=True)
class SizeHistogram:
    """How many sizes are in which bucket."""

    counts: dict[int, int] = field(default_factory=dict)
    count: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0

    def add(self, sizes: Numbers) -> None:
        """Count sizes."""
        if not len(sizes):
            return
        other = SizeHistogram(
            count=len(sizes), total=int(sizes.sum()), smallest=int(sizes.min()), largest=int(sizes.max())
        )
        buckets, counts = numpy.unique(bucket_of(sizes), return_counts=True)
        other.counts = dict(zip(buckets.tolist(), counts.tolist(), strict=True))
        self.merge(other)

    def merge(self, other: SizeHistogram) -> None:
        """Count what another one has counted."""
        if not other.count:
            return
        self.smallest = min(self.smallest, other.smallest) if self.count else other.smallest
        self.largest = max(self.largest, other.largest)
        self.count += other.count
        self.total += other.total
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def percentile(self, share: float) -> int:
        """Return the size that this share of all sizes does not exceed."""
        wanted, seen = share * self.count, 0
        for bucket, count in sorted(self.counts.items()):
            seen += count
            if seen >= wanted:
                return min(bounds_of(bucket)[1], self.largest)
        return self.largest

    def powers_of_two(self) -> list[tuple[int, int, int]]:
        """Return (smallest, largest, count) for 0, 1, 2 to 3, 4 to 7 and so on, from the first that has any."""
        by_power: dict[int, int] = {}
        for bucket, count in self.counts.items():
            power = bounds_of(bucket)[0].bit_length()
            by_power[power] = by_power.get(power, 0) + count
        powers = range(min(by_power, default=0), max(by_power, default=-1) + 1)
        return [(1 << power >> 1, (1 << power) - 1, by_power.get(power, 0)) for power in powers]


@dataclass(slots=True)
class TimeBuckets:
    """Records and bytes by intervals of time; only those that have any are kept."""

    interval_ms: int = INTERVALS_MS[0]
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the number of the interval since 1970: records and bytes."""

    def add(self, timestamps_ms: Numbers, sizes: Numbers) -> None:
        """Count records."""
        if not len(timestamps_ms):
            return
        other = TimeBuckets(self.interval_ms)
        buckets, places = numpy.unique(timestamps_ms // self.interval_ms, return_inverse=True)
        records = numpy.bincount(places)
        # Sums of whole numbers below 2**53 are exact as floating point, and a batch has far less.
        size_sums = numpy.bincount(places, weights=sizes).astype(numpy.int64)
        both = zip(records.tolist(), size_sums.tolist(), strict=True)
        other.counts = dict(zip(buckets.tolist(), both, strict=True))
        self.merge(other)

    def merge(self, other: TimeBuckets) -> None:
        """Count what another one has counted."""
        interval_ms = max(self.interval_ms, other.interval_ms)
        self._widen(interval_ms)
        for bucket, (records, size) in other.counts.items():
            place = bucket * other.interval_ms // interval_ms
            known = self.counts.get(place, (0, 0))
            self.counts[place] = known[0] + records, known[1] + size
        while len(self.counts) > BUCKETS_MAX:
            self._widen(_next_interval(self.interval_ms))

    def _widen(self, interval_ms: int) -> None:
        if interval_ms == self.interval_ms:
            return
        old, self.counts = TimeBuckets(self.interval_ms, self.counts), {}
        self.interval_ms = interval_ms
        self.merge(old)

    def peak(self) -> int:
        """Return the most records of an interval."""
        return max((records for records, _ in self.counts.values()), default=0)

    def columns(self, first_ms: int, last_ms: int, columns_max: int) -> tuple[int, list[tuple[int, int, int]]]:
        """Return an interval in milliseconds, and for each one between two times its start, records and bytes."""
        wide = TimeBuckets(self.interval_ms, dict(self.counts))
        while last_ms // wide.interval_ms - first_ms // wide.interval_ms >= columns_max:
            wide._widen(_next_interval(wide.interval_ms))
        interval = wide.interval_ms
        places = range(first_ms // interval, last_ms // interval + 1)
        return interval, [(place * interval, *wide.counts.get(place, (0, 0))) for place in places]

    def middle(self, share: float) -> tuple[int, int]:
        """Return the times that at least this share of the records, counted from both ends, lies between."""
        total = sum(records for records, _ in self.counts.values())
        ordered = sorted(self.counts.items())
        return self._edge(ordered, total * share), self._edge(ordered[::-1], total * share) + self.interval_ms - 1

    def _edge(self, ordered: Sequence[tuple[int, tuple[int, int]]], outside: float) -> int:
        seen = 0
        for bucket, (records, _) in ordered:
            seen += records
            if seen > outside:
                return bucket * self.interval_ms
        return 0


def _next_interval(interval_ms: int) -> int:
    return next(each for each in INTERVALS_MS if each > interval_ms)


@dataclass(slots=True)
class DistinctKeys:
    """The smallest hashes of keys: if they are evenly spread, their distance says how many there are in all."""

    hashes: NDArray[numpy.uint64] = field(default_factory=lambda: numpy.empty(0, numpy.uint64))

    def add(self, hashes: Numbers) -> None:
        """Look at hashes of keys."""
        self._take(hashes.view(numpy.uint64))

    def merge(self, other: DistinctKeys) -> None:
        """Look at what another one has seen."""
        self._take(other.hashes)

    def _take(self, hashes: NDArray[numpy.uint64]) -> None:
        if not self.is_exact:
            hashes = hashes[hashes < self.hashes[-1]]
        if len(hashes):
            self.hashes = numpy.unique(numpy.concatenate([self.hashes, hashes]))[:KEPT_HASHES]

    @property
    def is_exact(self) -> bool:
        """Whether all keys are among those that are kept."""
        return len(self.hashes) < KEPT_HASHES

    def estimate(self) -> int:
        """Return how many different keys there are, about."""
        if self.is_exact:
            return len(self.hashes)
        return round((KEPT_HASHES - 1) / ((int(self.hashes[-1]) + 1) / 2**64))


@dataclass(slots=True)
class TopKeys:
    """The most frequent keys, by their hashes (Misra and Gries): every count may be too small by up to `error`."""

    hashes: Numbers = field(default_factory=lambda: numpy.empty(0, numpy.int64))
    counts: Numbers = field(default_factory=lambda: numpy.empty(0, numpy.int64))
    heads: dict[int, bytes] = field(default_factory=dict)
    """How each key begins."""
    error: int = 0

    def add(self, hashes: Numbers, heads: pa.Array) -> None:
        """Count keys, of which the beginnings are given too."""
        found, places, counts = numpy.unique(hashes, return_index=True, return_counts=True)
        self._take(found, counts.astype(numpy.int64))
        is_kept = numpy.isin(found, self.hashes)
        kept_heads = heads.take(pa.array(places[is_kept])).to_pylist()
        self.heads = dict(zip(found[is_kept].tolist(), kept_heads, strict=True)) | self.heads
        self._forget()

    def merge(self, other: TopKeys) -> None:
        """Count what another one has counted."""
        self.error += other.error
        self._take(other.hashes, other.counts)
        self.heads = other.heads | self.heads
        self._forget()

    def _take(self, hashes: Numbers, counts: Numbers) -> None:
        together, places = numpy.unique(numpy.concatenate([self.hashes, hashes]), return_inverse=True)
        sums = numpy.bincount(places, weights=numpy.concatenate([self.counts, counts])).astype(numpy.int64)
        if len(together) > KEPT_KEYS:
            # What is subtracted from all was counted by at least so many keys, so that the error stays small.
            excess = int(numpy.partition(sums, -KEPT_KEYS - 1)[-KEPT_KEYS - 1])
            self.error += excess
            sums = sums - excess
            together, sums = together[sums > 0], sums[sums > 0]
        self.hashes, self.counts = together, sums

    def _forget(self) -> None:
        if len(self.heads) > len(self.hashes):
            self.heads = {value: self.heads[value] for value in self.hashes.tolist()}

    def top(self, count: int) -> Iterator[tuple[bytes, int]]:
        """Yield the beginnings of the most frequent keys, and how often each was seen at least."""
        for place in numpy.argsort(-self.counts, kind="stable")[:count].tolist():
            yield self.heads[int(self.hashes[place])], int(self.counts[place])
