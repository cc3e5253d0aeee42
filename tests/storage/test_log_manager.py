"""LogManager: many logs over several folders, from the first start to a folder that fails."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.clock import ManualClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
    read_partition_metadata,
    read_properties,
)
from barnabas.storage.files import DirectoryLockedError, Files, OsFiles, read_whole, write_whole
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectoryError
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.storage.log_types import LogOptions
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import batch_of, marker_of, refused, sent_by
from tests.storage.memory_files import EVERYTHING, SYNCED_ONLY, MemoryFiles

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
USERS_0 = TopicPartition("users", 0)
TOPIC_ID = UUID("4f1d5c6c-0a4b-4f0e-9b1f-0c8d6f3a2b1e")
HEX = "0123456789abcdef0123456789abcdef"
A, B = "/disks/a", "/disks/b"

# As small as a segment can be and still take the batches of these tests.
SMALL = {"segment_bytes": 300, "index_interval_bytes": 50}


class Settings:
    """The settings of all topics, which a test may change."""

    def __init__(self, **settings: Any) -> None:
        self.config = LogConfig(**settings)

    def of(self, topic: str) -> LogConfig:
        return self.config


def manager_of(
    files: Files,
    *paths: str,
    clock: ManualClock | None = None,
    settings: Settings | None = None,
    threads: int = 2,
    identity: dict[str, str] | None = None,
) -> LogManager:
    """A LogManager over some folders, not started."""
    return LogManager(
        LogManagerOptions(
            files=files,
            clock=clock or ManualClock(),
            config=LogManagerConfig(log_dirs=paths, num_recovery_threads_per_data_dir=threads),
            topic_config=(settings or Settings(**SMALL)).of,
            identity=identity or {},
        )
    )


def started(files: Files, *paths: str, **options: Any) -> LogManager:
    manager = manager_of(files, *(paths or (A,)), **options)
    manager.start()
    return manager


@pytest.fixture
def files() -> MemoryFiles:
    """An empty disk on which nothing is pending."""
    return MemoryFiles()


def fill(log: Log, count: int) -> None:
    """Append `count` batches of two records, all of them replicated."""
    for _ in range(count):
        log.append_as_leader(batch_of(2), 0)
    log.update_high_watermark(log.log_end_offset)


def checkpoint(files: Files, name: str, path: str = A) -> dict[TopicPartition, int]:
    return read_offsets(files, f"{path}/{name}")


def names_in(files: Files, path: str) -> list[str]:
    return sorted(entry.name for entry in files.entries(path))


def state_of(log: Log) -> tuple[Any, ...]:
    """What must be the same after a restart."""
    return (
        log.log_start_offset,
        log.log_end,
        log.high_watermark,
        log.leader_epochs.entries,
        log.producers.snapshot(),
        [(segment.base_offset, segment.size, segment.largest) for segment in log.segments],
        log.aborted_transactions(0, 2**62),
    )


# Start.


def test_missing_folders_are_made_and_get_an_identity(files: MemoryFiles) -> None:
    manager = started(files, A, B, identity={"node.id": "3"})
    for path in (A, B):
        assert read_properties(files, f"{path}/{META_PROPERTIES}")["node.id"] == "3"
    ids = {read_properties(files, f"{path}/{META_PROPERTIES}")["directory.id"] for path in (A, B)}
    assert len(ids) == 2
    assert manager.current_logs == {}


def test_folders_are_made_on_a_real_disk(tmp_path: Path) -> None:
    manager = started(OsFiles(), str(tmp_path / "x" / "a"), str(tmp_path / "b"))
    assert names_in(OsFiles(), str(tmp_path / "x" / "a")) == [".lock", META_PROPERTIES]
    manager.shutdown()


@pytest.mark.parametrize("again", [A, "/disks/../disks/a", "/disks//a/"])
def test_a_folder_that_is_named_twice_is_refused(files: MemoryFiles, again: str) -> None:
    with pytest.raises(LogDirectoryError, match="twice"):
        manager_of(files, A, again)


def test_a_folder_that_is_named_twice_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(LogDirectoryError, match="link twice"):
        manager_of(OsFiles(), str(tmp_path / "a"), str(tmp_path / "link"))


@pytest.fixture
def both_folders(files: MemoryFiles) -> Iterator[MemoryFiles]:
    """A start over two folders, the second of which is refused, leaves the first to others."""
    yield files
    files.heal()
    started(files, A).shutdown()


def test_a_file_in_place_of_a_folder_is_refused(both_folders: MemoryFiles) -> None:
    both_folders.make_directory("/disks")
    write_whole(both_folders, B, b"")
    with pytest.raises(LogDirectoryError, match="/disks/b is not a folder"):
        started(both_folders, A, B)


def test_a_folder_that_may_not_be_read_is_refused(both_folders: MemoryFiles) -> None:
    both_folders.make_directory(B)
    both_folders.fail_directory(B, errno.EACCES)
    with pytest.raises(LogDirectoryError, match="/disks/b can not be used: Permission denied"):
        started(both_folders, A, B)


def test_a_folder_of_another_broker_is_refused(both_folders: MemoryFiles) -> None:
    started(both_folders, B, identity={"node.id": "1"}).shutdown()
    with pytest.raises(LogDirectoryError, match=r"node\.id=1, but this broker has node\.id=2"):
        started(both_folders, A, B, identity={"node.id": "2"})


def test_a_foreign_folder_is_refused_before_anything_is_touched(both_folders: MemoryFiles) -> None:
    started(both_folders, B).shutdown()
    both_folders.make_directory(f"{B}/photos")
    before = both_folders.contents()
    with pytest.raises(LogDirectoryError, match="/disks/b/photos can not be loaded"):
        started(both_folders, B)
    assert both_folders.contents() == before


def test_foreign_files_and_known_folders_are_left_alone(files: MemoryFiles) -> None:
    for name in ("lost+found", "remote-log-index-cache"):
        files.make_directory(f"{A}/{name}")
    write_whole(files, f"{A}/notes.txt", b"mine")
    files.make_directory(f"{A}/orders-0")
    write_whole(files, f"{A}/orders-0/notes.txt", b"mine too")
    manager = started(files)
    fill(manager.get_or_create_log(ORDERS_0), 5)
    manager.shutdown()
    started(files).shutdown()
    assert {"lost+found", "remote-log-index-cache", "notes.txt"} <= set(names_in(files, A))
    assert read_whole(files, f"{A}/orders-0/notes.txt") == b"mine too"


# The lock.


def test_a_second_manager_in_the_process_is_told_so(files: MemoryFiles) -> None:
    first = started(files, A)
    with pytest.raises(DirectoryLockedError, match="/disks/a is in use by another broker in this process"):
        started(files, B, A)
    first.shutdown()
    started(files, B, A).shutdown()


HOLDER = """
import sys
from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.storage.files import OsFiles
from barnabas.storage.log_manager import LogManager, LogManagerOptions
config = LogManagerConfig(log_dirs=(sys.argv[1],))
manager = LogManager(LogManagerOptions(
    files=OsFiles(), clock=SystemClock(), config=config, topic_config=lambda topic: LogConfig()))
manager.start()
print("started", flush=True)
sys.stdin.read()
manager.shutdown()
"""


def test_a_manager_in_another_process_is_told_so(tmp_path: Path) -> None:
    path = str(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "started\n"
        with pytest.raises(DirectoryLockedError, match="is in use by"):
            started(OsFiles(), path)
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait() == 0
    started(OsFiles(), path).shutdown()


# Creating and finding logs.


def test_a_log_is_made_once(files: MemoryFiles) -> None:
    manager = started(files)
    assert manager.get_log(ORDERS_0) is None
    log = manager.get_or_create_log(ORDERS_0, TOPIC_ID)
    assert manager.get_or_create_log(ORDERS_0) is log
    assert manager.get_log(ORDERS_0) is log
    assert read_partition_metadata(files, f"{A}/orders-0/{PARTITION_METADATA}") == TOPIC_ID
    assert files.crash(SYNCED_ONLY).exists(f"{A}/orders-0")


def test_new_logs_go_to_the_folder_with_the_fewest(files: MemoryFiles) -> None:
    manager = started(files, A, B)
    for partition in range(6):
        manager.get_or_create_log(TopicPartition("orders", partition))
    in_a = {p.partition for p, managed in manager.current_logs.items() if managed.directory.path == A}
    assert in_a == {0, 2, 4}
    for partition in in_a:
        manager.delete_log(TopicPartition("orders", partition))
    for partition in range(3):
        manager.get_or_create_log(TopicPartition("users", partition))
    assert {managed.directory.path for p, managed in manager.current_logs.items() if p.topic == "users"} == {A}


def test_a_topic_id_is_found_again_and_given_to_a_log_without_one(files: MemoryFiles) -> None:
    manager = started(files)
    manager.get_or_create_log(ORDERS_0, TOPIC_ID)
    manager.get_or_create_log(ORDERS_1)
    manager.shutdown()
    manager = started(files)
    assert manager.current_logs[ORDERS_0].topic_id == TOPIC_ID
    assert manager.current_logs[ORDERS_1].topic_id is None
    manager.get_or_create_log(ORDERS_1, TOPIC_ID)
    manager.get_or_create_log(ORDERS_0, UUID(int=7))
    manager.shutdown()
    manager = started(files)
    assert {managed.topic_id for managed in manager.current_logs.values()} == {TOPIC_ID}


def test_damaged_partition_metadata_costs_the_topic_id_only(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = started(files)
    fill(manager.get_or_create_log(ORDERS_0, TOPIC_ID), 3)
    manager.shutdown()
    write_whole(files, f"{A}/orders-0/{PARTITION_METADATA}", b"version: 9\n")
    manager = started(files)
    assert manager.current_logs[ORDERS_0].topic_id is None
    assert manager.current_logs[ORDERS_0].log.log_end_offset == 6
    assert f"{A}/orders-0/{PARTITION_METADATA}, line 1: " in caplog.text


def test_copies_of_logs_that_move_are_found_and_not_loaded(files: MemoryFiles) -> None:
    manager = started(files, A, B)
    fill(manager.get_or_create_log(ORDERS_0), 3)
    manager.shutdown()
    for path in (A, B):
        files.make_directory(f"{path}/orders-0.{HEX}-future")
    manager = started(files, A, B)
    assert manager.current_logs[ORDERS_0].log.log_end_offset == 6
    assert [found.path for found in manager.future_folders] == [f"{it}/orders-0.{HEX}-future" for it in (A, B)]
    assert [directory.log_count for directory in manager.directories] == [1, 0]
    assert files.names(f"{A}/orders-0.{HEX}-future") == []


def test_a_partition_in_two_folders_is_refused(files: MemoryFiles) -> None:
    for path in (A, B):
        files.make_directory(f"{path}/orders-0")
    with pytest.raises(LogDirectoryError, match=r"orders-0 is in /disks/a/orders-0.* and in /disks/b/orders-0"):
        started(files, A, B)
    started(files, A).shutdown()


def test_a_stray_log_is_left_where_it_is(files: MemoryFiles, caplog: pytest.LogCaptureFixture) -> None:
    manager = started(files)
    fill(manager.get_or_create_log(ORDERS_0), 3)
    manager.shutdown()
    files.rename(f"{A}/orders-0", f"{A}/orders-0.{HEX}-stray")
    manager = started(files)
    assert manager.get_log(ORDERS_0) is None
    manager.remove_due()
    assert f"orders-0.{HEX}-stray" in names_in(files, A)
    assert "stray" in caplog.text


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_many_logs_are_loaded_at_once(files: MemoryFiles, threads: int) -> None:
    manager = started(files, A, B)
    partitions = [TopicPartition(f"topic-{number % 7}", number) for number in range(60)]
    for number, partition in enumerate(partitions):
        fill(manager.get_or_create_log(partition), number % 5)
    manager.shutdown()
    for unclean in (False, True):
        manager = started(files, A, B, threads=threads)
        found = {partition: managed.log.log_end_offset for partition, managed in manager.current_logs.items()}
        assert found == {partition: 2 * (number % 5) for number, partition in enumerate(partitions)}
        if not unclean:
            files = files.crash(EVERYTHING)


# Stop, and start again.


def busy_manager(files: Files, *paths: str) -> LogManager:
    """A manager with a log of every kind of state: segments, epochs, transactions, a start and a high watermark."""
    manager = started(files, *paths)
    log = manager.get_or_create_log(ORDERS_0, TOPIC_ID)
    fill(log, 5)
    log.append_as_leader(sent_by(1, 0, 2, transactional=True), 1)
    log.append_as_leader(marker_of(1, commit=False), 1, is_client=False)
    log.append_as_leader(sent_by(2, 0, 2, transactional=True), 3)
    fill(log, 3)
    log.delete_records(3)
    log.append_as_leader(sent_by(2, 2, transactional=True), 3)
    fill(manager.get_or_create_log(ORDERS_1), 2)
    manager.get_or_create_log(USERS_0)
    return manager


@pytest.mark.parametrize("is_clean", [True, False])
def test_logs_are_the_same_after_a_restart(files: MemoryFiles, is_clean: bool) -> None:
    manager = busy_manager(files)
    expected = {partition: state_of(managed.log) for partition, managed in manager.current_logs.items()}
    if is_clean:
        manager.shutdown()
    else:
        manager.checkpoint_log_start_offsets()
        manager.checkpoint_high_watermarks()
        files = files.crash(EVERYTHING)
    again = started(files)
    assert {partition: state_of(managed.log) for partition, managed in again.current_logs.items()} == expected


def test_logs_are_the_same_after_a_restart_on_a_real_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    manager = busy_manager(OsFiles(), path)
    expected = {partition: state_of(managed.log) for partition, managed in manager.current_logs.items()}
    manager.shutdown()
    again = started(OsFiles(), path)
    assert {partition: state_of(managed.log) for partition, managed in again.current_logs.items()} == expected
    again.shutdown()


def test_a_clean_stop_outlives_a_power_cut_and_nothing_is_recovered(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    manager = busy_manager(files)
    expected = state_of(manager.current_logs[ORDERS_0].log)
    manager.shutdown()
    found = files.crash(SYNCED_ONLY)
    caplog.set_level("INFO")
    again = started(found)
    assert state_of(again.current_logs[ORDERS_0].log) == expected
    assert "the last shutdown was clean" in caplog.text
    # A start takes the marker away, and changes nothing else. Snapshots of rolls are durable only by and by.
    before, after = files.contents(), found.contents()
    before.pop(f"{A}/{CLEAN_SHUTDOWN_MARKER}")
    assert after.keys() == before.keys()
    assert all(content == before[path] for path, content in after.items() if not path.endswith(".snapshot"))


def test_the_marker_of_a_clean_stop_is_there_only_after_it(files: MemoryFiles) -> None:
    marker = f"{A}/{CLEAN_SHUTDOWN_MARKER}"
    manager = started(files)
    fill(manager.get_or_create_log(ORDERS_0), 3)
    manager.flush_dirty_logs()
    manager.checkpoint_recovery_points()
    assert not files.exists(marker)
    manager.shutdown()
    assert files.exists(marker)
    started(files)
    assert not files.exists(marker)


def test_the_marker_is_the_last_thing_that_a_stop_writes(files: MemoryFiles) -> None:
    manager = busy_manager(files)
    manager.shutdown()
    marker_steps = [step for step in files.performed[-5:] if CLEAN_SHUTDOWN_MARKER in step]
    assert files.performed[-1] == f"sync_directory {A}"
    assert marker_steps[-1].startswith("rename")


# Checkpoints.


def test_checkpoints_say_what_is_on_the_disk(files: MemoryFiles) -> None:
    manager = started(files)
    log = manager.get_or_create_log(ORDERS_0)
    manager.get_or_create_log(ORDERS_1)
    fill(log, 5)
    log.flush()
    fill(log, 1)
    log.update_high_watermark(7)
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.checkpoint_log_start_offsets()
    assert checkpoint(files, RECOVERY_POINT_CHECKPOINT) == {ORDERS_0: 10, ORDERS_1: 0}
    assert checkpoint(files, HIGH_WATERMARK_CHECKPOINT) == {ORDERS_0: 7, ORDERS_1: 0}
    assert checkpoint(files, LOG_START_OFFSET_CHECKPOINT) == {}
    log.delete_records(3)
    manager.checkpoint_log_start_offsets()
    assert checkpoint(files, LOG_START_OFFSET_CHECKPOINT) == {ORDERS_0: 3}


def test_each_folder_has_the_checkpoints_of_its_own_logs(files: MemoryFiles) -> None:
    manager = started(files, A, B)
    for number, partition in enumerate((ORDERS_0, ORDERS_1)):
        fill(manager.get_or_create_log(partition), 3 + number)
    manager.shutdown()
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        assert checkpoint(files, name, A) == {ORDERS_0: 6}
        assert checkpoint(files, name, B) == {ORDERS_1: 8}


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
@pytest.mark.parametrize("text", [b"garbage", b"1\n0\n", b"0\n7\norders 0 3\n", b""])
def test_a_damaged_checkpoint_costs_no_record(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture, name: str, text: bytes
) -> None:
    manager = busy_manager(files)
    ends = {partition: managed.log.log_end_offset for partition, managed in manager.current_logs.items()}
    manager.shutdown()
    write_whole(files, f"{A}/{name}", text)
    again = started(files)
    assert {partition: managed.log.log_end_offset for partition, managed in again.current_logs.items()} == ends
    if text and name != OFFSET_CHECKPOINTS[-1]:
        assert f"{A}/{name}, line " in caplog.text


def test_a_truncation_is_in_the_checkpoint_before_it_happens(files: MemoryFiles) -> None:
    manager = started(files)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 5)
    log.flush()
    manager.checkpoint_recovery_points()
    before = files.steps
    manager.truncate_to(ORDERS_0, 5)
    assert log.log_end_offset == 4
    assert checkpoint(files.crash(SYNCED_ONLY), RECOVERY_POINT_CHECKPOINT) == {ORDERS_0: 4}
    steps = files.performed[before:]
    first_cut = next(place for place, step in enumerate(steps) if ".log" in step)
    assert any(RECOVERY_POINT_CHECKPOINT in step and step.startswith("rename") for step in steps[:first_cut])


def test_a_log_that_starts_anew_is_in_the_checkpoints(files: MemoryFiles) -> None:
    manager = started(files)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 5)
    log.flush()
    manager.checkpoint_recovery_points()
    manager.truncate_fully_and_start_at(ORDERS_0, 100)
    assert checkpoint(files, RECOVERY_POINT_CHECKPOINT)[ORDERS_0] <= 100
    fill(log, 1)
    again = started(files.crash(EVERYTHING))
    assert again.current_logs[ORDERS_0].log.log_start_offset == 100
    assert again.current_logs[ORDERS_0].log.log_end_offset == 102


# Flush and settings.


def test_logs_are_flushed_when_their_time_has_come(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, A, clock=clock, settings=Settings(flush_ms=1000))
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 3)
    clock.advance(999)
    manager.flush_dirty_logs()
    assert log.recovery_point == 0
    clock.jump_to(clock.now_ms() - 3_600_000)  # Whoever sets the clock back does not wait longer for the disk.
    clock.advance(1)
    manager.flush_dirty_logs()
    assert log.recovery_point == 6


def test_changed_settings_reach_the_open_logs_of_a_topic(files: MemoryFiles) -> None:
    settings = Settings()
    manager = started(files, settings=settings)
    log = manager.get_or_create_log(ORDERS_0)
    other = manager.get_or_create_log(USERS_0)
    third = manager.get_or_create_log(ORDERS_1)
    settings.config = replace(settings.config, max_message_bytes=10)
    manager.update_topic_config("orders")
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        fill(log, 1)
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        fill(third, 1)
    fill(other, 1)
    manager.delete_log(ORDERS_0)
    settings.config = replace(settings.config, max_message_bytes=100_000)
    manager.update_topic_config("orders")
    fill(third, 1)
    manager.update_topic_config("unknown")


# Deletion.


def test_a_deleted_log_is_gone_at_once_and_its_files_after_the_delay(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, clock=clock)
    fill(manager.get_or_create_log(ORDERS_0), 3)
    fill(manager.get_or_create_log(ORDERS_1), 3)
    manager.checkpoint_recovery_points()
    manager.delete_log(ORDERS_0)
    assert manager.get_log(ORDERS_0) is None
    [folder] = [name for name in names_in(files, A) if name.endswith("-delete")]
    assert folder.startswith("orders-0.")
    assert files.crash(SYNCED_ONLY).exists(f"{A}/{folder}")
    assert ORDERS_0 not in checkpoint(files, RECOVERY_POINT_CHECKPOINT)
    manager.remove_due()
    clock.advance(59_999)
    manager.remove_due()
    assert folder in names_in(files, A)
    clock.advance(1)
    manager.remove_due()
    assert folder not in names_in(files, A)
    assert "orders-1" in names_in(files, A)


def test_deletions_are_settled_together(files: MemoryFiles) -> None:
    manager = started(files)
    for partition in (ORDERS_0, ORDERS_1, USERS_0):
        fill(manager.get_or_create_log(partition), 3)
    manager.checkpoint_recovery_points()
    steps = files.steps
    manager.delete_logs([ORDERS_0])
    manager.delete_logs([ORDERS_1])
    assert files.steps == steps + 2  # They are renamed, and that is all.
    assert files.crash(SYNCED_ONLY).exists(f"{A}/orders-0")
    assert manager.settle_deletions()
    assert not files.crash(SYNCED_ONLY).exists(f"{A}/orders-0")
    assert set(checkpoint(files, RECOVERY_POINT_CHECKPOINT)) == {USERS_0}
    steps = files.steps
    assert manager.settle_deletions()
    assert files.steps == steps


def test_a_log_may_be_made_again_while_its_old_files_wait(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, clock=clock)
    fill(manager.get_or_create_log(ORDERS_0), 3)
    manager.delete_log(ORDERS_0)
    log = manager.get_or_create_log(ORDERS_0)
    assert log.log_end_offset == 0
    manager.delete_log(ORDERS_0)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 1)
    clock.advance(60_000)
    manager.remove_due()
    assert [name for name in names_in(files, A) if "orders" in name] == ["orders-0"]
    assert log.log_end_offset == 2


def test_folders_that_were_deleted_before_a_restart_are_removed(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, clock=clock)
    fill(manager.get_or_create_log(ORDERS_0), 3)
    manager.delete_log(ORDERS_0)
    manager.shutdown()
    again = started(files, clock=clock)
    assert again.get_log(ORDERS_0) is None
    again.remove_due()
    assert [name for name in names_in(files, A) if name.endswith("-delete")] == []


def test_a_log_with_the_longest_name_may_be_deleted(tmp_path: Path) -> None:
    path = str(tmp_path)
    manager = started(OsFiles(), path)
    partition = TopicPartition("t" * 249, 0)
    manager.get_or_create_log(partition)
    manager.delete_log(partition)
    manager.shutdown()
    again = started(OsFiles(), path)
    again.remove_due()
    assert [name for name in os.listdir(path) if name.startswith("t")] == []
    again.shutdown()


def test_deleted_segments_go_after_the_delay_and_are_read_until_then(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, clock=clock)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 10)
    reading = log.read(0, 1000, log.high_watermark).records
    assert reading is not None
    before = len(log.segments)
    deleted = log.delete_old_segments(lambda _, end_offset: end_offset <= 4)
    assert 0 < len(deleted) < before
    manager.delete_segments(ORDERS_0, deleted)
    clock.advance(59_999)
    manager.remove_due()
    waiting = [name for name in names_in(files, f"{A}/orders-0") if name.endswith(".deleted")]
    assert len(waiting) == len(deleted)
    assert len(reading.file.read_at(reading.size, reading.position)) == reading.size
    clock.advance(1)
    manager.remove_due()
    assert [name for name in names_in(files, f"{A}/orders-0") if name.endswith(".deleted")] == []
    assert log.log_start_offset == log.segments.first.base_offset


def test_what_is_to_be_removed_counts_as_room_and_can_be_hastened(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, clock=clock)
    log = manager.get_or_create_log(ORDERS_0)
    fill(log, 10)
    (directory,) = manager.directories
    assert manager.removals.leaving_bytes([directory]) == 0
    deleted = log.delete_old_segments(lambda _, end_offset: end_offset <= 4)
    size = sum(segment.size for segment in deleted)
    manager.delete_segments(ORDERS_0, deleted)
    assert manager.removals.leaving_bytes([directory]) == size
    assert manager.removals.leaving_bytes([]) == 0
    assert manager.removals.take_due() is None
    manager.removals.hasten(directory)
    remove = manager.removals.take_due()
    assert remove is not None
    assert manager.removals.leaving_bytes([directory]) == size  # It is still there.
    remove()
    assert manager.removals.leaving_bytes([directory]) == 0
    assert [name for name in names_in(files, f"{A}/orders-0") if name.endswith(".deleted")] == []
    deleted = log.delete_old_segments(lambda *_: True)
    manager.delete_segments(ORDERS_0, deleted, at_once=True)
    manager.remove_due()
    assert [name for name in names_in(files, f"{A}/orders-0") if name.endswith(".deleted")] == []
    assert manager.disk_space(directory)[0] == files.capacity_bytes


def test_producers_that_were_quiet_for_long_are_forgotten(files: MemoryFiles) -> None:
    clock = ManualClock()
    manager = started(files, clock=clock)
    log = manager.get_or_create_log(ORDERS_0)
    log.append_as_leader(sent_by(7, 0), 0)
    log.append_as_leader(sent_by(8, 0, transactional=True), 0)
    clock.advance(manager._options.config.producer_id_expiration_ms)
    manager.remove_expired_producers()
    assert set(log.producers.producers) == {7, 8}
    clock.advance(1)
    manager.remove_expired_producers()
    assert set(log.producers.producers) == {8}, "a producer with an open transaction is not forgotten"


def test_folders_are_loaded_at_the_same_time(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = started(files, A, B)
    for partition in (ORDERS_0, ORDERS_1):
        fill(manager.get_or_create_log(partition), 1)
    manager.shutdown()
    both_at_work = threading.Barrier(2)

    def load(options: LogOptions, known: LastKnown, on_progress: Callable[[int], None] | None = None) -> Log:
        both_at_work.wait(timeout=60)
        return load_log(options, known, on_progress)

    monkeypatch.setattr("barnabas.storage.log_loading.load_log", load)
    manager = started(files, A, B, threads=1)
    assert {str(managed.directory.path) for managed in manager.current_logs.values()} == {A, B}
