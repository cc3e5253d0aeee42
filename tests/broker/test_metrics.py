"""Counters: durations by powers of two, and topics by themselves and in all."""

import pytest

from barnabas.broker.metrics import BUCKETS, BrokerTopicStats, Histogram


def test_durations_are_counted_in_the_bucket_of_their_bits() -> None:
    histogram = Histogram()
    for microseconds in (0, 1, 2, 3, 1000):
        histogram.add(microseconds / 1_000_000)
    assert histogram.count == 5
    assert [histogram.buckets[bits] for bits in (0, 1, 2, 10)] == [1, 1, 2, 1]
    assert histogram.max_seconds == 0.001
    assert histogram.sum_seconds == pytest.approx(0.001006)


def test_a_duration_of_hours_is_counted_in_the_last_bucket() -> None:
    histogram = Histogram()
    histogram.add(100_000.0)
    assert histogram.buckets[BUCKETS] == 1


def test_a_percentile_is_the_upper_end_of_its_bucket() -> None:
    histogram = Histogram()
    assert histogram.percentile_us(0.99) == 0
    for _ in range(99):
        histogram.add(0.000_005)
    histogram.add(1.0)
    assert histogram.percentile_us(0.5) == 7
    assert histogram.percentile_us(0.99) == 7
    assert histogram.percentile_us(1.0) == (1 << 20) - 1


def test_topics_are_counted_by_themselves_and_in_all() -> None:
    stats = BrokerTopicStats()
    stats.topic("a").bytes_in += 10
    stats.topic("a").bytes_in += 5
    stats.topic("b").bytes_in += 1
    stats.topic("b").failed_fetch_requests += 2
    assert stats.topic("a").bytes_in == 15
    total = stats.all_topics()
    assert (total.bytes_in, total.failed_fetch_requests) == (16, 2)
    stats.forget("a")
    stats.forget("never-met")
    assert stats.all_topics().bytes_in == 1


def test_a_duration_of_several_is_counted_as_often() -> None:
    histogram = Histogram()
    histogram.add(0.5, 4)
    assert (histogram.count, histogram.sum_seconds, histogram.max_seconds) == (4, 2.0, 0.5)
    assert sum(histogram.buckets) == 4
