"""Removals: the files of deleted logs and segments, from when they got their last names to when they are gone.

    retention, the cleaner, a deleted topic --> add(..., delay) --> take_due, on the loop --> run, on any thread

Rule 1: one thread owns it; only what `take_due` returns may run on another, because removing large files takes long. It
returns the errors, for the owner to handle: a disk that fails takes logs along, which only their owner may touch.
Rule 2: files count as there until they are gone, so that nobody deletes more for room that is on its way.
Rule 3: a process that ends before forgets this list: the next start removes whatever has such a name.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.storage.log_directory import LogDirectory


class Removal(NamedTuple):
    """Files that are to be removed for good, and from when on, in seconds of the monotonic clock."""

    due_seconds: float
    directory: LogDirectory
    remove: Callable[[], None]
    size_bytes: int


class Removals:
    """What is to be removed from the folders of a broker."""

    def __init__(self, clock: Clock, attempt: Callable[[LogDirectory, Callable[[], None]], OSError | None]) -> None:
        """`attempt` runs something that changes a folder, and returns the error of its disk."""
        self._clock = clock
        self._attempt = attempt
        self._waiting: list[Removal] = []
        # Those that a thread is at.
        self._running: set[Removal] = set()

    def add(self, directory: LogDirectory, remove: Callable[[], None], size_bytes: int, delay_ms: int) -> None:
        """Remove something of a folder when `delay_ms` have passed."""
        due_seconds = self._clock.monotonic_seconds() + delay_ms / 1000
        self._waiting.append(Removal(due_seconds, directory, remove, size_bytes))

    def hasten(self, directory: LogDirectory) -> None:
        """Let what waits to be removed from a folder be due now, because room is needed there."""
        now = self._clock.monotonic_seconds()
        self._waiting = [
            it._replace(due_seconds=min(it.due_seconds, now)) if it.directory is directory else it
            for it in self._waiting
        ]

    def leaving_bytes(self, directories: Collection[LogDirectory]) -> int:
        """Return how many bytes of folders will be free when everything is removed that is to be."""
        leaving = [*self._waiting, *self._running]
        return sum(removal.size_bytes for removal in leaving if removal.directory in directories)

    def take_due(self) -> Callable[[], list[tuple[LogDirectory, OSError]]] | None:
        """Return what removes the files whose time has come, on any thread; None when there are none."""
        now = self._clock.monotonic_seconds()
        due = [removal for removal in self._waiting if removal.due_seconds <= now]
        if not due:
            return None
        self._waiting = [removal for removal in self._waiting if removal.due_seconds > now]
        self._running.update(due)

        def run() -> list[tuple[LogDirectory, OSError]]:
            failed: dict[LogDirectory, OSError] = {}
            for removal in due:
                if removal.directory.failure is None and removal.directory not in failed:
                    error = self._attempt(removal.directory, removal.remove)
                    if error is not None:
                        failed[removal.directory] = error
                self._running.discard(removal)
            return list(failed.items())

        return run
