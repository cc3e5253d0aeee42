"""Times in words: where to begin reading, how long something may take, when something was."""

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from barnabas.client.offsets import EARLIEST, LATEST

START_WORDS = "earliest, latest, an offset, a time like 2026-01-31T12:00 or @1769860800000, or an age like 10m"
AGE = re.compile(r"(?P<count>\d+)(?P<unit>[smhdw])", re.ASCII)
MILLISECONDS = re.compile(r"@(?P<count>\d{1,18})", re.ASCII)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Start(NamedTuple):
    """Where to begin: at an offset, or at a time in milliseconds, EARLIEST or LATEST, or so long ago."""

    offset: int | None = None
    timestamp: int | None = None
    age: timedelta | None = None

    def timestamp_at(self, now_ms: int) -> int:
        """Return the time in milliseconds, or EARLIEST or LATEST, of a start that is no offset."""
        if self.age is not None:
            return max(0, now_ms - round(self.age.total_seconds() * 1000))
        assert self.timestamp is not None
        return self.timestamp


def parse_start(text: str) -> Start:
    """Read where to begin, for argparse."""
    if text in ("earliest", "latest"):
        return Start(timestamp=EARLIEST if text == "earliest" else LATEST)
    if text.isascii() and text.isdecimal():
        return Start(offset=int(text))
    milliseconds = MILLISECONDS.fullmatch(text)
    if milliseconds is not None:
        return Start(timestamp=int(milliseconds["count"]))
    try:
        if AGE.fullmatch(text):
            return Start(age=_read_age(text))
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{START_WORDS} is needed, but {text!r} was given") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Start(timestamp=max(0, round(moment.timestamp() * 1000)))


def parse_duration_ms(text: str) -> int:
    """Read a duration like 30s, 10m, 2h, 1d or 1w, for argparse."""
    try:
        return round(_read_age(text).total_seconds() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"a duration like 30s, 10m or 2h is needed, but {text!r} was given") from None


def _read_age(text: str) -> timedelta:
    age = AGE.fullmatch(text)
    if age is None:
        raise ValueError(text)
    return timedelta(**{UNITS[age["unit"]]: int(age["count"])})


def time_text(timestamp: int) -> str:
    """Return a time as ISO 8601 has it, or as a number where there is none or it is too late for a calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return str(timestamp) if timestamp < 0 else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units: 450ms, 12s, 3m5s, 2h0m, 4d7h."""
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    seconds = duration_ms // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60}s"
    hours = seconds // 3600
    return f"{hours}h{seconds % 3600 // 60}m" if hours < 24 else f"{hours // 24}d{hours % 24}h"
