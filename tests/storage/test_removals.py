"""Removals: when files go, what counts as still there, and folders that failed."""

from collections.abc import Callable

from barnabas.clock import ManualClock
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.removals import Removals
from tests.storage.memory_files import MemoryFiles


class Queue:
    """Removals of two folders that only note what they removed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gone: list[str] = []
        self.first, self.second = (LogDirectory(MemoryFiles(), path) for path in ("/a", "/b"))
        self.errors: dict[str, OSError] = {}
        self.removals = Removals(self.clock, self._attempt)

    def _attempt(self, directory: LogDirectory, remove: Callable[[], None]) -> OSError | None:
        remove()
        return self.errors.get(directory.path)

    def add(self, directory: LogDirectory, name: str, size: int, delay_ms: int) -> None:
        self.removals.add(directory, lambda: self.gone.append(name), size, delay_ms)

    def run(self) -> None:
        due = self.removals.take_due()
        if due is not None:
            due()


def test_files_go_when_their_time_has_come() -> None:
    queue = Queue()
    queue.add(queue.first, "late", 1, 1000)
    queue.add(queue.first, "soon", 1, 10)
    queue.run()
    assert queue.gone == []
    queue.clock.advance(10)
    queue.run()
    assert queue.gone == ["soon"]
    queue.clock.advance(990)
    queue.run()
    assert queue.gone == ["soon", "late"]
    assert queue.removals.take_due() is None


def test_bytes_count_until_they_are_gone() -> None:
    queue = Queue()
    queue.add(queue.first, "one", 100, 0)
    queue.add(queue.second, "two", 30, 0)
    assert queue.removals.leaving_bytes([queue.first]) == 100
    assert queue.removals.leaving_bytes([queue.first, queue.second]) == 130
    due = queue.removals.take_due()
    assert due is not None
    assert queue.removals.leaving_bytes([queue.first]) == 100
    due()
    assert queue.removals.leaving_bytes([queue.first, queue.second]) == 0


def test_only_the_folder_that_needs_room_is_hastened() -> None:
    queue = Queue()
    queue.add(queue.first, "one", 1, 1000)
    queue.add(queue.second, "two", 1, 1000)
    queue.removals.hasten(queue.first)
    queue.run()
    assert queue.gone == ["one"]


def test_a_folder_that_failed_is_left_alone() -> None:
    queue = Queue()
    queue.add(queue.first, "one", 1, 0)
    queue.first.failure = OSError("broken")
    queue.run()
    assert queue.gone == []
    assert queue.removals.leaving_bytes([queue.first]) == 0


def test_a_folder_that_fails_is_told_of_and_left_alone() -> None:
    """Whoever owns the logs takes them out of service, and not the thread that removes files."""
    queue = Queue()
    queue.errors["/a"] = OSError("broken")
    for name in ("one", "two"):
        queue.add(queue.first, name, 1, 0)
        queue.add(queue.second, f"other {name}", 1, 0)
    due = queue.removals.take_due()
    assert due is not None
    assert due() == [(queue.first, queue.errors["/a"])]
    assert queue.gone == ["one", "other one", "other two"]
    assert queue.removals.leaving_bytes([queue.first, queue.second]) == 0
