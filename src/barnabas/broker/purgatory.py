"""Purgatory: operations that wait for something to happen to a partition, or for their time-out.

A produce waits for the disk or for replicas (DelayedProduce), a fetch for data (DelayedFetch). Each is watched under
keys, mostly partitions; whoever changes a partition checks its key.

Rule 1: an operation ends once: by `try_complete` that returned true, by its time-out, or because it was taken back.
Rule 2: an operation that ended is watched nowhere; nothing is left behind under a key that is never checked again.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from barnabas.broker.scheduler import Scheduler, Timer


class DelayedOperation(Protocol):
    """Something that waits."""

    def try_complete(self) -> bool:
        """Complete, if what it waits for has happened."""
        ...

    def on_expiration(self) -> None:
        """Complete with what there is, because the time is over."""
        ...


class Watched:
    """An operation in the purgatory."""

    __slots__ = ("keys", "operation", "timer")

    def __init__(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        self.operation = operation
        self.keys = keys
        self.timer: Timer


class Purgatory:
    """Where operations of one kind wait."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._watched: dict[Hashable, dict[Watched, None]] = {}
        self.size = 0

    def watch(self, operation: DelayedOperation, keys: Sequence[Hashable], timeout_ms: float) -> Watched:
        """Let an operation wait that could not complete yet."""
        watched = Watched(operation, tuple(dict.fromkeys(keys)))  # A request may name a partition twice.
        watched.timer = self._scheduler.call_later(timeout_ms, lambda: self._expire(watched))
        for key in keys:
            self._watched.setdefault(key, {})[watched] = None
        self.size += 1
        return watched

    def is_watching(self, key: Hashable) -> bool:
        """Tell whether anybody waits for this."""
        return key in self._watched

    def check(self, key: Hashable) -> None:
        """Complete what waits for this and has waited long enough."""
        self.check_all((key,))

    def check_all(self, keys: Iterable[Hashable]) -> None:
        """Check several keys; who waits for many of them is asked once, since one question is about all its keys."""
        waiting = {watched: None for key in keys for watched in self._watched.get(key, ())}
        for watched in waiting:
            if watched.timer.callback is not None and watched.operation.try_complete():
                self.remove(watched)

    def remove(self, watched: Watched) -> None:
        """Take an operation out: it is completed, or nobody is interested in it any more."""
        if watched.timer.callback is None:
            return
        watched.timer.cancel()
        self.size -= 1
        for key in watched.keys:
            waiting = self._watched[key]
            waiting.pop(watched, None)
            if not waiting:
                del self._watched[key]

    def _expire(self, watched: Watched) -> None:
        self.remove(watched)
        watched.operation.on_expiration()

    def expire_all(self) -> None:
        """Complete everything with what there is, because the broker stops."""
        for waiting in list(self._watched.values()):
            for watched in list(waiting):
                if watched.timer.callback is not None:
                    self._expire(watched)
