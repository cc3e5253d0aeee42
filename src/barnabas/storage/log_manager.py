"""LogManager: all logs of a broker, over one or more folders (`log.dirs`).

It loads them at start, several at once; creates, finds and deletes them; writes the checkpoints; and takes a folder
that fails out of service without the others. What runs when is decided above: the methods here do one thing once.

Rule 1: one thread owns it. Threads of its own only load and close logs, each log on one thread.
Rule 2: a folder whose disk fails is offline, with its logs, until a restart; a full disk is not a failure.
Rule 3: checkpoints are written after what they vouch for is on the disk, and the clean-shutdown marker last of all.
Rule 4: checkpoints are lowered before records go, and at the start, so that they never vouch for what comes after them.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.clock import Clock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    read_partition_metadata,
    write_partition_metadata,
)
from barnabas.storage.files import PASSING_ERRORS, Files
from barnabas.storage.load_journal import LoadJournal, LoadJournalError
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.log_checkpoints import CHECKPOINTS, LogCheckpoints
from barnabas.storage.log_directory import (
    FolderKind,
    LogDirectory,
    LogDirectoryError,
    PartitionFolder,
    folder_name,
)
from barnabas.storage.log_types import LogOptions, ManagedLog
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


@dataclass(frozen=True, slots=True)
class PendingLog:
    """A log that is being made. The part that waits for the disk may run on any thread, while the manager goes on."""

    options: LogOptions
    directory: LogDirectory
    partition: TopicPartition
    topic_id: UUID | None
    kind: FolderKind

    def run(self) -> Log:
        """Make the folder and its files, and return the log when their names are on the disk."""
        log = load_log(self.options, LastKnown(had_clean_shutdown=True))
        if self.topic_id is not None:
            path = os.path.join(self.options.directory, PARTITION_METADATA)
            write_partition_metadata(self.options.files, path, self.topic_id)
        self.options.files.sync_directory(self.directory.path)
        return log


@dataclass(frozen=True, slots=True)
class _Loading:
    """A folder whose logs are being loaded, by threads of its own."""

    directory: LogDirectory
    folders: list[PartitionFolder]
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]
    pool: ThreadPoolExecutor
    logs: Iterator[ManagedLog]


class LogManager:
    """The logs of a broker."""

    def __init__(self, options: LogManagerOptions) -> None:
        self._options = options
        self._files = options.files
        self._open_segments = OpenSegments()
        self.directories = [LogDirectory(options.files, path) for path in _distinct(options.config.log_dirs)]
        self.load_journal = LoadJournal(options.files, self.directories[0].path)
        self.current_logs: dict[TopicPartition, ManagedLog] = {}
        self.future_logs: dict[TopicPartition, ManagedLog] = {}
        self.checkpoints = LogCheckpoints(self.current_logs)
        # Both of them by topic, so that a change of one topic does not cost a walk over all.
        self._logs_by_topic: dict[str, dict[Log, None]] = {}
        # Folders with deletions that a power cut may still undo.
        self._unsettled: dict[LogDirectory, None] = {}
        # Partitions whose folder is offline: they are answered with an error and never created anew elsewhere.
        self.offline_partitions: dict[TopicPartition, LogDirectory] = {}
        self.offline_future_logs: dict[TopicPartition, LogDirectory] = {}
        # What is to be removed for good, and from when on, in milliseconds of the clock.
        self._removals: list[tuple[int, LogDirectory, Callable[[], None]]] = []

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

    def start(self) -> None:
        """Take the folders and load every log in them, all at once. On an error everything taken is given back."""
        self.take_directories()
        loading: list[_Loading] = []
        try:
            self._begin(self.directories[0], self._finish_loads)
            for directory in self._live_directories():
                self._begin(directory, self._begin_loading, directory, loading)
            for one in loading:
                self._begin(one.directory, self._finish_loading, one)
        except BaseException:
            for one in loading:
                one.pool.shutdown(cancel_futures=True)
            self.release()
            raise

    def _begin(self, directory: LogDirectory, action: Callable[..., None], *arguments: object) -> None:
        """Run a step of the start. A full disk is a failure too: what was not loaded must not look as if it were not
        there."""
        try:
            action(*arguments)
        except OSError as error:
            self._note_offline(directory)
            self.fail_directory(directory, error)

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
            elif folder.kind is FolderKind.FUTURE:
                self.offline_future_logs[folder.partition] = directory

    def _begin_loading(self, directory: LogDirectory, loading: list[_Loading]) -> None:
        """Look at a folder and let threads load its logs; what they load is added to `loading`."""
        folders = directory.folders()
        directory.check_identity(self._options.identity)
        # This comes first because a disk that is full needs the room for all that follows.
        folders = self._sort_out(directory, folders)
        directory.identify(self._options.identity)
        directory.begin()
        checkpoints = {name: directory.read_checkpoint(name) for name in CHECKPOINTS}

        def load(folder: PartitionFolder) -> ManagedLog:
            # The checkpoints are those of the current logs; they know nothing of a future one of the same name.
            is_current = folder.kind is FolderKind.CURRENT
            known = LastKnown(
                log_start_offset=checkpoints[LOG_START_OFFSET_CHECKPOINT].get(folder.partition, 0) if is_current else 0,
                recovery_point=checkpoints[RECOVERY_POINT_CHECKPOINT].get(folder.partition, 0) if is_current else 0,
                had_clean_shutdown=directory.had_clean_shutdown,
            )
            return self._load(directory, folder, known)

        threads = self._options.config.num_recovery_threads_per_data_dir
        pool = ThreadPoolExecutor(threads, thread_name_prefix="barnabas-load")
        loading.append(_Loading(directory, folders, checkpoints, pool, pool.map(load, folders)))

    def _finish_loading(self, loading: _Loading) -> None:
        """Wait for the logs of a folder and take them into service."""
        directory, high_watermarks = loading.directory, loading.checkpoints[HIGH_WATERMARK_CHECKPOINT]
        with loading.pool:
            for folder, managed in zip(loading.folders, loading.logs, strict=True):
                if folder.kind is FolderKind.CURRENT:
                    managed.log.update_high_watermark(high_watermarks.get(folder.partition, 0))
                self._register(managed, folder.kind)
        self.checkpoints.correct(directory, loading.checkpoints)
        if loading.folders:
            state = "clean" if directory.had_clean_shutdown else "not clean, logs were recovered"
            logger.info("%s: %d logs loaded (the last shutdown was %s)", directory.path, len(loading.folders), state)

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
            else:
                loading.append(folder)
        return loading

    def _load(self, directory: LogDirectory, folder: PartitionFolder, known: LastKnown) -> ManagedLog:
        path = os.path.join(directory.path, folder.name)
        log = load_log(self._log_options(path, folder.partition.topic), known)
        return ManagedLog(log, directory, folder.partition, self._read_topic_id(path))

    def _read_topic_id(self, path: str) -> UUID | None:
        try:
            return read_partition_metadata(self._files, os.path.join(path, PARTITION_METADATA))
        except CheckpointError as error:
            logger.warning("%s; the log has no topic id until its topic gives it one", error)
            return None

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

    def _register(self, managed: ManagedLog, kind: FolderKind) -> None:
        logs = self.future_logs if kind is FolderKind.FUTURE else self.current_logs
        other = logs.get(managed.partition)
        if other is not None:
            message = f"{managed.partition} is in {other.log.directory} and in {managed.log.directory}"
            raise LogDirectoryError(f"{message}; remove the one that is out of date")
        logs[managed.partition] = managed
        self._logs_by_topic.setdefault(managed.partition.topic, {})[managed.log] = None
        managed.directory.log_count += 1

    def _unregister(self, logs: dict[TopicPartition, ManagedLog], managed: ManagedLog) -> None:
        del logs[managed.partition]
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
        """Flush and close every log, write the checkpoints and mark the folders clean."""
        for directory in self._live_directories():
            self._guard(directory, self._close_directory, directory)

    def _close_directory(self, directory: LogDirectory) -> None:
        threads = self._options.config.num_recovery_threads_per_data_dir
        with ThreadPoolExecutor(threads, thread_name_prefix="barnabas-close") as pool:
            list(pool.map(lambda managed: managed.log.close(), self._logs_in(directory)))
        self.checkpoints.write_all(directory)
        directory.mark_clean()

    def release(self) -> None:
        """Give the folders back; one that is given back already stays so."""
        for directory in self.directories:
            directory.release()

    # The folders.

    def _live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _logs_in(self, directory: LogDirectory) -> list[ManagedLog]:
        logs = [*self.current_logs.values(), *self.future_logs.values()]
        return [managed for managed in logs if managed.directory is directory]

    def _guard(self, directory: LogDirectory, action: Callable[..., None], *arguments: object) -> bool:
        """Run something that writes to a folder, and tell whether it did; a disk that fails takes it offline."""
        try:
            action(*arguments)
            return True
        except OSError as error:
            if error.errno in PASSING_ERRORS:
                logger.warning("%s can not be written to for now: %s", directory.path, error)
            else:
                self.fail_directory(directory, error)
            return False

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a folder and its logs out of service until a restart; raises NoLogDirectoryError if it was the last."""
        if directory.failure is not None:
            return
        directory.failure = error
        pairs = ((self.current_logs, self.offline_partitions), (self.future_logs, self.offline_future_logs))
        for logs, offline in pairs:
            for managed in [managed for managed in logs.values() if managed.directory is directory]:
                self._unregister(logs, managed)
                managed.log.abandon()
                offline[managed.partition] = directory
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
        self,
        partition: TopicPartition,
        topic_id: UUID | None = None,
        *,
        kind: FolderKind = FolderKind.CURRENT,
        is_new: bool = False,
    ) -> Log:
        """Return the log of a partition, made anew in the folder with the fewest logs where there is none.

        A partition `is_new` when this broker never had it. All others may have their log in a folder that is offline,
        and raise ApiError rather than start empty while there is one that could not even be listed.
        """
        logs = self.future_logs if kind is FolderKind.FUTURE else self.current_logs
        existing = logs.get(partition)
        if existing is not None:
            if existing.topic_id is None and topic_id is not None:
                write_partition_metadata(
                    self._files, os.path.join(existing.log.directory, PARTITION_METADATA), topic_id
                )
                existing.topic_id = topic_id
            return existing.log
        pending = self.prepare_log(partition, topic_id, kind=kind, is_new=is_new)
        try:
            log = pending.run()
        except BaseException:
            self.cancel_log(pending)
            raise
        self.finish_log(pending, log)
        return log

    def prepare_log(
        self,
        partition: TopicPartition,
        topic_id: UUID | None,
        *,
        kind: FolderKind = FolderKind.CURRENT,
        is_new: bool = False,
    ) -> PendingLog:
        """Choose the folder of a log that is to be made; `run` of what is returned makes it, `finish_log` takes it."""
        self._check_absent(partition, kind, is_new)
        self._check_alive()
        directory = min(self._live_directories(), key=lambda directory: directory.log_count)
        self.checkpoints.write_stale(directory)  # The new log must not be taken for an old one of the same name.
        directory.log_count += 1
        path = os.path.join(directory.path, folder_name(partition, kind))
        return PendingLog(self._log_options(path, partition.topic), directory, partition, topic_id, kind)

    def cancel_log(self, pending: PendingLog) -> None:
        """Give up a log that could not be made."""
        pending.directory.log_count -= 1

    def finish_log(self, pending: PendingLog, log: Log) -> None:
        """Take a log into service that was made."""
        pending.directory.log_count -= 1  # It was counted when it was begun.
        self._register(ManagedLog(log, pending.directory, pending.partition, pending.topic_id), pending.kind)

    def _check_absent(self, partition: TopicPartition, kind: FolderKind, is_new: bool) -> None:
        """Raise ApiError for a log that is, or may be, in a folder that is offline: it has its records there."""
        offline = self.offline_future_logs if kind is FolderKind.FUTURE else self.offline_partitions
        if partition in offline:
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
            managed = self._managed(partition)
            directory = managed.directory
            target = os.path.join(directory.path, folder_name(partition, FolderKind.DELETE))
            self._files.rename(managed.log.directory, target)
            managed.log.abandon()
            self._unregister(self.current_logs, managed)
            directory.log_count -= 1
            # All that follows may fail, on a full disk for one, which the removal is to make room on.
            self._remove_later(directory, target, managed.log.config.file_delete_delay_ms)
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
        self._unregister(self.current_logs, managed)
        managed.directory.log_count -= 1
        self._files.sync_directory(managed.directory.path)
        self._rewrite_checkpoints(managed.directory)
        return target

    def directory_of(self, partition: TopicPartition) -> LogDirectory:
        """Return the folder that a log is in; raises ApiError when there is none, or its folder is offline."""
        return self._managed(partition).directory

    def delete_segments(self, partition: TopicPartition, segments: Iterable[LogSegment]) -> None:
        """Remove segments that a log gave up after `file.delete.delay.ms`, when no reader needs them any more."""
        managed = self._managed(partition)
        due_ms = self._options.clock.now_ms() + managed.log.config.file_delete_delay_ms
        for segment in segments:
            self._removals.append((due_ms, managed.directory, segment.delete))

    def _remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        due_ms = self._options.clock.now_ms() + delay_ms
        self._removals.append((due_ms, directory, lambda: self._files.remove_tree(path)))

    def remove_due(self) -> None:
        """Remove the files of deleted logs and segments whose time has come."""
        remove = self.take_due_removals()
        if remove is not None:
            remove()

    def take_due_removals(self) -> Callable[[], None] | None:
        """Return what removes the files whose time has come, on any thread; None when there are none."""
        now_ms = self._options.clock.now_ms()
        due = [removal for removal in self._removals if removal[0] <= now_ms]
        if not due:
            return None
        self._removals = [removal for removal in self._removals if removal[0] > now_ms]

        def run() -> None:
            for _, directory, remove in due:
                if directory.failure is None:
                    self._guard(directory, remove)

        return run

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
        now_ms = self._options.clock.now_ms()
        logs = [managed.log for managed in self.current_logs.values()]
        return [
            log
            for log in logs
            if now_ms - log.last_flush_ms >= log.config.flush_ms and log.recovery_point < log.log_end_offset
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

    def _write_everywhere(self, name: str) -> None:
        for directory in self._live_directories():
            self._guard(directory, self.checkpoints.write, directory, name)

    def _rewrite_checkpoints(self, directory: LogDirectory) -> None:
        """Write the checkpoints after logs lost something; on a full disk they stay stale until there is room."""
        directory.stale.update(CHECKPOINTS)
        self._guard(directory, self.checkpoints.write_stale, directory)


def _distinct(paths: Iterable[str]) -> list[str]:
    """Return the folders, absolute; one that is named twice is refused, since it would be used twice."""
    absolute: list[str] = []
    for path in paths:
        resolved = os.path.realpath(path)
        if resolved in absolute:
            raise LogDirectoryError(f"log.dirs names {path} twice")
        absolute.append(resolved)
    return absolute
