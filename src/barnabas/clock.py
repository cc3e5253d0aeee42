"""The only user of time in the project: everything else is handed a Clock.

Rule 1: `now_ms` is the wall clock in milliseconds since 1970, as Kafka's timestamps are; it may jump.
Rule 2: `monotonic_seconds` never goes back; time-outs and durations use it and nothing else.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What the broker may know of time."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""
        ...

    def monotonic_seconds(self) -> float:
        """Return seconds since some moment, never going back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """Return seconds since the machine started."""
        return time.monotonic()


class ManualClock:
    """A clock that a test turns by hand."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_seconds = 0.0

    def now_ms(self) -> int:
        """Return the wall clock as it was last set."""
        return self._now_ms

    def monotonic_seconds(self) -> float:
        """Return the seconds this clock was advanced by in all."""
        return self._monotonic_seconds

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks."""
        assert milliseconds >= 0, "time passes forward; use jump_to for a wall clock that is set"
        self._now_ms += milliseconds
        self._monotonic_seconds += milliseconds / 1000

    def jump_to(self, now_ms: int) -> None:
        """Set the wall clock, as an operator or NTP would; the monotonic clock does not move."""
        self._now_ms = now_ms
