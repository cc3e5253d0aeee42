"""Numbers for people."""

import pytest

from barnabas.spark.jobs.quantities import count_text, moment_text, nice_top, share_text, size_text, span_text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (312, "312 B"), (1.5, "1.5 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5 TiB")],
)
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1 k"), (45_600, "45.6 k"), (7_890_000, "7.89 M"), (0.5, "0.5")]
)
def test_counts(count: float, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 ms"),
        (450, "450 ms"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (90_061_000, "1 d 1 h"),
        (86_400_005, "1 d"),
    ],
)
def test_durations(duration: int, text: str) -> None:
    assert span_text(duration) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (1, "2023-11-14 22:13:20.007"),
        (1000, "2023-11-14 22:13:20"),
        (60_000, "2023-11-14 22:13"),
        (10**8, "2023-11-14"),
    ],
)
def test_moments_are_as_exact_as_asked_for(interval: int, text: str) -> None:
    assert moment_text(1_700_000_000_007, interval) == text


def test_a_moment_that_no_calendar_has_is_a_number() -> None:
    assert moment_text(10**17) == "100000000000000000 ms"


@pytest.mark.parametrize(("value", "top"), [(0, 4), (4, 4), (5, 8), (13, 20), (21, 40), (950, 1200), (4001, 8000)])
def test_the_top_of_a_chart_is_round(value: int, top: int) -> None:
    assert nice_top(value) == top


def test_the_top_of_a_chart_of_sizes_is_round_in_its_unit() -> None:
    assert nice_top(5000, 1024) == 8 * 1024


def test_shares() -> None:
    assert [share_text(*pair) for pair in ((1, 2), (0, 5), (1, 300), (1, 0))] == ["50 %", "0 %", "0.33 %", "0 %"]
