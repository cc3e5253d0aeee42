"""LogUpkeep: what is done to logs again and again while a broker runs: flushes, checkpoints, retention, file removal.

Rule 1: everything begins on the loop, and what waits for the disk for long runs in the pool.
Rule 2: a log directory that fails here goes offline with its partitions, and the broker stops with the last one.
Rule 3: nothing happens before `start`: a broker that is there for something else leaves logs as they are.
Rule 4: retention runs at the start, when a segment is closed, when a disk is full and on schedule. Only the last waits
for `log.initial.task.delay.ms`: a small disk fills up in less.
"""

import logging
from collections.abc import Callable
from functools import partial

from barnabas.broker.log_retention import LogRetention
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.broker_config import BrokerConfig
from barnabas.clock import Clock
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager, NoLogDirectoryError

logger = logging.getLogger(__name__)

REMOVAL_INTERVAL_MS = 1_000


class LogUpkeep:
    """The repeated work on the logs of one broker."""

    def __init__(
        self,
        logs: LogManager,
        replica_manager: ReplicaManager,
        pool: IoPool,
        clock: Clock,
        on_fatal: Callable[[str], None],
    ) -> None:
        self._logs = logs
        self._replica_manager = replica_manager
        self._pool = pool
        self._on_fatal = on_fatal
        self.retention = LogRetention(logs, replica_manager, clock, self._guarded)

    def start(self, scheduler: Scheduler, broker: BrokerConfig) -> None:
        """Begin what is done again and again."""
        logs, every, first_ms = self._logs, scheduler.every, broker.log_initial_task_delay_ms
        every(broker.log_flush_scheduler_interval_ms, self._flush_dirty_logs, first_ms=first_ms)
        for interval_ms, checkpoint in (
            (broker.log_flush_offset_checkpoint_interval_ms, logs.checkpoint_recovery_points),
            (broker.log_flush_start_offset_checkpoint_interval_ms, logs.checkpoint_log_start_offsets),
        ):
            every(interval_ms, partial(self._guarded, checkpoint), first_ms=first_ms)
        every(broker.high_watermark_checkpoint_interval_ms, partial(self._guarded, logs.checkpoint_high_watermarks))
        every(broker.producer_id_expiration_check_interval_ms, logs.remove_expired_producers)
        every(REMOVAL_INTERVAL_MS, self._remove_due)
        self.retention.start(scheduler, broker.log_retention_disk_percent)
        self.retention.request()
        every(broker.log_retention_check_interval_ms, self.retention.request, first_ms=first_ms)

    def on_roll(self, log: Log) -> None:
        """Flush what was sealed, and delete what is too old or too much with it."""
        self._replica_manager.flusher.request(log)
        self.retention.on_roll(log)

    def make_room(self, directory: LogDirectory) -> None:
        """Remove from a full disk what is on its way out, and what retention lets go, without waiting for the time."""
        self._logs.removals.hasten(directory)
        self._remove_due()
        self.retention.make_room(directory)

    def _guarded(self, write: Callable[[], None]) -> None:
        """Give up partitions whose log directory failed while it was written to, and the broker with the last one."""
        offline = len(self._logs.offline_partitions)
        try:
            write()
        except NoLogDirectoryError as fatal:
            self._on_fatal(str(fatal))
        if len(self._logs.offline_partitions) != offline:
            self._replica_manager.forget_offline()

    def _flush_dirty_logs(self) -> None:
        for log in self._logs.dirty_logs():
            self._replica_manager.flusher.request(log)

    def _remove_due(self) -> None:
        due = self._logs.removals.take_due()
        if due:
            self._pool.submit(due, self._removed)

    def _removed(self, failed: list[tuple[LogDirectory, OSError]] | None, error: BaseException | None) -> None:
        if error is not None:
            logger.error("files of deleted logs could not be removed: %s", error)
        for directory, reason in failed or ():
            self._guarded(partial(self._logs.disk_failed, directory, reason))
