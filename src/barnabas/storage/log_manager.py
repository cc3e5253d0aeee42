"""LogManager: all logs of a broker, over one or more folders (`log.dirs`).

It loads them at start, several at once; creates, finds and deletes them; writes the checkpoints; and takes a folder
that fails out of service without the others. What runs when is decided above: the methods here do one thing once.

Rule 1: one thread owns it. Threads of its own only load and close logs, each log on one thread.
Rule 2: a folder whose disk fails is offline, with its logs, until a restart; a full disk is not a failure.
Rule 3: checkpoints are written after what they vouch for is on the disk, and the clean-shutdown marker last of all.
Rule 4: checkpoints are lowered before records go, and at the start, so that they never vouch for what comes after them.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from barnabas.clock import Clock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.storage.batches import CorruptLogError
from barnabas.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    write_partition_metadata,
)
from barnabas.storage.disk_room import FULL_ERRORS, DiskRoom
from barnabas.storage.files import PASSING_ERRORS, Files
from barnabas.storage.future_log import FoundFolder, FutureLog, settle_moves
from barnabas.storage.load_journal import LoadJournal, LoadJournalError
from barnabas.storage.log import Log
from barnabas.storage.log_checkpoints import CHECKPOINTS, LogCheckpoints
from barnabas.storage.log_directory import (
    FolderKind,
    LogDirectory,
    LogDirectoryError,
    PartitionFolder,
    distinct_paths,
    folder_name,
)
from barnabas.storage.log_loading import LoadingLog, LoadStoppedError, LogLoading, PendingLog
from barnabas.storage.log_types import LogOptions, ManagedLog
from barnabas.storage.removals import Removals
from barnabas.storage.segment import LogSegment, OpenSegments
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


class NoLogDirectoryError(Exception):
    """Every folder of `log.dirs` has failed; a broker without any has to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerOptions:
    """What a LogManager needs from outside."""

    files: Files
    clock: Clock
    config: LogManagerConfig
    topic_config: Callable[[str], LogConfig]
    """Returns the settings of a topic: the broker's, and the topic's own over them."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """What meta.properties must say, such as node.id and cluster.id."""
    on_flush_due: Callable[[Log], None] | None = None
    """Called when a log reaches its `flush.messages`; without it the append flushes by itself."""
    on_roll: Callable[[Log], None] | None = None
    """Called after a roll, so that the sealed segment is flushed in the background."""
    on_full: Callable[[LogDirectory], None] = lambda _: None
    """Called, on any thread, when a folder has become full."""


class LogManager:
    """The logs of a broker."""

    def __init__(self, options: LogManagerOptions) -> None:
        self._options = options
        self._files = options.files
        self._open_segments = OpenSegments()
        self.directories = [LogDirectory(options.files, path) for path in distinct_paths(options.config.log_dirs)]
        self.load_journal = LoadJournal(options.files, self.directories[0].path)
        self.current_logs: dict[TopicPartition, ManagedLog] = {}
        self.future_folders: list[FoundFolder] = []
        """Copies of logs that a start found unfinished: their moves go on."""
        self.moving: set[TopicPartition] = set()
        """Partitions that are being moved to another folder, which nobody cleans meanwhile."""
        self.loading = LogLoading(options.files, options.config.num_recovery_threads_per_data_dir, self._log_options)
        self.checkpoints = LogCheckpoints(self.current_logs, self.loading.current)
        self.disk_room = DiskRoom(options.files, options.config.log_dirs_reserve_bytes, self._guard, options.on_full)
        # Both of them by topic, so that a change of one topic does not cost a walk over all.
        self._logs_by_topic: dict[str, dict[Log, None]] = {}
        # Folders with deletions that a power cut may still undo.
        self._unsettled: dict[LogDirectory, None] = {}
        # Partitions whose folder is offline: they are answered with an error and never created anew elsewhere.
        self.offline_partitions: dict[TopicPartition, LogDirectory] = {}
        self.removals = Removals(options.clock, self._attempt)

    # Start and stop.

    def take_directories(self) -> None:
        """Lock the folders, so that whatever else is in them is this broker's too. On an error none is held."""
        try:
            for directory in self.directories:
                if not directory.is_taken:
                    self._begin(directory, directory.take)
        except BaseException:
            self.release()
            raise

    def check_identities(self) -> None:
        """Check whose folders they are, and note which are new; raises LogDirectoryError. Nothing is written."""
        for directory in self._live_directories():
            directory.is_new = not directory.check_identity(self._options.identity)

    def start(self, *, eager_bytes: int | None = None) -> None:
        """Take the folders and load every log in them. On an error everything taken is given back.

        With `eager_bytes` it returns when the logs are there that have not more than this to recover together. The
        others are in `loading`, and `take_loaded` takes them over as they are ready.
        """
        self.take_directories()
        read: dict[LogDirectory, Mapping[str, Mapping[TopicPartition, int]]] = {}
        try:
            self._settle_moves()
            self._begin(self.directories[0], self._finish_loads)
            for directory in self._live_directories():
                self._begin(directory, self._begin_loading, directory, read)
            eager = self.loading.begin(eager_bytes)
            self.loading.wait_for(eager)
            for one in eager:
                if one.directory.failure is None:
                    self._take_over(one)
            for directory, checkpoints in read.items():
                if directory.failure is None:
                    self._begin(directory, self._finish_loading, directory, checkpoints)
        except BaseException:
            self.loading.stop()
            self.release()
            raise

    def _begin(self, directory: LogDirectory, action: Callable[..., None], *arguments: object) -> None:
        """Run a step of the start. A full disk is a failure here: what is not known must not look as if it were not
        there."""
        try:
            action(*arguments)
        except OSError as error:
            self._note_offline(directory)
            self.fail_directory(directory, error)

    def _settle_moves(self) -> None:
        """Let every log be in one folder that a crash left in two, or in none, while it was moved."""
        for directory in self._live_directories():
            self._begin(directory, self._list, directory)
        live = self._live_directories()
        are_all_live = len(live) == len(self.directories)
        for directory, settle in list(settle_moves(self._files, live, are_all_live=are_all_live)):
            self._begin(directory, settle)

    def _list(self, directory: LogDirectory) -> None:
        directory.check_identity(self._options.identity)
        directory.list_folders()

    def _finish_loads(self) -> None:
        """Place what a crash left of bulk loads, before anybody looks at the logs."""
        try:
            self.load_journal.read()
        except LoadJournalError as error:
            raise LogDirectoryError(str(error)) from None
        live = [directory.path for directory in self._live_directories()]
        self.load_journal.finish(live, offline=len(self.directories) - len(live))

    def _note_offline(self, directory: LogDirectory) -> None:
        """Note whose logs are in a folder that is not loaded, as far as it can be listed."""
        if directory.listed is None:
            try:
                directory.list_folders()
            except OSError as error:
                if len(self._live_directories()) > 1:
                    logger.warning("%s can not be listed, so nobody knows whose logs it has: %s", directory.path, error)
        for folder in directory.listed or []:
            if folder.kind is FolderKind.CURRENT:
                self.offline_partitions[folder.partition] = directory

    def _begin_loading(
        self, directory: LogDirectory, read: dict[LogDirectory, Mapping[str, Mapping[TopicPartition, int]]]
    ) -> None:
        """Look at a folder and note its logs; what its checkpoints say is added to `read`."""
        folders = directory.folders()
        directory.check_identity(self._options.identity)
        # This comes first because a disk that is full needs the room for all that follows.
        folders = self._sort_out(directory, folders)
        directory.identify(self._options.identity)
        directory.begin()
        read[directory] = {name: directory.read_checkpoint(name) for name in CHECKPOINTS}
        self.loading.add(directory, folders, read[directory])

    def _finish_loading(self, directory: LogDirectory, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        self.checkpoints.correct(directory, checkpoints)
        count, left = len(self._logs_in(directory)), len(self.loading.in_directory(directory))
        if count or left:
            state = "clean" if directory.had_clean_shutdown else "not clean, logs were recovered"
            if left:
                state = f"not clean, {left} others are being recovered"
            logger.info("%s: %d logs loaded (the last shutdown was %s)", directory.path, count, state)

    def take_loaded(self) -> list[TopicPartition]:
        """Take over the logs that are ready, and return whose they are. What failed takes its folder offline."""
        loaded = []
        for one in self.loading.ready():
            managed = self._take_over(one) if one.directory.failure is None else None
            if managed is not None:
                told = {name: {one.partition: offset} for name, offset in one.checkpoints.items()}
                self._guard(one.directory, self.checkpoints.correct, one.directory, told)
                if one.directory.failure is None:
                    loaded.append(one.partition)
        return loaded

    def _take_over(self, one: LoadingLog) -> ManagedLog | None:
        """Take a log into service that a thread is done with; None where nothing came of it."""
        assert one.future is not None
        managed = None
        try:
            if not one.future.cancelled():
                managed = one.future.result()
        except LoadStoppedError:
            pass
        except OSError as error:
            if error.errno in FULL_ERRORS and not one.is_deleted:
                self.disk_room.note_full(one.directory, error)
                one.future = None  # It is tried again when there is room.
                return None
            self._begin(one.directory, _raise, error)
            return None
        except CorruptLogError as error:
            # Not even a recovery of all of it helped: nobody can say what it has, so it is as good as unreadable.
            self._begin(one.directory, _raise, OSError(errno.EIO, str(error)))
            return None
        if one.is_deleted:
            if managed is not None:
                managed.log.abandon()
            self._guard(one.directory, self._delete_loading, one)
            return None
        self.loading.forget(one)
        if managed is None:
            return None
        managed.log.update_high_watermark(one.checkpoints.get(HIGH_WATERMARK_CHECKPOINT, 0))
        self._register(managed)
        managed.log.update_config(self._options.topic_config(one.partition.topic))  # It may have changed since.
        return managed

    def _sort_out(self, directory: LogDirectory, folders: list[PartitionFolder]) -> list[PartitionFolder]:
        """Remove what was deleted before the restart, and return the folders that are to be loaded."""
        directory.remove_unfinished()
        loading = []
        for folder in folders:
            path = os.path.join(directory.path, folder.name)
            if folder.kind is FolderKind.DELETE:
                self._files.remove_tree(path)
            elif folder.kind is FolderKind.STRAY:
                logger.warning("%s is a stray log and is left alone", path)
            elif folder.kind is FolderKind.FUTURE:
                self.future_folders.append(FoundFolder(directory, folder))
            else:
                loading.append(folder)
        return loading

    def _log_options(self, path: str, topic: str) -> LogOptions:
        return LogOptions(
            files=self._files,
            clock=self._options.clock,
            directory=path,
            config=self._options.topic_config(topic),
            open_segments=self._open_segments,
            on_flush_due=self._options.on_flush_due,
            on_roll=self._options.on_roll,
        )

    def _register(self, managed: ManagedLog) -> None:
        other = self.current_logs.get(managed.partition)
        if other is not None:
            message = f"{managed.partition} is in {other.log.directory} and in {managed.log.directory}"
            raise LogDirectoryError(f"{message}; remove the one that is out of date")
        self.current_logs[managed.partition] = managed
        self._logs_by_topic.setdefault(managed.partition.topic, {})[managed.log] = None
        managed.directory.log_count += 1

    def _unregister(self, managed: ManagedLog) -> None:
        del self.current_logs[managed.partition]
        topic = managed.partition.topic
        del self._logs_by_topic[topic][managed.log]
        if not self._logs_by_topic[topic]:
            del self._logs_by_topic[topic]

    def shutdown(self) -> None:
        """Close the logs and give the folders back."""
        try:
            self.close_logs()
        finally:
            self.release()

    def close_logs(self) -> None:
        """Flush and close every log, write the checkpoints and mark the folders clean.

        A folder with logs that are still being loaded is not clean; the next start begins with them again.
        """
        self.loading.stop()
        for directory in self._live_directories():
            self._guard(directory, self._close_directory, directory)

    def _close_directory(self, directory: LogDirectory) -> None:
        threads = self._options.config.num_recovery_threads_per_data_dir
        with ThreadPoolExecutor(threads, thread_name_prefix="barnabas-close") as pool:
            list(pool.map(lambda managed: managed.log.close(), self._logs_in(directory)))
        self.checkpoints.write_all(directory)
        if not self.loading.in_directory(directory):
            directory.mark_clean()

    def release(self) -> None:
        """Give the folders back; one that is given back already stays so."""
        for directory in self.directories:
            directory.release()

    # The folders.

    def _live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _logs_in(self, directory: LogDirectory) -> list[ManagedLog]:
        return [managed for managed in self.current_logs.values() if managed.directory is directory]

    def _guard(self, directory: LogDirectory, action: Callable[..., None], *arguments: object) -> bool:
        """Run something that writes to a folder, and tell whether it did; a disk that fails takes it offline."""
        error = self._attempt(directory, partial(action, *arguments))
        if error is not None:
            self.disk_failed(directory, error)
        return error is None

    def _attempt(self, directory: LogDirectory, action: Callable[[], None]) -> OSError | None:
        """Run something that writes to a folder, on any thread, and return its error.

        On a disk that is full it is tried again with the room of the reserve.
        """
        try:
            try:
                action()
            except OSError as error:
                if error.errno not in FULL_ERRORS or not self.disk_room.note_full(directory, error):
                    raise
                action()
        except OSError as error:
            return error
        return None

    def disk_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Take a folder offline that could not be written to, unless that passes."""
        if error.errno not in PASSING_ERRORS:
            self.fail_directory(directory, error)
        elif error.errno not in FULL_ERRORS:
            logger.warning("%s can not be written to for now: %s", directory.path, error)

    def find_room(self, directory: LogDirectory) -> bool:
        """Look whether a full folder has room again, and let it take records if so."""
        if not self.disk_room.has_room_again(directory):
            return False
        self._guard(directory, self.checkpoints.write_stale, directory)
        self.loading.submit_waiting(directory)
        return not directory.is_full and directory.failure is None

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a folder and its logs out of service until a restart; raises NoLogDirectoryError if it was the last."""
        if directory.failure is not None:
            return
        directory.failure = error
        for managed in self._logs_in(directory):
            self._unregister(managed)
            managed.log.abandon()
            self.offline_partitions[managed.partition] = directory
        for one in self.loading.in_directory(directory):
            one.give_up()
            self.loading.forget(one)
            self.offline_partitions[one.partition] = directory
        self._check_alive()  # With none left, what that raises says all of it in one line.
        logger.error(
            "%s failed and is offline until a restart, with %d logs: %s",
            directory.path,
            sum(1 for owner in self.offline_partitions.values() if owner is directory),
            error,
        )

    def _check_alive(self) -> None:
        if not self._live_directories():
            reasons = "; ".join(f"{directory.path}: {directory.failure}" for directory in self.directories)
            raise NoLogDirectoryError(f"no log directory is left ({reasons})")

    # The logs.

    def get_log(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None when there is none; raises ApiError when its folder is offline."""
        managed = self.current_logs.get(partition)
        if managed is not None:
            return managed.log
        if partition in self.loading.current:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is being recovered")
        if partition in self.offline_partitions:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {partition} is offline")
        return None

    def _managed(self, partition: TopicPartition) -> ManagedLog:
        """Return a log with where it is; raises ApiError when there is none, or its folder is offline."""
        managed = self.current_logs.get(partition)
        if managed is None:
            self.get_log(partition)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {partition}")
        return managed

    def get_or_create_log(
        self, partition: TopicPartition, topic_id: UUID | None = None, *, is_new: bool = False
    ) -> Log:
        """Return the log of a partition, made anew in the folder with the fewest logs where there is none.

        A partition `is_new` when this broker never had it. All others may have their log in a folder that is offline,
        and raise ApiError rather than start empty while there is one that could not even be listed.
        """
        existing = self.current_logs.get(partition)
        if existing is not None:
            if existing.topic_id is None and topic_id is not None:
                write_partition_metadata(
                    self._files, os.path.join(existing.log.directory, PARTITION_METADATA), topic_id
                )
                existing.topic_id = topic_id
            return existing.log
        pending = self.prepare_log(partition, topic_id, is_new=is_new)
        try:
            log = pending.run()
        except BaseException:
            self.cancel_log(pending)
            raise
        self.finish_log(pending, log)
        return log

    def prepare_log(self, partition: TopicPartition, topic_id: UUID | None, *, is_new: bool = False) -> PendingLog:
        """Choose the folder of a log that is to be made; `run` of what is returned makes it, `finish_log` takes it."""
        self._check_absent(partition, is_new)
        self._check_alive()
        directory = min(self._live_directories(), key=lambda directory: (directory.is_full, directory.log_count))
        if directory.is_full:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is full")
        self.checkpoints.write_stale(directory)  # The new log must not be taken for an old one of the same name.
        directory.log_count += 1
        path = os.path.join(directory.path, folder_name(partition, FolderKind.CURRENT))
        return PendingLog(self._log_options(path, partition.topic), directory, partition, topic_id)

    def cancel_log(self, pending: PendingLog) -> None:
        """Give up a log that could not be made."""
        pending.directory.log_count -= 1

    def finish_log(self, pending: PendingLog, log: Log) -> None:
        """Take a log into service that was made."""
        pending.directory.log_count -= 1  # It was counted when it was begun.
        self._register(ManagedLog(log, pending.directory, pending.partition, pending.topic_id))

    def _check_absent(self, partition: TopicPartition, is_new: bool) -> None:
        """Raise ApiError for a log that is, or may be, in a folder that is offline: it has its records there."""
        if partition in self.loading.current:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is being recovered")
        if partition in self.offline_partitions:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {partition} is offline")
        unknown = [it.path for it in self.directories if it.failure is not None and it.listed is None]
        if unknown and not is_new:
            message = f"{partition} may be in {', '.join(unknown)}, which is offline and could not be listed"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def update_topic_config(self, topic: str) -> None:
        """Apply changed settings to the open logs of a topic."""
        config = self._options.topic_config(topic)
        for log in self._logs_by_topic.get(topic, ()):
            log.update_config(config)

    def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Cut off the end of a log; no checkpoint vouches for what is gone, neither before nor after."""
        managed = self._managed(partition)
        if offset >= managed.log.log_end_offset:
            managed.log.truncate_to(offset)  # No record goes, but perhaps an epoch that has none.
            return
        self.checkpoints.lower(managed, offset)
        managed.log.truncate_to(offset)
        # The offset may have lain inside a batch, which went whole.
        self._rewrite_checkpoints(managed.directory)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Drop all records of a log and let it go on at `offset`."""
        managed = self._managed(partition)
        self.checkpoints.lower(managed, offset)
        managed.log.truncate_fully_and_start_at(offset)
        self._rewrite_checkpoints(managed.directory)

    def delete_log(self, partition: TopicPartition) -> None:
        """Take a log out of service; its files go after `file.delete.delay.ms`."""
        self.delete_logs([partition])
        self.settle_deletions()

    def delete_logs(self, partitions: Iterable[TopicPartition]) -> None:
        """Take logs out of service; a power cut may undo that until `settle_deletions`, once for any number of them."""
        for partition in partitions:
            loading = self.loading.current.get(partition)
            if loading is not None:
                loading.is_deleted = True
                loading.give_up()
                if loading.future is None:
                    self._delete_loading(loading)  # It waits for room, which this makes.
                continue  # Otherwise its folder goes when the thread has let go of it.
            managed = self._managed(partition)
            directory, log = managed.directory, managed.log
            self._delete_folder(directory, log.directory, partition, log.config, log.size_bytes)
            log.abandon()
            self._unregister(managed)
            directory.log_count -= 1

    def _delete_loading(self, one: LoadingLog) -> None:
        self.loading.forget(one)
        self._delete_folder(one.directory, one.options.directory, one.partition, one.options.config, one.size_bytes)

    def _delete_folder(
        self, directory: LogDirectory, path: str, partition: TopicPartition, config: LogConfig, size_bytes: int
    ) -> None:
        target = os.path.join(directory.path, folder_name(partition, FolderKind.DELETE))
        self._files.rename(path, target)
        # All that follows may fail, on a full disk for one, which the removal is to make room on.
        remove = partial(self._files.remove_tree, target)
        self.removals.add(directory, remove, size_bytes, config.file_delete_delay_ms)
        directory.stale.update(CHECKPOINTS)
        self._unsettled[directory] = None

    def settle_deletions(self) -> bool:
        """Make the deletions so far durable, then the checkpoints without them; tell whether no power cut undoes them.

        Checkpoints that find no room stay stale, and are written before a log is made that could be taken for another.
        """
        unsettled, self._unsettled = self._unsettled, {}
        is_durable = True
        for directory in unsettled:
            if directory.failure is None and self._guard(directory, self._files.sync_directory, directory.path):
                self._rewrite_checkpoints(directory)
            else:
                is_durable = False
        return is_durable

    def set_aside(self, partition: TopicPartition) -> str:
        """Take a log out of service that is not this broker's, and return the folder that keeps it, as Kafka does."""
        managed = self._managed(partition)
        target = os.path.join(managed.directory.path, folder_name(partition, FolderKind.STRAY))
        self._files.rename(managed.log.directory, target)
        managed.log.abandon()
        self._unregister(managed)
        managed.directory.log_count -= 1
        self._files.sync_directory(managed.directory.path)
        self._rewrite_checkpoints(managed.directory)
        return target

    def future_log(self, partition: TopicPartition, target: LogDirectory, path: str | None = None) -> FutureLog:
        """Return the copy of a log that is to be made in another folder, or to be gone on with in `path`."""
        self.checkpoints.write_stale(target)  # The copy must not be taken for an old log of the same name.
        path = path or os.path.join(target.path, folder_name(partition, FolderKind.FUTURE))
        return FutureLog(partition, self._managed(partition).log, self._log_options(path, partition.topic))

    def take_over_future(self, future: FutureLog, target: LogDirectory) -> Log:
        """Let the copy of a log be the log from now on, and return it; what it was made from goes later.

        Raises OSError of the copy's disk, CorruptIndexError, or SourceError; the log is then as it was.
        """
        managed = self._managed(future.partition)
        old, source = managed.log, managed.directory
        future.finish()
        if old.log_start_offset > old.segments.first.base_offset:
            # Without it a crash after the takeover would show records that were deleted.
            target.stale.add(LOG_START_OFFSET_CHECKPOINT)
            self.checkpoints.write(target, LOG_START_OFFSET_CHECKPOINT, joining=managed)
            target.stale.add(LOG_START_OFFSET_CHECKPOINT)
        path = os.path.join(target.path, folder_name(future.partition, FolderKind.CURRENT))
        taken = future.take_over(source, target, self._log_options(path, future.partition.topic))
        self._unregister(managed)
        source.log_count -= 1
        old.abandon()
        self._register(ManagedLog(taken.log, target, managed.partition, managed.topic_id))
        remove = partial(self._files.remove_tree, taken.aside)
        self.removals.add(source, remove, old.size_bytes, old.config.file_delete_delay_ms)
        source.stale.update(CHECKPOINTS)
        target.stale.update(CHECKPOINTS)
        if taken.error is not None:
            self.fail_directory(source, taken.error)
        return taken.log

    def write_stale_checkpoints(self, directory: LogDirectory) -> None:
        """Write the checkpoints of a folder that are out of date."""
        if directory.failure is None:
            self._guard(directory, self.checkpoints.write_stale, directory)

    def directory_of(self, partition: TopicPartition) -> LogDirectory:
        """Return the folder that a log is in; raises ApiError when there is none, or its folder is offline."""
        return self._managed(partition).directory

    def delete_segments(
        self, partition: TopicPartition, segments: Iterable[LogSegment], *, at_once: bool = False
    ) -> None:
        """Remove segments that a log gave up after `file.delete.delay.ms`, or `at_once` where room is needed.

        Whoever reads them keeps the open file, so that the delay is for those who look at the folder.
        """
        managed = self._managed(partition)
        delay_ms = 0 if at_once else managed.log.config.file_delete_delay_ms
        for segment in segments:
            self.removals.add(managed.directory, partial(managed.log.remove_files, segment), segment.size, delay_ms)

    def disk_space(self, directory: LogDirectory) -> tuple[int, int]:
        """Return the size of the disk of a folder, and how much of it is free."""
        return self._files.disk_space(directory.path)

    def device(self, directory: LogDirectory) -> int:
        """Return a number that folders on the same disk have in common."""
        return self._files.device(directory.path)

    def remove_due(self) -> None:
        """Remove the files of deleted logs and segments whose time has come."""
        remove = self.removals.take_due()
        if remove is not None:
            for directory, error in remove():
                self.disk_failed(directory, error)

    def largest_producer_id(self) -> int:
        """Return the largest producer id that a log remembers, or -1: whoever gets it again is taken for that one."""
        return max((max(m.log.producers.producers, default=-1) for m in self.current_logs.values()), default=-1)

    def remove_expired_producers(self) -> None:
        """Forget the producers that were quiet for longer than `producer.id.expiration.ms`."""
        oldest = self._options.clock.now_ms() - self._options.config.producer_id_expiration_ms
        for managed in self.current_logs.values():
            managed.log.producers.remove_expired(oldest)

    # Flush and checkpoints.

    def dirty_logs(self) -> list[Log]:
        """Return the logs whose oldest unflushed record waits longer than their `flush.ms`."""
        now_ms = self._options.clock.monotonic_seconds() * 1000
        logs = [managed.log for managed in self.current_logs.values()]
        return [
            log
            for log in logs
            if now_ms - log.last_flush_seconds * 1000 >= log.config.flush_ms and log.recovery_point < log.log_end_offset
        ]

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose oldest unflushed record waits longer than their `flush.ms`."""
        dirty = set(self.dirty_logs())
        for managed in list(self.current_logs.values()):
            if managed.log in dirty:
                self._guard(managed.directory, managed.log.flush)

    def checkpoint_recovery_points(self) -> None:
        """Write down up to where each log is on the disk."""
        self._write_everywhere(RECOVERY_POINT_CHECKPOINT)

    def checkpoint_log_start_offsets(self) -> None:
        """Write down where logs start, where that is not the start of their first segment."""
        self._write_everywhere(LOG_START_OFFSET_CHECKPOINT)

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks."""
        self._write_everywhere(HIGH_WATERMARK_CHECKPOINT)

    def checkpoint_cleaner_offsets(self) -> None:
        """Write down up to where logs are clean."""
        self._write_everywhere(CLEANER_OFFSET_CHECKPOINT)

    def _write_everywhere(self, name: str) -> None:
        for directory in self._live_directories():
            self._guard(directory, self.checkpoints.write, directory, name)

    def _rewrite_checkpoints(self, directory: LogDirectory) -> None:
        """Write the checkpoints after logs lost something; on a full disk they stay stale until there is room."""
        directory.stale.update(CHECKPOINTS)
        self._guard(directory, self.checkpoints.write_stale, directory)


def _raise(error: OSError) -> None:
    raise error
