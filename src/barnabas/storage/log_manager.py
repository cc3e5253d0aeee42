"""LogManager: all logs of a broker, over one or more folders (`log.dirs`).

It loads them at start, several at once; creates, finds and deletes them; writes the checkpoints; and takes a folder
that fails out of service without the others. What runs when is decided above: the methods here do one thing once.

Rule 1: one thread owns it. Threads of its own only load and close logs, each log on one thread.
Rule 2: a folder whose disk fails is offline, with its logs, until a restart; a full disk is not a failure.
Rule 3: checkpoints are written after what they vouch for is on the disk, and the clean-shutdown marker last of all.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping
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
from barnabas.storage.files import Files
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log, LogOptions
from barnabas.storage.log_directory import (
    FolderKind,
    LogDirectory,
    LogDirectoryError,
    PartitionFolder,
    folder_name,
)
from barnabas.storage.segment import LogSegment, OpenSegments
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def _start_offset(log: Log) -> int | None:
    """Return where a log starts, where its first segment does not say the same."""
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None


# What each checkpoint says of a log.
CHECKPOINTS: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    LOG_START_OFFSET_CHECKPOINT: _start_offset,
    HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark.message_offset,
}


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


@dataclass(slots=True)
class ManagedLog:
    """A log, where it is and whose it is."""

    log: Log
    directory: LogDirectory
    partition: TopicPartition
    topic_id: UUID | None


class LogManager:
    """The logs of a broker."""

    def __init__(self, options: LogManagerOptions) -> None:
        self._options = options
        self._files = options.files
        self._open_segments = OpenSegments()
        self.directories = [LogDirectory(options.files, path) for path in _distinct(options.config.log_dirs)]
        self.current_logs: dict[TopicPartition, ManagedLog] = {}
        self.future_logs: dict[TopicPartition, ManagedLog] = {}
        # Partitions whose folder is offline: they are answered with an error and never created anew elsewhere.
        self.offline_partitions: dict[TopicPartition, LogDirectory] = {}
        # What is to be removed for good, and from when on, in milliseconds of the clock.
        self._removals: list[tuple[int, LogDirectory, Callable[[], None]]] = []

    # Start and stop.

    def start(self) -> None:
        """Take the folders and load every log in them. On an error everything taken is given back."""
        try:
            for directory in self.directories:
                self._begin(directory, directory.take)
            for directory in self._live_directories():
                self._begin(directory, self._load_directory, directory)
        except BaseException:
            self._release()
            raise

    def _begin(self, directory: LogDirectory, action: Callable[..., None], *arguments: object) -> None:
        """Run a step of the start. A full disk is a failure too: what was not loaded must not look as if it were not
        there."""
        try:
            action(*arguments)
        except OSError as error:
            self.fail_directory(directory, error)

    def _load_directory(self, directory: LogDirectory) -> None:
        folders = directory.folders()
        directory.identify(self._options.identity)
        directory.begin()
        recovery_points = directory.read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        log_starts = directory.read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = directory.read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        loading = []
        for folder in folders:
            if folder.kind is FolderKind.DELETE:
                self._remove_later(directory, os.path.join(directory.path, folder.name), 0)
            elif folder.kind is FolderKind.STRAY:
                logger.warning("%s is a stray log and is left alone", os.path.join(directory.path, folder.name))
            else:
                loading.append(folder)

        def load(folder: PartitionFolder) -> ManagedLog:
            # The checkpoints are those of the current logs; they know nothing of a future one of the same name.
            is_current = folder.kind is FolderKind.CURRENT
            known = LastKnown(
                log_start_offset=log_starts.get(folder.partition, 0) if is_current else 0,
                recovery_point=recovery_points.get(folder.partition, 0) if is_current else 0,
                had_clean_shutdown=directory.had_clean_shutdown,
            )
            return self._load(directory, folder, known)

        threads = self._options.config.num_recovery_threads_per_data_dir
        try:
            with ThreadPoolExecutor(threads, thread_name_prefix="barnabas-load") as pool:
                for folder, managed in zip(loading, pool.map(load, loading), strict=True):
                    managed.log.update_high_watermark(high_watermarks.get(folder.partition, 0))
                    self._register(managed, folder.kind)
        except OSError:
            current = [folder.partition for folder in loading if folder.kind is FolderKind.CURRENT]
            self.offline_partitions.update(dict.fromkeys(current, directory))
            raise
        state = "clean" if directory.had_clean_shutdown else "not clean, logs were recovered"
        logger.info("%s: %d logs loaded (the last shutdown was %s)", directory.path, len(loading), state)

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
        )

    def _register(self, managed: ManagedLog, kind: FolderKind) -> None:
        logs = self.future_logs if kind is FolderKind.FUTURE else self.current_logs
        other = logs.get(managed.partition)
        if other is not None:
            message = f"{managed.partition} is in {other.log.directory} and in {managed.log.directory}"
            raise LogDirectoryError(f"{message}; remove the one that is out of date")
        logs[managed.partition] = managed

    def shutdown(self) -> None:
        """Flush and close every log, write the checkpoints and mark the folders clean."""
        try:
            for directory in self._live_directories():
                self._guard(directory, self._close_directory, directory)
        finally:
            self._release()

    def _close_directory(self, directory: LogDirectory) -> None:
        threads = self._options.config.num_recovery_threads_per_data_dir
        with ThreadPoolExecutor(threads, thread_name_prefix="barnabas-close") as pool:
            list(pool.map(lambda managed: managed.log.close(), self._logs_in(directory)))
        self._write_checkpoints(directory)
        directory.mark_clean()

    def _release(self) -> None:
        for directory in self.directories:
            directory.release()

    # The folders.

    def _live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _logs_in(self, directory: LogDirectory) -> list[ManagedLog]:
        logs = [*self.current_logs.values(), *self.future_logs.values()]
        return [managed for managed in logs if managed.directory is directory]

    def _guard(self, directory: LogDirectory, action: Callable[..., None], *arguments: object) -> None:
        """Run something that writes to a folder; a disk that fails takes that folder offline."""
        try:
            action(*arguments)
        except OSError as error:
            if error.errno in DISK_FULL:
                logger.warning("%s is full: %s", directory.path, error)
            else:
                self.fail_directory(directory, error)

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a folder and its logs out of service until a restart; raises NoLogDirectoryError if it was the last."""
        if directory.failure is not None:
            return
        directory.failure = error
        for logs in (self.current_logs, self.future_logs):
            for managed in [managed for managed in logs.values() if managed.directory is directory]:
                del logs[managed.partition]
                managed.log.abandon()
                self.offline_partitions[managed.partition] = directory
        logger.error(
            "%s failed and is offline until a restart, with %d logs: %s",
            directory.path,
            sum(1 for owner in self.offline_partitions.values() if owner is directory),
            error,
        )
        self._check_alive()

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

    def get_or_create_log(
        self, partition: TopicPartition, topic_id: UUID | None = None, *, kind: FolderKind = FolderKind.CURRENT
    ) -> Log:
        """Return the log of a partition, made anew in the folder with the fewest logs where there is none."""
        existing = self.future_logs.get(partition) if kind is FolderKind.FUTURE else self.current_logs.get(partition)
        if existing is not None:
            if existing.topic_id is None and topic_id is not None:
                write_partition_metadata(
                    self._files, os.path.join(existing.log.directory, PARTITION_METADATA), topic_id
                )
                existing.topic_id = topic_id
            return existing.log
        if kind is FolderKind.CURRENT:
            self.get_log(partition)  # A partition whose folder is offline has its records there, not nowhere.
        directory = min(self._live_directories(), key=lambda directory: len(self._logs_in(directory)))
        folder = PartitionFolder(folder_name(partition, kind), partition, kind)
        path = os.path.join(directory.path, folder.name)
        log = load_log(self._log_options(path, partition.topic), LastKnown(had_clean_shutdown=True))
        if topic_id is not None:
            write_partition_metadata(self._files, os.path.join(path, PARTITION_METADATA), topic_id)
        self._files.sync_directory(directory.path)
        self._register(ManagedLog(log, directory, partition, topic_id), kind)
        return log

    def update_topic_config(self, topic: str) -> None:
        """Apply changed settings to the open logs of a topic."""
        config = self._options.topic_config(topic)
        for logs in (self.current_logs, self.future_logs):
            for partition, managed in logs.items():
                if partition.topic == topic:
                    managed.log.update_config(config)

    def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Cut off the end of a log; no checkpoint vouches for what is gone, neither before nor after."""
        managed = self.current_logs[partition]
        managed.log.recovery_point = min(managed.log.recovery_point, offset)
        self._write_checkpoint(managed.directory, RECOVERY_POINT_CHECKPOINT)
        managed.log.truncate_to(offset)
        if managed.log.recovery_point < offset:
            # The offset lay inside a batch, which went whole.
            self._write_checkpoint(managed.directory, RECOVERY_POINT_CHECKPOINT)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Drop all records of a log and let it go on at `offset`."""
        managed = self.current_logs[partition]
        managed.log.truncate_fully_and_start_at(offset)
        self._write_checkpoints(managed.directory)

    def delete_log(self, partition: TopicPartition) -> None:
        """Take a log out of service; its files go after `file.delete.delay.ms`."""
        managed = self.current_logs[partition]
        managed.log.abandon()
        target = os.path.join(managed.directory.path, folder_name(partition, FolderKind.DELETE))
        self._files.rename(managed.log.directory, target)
        del self.current_logs[partition]
        self._files.sync_directory(managed.directory.path)
        self._write_checkpoints(managed.directory)
        self._remove_later(managed.directory, target, managed.log.config.file_delete_delay_ms)

    def delete_segments(self, partition: TopicPartition, segments: Iterable[LogSegment]) -> None:
        """Remove segments that a log gave up after `file.delete.delay.ms`, when no reader needs them any more."""
        managed = self.current_logs[partition]
        due_ms = self._options.clock.now_ms() + managed.log.config.file_delete_delay_ms
        for segment in segments:
            self._removals.append((due_ms, managed.directory, segment.delete))

    def _remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        due_ms = self._options.clock.now_ms() + delay_ms
        self._removals.append((due_ms, directory, lambda: self._files.remove_tree(path)))

    def remove_due(self) -> None:
        """Remove the files of deleted logs and segments whose time has come."""
        now_ms = self._options.clock.now_ms()
        due = [removal for removal in self._removals if removal[0] <= now_ms]
        self._removals = [removal for removal in self._removals if removal[0] > now_ms]
        for _, directory, remove in due:
            if directory.failure is None:
                self._guard(directory, remove)

    def remove_expired_producers(self) -> None:
        """Forget the producers that were quiet for longer than `producer.id.expiration.ms`."""
        oldest = self._options.clock.now_ms() - self._options.config.producer_id_expiration_ms
        for managed in self.current_logs.values():
            managed.log.producers.remove_expired(oldest)

    # Flush and checkpoints.

    def flush_dirty_logs(self) -> None:
        """Flush the logs whose oldest unflushed record waits longer than their `flush.ms`."""
        now_ms = self._options.clock.now_ms()
        for managed in list(self.current_logs.values()):
            if now_ms - managed.log.last_flush_ms >= managed.log.config.flush_ms:
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
            self._guard(directory, self._write_checkpoint, directory, name)

    def _write_checkpoints(self, directory: LogDirectory) -> None:
        for name in CHECKPOINTS:
            self._write_checkpoint(directory, name)

    def _write_checkpoint(self, directory: LogDirectory, name: str) -> None:
        offset_of = CHECKPOINTS[name]
        offsets = {
            managed.partition: offset
            for managed in self.current_logs.values()
            if managed.directory is directory and (offset := offset_of(managed.log)) is not None
        }
        directory.write_checkpoint(name, offsets)


def _distinct(paths: Iterable[str]) -> list[str]:
    """Return the folders, absolute; one that is named twice is refused, since it would be used twice."""
    absolute: list[str] = []
    for path in paths:
        resolved = os.path.realpath(path)
        if resolved in absolute:
            raise LogDirectoryError(f"log.dirs names {path} twice")
        absolute.append(resolved)
    return absolute
