"""LogManager on disks that fail: one folder goes offline alone, a full one does not, and the last one is the end."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import CLEAN_SHUTDOWN_MARKER, META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from barnabas.storage.files import OsFiles
from barnabas.storage.log_manager import LogManager, NoLogDirectoryError
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import batch_of, refused
from tests.storage.memory_files import EVERYTHING, SYNCED_ONLY, MemoryFiles
from tests.storage.test_log_manager import ORDERS_0, ORDERS_1, USERS_0, A, B, Settings, checkpoint, fill, started

# Every flush is due.
FLUSHING = Settings(flush_ms=0)


@pytest.fixture
def files() -> MemoryFiles:
    """An empty disk on which nothing is pending."""
    return MemoryFiles()


def two_folders(files: MemoryFiles) -> LogManager:
    """orders-0 is in A, orders-1 in B, each with three batches that are not flushed."""
    manager = started(files, A, B, settings=FLUSHING)
    for partition in (ORDERS_0, ORDERS_1):
        fill(manager.get_or_create_log(partition), 3)
    return manager


def check_b_is_offline(manager: LogManager) -> None:
    """B and its log are out of service, and A does not mind."""
    assert [directory.failure is None for directory in manager.directories] == [True, False]
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "orders-1 is offline"):
        manager.get_log(ORDERS_1)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        manager.get_or_create_log(ORDERS_1)
    log = manager.get_log(ORDERS_0)
    assert log is not None
    fill(log, 1)
    assert manager.get_or_create_log(USERS_0).directory == f"{A}/users-0"


# While it runs.


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_flush_that_fails_takes_its_folder_offline_alone(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    manager = two_folders(files)
    files.fail(operation, under=B)
    manager.flush_dirty_logs()
    check_b_is_offline(manager)
    assert "/disks/b failed and is offline until a restart, with 1 logs" in caplog.text


def test_a_deletion_that_can_not_be_settled_is_told(files: MemoryFiles) -> None:
    manager = started(files, A, B)
    manager.get_or_create_log(ORDERS_0)
    manager.get_or_create_log(ORDERS_1)
    files.fail("sync_directory", under=B)
    manager.delete_logs([ORDERS_0, ORDERS_1])
    assert not manager.settle_deletions()
    assert [directory.failure is None for directory in manager.directories] == [True, False]
    assert not files.crash(SYNCED_ONLY).exists(f"{A}/orders-0")


def test_a_checkpoint_that_can_not_be_written_takes_its_folder_offline(files: MemoryFiles) -> None:
    manager = two_folders(files)
    files.fail("rename", under=B)
    manager.checkpoint_high_watermarks()
    check_b_is_offline(manager)


def test_files_that_can_not_be_removed_take_their_folder_offline(files: MemoryFiles) -> None:
    manager = two_folders(files)
    manager.get_or_create_log(USERS_0)
    in_b = next(p for p, managed in manager.current_logs.items() if managed.directory.path == B)
    manager.delete_log(in_b)
    manager._options.clock.advance(60_000)  # type: ignore[attr-defined]
    files.fail("remove_tree", under=B)
    manager.remove_due()
    assert [directory.failure is None for directory in manager.directories] == [True, False]


def test_whoever_sees_an_error_can_take_the_folder_offline(files: MemoryFiles) -> None:
    manager = two_folders(files)
    files.fail_directory(B)
    log = manager.get_log(ORDERS_1)
    assert log is not None
    with pytest.raises(OSError, match="Input/output error") as caught:
        log.append_as_leader(batch_of(), 0)
    directory = manager.current_logs[ORDERS_1].directory
    manager.fail_directory(directory, caught.value)
    manager.fail_directory(directory, caught.value)
    check_b_is_offline(manager)


def test_an_offline_folder_is_not_written_to_any_more(files: MemoryFiles) -> None:
    manager = two_folders(files)
    files.fail_next_sync(under=B)
    manager.flush_dirty_logs()
    before = {path: content for path, content in files.contents().items() if path.startswith(B)}
    manager.flush_dirty_logs()
    manager.checkpoint_recovery_points()
    manager.remove_due()
    manager.shutdown()
    assert {path: content for path, content in files.contents().items() if path.startswith(B)} == before
    assert files.exists(f"{A}/{CLEAN_SHUTDOWN_MARKER}")
    assert not files.exists(f"{B}/{CLEAN_SHUTDOWN_MARKER}")


def test_what_was_flushed_in_an_offline_folder_is_there_after_a_restart(files: MemoryFiles) -> None:
    manager = two_folders(files)
    manager.flush_dirty_logs()
    manager.checkpoint_recovery_points()
    log = manager.current_logs[ORDERS_1].log
    fill(log, 2)
    files.fail_next_sync(under=B)
    manager.flush_dirty_logs()
    manager.shutdown()
    again = started(files.crash(SYNCED_ONLY), A, B)
    assert 6 <= again.current_logs[ORDERS_1].log.log_end_offset <= 10
    assert again.offline_partitions == {}


def test_the_last_folder_that_fails_is_the_end(files: MemoryFiles) -> None:
    manager = two_folders(files)
    files.fail_directory(B)
    manager.flush_dirty_logs()
    fill(manager.current_logs[ORDERS_0].log, 1)
    files.fail_directory(A)
    with pytest.raises(
        NoLogDirectoryError, match=r"no log directory is left .*/disks/a: .*Input/output error.*/disks/b"
    ):
        manager.flush_dirty_logs()


def test_without_a_folder_no_log_is_made(files: MemoryFiles) -> None:
    manager = started(files, A)
    for _ in range(2):
        with pytest.raises(NoLogDirectoryError, match="no log directory is left"):
            if manager.directories[0].failure is None:
                manager.fail_directory(manager.directories[0], OSError(errno.EIO, "test"))
            manager.get_or_create_log(USERS_0)


@pytest.mark.parametrize(
    "use",
    [
        lambda manager, partition: manager.truncate_to(partition, 0),
        lambda manager, partition: manager.truncate_fully_and_start_at(partition, 0),
        lambda manager, partition: manager.delete_log(partition),
        lambda manager, partition: manager.delete_segments(partition, []),
    ],
)
def test_a_log_that_is_not_there_is_answered_with_an_error(
    files: MemoryFiles, use: Callable[[LogManager, TopicPartition], None]
) -> None:
    manager = two_folders(files)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no log of users-0"):
        use(manager, USERS_0)
    manager.fail_directory(manager.directories[1], OSError(errno.EIO, "test"))
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "orders-1 is offline"):
        use(manager, ORDERS_1)


# A full disk.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_a_failure(files: MemoryFiles, caplog: pytest.LogCaptureFixture, code: int) -> None:
    manager = two_folders(files)
    files.fail("write", code=code, under=B, once=False)
    manager.checkpoint_high_watermarks()
    manager.checkpoint_recovery_points()
    assert [directory.failure for directory in manager.directories] == [None, None]
    assert caplog.text.count("/disks/b is full, and takes no records until there is room") == 1
    log = manager.get_log(ORDERS_1)
    assert log is not None
    with pytest.raises(OSError, match=os.strerror(code)):
        log.append_as_leader(batch_of(), 0)
    assert log.log_end_offset == 6
    files.heal()
    fill(log, 1)
    manager.checkpoint_recovery_points()
    assert checkpoint(files, RECOVERY_POINT_CHECKPOINT, B) == {ORDERS_1: 0}


def test_a_full_disk_at_the_stop_leaves_no_marker(files: MemoryFiles) -> None:
    manager = two_folders(files)
    files.fail("write", code=errno.ENOSPC, under=B, once=False)
    manager.shutdown()
    files.heal()
    assert not files.exists(f"{B}/{CLEAN_SHUTDOWN_MARKER}")
    again = started(files, A, B)
    assert again.current_logs[ORDERS_1].log.log_end_offset == 6


@pytest.mark.parametrize("name", ["fdatasync", "fsync"])
def test_a_sync_that_fails_for_want_of_room_is_a_failure_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The bytes are lost, so a second sync that finds room would vouch for what is not there."""
    manager = started(OsFiles(), str(tmp_path / "a"), str(tmp_path / "b"), settings=FLUSHING)
    fill(manager.get_or_create_log(ORDERS_0), 3)

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, no_room)
        manager.flush_dirty_logs()
    assert [directory.failure is None for directory in manager.directories] == [False, True]
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        manager.get_log(ORDERS_0)
    manager.shutdown()


# At the start.


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
@pytest.mark.parametrize("operation", ["create", "write", "entries", "read"])
def test_a_folder_that_fails_at_the_start_is_offline_and_the_others_are_loaded(
    files: MemoryFiles, operation: str, code: int
) -> None:
    two_folders(files)
    files = files.crash(EVERYTHING)
    files.remove(f"{B}/.lock")
    files.fail(operation, code=code, under=B, once=False)
    manager = started(files, A, B, settings=FLUSHING)
    assert [directory.failure is None for directory in manager.directories] == [True, False]
    assert manager.current_logs[ORDERS_0].log.log_end_offset == 6
    files.heal()
    manager.shutdown()
    assert not files.exists(f"{B}/{CLEAN_SHUTDOWN_MARKER}")
    again = started(files, A, B)
    assert again.current_logs[ORDERS_1].log.log_end_offset == 6


def test_logs_that_could_not_be_loaded_are_not_made_anew_elsewhere(files: MemoryFiles) -> None:
    two_folders(files)
    files = files.crash(EVERYTHING)
    files.fail("write", code=errno.EIO, under=f"{B}/orders-1", once=False)
    manager = started(files, A, B, settings=FLUSHING)
    check_b_is_offline(manager)


@pytest.mark.parametrize("broken", [".lock", META_PROPERTIES, RECOVERY_POINT_CHECKPOINT])
def test_logs_of_a_folder_that_can_be_listed_only_are_not_made_anew_elsewhere(files: MemoryFiles, broken: str) -> None:
    two_folders(files).checkpoint_recovery_points()
    files = files.crash(EVERYTHING)
    files.fail("open", under=f"{B}/{broken}", once=False)
    manager = started(files, A, B, settings=FLUSHING)
    check_b_is_offline(manager)


def test_a_foreign_folder_is_no_reason_not_to_know_the_logs_beside_it(files: MemoryFiles) -> None:
    two_folders(files)
    files = files.crash(EVERYTHING)
    files.make_directory(f"{B}/photos")
    files.fail("open", under=f"{B}/.lock", once=False)
    check_b_is_offline(started(files, A, B, settings=FLUSHING))


def test_while_a_folder_can_not_be_listed_only_partitions_that_are_new_are_made(files: MemoryFiles) -> None:
    two_folders(files)
    files = files.crash(EVERYTHING)
    files.fail_directory(B)
    manager = started(files, A, B, settings=FLUSHING)
    assert manager.get_or_create_log(ORDERS_0).log_end_offset == 6
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "orders-1 may be in /disks/b"):
        manager.get_or_create_log(ORDERS_1)
    assert manager.get_or_create_log(USERS_0, is_new=True).directory == f"{A}/users-0"
    files.heal()
    manager.shutdown()
    assert started(files, A, B).current_logs[ORDERS_1].log.log_end_offset == 6


def test_without_a_folder_that_works_there_is_no_start(files: MemoryFiles) -> None:
    two_folders(files).shutdown()
    files.fail_directory("/disks")
    with pytest.raises(NoLogDirectoryError):
        started(files, A, B)
    files.heal()
    started(files, A, B).shutdown()


# At the stop.


def test_a_folder_that_fails_at_the_stop_is_not_clean_and_all_are_released(files: MemoryFiles) -> None:
    manager = two_folders(files)
    files.fail_next_sync(under=B)
    manager.shutdown()
    assert files.exists(f"{A}/{CLEAN_SHUTDOWN_MARKER}")
    assert not files.exists(f"{B}/{CLEAN_SHUTDOWN_MARKER}")
    started(files, A, B).shutdown()


def test_the_last_folder_that_fails_at_the_stop_is_released_too(files: MemoryFiles) -> None:
    manager = started(files, A)
    fill(manager.get_or_create_log(ORDERS_0), 1)
    files.fail_next_sync(under=A)
    with pytest.raises(NoLogDirectoryError):
        manager.shutdown()
    started(files, A).shutdown()
