"""Logs on their way into service: which there are, how much of each has to be recovered, and the threads that do it.

    known --> a thread opens it, and recovers it where the last stop was not clean --> taken over by the LogManager

After a clean stop opening is cheap, and everything is loaded at once. After any other, logs that have little to recover
come first, so that a broker can serve them while the others are recovered beside it.

Rule 1: a log is known from the moment its folder is listed. Until it is taken over nobody makes, deletes or moves it,
and the checkpoints keep saying of it what they said.
Rule 2: a thread owns its log until it is taken over; all else happens on the thread of the LogManager.
Rule 3: loading can be stopped at any time. Nothing is lost by it: the next start begins again.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    read_partition_metadata,
    write_partition_metadata,
)
from barnabas.storage.files import Files
from barnabas.storage.loader import LastKnown, load_log, segment_sizes
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory, LogDirectoryError, PartitionFolder
from barnabas.storage.log_types import LogOptions, ManagedLog

logger = logging.getLogger(__name__)

EAGER_RECOVERY_BYTES = 64 << 20
"""So much is recovered before a broker is ready: it is done in less time than a client takes to connect again."""
GIGABYTE = 1 << 30


class LoadStoppedError(Exception):
    """Nobody wants the log any more: it is deleted, its folder has failed, or the broker stops."""


class RecoveryProgress(NamedTuple):
    """How far loading has come since the start, of the logs that had something to recover."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int


@dataclass(slots=True, eq=False, kw_only=True)
class LoadingLog:
    """A log that is not loaded yet."""

    folder: PartitionFolder
    directory: LogDirectory
    options: LogOptions
    known: LastKnown
    checkpoints: Mapping[str, int]
    """What each checkpoint of its directory says of it."""
    size_bytes: int = 0
    recovery_bytes: int = 0
    """How much of it has to be read again."""
    done_bytes: int = 0
    is_wanted: bool = True
    is_deleted: bool = False
    """Whether its folder is to be removed when the thread lets go of it."""
    future: "Future[ManagedLog] | None" = None
    """What a thread does with it; None while it waits for room on its disk."""

    @property
    def partition(self) -> TopicPartition:
        """Whose log it is."""
        return self.folder.partition

    def load(self) -> ManagedLog:
        """Open the log, on any thread."""
        self.done_bytes = 0
        self._go_on(0)
        log = load_log(self.options, self.known, self._go_on)
        high_watermark = self.checkpoints.get(HIGH_WATERMARK_CHECKPOINT, 0)
        if high_watermark > log.log_end_offset:
            lost = f"offsets {log.log_end_offset} to {high_watermark - 1} are lost, which clients may have read"
            logger.warning("%s ends at offset %d: %s", log.directory, log.log_end_offset, lost)
        return ManagedLog(log, self.directory, self.partition, _read_topic_id(self.options))

    def _go_on(self, count: int) -> None:
        self.done_bytes += count
        if not self.is_wanted:
            raise LoadStoppedError(str(self.partition))

    def give_up(self) -> None:
        """Let the thread stop as soon as it looks."""
        self.is_wanted = False
        if self.future is not None:
            self.future.cancel()


def _read_topic_id(options: LogOptions) -> UUID | None:
    path = os.path.join(options.directory, PARTITION_METADATA)
    try:
        topic_id = read_partition_metadata(options.files, path)
    except CheckpointError as error:
        logger.warning("%s; the log has no topic id until its topic gives it one", error)
        return None
    if topic_id is None:
        # Kafka before 2.8 wrote none, and otherwise somebody removed it.
        logger.warning("%s is missing; the log has no topic id until its topic gives it one", path)
    return topic_id


@dataclass(frozen=True, slots=True)
class PendingLog:
    """A log that is being made. The part that waits for the disk may run on any thread, while the manager goes on."""

    options: LogOptions
    directory: LogDirectory
    partition: TopicPartition
    topic_id: UUID | None

    def run(self) -> Log:
        """Make the folder and its files, and return the log when their names are on the disk.

        What can not be made leaves nothing behind: the next attempt may be in another folder.
        """
        files, folder = self.options.files, self.options.directory
        try:
            log = load_log(self.options, LastKnown(had_clean_shutdown=True))
            if self.topic_id is not None:
                write_partition_metadata(files, os.path.join(folder, PARTITION_METADATA), self.topic_id)
            files.sync_directory(self.directory.path)
        except OSError:
            with contextlib.suppress(OSError):
                files.remove_tree(folder)
            raise
        return log


class LogLoading:
    """The logs that are being loaded, in all folders."""

    def __init__(self, files: Files, threads: int, make_options: Callable[[str, str], LogOptions]) -> None:
        self._files = files
        self._threads = threads
        self._make_options = make_options
        self.current: dict[TopicPartition, LoadingLog] = {}
        self._pools: dict[LogDirectory, ThreadPoolExecutor] = {}
        # What there was to recover at the start, and what of it is no longer in the tables above.
        self._logs_total = self._bytes_total = 0
        self._logs_gone = self._bytes_gone = 0
        self.on_ready: Callable[[], None] = lambda: None
        """Called, on any thread, when a log can be taken over or has failed."""

    # Which there are.

    def all(self) -> list[LoadingLog]:
        """Return the logs that are not taken over."""
        return list(self.current.values())

    def in_directory(self, directory: LogDirectory) -> list[LoadingLog]:
        """Return those of one folder."""
        return [one for one in self.all() if one.directory is directory]

    def add(
        self,
        directory: LogDirectory,
        folders: Iterable[PartitionFolder],
        checkpoints: Mapping[str, Mapping[TopicPartition, int]],
    ) -> None:
        """Note the logs of a folder; raises LogDirectoryError for one that another folder has as well."""
        for folder in folders:
            path = os.path.join(directory.path, folder.name)
            other = self.current.get(folder.partition)
            if other is not None:
                message = f"{folder.partition} is in {other.options.directory} and in {path}"
                raise LogDirectoryError(f"{message}; remove the one that is out of date")
            told = {name: them[folder.partition] for name, them in checkpoints.items() if folder.partition in them}
            known = LastKnown(
                log_start_offset=told.get(LOG_START_OFFSET_CHECKPOINT, 0),
                recovery_point=told.get(RECOVERY_POINT_CHECKPOINT, 0),
                first_dirty_offset=told.get(CLEANER_OFFSET_CHECKPOINT, NO_OFFSET),
                had_clean_shutdown=directory.had_clean_shutdown,
            )
            one = LoadingLog(
                folder=folder,
                directory=directory,
                options=self._make_options(path, folder.partition.topic),
                known=known,
                checkpoints=told,
            )
            if not known.had_clean_shutdown:
                one.size_bytes, one.recovery_bytes = segment_sizes(self._files, path, known.recovery_point)
            self.current[folder.partition] = one
            directory.log_count += 1

    def forget(self, one: LoadingLog) -> None:
        """Take a log out, because it is taken over, deleted or lost with its disk."""
        del self.current[one.partition]
        one.directory.log_count -= 1
        if one.recovery_bytes:
            self._logs_gone += 1
            self._bytes_gone += one.recovery_bytes
        if one.directory in self._pools and not self.in_directory(one.directory):
            self._pools.pop(one.directory).shutdown(wait=False)

    # Loading.

    def begin(self, eager_bytes: int | None) -> list[LoadingLog]:
        """Let threads load all logs, and return those that are worth waiting for; with None that is all of them."""
        waiting = sorted(self.all(), key=lambda one: one.recovery_bytes)
        eager, total = [], 0
        for one in waiting:
            total += one.recovery_bytes
            if one.recovery_bytes == 0 or eager_bytes is None or total <= eager_bytes:
                eager.append(one)
        chosen = set(eager)
        # Whoever coordinates needs the internal topics, so that they come first.
        others = sorted(
            (one for one in waiting if one not in chosen), key=lambda one: not one.partition.topic.startswith("__")
        )
        recovered = [one for one in waiting if one.recovery_bytes]
        self._logs_total += len(recovered)
        self._bytes_total += sum(one.recovery_bytes for one in recovered)
        if recovered:
            size, count = bytes_text(self._bytes_total), len(recovered)
            logger.info("recovering %d logs, %s from their recovery points", count, size)
        for one in (*eager, *others):
            self.submit(one)
        return eager

    def submit(self, one: LoadingLog) -> None:
        """Let a thread load a log."""
        pool = self._pools.get(one.directory)
        if pool is None:
            pool = self._pools[one.directory] = ThreadPoolExecutor(self._threads, thread_name_prefix="barnabas-load")
        one.future = pool.submit(one.load)
        one.future.add_done_callback(lambda _: self.on_ready())

    def submit_waiting(self, directory: LogDirectory) -> None:
        """Try again to load what found no room on the disk."""
        for one in self.in_directory(directory):
            if one.future is None:
                self.submit(one)

    def ready(self) -> list[LoadingLog]:
        """Return those that a thread is done with, whatever came of it."""
        return [one for one in self.all() if one.future is not None and one.future.done()]

    def wait_for(self, some: Iterable[LoadingLog]) -> None:
        """Wait until threads are done with these."""
        wait([one.future for one in some if one.future is not None])

    def stop(self) -> None:
        """Stop loading, and return when no thread works any more. What was not taken over stays in the tables."""
        for one in self.all():
            one.give_up()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools.clear()
        for one in self.all():
            if one.future is not None and not one.future.cancelled() and one.future.exception() is None:
                one.future.result().log.abandon()

    @property
    def progress(self) -> RecoveryProgress:
        """How far recovery has come."""
        under_way = [one for one in self.all() if one.recovery_bytes]
        done = self._bytes_gone + sum(min(one.done_bytes, one.recovery_bytes) for one in under_way)
        return RecoveryProgress(self._logs_gone, self._logs_total, done, self._bytes_total)


def bytes_text(size: int) -> str:
    """Return a number of bytes as people say it."""
    return f"{size / GIGABYTE:.1f} GB" if size >= GIGABYTE // 10 else f"{size / (1 << 20):.1f} MB"
