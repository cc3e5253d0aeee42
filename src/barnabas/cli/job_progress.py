"""The progress of a job on stderr: a bar that is drawn again and again in a terminal, and silence elsewhere."""

import sys
import threading
from typing import TextIO

from barnabas.cli.progress import bar
from barnabas.clock import Clock, SystemClock
from barnabas.spark.jobs.job import Progress


class JobProgress:
    """What a job reports, from whatever thread."""

    def __init__(self, job: str, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._job = job
        self._stream = sys.stderr if stream is None else stream
        self._clock = SystemClock() if clock is None else clock
        self._started = self._clock.monotonic_seconds()
        self._lock = threading.Lock()
        self._is_finished = False

    def report(self, progress: Progress) -> None:
        """Draw how far the job is."""
        if not self._stream.isatty():
            return
        seconds = self._clock.monotonic_seconds() - self._started
        count = f"{progress.done:,} of {progress.total:,}" if progress.total else f"{progress.done:,}"
        share = progress.done / progress.total if progress.total else 0.0
        line = f"{self._job} {bar(share)}  {progress.step}: {count} {progress.unit}, {seconds:.0f} s"
        with self._lock:
            if not self._is_finished:
                self._stream.write(f"\r\x1b[K{line}")
                self._stream.flush()

    def finish(self) -> None:
        """Take the bar away; what is reported after this is not shown."""
        with self._lock:
            self._is_finished = True
            if self._stream.isatty():
                self._stream.write("\r\x1b[K")
                self._stream.flush()
