"""Time-outs and repeated work on the broker's loop, and the threads that wait for the disk in its place.

Rule 1: every callback runs on the loop's thread, also that of work done by the pool.
Rule 2: time is the Clock's. With a clock that is turned by hand, time-outs come when it is turned and not before.
Rule 3: only what leaves the GIL goes to the pool (fsync, removal, cold reads): beside a busy Python thread the loop
would wait milliseconds.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from barnabas.clock import Clock, ManualClock

logger = logging.getLogger(__name__)

CANCELLED_MAX = 1024
"""So many cancelled timers are kept; more are forgotten together, as soon as they are most of all timers."""


class Timer:
    """Something that is to happen at a time; `cancel` takes it back."""

    __slots__ = ("callback", "scheduler")

    def __init__(self, callback: Callable[[], None], scheduler: "Scheduler") -> None:
        self.callback: Callable[[], None] | None = callback
        self.scheduler: Scheduler | None = scheduler
        """Whose timer it is, until its time has come: a timer that is cancelled after that is no burden to anybody."""

    def cancel(self) -> None:
        """Let it not happen."""
        if self.callback is not None:
            self.callback = None
            if self.scheduler is not None:
                self.scheduler.count_cancelled()


class Scheduler:
    """The timers of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self._clock = clock
        self._timers: list[tuple[float, int, Timer]] = []
        # How many of the timers are cancelled. They can not be taken out of the middle of a heap one by one.
        self._cancelled = 0
        self._numbers = itertools.count()
        self._is_manual = isinstance(clock, ManualClock)
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_at = float("inf")
        self._is_closed = False
        if isinstance(clock, ManualClock):
            clock.on_advance(self._on_advance)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back once, when `delay_ms` have passed."""
        timer = Timer(callback, self)
        deadline = self._clock.monotonic_seconds() + delay_ms / 1000
        heapq.heappush(self._timers, (deadline, next(self._numbers), timer))
        if deadline < self._wake_up_at:
            self._set_wake_up()
        return timer

    def every(self, interval_ms: float, callback: Callable[[], None], *, first_ms: float | None = None) -> None:
        """Call back again and again, `interval_ms` after the last call ended."""

        def run() -> None:
            try:
                callback()
            finally:
                if not self._is_closed:
                    self.call_later(interval_ms, run)

        self.call_later(interval_ms if first_ms is None else first_ms, run)

    def count_cancelled(self) -> None:
        """Note that a timer was cancelled, and forget all such timers when they are many and most."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MAX and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def close(self) -> None:
        """Let nothing happen any more."""
        self._is_closed = True
        self._timers.clear()
        self._cancelled = 0
        if self._wake_up is not None:
            self._wake_up.cancel()

    def _on_advance(self) -> None:
        if not self._is_closed:
            self.loop.call_soon_threadsafe(self._run_due)

    def _set_wake_up(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        self._wake_up_at = self._timers[0][0] if self._timers else float("inf")
        if self._timers and not self._is_manual:
            delay = max(0.0, self._wake_up_at - self._clock.monotonic_seconds())
            self._wake_up = self.loop.call_later(delay, self._run_due)

    def _run_due(self) -> None:
        # The loop rounds to milliseconds, and may come a little early.
        now = self._clock.monotonic_seconds() + 0.0005
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            timer.scheduler = None
            if timer.callback is None:
                self._cancelled -= 1
                continue
            try:
                timer.callback()
            except Exception:
                logger.exception("a timer failed")
        if not self._is_closed:
            self._set_wake_up()


class IoPool:
    """Threads that wait for the disk, so that the loop need not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="barnabas-io")

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `work` on a thread, and then `done(result, error)` on the loop."""
        self._pool.submit(work).add_done_callback(lambda future: self._finished(future, done))

    def _finished(self, future: "Future[Any]", done: Callable[[Any, BaseException | None], None]) -> None:
        if future.cancelled():
            return  # It had not begun when the broker stopped, and whoever asked for it stops too.
        error = future.exception()
        result = None if error is not None else future.result()
        try:
            self._loop.call_soon_threadsafe(done, result, error)
        except RuntimeError:
            pass  # The loop was closed under a broker that was killed; there is nobody to tell.

    def close(self) -> None:
        """Wait for what is running."""
        self._pool.shutdown(wait=True, cancel_futures=True)
