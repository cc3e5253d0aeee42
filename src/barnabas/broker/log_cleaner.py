"""LogCleaner: keeps the last record of every key in the logs of compacted topics.

    every log.cleaner.backoff.ms: which log is the dirtiest? -> a CleaningProcess -> groups are swapped in -> checkpoint

Rule 1: whatever changes a log happens on the loop; the clean itself is a process, and what waits for the disk runs in
the pool.
Rule 2: groups are swapped in one after the other, each on the disk before the next: a tombstone never goes before the
records that it deletes.
Rule 3: a clean that fails is tried again, later each time, and can be asked for why. A full disk is such a reason; an
I/O error takes the log directory offline, as it does everywhere.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from barnabas.broker.cleaning_process import Answer, CleaningProcess
from barnabas.broker.log_flusher import LogFlusher
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.broker_config import BrokerConfig
from barnabas.clock import Clock
from barnabas.config import LONG_MAX
from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.storage.batches import CorruptLogError
from barnabas.storage.cleaner.choice import Cleanable, cleanable_part, why_not
from barnabas.storage.cleaner.job import CleanedGroup, CleaningError, CleaningResult
from barnabas.storage.cleaner.preparation import CleanerLimits, PreparedClean, StaleCleanError, log_view
from barnabas.storage.disk_room import FULL_ERRORS
from barnabas.storage.files import PASSING_ERRORS, Files
from barnabas.storage.index import CorruptIndexError
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.segment import LogSegment
from barnabas.storage.segment_swap import remove_cleaned
from barnabas.wire.errors import ApiError

logger = logging.getLogger(__name__)

RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 600_000
FLUSH_WAIT_SECONDS = 0.02
DISK_FAILURES = frozenset({errno.EIO, errno.EROFS})
UNREADABLE = (OSError, CorruptLogError, CorruptIndexError)
"""What may come of a look at the files of a log: nothing but this log is concerned, and it is looked at again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleanerOptions:
    """What a LogCleaner needs from outside."""

    loop: asyncio.AbstractEventLoop
    files: Files
    clock: Clock
    scheduler: Scheduler
    pool: IoPool
    logs: LogManager
    flusher: LogFlusher
    config: BrokerConfig
    on_failed: Callable[[Log, OSError], None]
    """Called when the disk of a log failed or is full."""
    on_cleaned: Callable[[TopicPartition], None] = lambda partition: None
    """Called when nobody reads the segments of a log any more that were being cleaned."""


@dataclass(slots=True)
class _Failure:
    """A log whose last clean failed."""

    reason: str
    count: int
    retry_at: float
    """When it is tried again, in seconds of the monotonic clock."""


class LogCleaner:
    """Cleans the compacted logs of a broker, `log.cleaner.threads` at a time."""

    def __init__(self, options: LogCleanerOptions) -> None:
        self._options = options
        config = options.config
        self._limits = CleanerLimits(
            dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads,
            io_buffer_size=max(1, config.log_cleaner_io_buffer_size // config.log_cleaner_threads),
            load_factor=config.log_cleaner_io_buffer_load_factor,
            bytes_per_second_max=config.log_cleaner_io_max_bytes_per_second / config.log_cleaner_threads,
        )
        self.running: dict[TopicPartition, Clean] = {}
        self._failures: dict[TopicPartition, _Failure] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Begin to look for logs to clean, again and again."""
        if self._options.config.log_cleaner_enable:
            self._options.scheduler.every(self._options.config.log_cleaner_backoff_ms, self.tick)

    def stop(self) -> None:
        """End what is under way, and remove what it wrote."""
        self._is_stopped = True
        for clean in list(self.running.values()):
            clean.give_up()
        self.running.clear()

    def let_go(self, partition: TopicPartition) -> None:
        """End the clean of a log that is under way, because the log is to be moved."""
        clean = self.running.pop(partition, None)
        if clean is not None:
            clean.give_up()

    # Which log.

    def tick(self) -> None:
        """Begin to clean the dirtiest logs, as many as may be cleaned at a time."""
        if self._is_stopped:
            return
        self._end_stale()
        for partition in list(self._failures):
            if partition not in self._options.logs.current_logs:
                del self._failures[partition]
        while len(self.running) < self._options.config.log_cleaner_threads:
            chosen = self._choose()
            if chosen is None:
                return
            self._begin(*chosen)

    def on_partitions_changed(self, topics: Collection[str]) -> None:
        """End the cleans of logs that are deleted, so that others have their turn."""
        if any(partition.topic in topics for partition in self.running):
            self._options.loop.call_soon(self.tick)

    def _end_stale(self) -> None:
        for clean in list(self.running.values()):
            clean.end_if_stale()

    def _choose(self) -> tuple[TopicPartition, Log, Cleanable] | None:
        """Return the dirtiest log that is to be cleaned now; those that are overdue come first."""
        candidates = []
        for partition, managed in list(self._options.logs.current_logs.items()):
            log = managed.log
            if not log.config.is_compacted or log.is_closed or partition in self.running or self._waits(partition):
                continue
            if managed.directory.failure is not None or partition in self._options.logs.moving:
                continue
            try:
                self._make_ready(log)
                part, reason = self._judge(log)
            except UNREADABLE as error:
                if isinstance(error, OSError):
                    self._report(log, error)
                self._note_failure(partition, str(error))
                continue
            if reason is None:
                candidates.append((part.is_overdue, part.dirty_ratio, partition, log, part))
        if not candidates:
            return None
        _, _, partition, log, part = max(candidates, key=lambda candidate: candidate[:2])
        return partition, log, part

    def _report(self, log: Log, error: OSError) -> None:
        """Tell of a disk that failed or is full; other errors pass, or are this log's alone."""
        if error.errno in FULL_ERRORS or error.errno not in (errno.ENOENT, *PASSING_ERRORS):
            self._options.on_failed(log, error)

    def _judge(self, log: Log) -> tuple[Cleanable, str | None]:
        view = log_view(log)
        part = cleanable_part(view, self._options.clock.now_ms())
        return part, why_not(view, part)

    def _make_ready(self, log: Log) -> None:
        """Close an active segment whose records wait too long to be cleaned, and have what is closed flushed."""
        lag_ms, active = log.config.max_compaction_lag_ms, log.segments.last
        if lag_ms != LONG_MAX and active.size and 0 <= active.first_timestamp() < self._options.clock.now_ms() - lag_ms:
            log.roll()
        if log.segments.last.base_offset > log.recovery_point:
            # A roll has its segment flushed; but after a crash nobody would until the next one.
            self._options.flusher.request(log)

    def _waits(self, partition: TopicPartition) -> bool:
        failure = self._failures.get(partition)
        return failure is not None and failure.retry_at > self._options.clock.monotonic_seconds()

    def cleaning_of(self, partition: TopicPartition) -> str | None:
        """Return, in a sentence, why a compacted log is not cleaned now, or that it is; None for any other log."""
        managed = self._options.logs.current_logs.get(partition)
        if managed is None or managed.log.is_closed or not managed.log.config.is_compacted:
            return None
        if not self._options.config.log_cleaner_enable:
            return "not cleaned, because log.cleaner.enable is false"
        if partition in self.running:
            return "it is being cleaned"
        if partition in self._options.logs.moving:
            return "not cleaned now: it is being moved to another log directory"
        failure = self._failures.get(partition)
        if failure is not None:
            seconds = max(0.0, failure.retry_at - self._options.clock.monotonic_seconds())
            return f"its last clean failed, and is tried again in {seconds:.0f} s: {failure.reason}"
        try:
            reason = self._judge(managed.log)[1]
        except UNREADABLE as error:
            reason = str(error)
        return "it is cleaned next" if reason is None else f"not cleaned now: {reason}"

    def first_dirty_offset_of(self, partition: TopicPartition) -> int | None:
        """Return up to where a log is clean, or None where it never was cleaned."""
        managed = self._options.logs.current_logs.get(partition)
        if managed is None or managed.log.first_dirty_offset == NO_OFFSET:
            return None
        return managed.log.first_dirty_offset

    # One clean.

    def _begin(self, partition: TopicPartition, log: Log, part: Cleanable) -> None:
        try:
            prepared = PreparedClean(log, part, self._limits, self._options.clock.now_ms())
        except UNREADABLE as error:
            self._note_failure(partition, str(error))
            return
        self.running[partition] = Clean(self._options, partition, prepared, self._ended)

    def _ended(self, partition: TopicPartition, reason: str | None) -> None:
        """Go on with the next log; a clean that failed is tried again later."""
        if self._is_stopped:
            return
        self.running.pop(partition, None)
        if reason is None:
            self._failures.pop(partition, None)
        else:
            self._note_failure(partition, reason)
        self._options.on_cleaned(partition)
        # Not at once: retention, which waited for this, comes before the next clean of the same log.
        self._options.loop.call_soon(self.tick)

    def _note_failure(self, partition: TopicPartition, reason: str) -> None:
        failure = self._failures.get(partition)
        count = failure.count + 1 if failure is not None else 1
        first_ms = max(RETRY_MS_MIN, self._options.config.log_cleaner_backoff_ms)
        delay_ms = max(first_ms, min(first_ms << min(count - 1, 16), RETRY_MS_MAX))
        retry_at = self._options.clock.monotonic_seconds() + delay_ms / 1000
        self._failures[partition] = _Failure(reason, count, retry_at)
        logger.warning("%s could not be cleaned, and is tried again in %.0f s: %s", partition, delay_ms / 1000, reason)


class Clean:
    """A clean of one log that is under way."""

    def __init__(
        self,
        options: LogCleanerOptions,
        partition: TopicPartition,
        prepared: PreparedClean,
        ended: Callable[[TopicPartition, str | None], None],
    ) -> None:
        self._options = options
        self._partition = partition
        self._prepared = prepared
        self._ended = ended
        self._started = options.clock.monotonic_seconds()
        self._answers: deque[Answer | None] = deque()
        self._is_busy = False
        self._is_over = False
        self.process = CleaningProcess(options.loop, options.files, prepared.job, self._heard)

    def end_if_stale(self) -> None:
        """End it when nothing can come of it any more."""
        try:
            self._prepared.check_current()
        except StaleCleanError as error:
            logger.info("a clean is thrown away: %s", error)
            self._end(None)

    def _heard(self, answer: Answer | None) -> None:
        self._answers.append(answer)
        self._advance()

    def _advance(self) -> None:
        """Take the next answer, unless something is on its way to the disk."""
        while self._answers and not self._is_busy and not self._is_over:
            answer = self._answers[0]
            if isinstance(answer, CleanedGroup) and self._is_being_flushed(answer):
                self._is_busy = True
                self._options.loop.call_later(FLUSH_WAIT_SECONDS, self._go_on)
                return
            self._answers.popleft()
            self._take(answer)

    def _is_being_flushed(self, group: CleanedGroup) -> bool:
        """Tell whether a flush that is running may have one of the segments in hand, whose files must not move."""
        log = self._prepared.log
        after = log.segments.higher(group.base_offsets[-1])
        is_flushed = after is not None and after.base_offset < log.recovery_point
        return self._options.flusher.is_running(log) and not is_flushed

    def _go_on(self) -> None:
        self._is_busy = False
        self._advance()

    def _take(self, answer: Answer | None) -> None:
        try:
            if isinstance(answer, CleanedGroup):
                self._swap(answer)
            elif isinstance(answer, CleaningResult):
                self._finish(answer)
            else:
                self._fail(answer or CleaningError("the cleaning process ended without a result"))
        except StaleCleanError as error:
            # Nothing is wrong. What there is now is looked at when its turn comes.
            logger.info("a clean is thrown away: %s", error)
            self._end(None)
        except ApiError as error:
            self._end(error.message)
        except OSError as error:
            self._disk_failed(error)

    def _swap(self, group: CleanedGroup) -> None:
        replaced = self._prepared.swap(group)
        if replaced:
            self._is_busy = True
            log = self._prepared.log
            self._options.pool.submit(log.sync_directory, lambda _, error: self._swapped(replaced, error))

    def _swapped(self, replaced: list[LogSegment], error: BaseException | None) -> None:
        if self._is_over:
            if not self._prepared.log.is_closed:
                self._options.logs.delete_segments(self._partition, replaced)
            return
        if isinstance(error, OSError) and not self._prepared.log.is_closed:
            self._disk_failed(error)
            return
        try:
            self._options.logs.delete_segments(self._partition, replaced)
            self._prepared.check_current()
        except (StaleCleanError, ApiError) as gone:
            logger.info("a clean is thrown away: %s", gone)
            self._end(None)
            return
        self._go_on()

    def _finish(self, result: CleaningResult) -> None:
        self._prepared.check_current()
        self._prepared.log.first_dirty_offset = result.end_offset
        self._options.logs.checkpoint_cleaner_offsets()
        seconds = self._options.clock.monotonic_seconds() - self._started
        keyless = f", {result.keyless_removed} of them without a key" if result.keyless_removed else ""
        logger.info(
            "%s is clean up to offset %d: %d bytes became %d in %.1f s, %d records removed%s",
            self._partition,
            result.end_offset,
            result.bytes_in,
            result.bytes_out,
            seconds,
            result.records_removed,
            keyless,
        )
        self._end(None)

    def _fail(self, error: CleaningError) -> None:
        self._prepared.check_current()
        if error.errno in DISK_FAILURES:
            raise OSError(error.errno, error.reason)
        self._end(error.reason)

    def _disk_failed(self, error: OSError) -> None:
        if error.errno not in PASSING_ERRORS:
            self._options.on_failed(self._prepared.log, error)
        self._end(str(error))

    def _end(self, reason: str | None) -> None:
        self.give_up()
        self._ended(self._partition, reason)

    def give_up(self) -> None:
        """End the process, and remove what it wrote that is not swapped in."""
        if self._is_over:
            return
        self._is_over = True
        self.process.end()
        job = self._prepared.job
        try:
            remove_cleaned(self._options.files, job.directory, self._prepared.base_offsets)
        except OSError as error:
            logger.info("what a clean left in %s could not be removed: %s", job.directory, error)
