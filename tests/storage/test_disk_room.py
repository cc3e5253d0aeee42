"""The reserve of a log directory: taken where there is room, given up where there is none, and taken again."""

import errno

import pytest

from barnabas.storage.disk_room import RESERVE_FILE, ROOM_BYTES_MIN
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from tests.storage.memory_files import MemoryFiles
from tests.storage.test_log_manager import ORDERS_0, A, B, fill, started

RESERVE = 4 << 20


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def manager(files: MemoryFiles) -> LogManager:
    """A manager with one log in A and a reserve in both of its folders."""
    manager = started(files, A, B)
    fill(manager.get_or_create_log(ORDERS_0), 1)
    manager.disk_room.take_reserves(manager.directories)
    return manager


def reserve_in(files: MemoryFiles, path: str) -> int | None:
    content = files.contents().get(f"{path}/{RESERVE_FILE}")
    return None if content is None else len(content)


def first(manager: LogManager) -> LogDirectory:
    return manager.directories[0]


def test_every_folder_has_a_reserve_that_nobody_takes_for_a_log(files: MemoryFiles, manager: LogManager) -> None:
    assert (reserve_in(files, A), reserve_in(files, B)) == (RESERVE, RESERVE)
    steps = files.steps
    manager.disk_room.take_reserves(manager.directories)
    assert files.steps == steps  # It is there.
    manager.shutdown()
    assert set(started(files, A, B).current_logs) == {ORDERS_0}


def test_a_write_that_finds_no_room_gets_that_of_the_reserve(
    files: MemoryFiles, manager: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    files.fail_next_write(errno.ENOSPC, under=A)
    manager.checkpoint_high_watermarks()
    assert files.exists(f"{A}/replication-offset-checkpoint")
    assert (reserve_in(files, A), reserve_in(files, B)) == (None, RESERVE)
    assert [directory.is_full for directory in manager.directories] == [True, False]
    files.fail("write", code=errno.EDQUOT, under=A, once=False)
    manager.checkpoint_high_watermarks()
    assert caplog.text.count("/disks/a is full, and takes no records until there is room") == 1


def test_there_is_room_again_when_the_reserve_fits_with_as_much_beside_it(
    files: MemoryFiles, manager: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    manager.disk_room.note_full(first(manager))
    used = files.capacity_bytes - files.disk_space(A)[1]
    files.capacity_bytes = used + 2 * RESERVE - 1
    assert not manager.find_room(first(manager))
    assert reserve_in(files, A) is None
    files.capacity_bytes += 1
    assert manager.find_room(first(manager))
    assert (reserve_in(files, A), first(manager).is_full) == (RESERVE, False)
    assert caplog.text.count("/disks/a has room again") == 1


def test_a_quota_that_the_disk_does_not_tell_of_is_found_by_trying(files: MemoryFiles, manager: LogManager) -> None:
    manager.disk_room.note_full(first(manager))
    files.fail("allocate", code=errno.EDQUOT, under=A, once=False)
    assert not manager.find_room(first(manager))
    assert reserve_in(files, A) is None
    files.heal()
    files.fail("allocate", code=errno.EDQUOT, under=f"{A}/.barnabas-probe", once=False)
    assert not manager.find_room(first(manager))
    files.heal()
    assert manager.find_room(first(manager))
    assert not files.exists(f"{A}/.barnabas-probe")


def test_a_folder_that_fails_while_it_is_looked_at_is_offline(files: MemoryFiles, manager: LogManager) -> None:
    manager.disk_room.note_full(first(manager))
    files.fail("allocate", code=errno.EIO, under=A)
    assert not manager.find_room(first(manager))
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    assert not manager.disk_room.note_full(first(manager))


def test_a_folder_without_room_for_a_reserve_is_full_from_the_start(files: MemoryFiles) -> None:
    manager = started(files, A)
    files.capacity_bytes = files.capacity_bytes - files.disk_space(A)[1] + RESERVE
    manager.disk_room.take_reserves(manager.directories)
    assert first(manager).is_full
    assert reserve_in(files, A) is None


def test_a_start_on_a_disk_that_is_full_gives_up_the_reserve_first(files: MemoryFiles, manager: LogManager) -> None:
    manager.disk_room.check(manager.directories)
    assert reserve_in(files, A) == RESERVE
    files.capacity_bytes = files.capacity_bytes - files.disk_space(A)[1] + ROOM_BYTES_MIN - 1
    manager.disk_room.check(manager.directories)
    assert (reserve_in(files, A), first(manager).is_full) == (None, True)


def test_without_a_reserve_there_is_room_when_something_is_free(files: MemoryFiles) -> None:
    manager = started(files, A)
    manager.disk_room.reserve_bytes = 0
    manager.disk_room.take_reserves(manager.directories)
    assert reserve_in(files, A) is None
    assert not manager.disk_room.note_full(first(manager))
    assert manager.find_room(first(manager))
    assert manager.disk_room.free_bytes(first(manager)) > 0
    files.fail("disk_space", under=A, once=False)
    assert manager.disk_room.free_bytes(first(manager)) == 0
