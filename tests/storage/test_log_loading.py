"""Logs on their way into service: what comes first, what can be seen of it, and that stopping loses nothing."""

import errno
import threading
from typing import Any

import pytest

from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.loader import load_log, segment_sizes
from barnabas.storage.log_directory import LogDirectoryError
from barnabas.storage.log_loading import bytes_text
from barnabas.storage.log_manager import LogManager
from barnabas.wire.errors import ErrorCode
from tests.broker.turning import until
from tests.storage.builders import refused
from tests.storage.memory_files import EVERYTHING, SYNCED_ONLY, MemoryFiles
from tests.storage.test_log_manager import ORDERS_0, ORDERS_1, USERS_0, A, B, checkpoint, fill, manager_of, started


@pytest.fixture
def killed() -> MemoryFiles:
    """A disk after a kill: ten records of orders-0, of which two are deleted and four flushed, two of users-0."""
    files = MemoryFiles()
    manager = started(files)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 2)
    log.flush()
    fill(log, 3)
    log.delete_records(2)
    fill(manager.get_or_create_log(USERS_0), 1)
    manager.get_or_create_log(ORDERS_1)
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_start_offsets()
    manager.checkpoint_high_watermarks()
    return files.crash(EVERYTHING)


class Gate:
    """Holds logs until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        load = load_log

        def held(options: Any, known: Any, on_progress: Any = None) -> Any:
            if options.directory.endswith(names):
                self.reached.set()
                while on_progress is not None and not self.open.wait(0.001):
                    on_progress(0)
            return load(options, known, on_progress)

        monkeypatch.setattr("barnabas.storage.log_loading.load_log", held)


def begun(files: MemoryFiles, *paths: str, eager_bytes: int = 0) -> LogManager:
    manager = manager_of(files, *(paths or (A,)))
    manager.start(eager_bytes=eager_bytes)
    return manager


def finish(manager: LogManager) -> None:
    until(lambda: manager.take_loaded() is not None and not manager.loading.all())


def test_what_has_nothing_to_recover_comes_at_once_and_the_rest_as_it_is_ready(
    killed: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "orders-0", "users-0")
    manager = begun(killed)
    assert set(manager.current_logs) == {ORDERS_1}
    assert set(manager.loading.current) == {ORDERS_0, USERS_0}
    assert manager.loading.progress[:2] == (0, 2)
    assert manager.directories[0].log_count == 3
    for use in (manager.get_log, manager.get_or_create_log):
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "users-0 is being recovered"):
            use(USERS_0)
    gate.open.set()
    finish(manager)
    assert manager.current_logs[ORDERS_0].log.log_start_offset == 2
    assert manager.current_logs[ORDERS_0].log.high_watermark.message_offset == 10
    done = manager.loading.progress
    assert (done.logs_done, done.bytes_done) == (done.logs_total, done.bytes_total)
    manager.shutdown()
    assert killed.exists(f"{A}/{CLEAN_SHUTDOWN_MARKER}")


def test_as_much_as_is_wanted_is_recovered_before_the_start_returns(killed: MemoryFiles) -> None:
    sizes = {name: segment_sizes(killed, f"{A}/{name}", 0)[1] for name in ("orders-0", "users-0")}
    assert sizes["users-0"] < sizes["orders-0"]
    manager = begun(killed, eager_bytes=sizes["users-0"])
    assert set(manager.current_logs) >= {ORDERS_1, USERS_0}
    finish(manager)
    manager.shutdown()


def test_after_a_clean_stop_everything_is_there_when_the_start_returns(killed: MemoryFiles) -> None:
    started(killed).shutdown()
    manager = begun(killed)
    assert set(manager.current_logs) == {ORDERS_0, ORDERS_1, USERS_0}
    assert manager.loading.progress == (0, 0, 0, 0)


def test_only_the_segments_from_the_recovery_point_on_are_counted(killed: MemoryFiles) -> None:
    whole, from_start = segment_sizes(killed, f"{A}/orders-0", 0)
    assert whole == from_start
    assert segment_sizes(killed, f"{A}/orders-0", 10)[1] < whole


def test_checkpoints_go_on_saying_of_a_loading_log_what_they_said(
    killed: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "orders-0")
    manager = begun(killed)
    assert gate.reached.wait(60)
    names = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
    for name in names:
        manager._write_everywhere(name)
    assert [checkpoint(killed, name)[ORDERS_0] for name in names] == [4, 2, 10]
    gate.open.set()
    finish(manager)


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_stop_while_logs_are_loading_is_not_clean_and_loses_nothing(
    killed: MemoryFiles, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    gate = Gate(monkeypatch, "orders-0", "users-0")
    manager = begun(killed)
    assert gate.reached.wait(60)
    if is_begun:
        gate.open.set()
        until(lambda: len(manager.loading.ready()) == 2)
    manager.shutdown()
    gate.open.set()
    assert not killed.exists(f"{A}/{CLEAN_SHUTDOWN_MARKER}")
    assert checkpoint(killed, RECOVERY_POINT_CHECKPOINT)[ORDERS_0] == 4
    again = started(killed)
    assert again.current_logs[ORDERS_0].log.log_end_offset == 10
    assert again.current_logs[ORDERS_0].log.log_start_offset == 2


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_loading_log_can_be_deleted_and_leaves_nothing(
    killed: MemoryFiles, monkeypatch: pytest.MonkeyPatch, is_ready: bool
) -> None:
    gate = Gate(monkeypatch, "orders-0")
    manager = begun(killed)
    assert gate.reached.wait(60)
    if is_ready:
        gate.open.set()
        until(lambda: not manager.loading.all() or len(manager.loading.ready()) == len(manager.loading.all()))
    manager.delete_logs([ORDERS_0])
    finish(manager)
    assert manager.get_log(ORDERS_0) is None
    assert manager.settle_deletions()
    assert ORDERS_0 not in checkpoint(killed, RECOVERY_POINT_CHECKPOINT)
    manager._options.clock.advance(60_000)  # type: ignore[attr-defined]
    manager.remove_due()
    assert not [entry.name for entry in killed.entries(A) if entry.name.startswith("orders-0")]
    assert manager.get_or_create_log(ORDERS_0).log_end_offset == 0
    gate.open.set()
    assert started(killed.crash(SYNCED_ONLY)).current_logs[ORDERS_0].log.log_end_offset == 0


def test_a_log_that_fails_to_load_takes_its_folder_offline(
    killed: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "orders-0", "users-0")
    manager = begun(killed, A, B)
    killed.fail("read", under=f"{A}/orders-0", once=False)
    gate.open.set()
    finish(manager)
    assert set(manager.offline_partitions) == {ORDERS_0, ORDERS_1, USERS_0}
    assert manager.directories[1].failure is None
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        manager.get_or_create_log(USERS_0)


def test_a_log_that_finds_no_room_is_loaded_when_there_is_some(killed: MemoryFiles) -> None:
    killed.fail("open", code=errno.ENOSPC, under=f"{A}/orders-0", once=False)
    manager = begun(killed)
    until(lambda: manager.take_loaded() is not None and USERS_0 in manager.current_logs)
    until(lambda: manager.take_loaded() is not None and manager.directories[0].is_full)
    assert set(manager.loading.current) == {ORDERS_0}
    killed.heal()
    assert manager.find_room(manager.directories[0])
    finish(manager)
    assert ORDERS_0 in manager.current_logs


def test_a_log_that_waits_for_room_can_be_deleted_and_makes_some(killed: MemoryFiles) -> None:
    killed.fail("open", code=errno.ENOSPC, under=f"{A}/orders-0", once=False)
    manager = begun(killed)
    until(lambda: manager.take_loaded() is not None and manager.directories[0].is_full)
    until(lambda: manager.loading.current[ORDERS_0].future is None)
    manager.delete_logs([ORDERS_0])
    assert ORDERS_0 not in manager.loading.current
    killed.heal()
    assert manager.settle_deletions()
    assert not killed.exists(f"{A}/orders-0")
    assert [name for name in killed.names(A) if name.startswith("orders-0.") and name.endswith("-delete")]
    finish(manager)
    assert ORDERS_0 not in manager.current_logs


def test_recovery_on_a_full_disk_does_without_room_for_indexes(killed: MemoryFiles) -> None:
    killed.fail("write", code=errno.ENOSPC, under=f"{A}/orders-0", once=False)
    manager = started(killed)
    log = manager.current_logs[ORDERS_0].log
    assert log.log_end_offset == 10
    found = log.read(7, 1 << 20, log.log_end)
    assert found.records is not None
    manager.shutdown()
    assert not killed.exists(f"{A}/{CLEAN_SHUTDOWN_MARKER}")


def test_a_partition_in_two_folders_is_refused(killed: MemoryFiles) -> None:
    killed.make_directory(f"{B}/orders-0")
    with pytest.raises(LogDirectoryError, match="orders-0 is in /disks/a/orders-0 and in /disks/b/orders-0"):
        begun(killed, A, B)
    started(killed, A).shutdown()  # The folders were given back.


def test_bytes_are_told_as_people_say_them() -> None:
    assert (bytes_text(0), bytes_text(3 << 19), bytes_text(3650722201)) == ("0.0 MB", "1.5 MB", "3.4 GB")
