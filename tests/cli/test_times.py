"""Times in words."""

import argparse
from datetime import timedelta

import pytest

from barnabas.cli.times import Start, duration_text, parse_duration_ms, parse_start, time_text
from barnabas.client.offsets import EARLIEST, LATEST

START_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(timestamp=EARLIEST)),
        ("latest", Start(timestamp=LATEST)),
        ("0", Start(offset=0)),
        ("1700000000000", Start(offset=START_MS)),
        ("@1700000000123", Start(timestamp=START_MS + 123)),
        ("90s", Start(age=timedelta(seconds=90))),
        ("2w", Start(age=timedelta(weeks=2))),
        ("2023-11-14T22:13:20.123Z", Start(timestamp=START_MS + 123)),
        ("2023-11-14T23:13:20+01:00", Start(timestamp=START_MS)),
        ("1960-01-01", Start(timestamp=0)),
    ],
)
def test_a_start_is_read(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-1", "@", "@-5", "@" + "9" * 19, "10x", "99999999999999999999w", "²"]
)
def test_what_is_no_start_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="a time like"):
        parse_start(text)


def test_a_start_is_a_time() -> None:
    assert Start(timestamp=EARLIEST).timestamp_at(START_MS) == EARLIEST
    assert Start(timestamp=5).timestamp_at(START_MS) == 5
    assert Start(age=timedelta(seconds=2)).timestamp_at(START_MS) == START_MS - 2000
    assert Start(age=timedelta(weeks=10_000)).timestamp_at(START_MS) == 0


def test_durations_are_read() -> None:
    assert [parse_duration_ms(text) for text in ("0s", "10m", "1d")] == [0, 600_000, 86_400_000]
    for text in ("", "10", "soon", "-1s", "99999999999999999999w"):
        with pytest.raises(argparse.ArgumentTypeError, match="a duration like"):
            parse_duration_ms(text)


def test_times_are_told() -> None:
    assert time_text(START_MS) == "2023-11-14T22:13:20.000Z"
    assert (time_text(-1), time_text(10**18)) == ("-1", str(10**18))


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (59_999, "59s"),
        (185_000, "3m5s"),
        (7_200_000, "2h0m"),
        (86_399_999, "23h59m"),
        (4 * 86_400_000 + 7 * 3_600_000, "4d7h"),
    ],
)
def test_durations_are_told_by_their_two_largest_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
