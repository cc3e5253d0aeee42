"""The rows of the section `broker`, from samples that are made up."""

import pytest

from bench.load.measuring import Sample
from bench.load.spec import LoadReport
from bench.sections.broker import FETCH, LARGE_BATCHES, LOADS, SMALL_BATCHES, rows


def sample(seconds: float) -> Sample:
    report = LoadReport(
        seconds=seconds,
        requests=1000,
        bytes=1_000_000_000,
        p50_us=seconds * 100,
        p99_us=200.0,
        p999_us=300.0,
        generator_busy=0.5,
        acknowledged=[1000],
    )
    return Sample(report=report, cpu_s=seconds * 0.8, resident_mb_max=50.0)


def test_medians_are_compared() -> None:
    found = {"Kafka": [sample(8), sample(10), sample(90)], "Barnabas": [sample(1), sample(2), sample(4)]}
    ours_and_theirs = {row.name: row for row in rows(LARGE_BATCHES, found)}
    assert ours_and_theirs["produce, 64 KB batches, Barnabas"].value == 500
    assert ours_and_theirs["produce, 64 KB batches, Kafka"].value == 100
    assert (
        "p50 200, p99 200, p99.9 300 us; 1.60 CPU s/GB; RSS 50 MB"
        in ours_and_theirs["produce, 64 KB batches, Barnabas"].note
    )
    speed = ours_and_theirs["produce, 64 KB batches, MB/s against Kafka"]
    assert (speed.value, speed.floor, speed.holds) == (5, 4, True)
    cost = ours_and_theirs["produce, 64 KB batches, CPU s/GB against Kafka"]
    assert cost.value == pytest.approx(0.2)
    assert (cost.floor, cost.holds) == (0.25, True)


def test_a_floor_that_is_missed_is_seen() -> None:
    [*_, requests] = rows(SMALL_BATCHES, {"Kafka": [sample(2)], "Barnabas": [sample(1)]})
    assert (requests.value, requests.floor, requests.holds) == (2, 3, False)


@pytest.mark.parametrize("load", [*LOADS, FETCH], ids=lambda load: load.name)
def test_without_kafka_nothing_is_compared(load: object) -> None:
    [row] = rows(load, {"Barnabas": [sample(1)]})  # type: ignore[arg-type]
    assert row.floor is None
