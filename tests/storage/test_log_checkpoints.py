"""The checkpoints of log directories: none vouches for what comes after it, wherever the broker was killed."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
    write_offsets,
)
from barnabas.storage.files import OsFiles, write_whole
from barnabas.storage.log_directory import LogDirectoryError
from barnabas.storage.log_manager import LogManager
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import refused
from tests.storage.memory_files import EVERYTHING, SYNCED_ONLY, DiskStoppedError, Keep, MemoryFiles
from tests.storage.test_log_manager import (
    HEX,
    ORDERS_0,
    ORDERS_1,
    SMALL,
    A,
    B,
    Settings,
    checkpoint,
    fill,
    names_in,
    started,
)

WRITTEN = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


@pytest.fixture
def files() -> MemoryFiles:
    """An empty disk on which nothing is pending."""
    return MemoryFiles()


def write_all(manager: LogManager) -> None:
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_start_offsets()
    manager.checkpoint_high_watermarks()


def with_one_log(files: MemoryFiles, batches: int = 20, start: int = 0) -> LogManager:
    """A manager with orders-0, flushed, and with checkpoints that say so."""
    manager = started(files)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, batches)
    log.delete_records(start)
    log.flush()
    write_all(manager)
    return manager


# Truncation.


@pytest.mark.parametrize("keep", [EVERYTHING, SYNCED_ONLY], ids=str)
def test_a_log_that_was_cut_below_its_start_is_not_taken_for_one_that_lost_its_end(
    files: MemoryFiles, keep: Keep
) -> None:
    manager = with_one_log(files, start=32)
    manager.truncate_to(ORDERS_0, 20)
    log = manager.current_logs[ORDERS_0].log
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    fill(log, 4)
    log.flush()
    manager.checkpoint_recovery_points()
    again = started(files.crash(keep)).current_logs[ORDERS_0].log
    assert (again.log_start_offset, again.log_end_offset) == (20, 28)


def test_a_cut_at_the_end_takes_an_epoch_without_records_along(files: MemoryFiles) -> None:
    manager = with_one_log(files, batches=2)
    log = manager.current_logs[ORDERS_0].log
    log.leader_epochs.assign(7, log.log_end_offset)
    manager.truncate_to(ORDERS_0, log.log_end_offset)
    assert log.leader_epochs.entries == [(0, 0)]


@pytest.mark.parametrize("cut", [LogManager.truncate_to, LogManager.truncate_fully_and_start_at])
def test_a_cut_before_the_first_offset_changes_nothing(files: MemoryFiles, cut: Callable[..., None]) -> None:
    manager = with_one_log(files, batches=2)
    steps = files.steps
    with pytest.raises(ValueError, match="offset -1"):
        cut(manager, ORDERS_0, -1)
    assert files.steps == steps
    assert manager.current_logs[ORDERS_0].log.recovery_point == 4


def cut_to(manager: LogManager, offset: int) -> None:
    manager.truncate_to(ORDERS_0, offset)


def cut_all(manager: LogManager, offset: int) -> None:
    manager.truncate_fully_and_start_at(ORDERS_0, offset)


@pytest.mark.parametrize("cut", [cut_to, cut_all])
@pytest.mark.parametrize("offset", [0, 5, 12, 30])
@pytest.mark.parametrize("start", [0, 7, 24])
def test_checkpoints_are_lowered_before_anything_is_cut(
    files: MemoryFiles, cut: Callable[[LogManager, int], None], offset: int, start: int
) -> None:
    manager = with_one_log(files, start=start)
    before = files.steps
    cut(manager, offset)
    cuts = [
        before + number
        for number, step in enumerate(files.performed[before:], 1)
        if "/orders-0/" in step and not step.startswith("sync")
    ]
    for step in (cuts[0], cuts[-1], files.steps):
        files = MemoryFiles()
        manager = with_one_log(files, start=start)
        files.stop_at_step = step
        try:
            cut(manager, offset)
        except DiskStoppedError:
            pass
        found = files.crash(SYNCED_ONLY)
        assert checkpoint(found, RECOVERY_POINT_CHECKPOINT)[ORDERS_0] <= offset
        assert checkpoint(found, LOG_START_OFFSET_CHECKPOINT).get(ORDERS_0, 0) <= offset


def test_a_cut_that_could_not_be_announced_is_not_made(files: MemoryFiles) -> None:
    manager = with_one_log(files, start=32)
    log = manager.current_logs[ORDERS_0].log
    files.fail_next_write(under=A)
    with pytest.raises(OSError, match="No space left"):
        manager.truncate_to(ORDERS_0, 20)
    assert (log.log_start_offset, log.log_end_offset) == (32, 40)


def test_a_cut_at_or_behind_the_end_writes_nothing(files: MemoryFiles) -> None:
    manager = with_one_log(files)
    before = files.steps
    manager.truncate_to(ORDERS_0, 40)
    assert files.steps == before


# What a start finds.


@pytest.mark.parametrize("name", WRITTEN)
def test_lines_of_logs_that_are_gone_are_gone_after_a_start(files: MemoryFiles, name: str) -> None:
    with_one_log(files, start=7).shutdown()
    offsets = {**checkpoint(files, name), ORDERS_1: 35}
    write_offsets(files, f"{A}/{name}", offsets)
    started(files)
    assert checkpoint(files.crash(SYNCED_ONLY), name) == {p: offset for p, offset in offsets.items() if p == ORDERS_0}


def test_lines_of_logs_in_another_folder_are_gone_after_a_start(files: MemoryFiles) -> None:
    manager = started(files, A, B)
    for partition in (ORDERS_0, ORDERS_1):
        fill(manager.get_or_create_log(partition), 3)
    manager.shutdown()
    write_offsets(files, f"{A}/{RECOVERY_POINT_CHECKPOINT}", {ORDERS_0: 6, ORDERS_1: 6})
    started(files, A, B)
    assert checkpoint(files, RECOVERY_POINT_CHECKPOINT) == {ORDERS_0: 6}
    assert checkpoint(files, RECOVERY_POINT_CHECKPOINT, B) == {ORDERS_1: 6}


def test_a_log_that_is_made_again_after_a_deletion_was_killed_inherits_nothing(files: MemoryFiles) -> None:
    manager = with_one_log(files, start=7)
    before = files.steps
    manager.delete_log(ORDERS_0)
    renamed = next(place for place, step in enumerate(files.performed[before:], 1) if step.startswith("rename"))
    files = MemoryFiles()
    manager = with_one_log(files, start=7)
    files.stop_at_step = before + renamed + 1
    with pytest.raises(DiskStoppedError):
        manager.delete_log(ORDERS_0)
    files = files.crash(EVERYTHING)
    assert checkpoint(files, LOG_START_OFFSET_CHECKPOINT) == {ORDERS_0: 7}
    manager = started(files)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 2)
    log.flush()
    again = started(files.crash(EVERYTHING)).current_logs[ORDERS_0].log
    assert (again.log_start_offset, again.log_end_offset) == (0, 4)


def test_recovery_points_beyond_what_was_found_are_lowered_at_once(files: MemoryFiles) -> None:
    manager = with_one_log(files)
    manager.current_logs[ORDERS_0].log.truncate_fully_and_start_at(0)  # As if killed before the checkpoints.
    files = files.crash(EVERYTHING)
    assert checkpoint(files, RECOVERY_POINT_CHECKPOINT) == {ORDERS_0: 40}
    started(files)
    found = files.crash(SYNCED_ONLY)
    assert checkpoint(found, RECOVERY_POINT_CHECKPOINT) == {ORDERS_0: 0}
    assert checkpoint(found, HIGH_WATERMARK_CHECKPOINT) == {ORDERS_0: 0}


def test_recovery_points_that_can_not_be_lowered_on_a_full_disk_are_dropped(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with_one_log(files).shutdown()
    write_offsets(files, f"{A}/{RECOVERY_POINT_CHECKPOINT}", {ORDERS_0: 40, ORDERS_1: 9})
    files.fail("write", code=errno.ENOSPC, once=False)
    manager = started(files)
    assert manager.current_logs[ORDERS_0].log.log_end_offset == 40
    assert not files.crash(SYNCED_ONLY).exists(f"{A}/{RECOVERY_POINT_CHECKPOINT}")
    assert "/disks/a can not be written to for now" in caplog.text


def test_a_log_can_be_in_a_checkpoint_before_it_is_in_the_folder(files: MemoryFiles) -> None:
    manager = with_one_log(files)
    joining = replace(manager.current_logs[ORDERS_0], partition=ORDERS_1)
    manager.checkpoints.write(manager.directories[0], RECOVERY_POINT_CHECKPOINT, joining=joining)
    found = read_offsets(files, f"{A}/{RECOVERY_POINT_CHECKPOINT}")
    assert found == dict.fromkeys((ORDERS_0, ORDERS_1), joining.log.recovery_point)
    again = files.crash(EVERYTHING)
    started(again)  # It never came, so this takes it out.
    assert ORDERS_1 not in read_offsets(again, f"{A}/{RECOVERY_POINT_CHECKPOINT}")


def test_what_was_left_of_files_that_were_to_be_replaced_is_removed(files: MemoryFiles) -> None:
    started(files).shutdown()
    names = [f"{name}.tmp" for name in (*OFFSET_CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN_MARKER)]
    for name in (*names, "notes.tmp"):
        files.open(f"{A}/{name}", writable=True).close()
    started(files)
    assert [name for name in names_in(files, A) if name.endswith(".tmp")] == ["notes.tmp"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_checkpoint_that_is_too_large_costs_no_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path = str(tmp_path)
    manager = started(OsFiles(), path)
    fill(manager.get_or_create_log(ORDERS_0), 5)
    manager.shutdown()
    OsFiles().open(f"{path}/{name}", writable=True).truncate(3 * 2**30)
    manager = started(OsFiles(), path)
    assert manager.current_logs[ORDERS_0].log.log_end_offset == 10
    assert f"{path}/{name}, line 1: the file has 3221225472 bytes" in caplog.text
    manager.shutdown()
    assert read_offsets(OsFiles(), f"{path}/{name}").get(ORDERS_0, 0) in (0, 10)


# A deletion on a full disk.


def test_a_deletion_on_a_full_disk_makes_room(files: MemoryFiles, caplog: pytest.LogCaptureFixture) -> None:
    manager = started(files, settings=Settings(**SMALL, file_delete_delay_ms=0))
    fill(manager.get_or_create_log(ORDERS_0), 3)
    files.fail("write", code=errno.ENOSPC, once=False)
    manager.delete_log(ORDERS_0)
    assert "/disks/a is full, and takes no records" in caplog.text
    assert manager.get_log(ORDERS_0) is None
    manager.remove_due()
    assert [name for name in names_in(files, A) if name.startswith("orders")] == []


def test_a_log_that_is_made_again_after_a_full_disk_inherits_nothing(files: MemoryFiles) -> None:
    manager = with_one_log(files, start=7)
    files.fail("write", code=errno.ENOSPC, once=False)
    manager.delete_log(ORDERS_0)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "/disks/a is full"):
        manager.get_or_create_log(ORDERS_0)
    assert not files.exists(f"{A}/orders-0")
    files.heal()
    assert manager.find_room(manager.directories[0])
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 2)
    log.flush()
    for name in WRITTEN:
        assert ORDERS_0 not in checkpoint(files, name)
    again = started(files.crash(EVERYTHING)).current_logs[ORDERS_0].log
    assert (again.log_start_offset, again.log_end_offset) == (0, 4)


def test_a_log_whose_folder_can_not_be_renamed_stays_in_service(files: MemoryFiles) -> None:
    manager = with_one_log(files)
    files.fail("rename", code=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        manager.delete_log(ORDERS_0)
    log = manager.get_log(ORDERS_0)
    assert log is not None
    fill(log, 1)
    manager.shutdown()
    assert started(files).current_logs[ORDERS_0].log.log_end_offset == 42


def test_deleted_folders_make_room_before_a_start_writes_anything(files: MemoryFiles) -> None:
    with_one_log(files)
    files.make_directory(f"{A}/users-0.{HEX}-delete")
    write_whole(files, f"{A}/users-0.{HEX}-delete/00000000000000000000.log", b"large")
    files = files.crash(EVERYTHING)
    started(files)
    steps = [step.split(" ")[0] for step in files.performed]
    assert steps.index("remove_tree") < min(steps.index(name) for name in ("create", "write") if name in steps)


# Refused folders.


def test_deleted_folders_of_another_broker_are_left_alone(files: MemoryFiles) -> None:
    started(files, identity={"node.id": "1"}).shutdown()
    files.make_directory(f"{A}/users-0.{HEX}-delete")
    with pytest.raises(LogDirectoryError, match=r"node\.id=1"):
        started(files, identity={"node.id": "2"})
    assert f"users-0.{HEX}-delete" in names_in(files, A)
