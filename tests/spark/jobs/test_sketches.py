"""Sketches against plain counting: the same in whatever parts the data comes, exact where they say so."""

import random
from collections import Counter

import numpy
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.jobs import sketches
from barnabas.spark.jobs.sketches import (
    BUCKETS_MAX,
    INTERVALS_MS,
    KEPT_HASHES,
    KEPT_KEYS,
    DistinctKeys,
    Numbers,
    SizeHistogram,
    TimeBuckets,
    TopKeys,
    bounds_of,
    bucket_of,
)


def numbers(values: list[int]) -> Numbers:
    return numpy.array(values, dtype=numpy.int64)


@given(st.lists(st.integers(0, 2**40), min_size=1))
def test_every_size_is_within_its_bucket(sizes: list[int]) -> None:
    for size, bucket in zip(sizes, bucket_of(numbers(sizes)).tolist(), strict=True):
        smallest, largest = bounds_of(bucket)
        assert smallest <= size <= largest
        assert largest - smallest <= size / 64
    assert [bounds_of(bucket)[0] for bucket in range(128)] == list(range(128))


@given(st.lists(st.lists(st.integers(0, 5000), min_size=1), min_size=1, max_size=4), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_histogram_of_sizes_in_parts(parts: list[list[int]], share: float) -> None:
    whole = SizeHistogram()
    for part in parts:
        histogram = SizeHistogram()
        histogram.add(numbers(part))
        whole.merge(histogram)
    whole.add(numbers([]))
    sizes = sorted(size for part in parts for size in part)
    assert (whole.count, whole.total, whole.smallest, whole.largest) == (len(sizes), sum(sizes), sizes[0], sizes[-1])
    exact = sizes[-(-len(sizes) * round(share * 100) // 100) - 1]
    assert exact <= whole.percentile(share) <= exact * 65 / 64
    bins = whole.powers_of_two()
    assert sum(count for _, _, count in bins) == len(sizes)
    assert all(count == sum(low <= size <= high for size in sizes) for low, high, count in bins)


def test_nothing_has_no_sizes() -> None:
    assert (SizeHistogram().percentile(0.5), SizeHistogram().powers_of_two()) == (0, [])


@given(st.lists(st.lists(st.tuples(st.integers(-10, 10**13), st.integers(0, 1000))), max_size=4))
def test_buckets_of_time_in_parts(parts: list[list[tuple[int, int]]]) -> None:
    whole = TimeBuckets()
    for part in parts:
        times = TimeBuckets()
        times.add(numbers([time for time, _ in part]), numbers([size for _, size in part]))
        whole.merge(times)
    together = [pair for part in parts for pair in part]
    expected = Counter(time // whole.interval_ms for time, _ in together)
    assert {bucket: records for bucket, (records, _) in whole.counts.items()} == dict(expected)
    assert sum(size for _, size in whole.counts.values()) == sum(size for _, size in together)
    if together:
        first, last = min(together)[0], max(together)[0]
        interval, columns = whole.columns(first, last, 50)
        assert interval in INTERVALS_MS
        assert 1 <= len(columns) <= 50
        assert sum(records for _, records, _ in columns) == len(together)
        assert columns[0][0] <= first
        assert columns[-1][0] + interval > last


def test_intervals_grow_when_there_are_too_many() -> None:
    times = TimeBuckets()
    for start in range(0, 200_000, 5_000):
        times.add(numbers(list(range(start, start + 5_000))), numbers([1] * 5_000))
    assert len(times.counts) <= BUCKETS_MAX
    assert (times.interval_ms, times.peak()) == (100, 100)
    assert sum(records for records, _ in times.counts.values()) == 200_000


def test_the_middle_leaves_out_what_is_far_away() -> None:
    times = TimeBuckets()
    times.add(numbers([0, *range(10**12, 10**12 + 5000)]), numbers([1] * 5001))
    first, last = times.middle(0.001)
    assert 10**12 <= first < last < 10**12 + 5010


def test_distinct_keys_are_exact_up_to_a_number_and_close_above() -> None:
    chance = random.Random(1)
    few = DistinctKeys()
    few.add(numbers([5, -5, 5]))
    few.add(numbers([7]))
    assert (few.estimate(), few.is_exact) == (3, True)
    hashes = [chance.randrange(-(2**63), 2**63) for _ in range(100_000)]
    whole = DistinctKeys()
    for start in range(0, len(hashes), 10_000):
        part = DistinctKeys()
        part.add(numbers(hashes[start : start + 10_000]))
        part.add(numbers(hashes[start : start + 10_000]))
        whole.merge(part)
    assert len(whole.hashes) == KEPT_HASHES
    assert abs(whole.estimate() - 100_000) < 5_000
    assert not whole.is_exact


def test_the_most_frequent_keys_are_found_among_many() -> None:
    chance = random.Random(2)
    counts = {key: 3000 - 100 * key for key in range(20)}
    keys = [key for key, count in counts.items() for _ in range(count)]
    keys += [chance.randrange(100, 10**9) for _ in range(30_000)]
    chance.shuffle(keys)
    whole = TopKeys()
    for start in range(0, len(keys), 5_000):
        part = TopKeys()
        some = keys[start : start + 5_000]
        part.add(numbers(some), pa.array([b"%d" % key for key in some], pa.binary()))
        whole.merge(part)
    assert len(whole.hashes) <= KEPT_KEYS
    assert len(whole.heads) == len(whole.hashes)
    top = dict(whole.top(10))
    assert list(top) == [b"%d" % key for key in range(10)]
    assert all(0 <= counts[int(key)] - count <= whole.error for key, count in top.items())
    assert 0 < whole.error <= len(keys) / sketches.KEPT_KEYS * 2


def test_few_keys_are_counted_exactly() -> None:
    top = TopKeys()
    top.add(numbers([1, 2, 1]), pa.array([b"one", b"two", b"one"]))
    assert (list(top.top(5)), top.error) == ([(b"one", 2), (b"two", 1)], 0)
