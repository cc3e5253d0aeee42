"""The only user of time in the project: everything else is handed a Clock.

Rule 1: `now_ms` is the wall clock in milliseconds since 1970, as Kafka's timestamps are; it may jump.
Rule 2: `monotonic_seconds` never goes back; time-outs and durations use it and nothing else.
"""

import os
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What the broker may know of time."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""
        ...

    def monotonic_seconds(self) -> float:
        """Return seconds since some moment, never going back."""
        ...


class WaitingClock(Clock, Protocol):
    """A clock that a blocking program can also wait by: the client does, the broker's loop never may."""

    def sleep(self, seconds: float) -> None:
        """Let this thread do nothing for some time."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """Return seconds since the machine started."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let this thread do nothing for some time."""
        time.sleep(seconds)

    def seconds_since_process_start(self) -> float:
        """Return how long this process has been running, the start of the interpreter included."""
        with open("/proc/self/stat", encoding="ascii") as file:
            started_ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


class ManualClock:
    """A clock that a test turns by hand."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_seconds = 0.0
        self._listeners: list[Callable[[], None]] = []

    def on_advance(self, listener: Callable[[], None]) -> None:
        """Call `listener`, on the thread that turns the clock, whenever time has passed."""
        self._listeners.append(listener)

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
        for listener in list(self._listeners):
            listener()

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once: whoever waits by this clock does not wait."""
        self.advance(round(seconds * 1000))

    def jump_to(self, now_ms: int) -> None:
        """Set the wall clock, as an operator or NTP would; the monotonic clock does not move."""
        self._now_ms = now_ms
