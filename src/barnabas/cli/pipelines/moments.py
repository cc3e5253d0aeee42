"""The moment of a snapshot, as it is given on the command line: a time, an age, or offsets of partitions."""

import argparse
import json
from collections.abc import Mapping

from barnabas.cli.times import parse_start
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.clock import SystemClock

AT_WORDS = 'latest, a time like 2026-01-31T12:00 or @1769860800000, an age like 10m, or offsets like {"0": 23, "1": 40}'


def parse_at(text: str) -> int | Mapping[int, int] | None:
    """Read a moment for argparse: milliseconds, offsets by partition, or None for everything there is."""
    refusal = argparse.ArgumentTypeError(f"{AT_WORDS} is needed, but {text!r} was given")
    if text.lstrip().startswith("{"):
        return _offsets(text, refusal)
    if text == "latest":
        return None
    try:
        start = parse_start(text)
    except argparse.ArgumentTypeError:
        raise refusal from None
    if start.offset is not None or start.timestamp in (EARLIEST, LATEST):
        raise refusal
    return start.timestamp_at(SystemClock().now_ms())


def _offsets(text: str, refusal: Exception) -> dict[int, int]:
    try:
        fields = json.loads(text)
        offsets = {int(partition): offset for partition, offset in fields.items()}
    except ValueError:
        raise refusal from None
    if not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
        raise refusal
    return offsets
