"""Group commit: who is appended while a flush runs is flushed by the next one, and a failure is never tried again."""

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.log_flusher import LogFlusher
from barnabas.model import NO_OFFSET
from barnabas.storage.log import Log
from tests.broker.loops import HandLoop, hand_loop
from tests.storage.builders import batch_of, open_log
from tests.storage.memory_files import MemoryFiles


class Pool:
    """Does its work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.waiting.append((work, done))

    def run_next(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            result, error = work(), None
        except Exception as failure:  # noqa: BLE001 (as a real pool does)
            result, error = None, failure
        done(result, error)


class Setting:
    """A flusher with a loop and a pool that are turned by hand, and two logs on a disk in memory."""

    def __init__(self, hand: HandLoop) -> None:
        self.hand = hand
        self.disk = MemoryFiles()
        self.pool = Pool()
        self.flushed: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int | None]] = []
        self.flusher = LogFlusher(
            hand.loop,
            self.pool,  # type: ignore[arg-type]
            lambda log: self.flushed.append((log.directory, log.recovery_point)),
            lambda log, error: self.failed.append((log.directory, error.errno)),
        )
        self.a = open_log(self.disk, "/data/a-0")
        self.b = open_log(self.disk, "/data/b-0")

    def append(self, log: Log) -> None:
        log.append_as_leader(memoryview(batch_of()), 0)
        self.flusher.request(log)


@pytest.fixture
def setting() -> Iterator[Setting]:
    with hand_loop() as hand:
        setting = Setting(hand)
        yield setting
        for log in (setting.a, setting.b):
            if not log.is_closed:
                log.close()


def test_a_flush_begins_at_the_end_of_the_turn_and_serves_all_its_appends(setting: Setting) -> None:
    for _ in range(3):
        setting.append(setting.a)
    assert setting.pool.waiting == []
    setting.hand.turn()
    assert len(setting.pool.waiting) == 1
    setting.pool.run_next()
    assert setting.flushed == [("/data/a-0", 3)]
    assert setting.flusher.flushes == 1


def test_appends_during_a_flush_share_the_next_one(setting: Setting) -> None:
    setting.append(setting.a)
    setting.hand.turn()
    for _ in range(4):
        setting.append(setting.a)
        setting.hand.turn()
    assert len(setting.pool.waiting) == 1
    setting.pool.run_next()
    assert setting.flushed == [("/data/a-0", 1)]  # It promises what was there when it began.
    assert len(setting.pool.waiting) == 1
    setting.pool.run_next()
    assert setting.flushed[1:] == [("/data/a-0", 5)]
    assert setting.pool.waiting == []


def test_a_log_that_waits_for_its_second_flush_keeps_no_other_log_waiting(setting: Setting) -> None:
    setting.append(setting.a)
    setting.hand.turn()
    setting.append(setting.a)
    setting.hand.turn()  # The second flush of a has to wait for the first.
    setting.append(setting.b)
    setting.hand.turn()
    assert len(setting.pool.waiting) == 2
    while setting.pool.waiting:
        setting.pool.run_next()
        setting.hand.turn()
    assert sorted(setting.flushed) == [("/data/a-0", 1), ("/data/a-0", 2), ("/data/b-0", 1)]


def test_a_failed_flush_is_told_and_not_tried_again(setting: Setting) -> None:
    setting.append(setting.a)
    setting.hand.turn()
    setting.append(setting.a)
    setting.hand.turn()
    setting.disk.fail_next_sync(under="/data/a-0")
    setting.pool.run_next()
    setting.hand.turn()
    assert setting.failed == [("/data/a-0", errno.EIO)]
    assert setting.flushed == []
    assert setting.pool.waiting == []


def test_a_log_that_was_closed_meanwhile_is_not_spoken_of(setting: Setting) -> None:
    setting.append(setting.a)
    setting.hand.turn()
    setting.append(setting.a)
    setting.hand.turn()
    setting.a.abandon()
    setting.pool.run_next()
    setting.hand.turn()
    assert (setting.flushed, setting.failed, setting.pool.waiting) == ([], [], [])
    setting.flusher.request(setting.a)
    setting.hand.turn()
    assert setting.pool.waiting == []


def test_a_log_without_anything_to_flush_needs_no_thread(setting: Setting) -> None:
    setting.append(setting.a)
    setting.hand.turn()
    setting.pool.run_next()
    setting.flusher.request(setting.a)
    setting.hand.turn()
    assert setting.pool.waiting == []
    assert NO_OFFSET not in [offset for _, offset in setting.flushed]
