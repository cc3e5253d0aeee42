"""The moment of a snapshot in words."""

import argparse

import pytest

from barnabas.cli.pipelines.moments import parse_at
from barnabas.clock import SystemClock


def test_moments() -> None:
    assert parse_at("latest") is None
    assert parse_at("@1769860800000") == 1769860800000
    assert parse_at("2026-01-31T12:00") == 1769860800000
    assert parse_at('{"0": 23, "1": 0}') == {0: 23, 1: 0}
    age = parse_at("10m")
    assert isinstance(age, int)
    assert 0 <= SystemClock().now_ms() - age - 600_000 < 60_000


@pytest.mark.parametrize(
    "text", ["earliest", "17", "yesterday", "{", '{"a": 1}', '{"0": -1}', '{"0": "x"}', '{"0": true}']
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is needed, but"):
        parse_at(text)
