"""FutureLog: logs that are copied to another folder and taken over there, with a crash at every operation."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from barnabas.clock import ManualClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.records.record import batch_records
from barnabas.storage.batches import scan_headers
from barnabas.storage.checkpoint import OFFSET_CHECKPOINTS, read_offsets
from barnabas.storage.future_log import MOVED_MARKER, UNDONE_MARKER, FutureLog, SourceError
from barnabas.storage.index import CorruptIndexError
from barnabas.storage.log import Log
from barnabas.storage.log_directory import FolderKind, LogDirectory, LogDirectoryError, parse_folder
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.storage.verifier import Fault, verify_partition
from barnabas.wire.errors import ApiError
from tests.storage.builders import batch_of, marker_of, sent_by
from tests.storage.memory_files import (
    EVERYTHING,
    NAMES_ONLY,
    SYNCED_ONLY,
    TORN_GARBAGE,
    DiskStoppedError,
    Keep,
    MemoryFiles,
)

ORDERS_0 = TopicPartition("orders", 0)
A, B, C = "/disks/a", "/disks/b", "/disks/c"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=50, file_delete_delay_ms=0)
STEPS_MAX = 1_000


def started(files: MemoryFiles, *paths: str) -> LogManager:
    """A LogManager that is running."""
    manager = LogManager(
        LogManagerOptions(
            files=files,
            clock=ManualClock(),
            config=LogManagerConfig(log_dirs=paths or (A, B), num_recovery_threads_per_data_dir=1),
            topic_config=lambda _: SMALL,
        )
    )
    manager.start()
    return manager


def filled(manager: LogManager) -> Log:
    """A log in the first folder: sealed segments, an aborted transaction, deleted records, a known producer."""
    log = manager.get_or_create_log(ORDERS_0)
    assert manager.directory_of(ORDERS_0).path == A
    for sequence in range(4):
        log.append_as_leader(sent_by(7, sequence, 1, size=60), 0)
    log.append_as_leader(sent_by(8, 0, 2, transactional=True), 1)
    log.append_as_leader(marker_of(8, commit=False), 1, is_client=False)
    log.append_as_leader(sent_by(9, 0, 1, transactional=True), 1)  # It stays open.
    log.append_as_leader(sent_by(7, 4, 1, size=60), 2)
    log.high_watermark_to_end()
    log.delete_records(1)
    manager.checkpoint_log_start_offsets()
    log.flush()
    assert len(log.segments) > 2
    return log


def values(log: Log) -> list[tuple[int, bytes | None]]:
    """The offset and value of every record."""
    found = []
    for segment in log.segments:
        data = memoryview(segment.file().read_at(segment.size, 0))
        for position, header in scan_headers(segment.log_file(), 0):
            found += [(it.offset, it.value) for it in batch_records(data, header, position)]
    return [it for it in found if it[0] >= log.log_start_offset]


def copied(future: FutureLog, between: Callable[[], object] = lambda: None) -> None:
    """Copy until nothing is left."""
    for _ in range(STEPS_MAX):
        step = future.next_step()
        if step is None:
            return
        step.run()
        future.stepped(step)
        between()
    raise AssertionError("it never ends")


def target_of(manager: LogManager, path: str = B) -> LogDirectory:
    return next(one for one in manager.directories if one.path == path)


def begun(manager: LogManager, path: str = B, folder: str | None = None) -> FutureLog:
    target = target_of(manager, path)
    future = manager.future_log(ORDERS_0, target, folder)
    future.prepare(target, None)
    return future


def moved(manager: LogManager, path: str = B) -> Log:
    """Move the log, with nobody writing."""
    future = begun(manager, path)
    copied(future)
    future.sync()
    return manager.take_over_future(future, target_of(manager, path))


def faults(files: MemoryFiles, path: str) -> list[Fault]:
    found: list[Fault] = []
    assert list(verify_partition(files, path, found.append))
    return found


def checkpoints_with(files: MemoryFiles, directory: str) -> list[str]:
    """The checkpoints of a folder that tell of the log."""
    return [it for it in OFFSET_CHECKPOINTS if ORDERS_0 in read_offsets(files, os.path.join(directory, it))]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def test_a_log_that_moved_is_the_same_to_everybody() -> None:
    files = MemoryFiles()
    manager = started(files)
    old = filled(manager)
    expected = values(old)
    before = {path.removeprefix(old.directory): it for path, it in files.contents().items() if path.endswith(".log")}
    stable, aborted = old.last_stable, old.aborted_transactions(0, 99)
    new = moved(manager)
    assert (new.directory, manager.get_log(ORDERS_0)) == (f"{B}/orders-0", new)
    assert values(new) == expected
    after = {
        path.removeprefix(new.directory): it for path, it in files.contents().items() if path.startswith(new.directory)
    }
    assert {name: after[name] for name in before} == before
    assert (new.log_start_offset, new.log_end_offset, new.recovery_point) == (1, old.log_end_offset, old.log_end_offset)
    assert new.high_watermark == old.high_watermark
    assert new.last_stable == stable
    assert stable.message_offset == 7
    assert new.leader_epochs.entries == old.leader_epochs.entries == [(0, 1), (1, 4), (2, 8)]
    assert new.aborted_transactions(0, 99) == aborted != []
    # The last five batches of a producer are known, and not only the very last, which is all that a snapshot has.
    again = new.append_as_leader(sent_by(7, 2, 1, size=60), 2)
    assert (again.is_duplicate, again.first_offset) == (True, 2)
    with pytest.raises(ApiError):
        new.append_as_leader(sent_by(7, 9, 1), 2)
    assert new.append_as_leader(sent_by(7, 5, 1), 2).first_offset == old.log_end_offset
    with pytest.raises(ApiError):
        old.append_as_leader(sent_by(7, 6, 1), 2)


def test_the_old_files_go_and_the_checkpoints_follow() -> None:
    files = MemoryFiles()
    manager = started(files)
    filled(manager)
    manager.checkpoint_recovery_points()
    moved(manager)
    for path in (A, B):
        manager.write_stale_checkpoints(target_of(manager, path))
    assert checkpoints_with(files, A) == []
    assert len(checkpoints_with(files, B)) == 3  # It was never cleaned.
    assert [folder.kind for name in files.names(A) if (folder := parse_folder(name))] == [FolderKind.DELETE]
    assert [one.log_count for one in manager.directories] == [0, 1]
    manager.remove_due()
    assert not [name for name in files.names(A) if parse_folder(name)]
    manager.shutdown()
    assert faults(files, f"{B}/orders-0") == []
    again = started(files)
    log = again.get_log(ORDERS_0)
    assert log is not None
    assert (log.log_start_offset, log.recovery_point) == (1, log.log_end_offset)
    assert moved(again, A).directory == f"{A}/orders-0"  # And back.


def test_a_reader_in_the_middle_reads_on() -> None:
    manager = started(MemoryFiles())
    old = filled(manager)
    found = old.read(4, 1 << 20, old.log_end)
    assert found.records is not None
    before = found.records.file.read_at(found.records.size, found.records.position)
    moved(manager)
    manager.remove_due()
    assert found.records.file.read_at(found.records.size, found.records.position) == before


def test_what_happens_to_the_log_meanwhile_happens_to_the_copy() -> None:
    """Appends, rolls, retention and a truncation, each after one step of the copying."""
    files = MemoryFiles()
    manager = started(files)
    log = filled(manager)
    sequence = 5

    def append() -> None:
        nonlocal sequence
        log.append_as_leader(sent_by(7, sequence, 1, size=90), 2)
        sequence += 1
        log.high_watermark_to_end()

    def shorten() -> None:
        nonlocal sequence
        manager.delete_segments(ORDERS_0, log.delete_old_segments(lambda segment, _: segment.base_offset == 0))
        manager.truncate_to(ORDERS_0, log.log_end_offset - 1)
        sequence -= 1
        log.append_as_leader(batch_of(1, size=88), 2)

    future = begun(manager)
    actions = iter([append, append, append, shorten, append, append])
    copied(future, lambda: next(actions, lambda: None)())
    assert next(actions, None) is None, "there were too few steps"
    future.sync()
    append()
    expected = values(log)
    new = manager.take_over_future(future, target_of(manager))
    assert values(new) == expected
    manager.shutdown()
    assert faults(files, f"{B}/orders-0") == []


def test_what_retention_takes_before_the_last_step_is_not_in_the_copy() -> None:
    """The step that would have removed it is thrown away when only the tail is left, which the end copies itself."""
    files = MemoryFiles()
    manager = started(files)
    log = filled(manager)
    future = begun(manager)
    while (step := future.next_step()) is not None and not step.is_active:
        step.run()
        future.stepped(step)
    manager.delete_segments(ORDERS_0, log.delete_old_segments(lambda segment, _: segment.base_offset == 0))
    start_offset = log.log_start_offset
    assert start_offset > 0
    assert future.next_step() is not None  # Planned, and not run.
    future.sync()
    assert manager.take_over_future(future, target_of(manager)).log_start_offset == start_offset
    manager.shutdown()
    assert faults(files, f"{B}/orders-0") == []
    assert started(files).current_logs[ORDERS_0].log.log_start_offset == start_offset


def test_the_lag_goes_down_to_nothing() -> None:
    manager = started(MemoryFiles())
    log = filled(manager)
    future = begun(manager)
    lags = [(future.offset_lag, future.lag_bytes)]
    assert lags[0] == (log.log_end_offset, log.size_bytes)
    copied(future, lambda: lags.append((future.offset_lag, future.lag_bytes)))
    assert lags == sorted(lags, reverse=True)
    assert (lags[-1], future.size_bytes) == ((0, 0), log.size_bytes)


def test_what_is_there_already_is_compared_and_not_written_again() -> None:
    files = MemoryFiles()
    manager = started(files)
    filled(manager)
    first = begun(manager)
    copied(first)
    segment = f"{first.directory}/{0:020d}.log"
    files.open(segment, writable=True).write_at(b"\xff", 100)
    files.open(f"{first.directory}/{99:020d}.log", writable=True).write_at(b"stray", 0)
    second = begun(manager, folder=first.directory)
    done = files.steps
    copied(second)
    written = [it for it in files.performed[done:] if it.startswith("write") and ".log" in it]
    assert len(written) == 1
    assert segment in written[0]
    new = manager.take_over_future(second, target_of(manager))
    assert f"{99:020d}.log" not in files.names(new.directory)


def test_a_full_disk_of_the_log_does_not_keep_it_there(files: MemoryFiles) -> None:
    manager = started(files)
    log = filled(manager)
    expected = values(log)
    files.fail("write", "create", "allocate", code=errno.ENOSPC, under=A, once=False)
    assert values(moved(manager)) == expected


@pytest.mark.parametrize(
    ("operation", "under", "kind"),
    [
        ("write", B, OSError),
        ("sync", B, OSError),
        ("read", A, SourceError),
        ("rename", A, SourceError),
        ("rename", B, OSError),
    ],
)
def test_an_error_leaves_the_log_as_it_was(
    files: MemoryFiles, operation: str, under: str, kind: type[Exception]
) -> None:
    manager = started(files)
    log = filled(manager)
    expected = values(log)
    future = begun(manager)
    copied(future)
    log.append_as_leader(sent_by(7, 5, 1), 2)
    # With a write of its own folder as the exception, all renames and reads of the end belong to the move.
    files.fail(operation, under=under)
    with pytest.raises(kind):
        manager.take_over_future(future, target_of(manager))
    files.heal()
    assert manager.get_log(ORDERS_0) is log
    assert values(log)[: len(expected)] == expected
    assert log.append_as_leader(sent_by(7, 6, 1), 2).first_offset == log.log_end_offset - 1
    for keep in (EVERYTHING, NAMES_ONLY):
        again = started(files.crash(keep))
        found = again.get_log(ORDERS_0)
        assert found is not None
        assert found.directory == f"{A}/orders-0"
        assert values(found)[: len(expected)] == expected


def test_a_failure_right_after_the_rename_is_undone_for_good(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other disk may show the copy as complete after a crash; the log that went on is the good one."""
    manager = started(files)
    log = filled(manager)
    future = begun(manager)
    copied(future)

    def fail(*_: object) -> Log:
        files.fail_directory(B)
        raise CorruptIndexError(B, 0, "as the test wants it")

    monkeypatch.setattr(FutureLog, "_open", fail)
    with pytest.raises(CorruptIndexError):
        manager.take_over_future(future, target_of(manager))
    monkeypatch.undo()
    files.heal()
    log.append_as_leader(batch_of(1), 2)
    log.flush()
    expected = values(log)
    assert files.exists(f"{A}/orders-0/{UNDONE_MARKER}")
    assert files.exists(f"{B}/orders-0/{MOVED_MARKER}")
    again = started(files.crash(EVERYTHING))
    found = again.get_log(ORDERS_0)
    assert found is not None
    assert values(found) == expected
    # The next move takes the mark away.
    new = moved(again)
    assert not [name for name in (MOVED_MARKER, UNDONE_MARKER) if again._files.exists(f"{new.directory}/{name}")]


def test_a_source_that_fails_last_is_offline_and_the_copy_in_service(files: MemoryFiles) -> None:
    manager = started(files)
    log = filled(manager)
    expected = values(log)
    future = begun(manager)
    copied(future)
    files.fail("sync_directory", under=A)
    new = manager.take_over_future(future, target_of(manager))
    assert manager.get_log(ORDERS_0) is new
    assert target_of(manager, A).failure is not None
    new.append_as_leader(batch_of(1), 2)
    new.flush()
    # The rename did not last: both are there, and the mark says which was appended to.
    disk = files.crash(EVERYTHING)
    (aside,) = [name for name in disk.names(A) if parse_folder(name)]
    disk.rename(f"{A}/{aside}", f"{A}/orders-0")
    found = started(disk).get_log(ORDERS_0)
    assert found is not None
    assert found.directory == new.directory
    assert values(found)[:-1] == expected


def test_two_folders_without_a_mark_are_refused(files: MemoryFiles) -> None:
    for path in (A, B):
        files.make_directory(f"{path}/orders-0")
    with pytest.raises(LogDirectoryError, match="remove the one that is out of date"):
        started(files)


def test_a_copy_is_not_believed_while_a_directory_is_offline(files: MemoryFiles) -> None:
    manager = started(files)
    filled(manager)
    future = begun(manager)
    copied(future)
    future.finish()
    files.fail_directory(A)
    with_a_offline = started(files.crash(EVERYTHING), B)  # A is not even named: then there is no other.
    assert with_a_offline.get_log(ORDERS_0) is not None
    disk = files.crash(EVERYTHING)
    disk.fail_directory(A)
    again = started(disk)
    assert ORDERS_0 not in again.current_logs
    assert [one.path for one in again.future_folders] == [future.directory]


@dataclass
class History:
    """A move with somebody writing, and what was promised so far."""

    disk: MemoryFiles
    appended: list[tuple[int, bytes | None]] = field(default_factory=list)
    durable: int = 0

    def run(self, stop_at: int | None) -> int:
        """Do everything up to a step; return how many steps there are."""
        manager = started(self.disk)
        log = filled(manager)
        self.appended, self.durable = values(log), log.log_end_offset
        done = self.disk.steps
        if stop_at is not None:
            self.disk.stop_at_step = done + stop_at
        future = begun(manager)
        sequence = iter(range(5, 99))
        copied(future, lambda: self._append(log, next(sequence)) if len(self.appended) < 12 else None)
        future.sync()
        self._append(log, next(sequence), flush=True)
        new = manager.take_over_future(future, target_of(manager))
        for path in (B, A):
            manager.write_stale_checkpoints(target_of(manager, path))
        self._append(new, next(sequence), flush=True)
        manager.remove_due()
        self._append(new, next(sequence))
        return self.disk.steps - done

    def _append(self, log: Log, sequence: int, *, flush: bool = False) -> None:
        info = log.append_as_leader(sent_by(7, sequence, 1, size=20), 2)
        self.appended.append((info.first_offset, b"v" * 20))
        if flush:
            log.flush()
            self.durable = log.log_end_offset


CRASHES = [EVERYTHING, SYNCED_ONLY, NAMES_ONLY, TORN_GARBAGE]


def check(history: History, manager: LogManager, keep: Keep) -> Log:
    """Exactly one log, with everything that was promised, and nothing that was not written."""
    log = manager.get_log(ORDERS_0)
    assert log is not None
    folders = [folder for path in (A, B) for name in manager._files.names(path) if (folder := parse_folder(name))]
    assert [folder.kind for folder in folders if folder.kind is not FolderKind.FUTURE] == [FolderKind.CURRENT]
    found = values(log)
    assert found == history.appended[: len(found)]
    promised = [it for it in history.appended if it[0] < history.durable]
    assert len(found) >= len(history.appended if keep is EVERYTHING else promised)
    assert log.log_start_offset == 1
    # The producer goes on where its last record is.
    last = log.producers.producers[7].last_sequence
    assert log.append_as_leader(sent_by(7, last + 1, 1), 2).first_offset == found[-1][0] + 1
    log.high_watermark_to_end()
    assert log.producers.first_unstable_offset == 7
    return log


@pytest.mark.parametrize("keep", CRASHES, ids=str)
def test_a_crash_at_any_point_leaves_one_good_log(keep: Keep) -> None:
    steps = History(MemoryFiles()).run(None)
    assert steps > 60
    resumed = 0
    for stop_at in range(1, steps + 1):
        history = History(MemoryFiles(stop_torn=stop_at % 2 == 0))
        with pytest.raises(DiskStoppedError):
            history.run(stop_at)
        disk = history.disk.crash(keep)
        manager = started(disk)
        log = check(history, manager, keep)
        expected = values(log)
        if manager.future_folders:
            # The move goes on, and ends.
            (found,) = manager.future_folders
            future = begun(manager, folder=found.path)
            copied(future)
            assert values(manager.take_over_future(future, target_of(manager))) == expected
            resumed += 1
        manager.shutdown()
        place = target_of(manager, B if disk.exists(f"{B}/orders-0") else A).path
        # Snapshots are not synced when a segment is rolled; a start that meets a damaged one goes on without it.
        assert [it for it in faults(disk, f"{place}/orders-0") if not it.path.endswith(".snapshot")] == []
    assert resumed > 10
