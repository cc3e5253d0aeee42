"""Segments that wait to be removed: whoever needs their names first gets them, and nobody else's files are touched."""

import errno
from typing import Any
from uuid import UUID

import pytest

from barnabas.clock import ManualClock
from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.cleaning import LogCleaning
from barnabas.storage.cleaner.job import CleanedGroup
from barnabas.storage.cleaner.preparation import CleanerLimits, PreparedClean, log_view
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.verifier import Fault, verify_partition
from tests.storage.memory_files import EVERYTHING, MemoryFiles
from tests.storage.test_log_manager import ORDERS_0, SMALL, A, Settings, fill, names_in, started

FOLDER = f"{A}/orders-0"
DELAY_MS = 60_000


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def retained(manager: LogManager, log: Log, up_to: int) -> None:
    """Let retention take the segments that end at an offset or before."""
    taken = log.delete_old_segments(lambda _, end_offset: end_offset <= up_to)
    assert len(taken) > 1
    manager.delete_segments(ORDERS_0, taken)


def cleaned(manager: LogManager, files: MemoryFiles, log: Log, now_ms: int) -> None:
    prepared = PreparedClean(log, cleanable_part(log_view(log), now_ms), CleanerLimits(), now_ms)
    for answer in LogCleaning(files, prepared.job).run():
        if isinstance(answer, CleanedGroup):
            manager.delete_segments(ORDERS_0, prepared.swap(answer))


def faults(files: MemoryFiles, *, is_clean: bool = True) -> list[Fault]:
    found: list[Fault] = []
    assert list(verify_partition(files, FOLDER, found.append, is_clean=is_clean))
    return found


def test_a_topic_that_is_made_again_keeps_its_files_when_those_of_the_old_one_are_due(
    files: MemoryFiles, clock: ManualClock
) -> None:
    manager = started(files, A, clock=clock)
    log = manager.get_or_create_log(ORDERS_0, UUID(int=1))
    fill(log, 20)
    retained(manager, log, 20)
    clock.advance(DELAY_MS // 2)
    manager.delete_log(ORDERS_0)
    new = manager.get_or_create_log(ORDERS_0, UUID(int=2))
    fill(new, 20)
    new.flush()
    before = names_in(files, FOLDER)
    clock.advance(DELAY_MS)
    manager.remove_due()
    assert names_in(files, FOLDER) == before
    assert names_in(files, A).count("orders-0") == 1
    manager.shutdown()
    assert faults(files) == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_cleaned_and_then_deleted_is_removed_once_each(
    files: MemoryFiles, clock: ManualClock, caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    """Both give their data the same name, and the older of the two is due first."""
    settings = Settings(**SMALL, cleanup_policy=("compact", "delete"))
    manager = started(files, A, clock=clock, settings=settings)
    log = manager.get_or_create_log(ORDERS_0, UUID(int=1))
    fill(log, 20)
    log.flush()
    cleaned(manager, files, log, clock.now_ms())
    clock.advance(DELAY_MS // 2)
    retained(manager, log, 30)
    clock.advance(DELAY_MS // 2)
    manager.remove_due()
    assert f"{0:020d}.log.deleted" in names_in(files, FOLDER)  # That of retention, whose time has not come.
    if is_clean:
        manager.shutdown()
    stopped = files if is_clean else files.crash(EVERYTHING)
    assert faults(stopped, is_clean=is_clean) == []
    started(stopped, A, clock=clock, settings=settings)
    assert [name for name in names_in(stopped, FOLDER) if name.endswith(".deleted")] == []
    assert not any("has no log file" in record.message for record in caplog.records)


def test_a_crash_at_any_moment_of_a_removal_leaves_nothing_that_is_not_understood(
    files: MemoryFiles, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    manager = started(files, A, clock=clock)
    log = manager.get_or_create_log(ORDERS_0, UUID(int=1))
    fill(log, 20)
    log.flush()
    retained(manager, log, 10)
    clock.advance(DELAY_MS)
    crashed: list[MemoryFiles] = []
    files.before_step = lambda: crashed.append(files.crash(EVERYTHING))
    manager.remove_due()
    files.before_step = lambda: None
    assert len(crashed) > 5
    for left in crashed:
        assert faults(left, is_clean=False) == []
        started(left, A).shutdown()
        assert faults(left) == []
    assert not any("has no log file" in record.message for record in caplog.records)


def test_what_could_not_be_removed_for_want_of_room_is_tried_again(files: MemoryFiles, clock: ManualClock) -> None:
    manager = started(files, A, clock=clock)
    manager.disk_room.take_reserves(manager.directories)
    log = manager.get_or_create_log(ORDERS_0, UUID(int=1))
    fill(log, 20)
    retained(manager, log, 10)
    files.fail("remove", code=errno.ENOSPC, under=f"{FOLDER}/{0:020d}.timeindex")
    clock.advance(DELAY_MS)
    manager.remove_due()
    left = [name for name in names_in(files, FOLDER) if name.startswith(f"{0:020d}.")]
    assert [name for name in left if not name.endswith(".snapshot")] == []


def test_a_segment_of_the_same_place_makes_way(files: MemoryFiles, clock: ManualClock) -> None:
    """Two cleans within the delay: the second gives the same names again."""
    manager = started(files, A, clock=clock, settings=Settings(**SMALL, cleanup_policy=("compact",)))
    log = manager.get_or_create_log(ORDERS_0, UUID(int=1))
    for _ in range(2):
        fill(log, 20)
        log.roll()
        log.flush()
        cleaned(manager, files, log, clock.now_ms())
        log.first_dirty_offset = 0
        clock.advance(DELAY_MS // 4)
    clock.advance(DELAY_MS)
    manager.remove_due()
    assert [name for name in names_in(files, FOLDER) if name.endswith(".deleted")] == []
    manager.shutdown()
    assert faults(files) == []


def test_a_log_that_is_closed_leaves_its_files_alone(files: MemoryFiles, clock: ManualClock) -> None:
    manager = started(files, A, clock=clock)
    log: Any = manager.get_or_create_log(ORDERS_0, UUID(int=1))
    fill(log, 20)
    taken = log.delete_old_segments(lambda _, end_offset: end_offset <= 10)
    log.close()
    before = names_in(files, FOLDER)
    for segment in taken:
        log.remove_files(segment)
        segment.is_deleted = True
        log.leaving.remove_again(segment)
        log.leaving.make_way(segment.base_offset)
    assert names_in(files, FOLDER) == before
