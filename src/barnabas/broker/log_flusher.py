"""LogFlusher: fsyncs in the pool, shared by all appends that wait for one (group commit).

    append 1 --> flush of log A begins in the pool
    append 2 --> log A is being flushed already: it is flushed again afterwards,
    append 3 -->   once for both

Rule 1: one flush of a log at a time, so that what it promises is what was appended before it began.
Rule 2: a flush begins at the end of the loop's turn, when all requests that came together are appended.
Rule 3: a failed fsync is never tried again: what it should have written may be gone from the page cache.
"""

import asyncio
from collections.abc import Callable

from barnabas.broker.scheduler import IoPool
from barnabas.storage.log import Log
from barnabas.storage.log_types import PendingFlush


class LogFlusher:
    """Flushes logs beside the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: IoPool,
        on_flushed: Callable[[Log], None],
        on_failed: Callable[[Log, OSError], None],
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._due: dict[Log, None] = {}
        self._running: set[Log] = set()
        # Flushed once more when the flush that is running has ended. Apart from `_due`, which is begun in this turn.
        self._again: set[Log] = set()
        self.flushes = 0

    def request(self, log: Log) -> None:
        """Flush a log soon; `on_flushed` is called when everything that is in it now is on the disk."""
        if not self._due:
            self._loop.call_soon(self._begin)
        self._due[log] = None

    def is_running(self, log: Log) -> bool:
        """Tell whether a log is being flushed at the moment."""
        return log in self._running

    def _begin(self) -> None:
        waiting, self._due = self._due, {}
        for log in waiting:
            if log in self._running:
                self._again.add(log)
            else:
                self._start(log)

    def _start(self, log: Log) -> None:
        pending = None if log.is_closed else log.prepare_flush()
        if pending is not None:
            self._running.add(log)
            self.flushes += 1
            self._pool.submit(pending.run, lambda _, error: self._finished(pending, error))

    def _finished(self, pending: PendingFlush, error: BaseException | None) -> None:
        log = pending.log
        self._running.discard(log)
        if log.is_closed:
            self._again.discard(log)
            return
        try:
            if error is not None:
                raise error
            log.finish_flush(pending)
        except OSError as failure:
            self._again.discard(log)
            self._on_failed(log, failure)
            return
        self._on_flushed(log)
        if log in self._again:
            self._again.discard(log)
            self._start(log)
