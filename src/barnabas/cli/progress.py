"""A progress bar on stderr, for people who wait; silent when stderr is not a terminal."""

import sys
from typing import TextIO

from barnabas.clock import Clock, SystemClock

WIDTH = 30
REDRAW_SECONDS = 0.1


def bar(share: float) -> str:
    """Return a bar that is filled so far, from 0 to 1."""
    filled = round(min(1.0, share) * WIDTH)
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}"


class Progress:
    """Shows how many of a known number of bytes are done, and how fast."""

    def __init__(self, label: str, total_bytes: int, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._label = label
        self._total_bytes = total_bytes
        self._stream = sys.stderr if stream is None else stream
        self._clock = SystemClock() if clock is None else clock
        self._is_shown = self._stream.isatty()
        self._started = self._drawn = self._clock.monotonic_seconds()
        self.done_bytes = 0

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._clock.monotonic_seconds() - self._started

    def advance(self, size_bytes: int, what: str) -> None:
        """Count bytes that are done, and redraw when that was not done just now."""
        self.done_bytes += size_bytes
        now = self._clock.monotonic_seconds()
        if self._is_shown and now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._stream.write("\r\x1b[K" + self._bar(what))
            self._stream.flush()

    def _bar(self, what: str) -> str:
        share = min(1.0, self.done_bytes / self._total_bytes) if self._total_bytes else 1.0
        speed = self.done_bytes / max(self.seconds, 1e-9) / 1e6
        return f"{self._label} {bar(share)}  {speed:,.0f} MB/s  {what}"

    def finish(self) -> None:
        """Take the bar away."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
