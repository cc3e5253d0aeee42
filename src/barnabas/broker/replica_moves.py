"""ReplicaMoves: moves logs to other log directories while clients write (AlterReplicaLogDirs).

    request --> a folder -future in the pool --> steps of copying in the pool, planned on the loop --> level?
            --> synced in the pool --> still nearly level? --> the copy takes over, in one turn of the loop

storage/future_log.py has what lies on the disks, and what a crash leaves.

Rule 1: the log stays in service until the copy takes over. A move that fails costs nothing but the copying, and says in
one line why it ended.
Rule 2: the folder -future is the wish. A start that finds one goes on with its move; one that nobody wants is removed.
Rule 3: one move a partition. Another wish replaces it, and the wish to stay where the log is ends it.
Rule 4: a log that moves is not cleaned, and does not take over while a bulk load lies beside it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from barnabas.broker.bulk_loads import BulkLoads
from barnabas.broker.partition import Partition
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.clock import Clock
from barnabas.model import TopicPartition
from barnabas.storage.files import PASSING_ERRORS, Files, FileTooLargeError
from barnabas.storage.future_log import CopyStep, FoundFolder, FutureLog, SourceError
from barnabas.storage.index import CorruptIndexError
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

TAIL_BYTES_MAX = 4 << 20
"""With so much left to copy the copy takes over: the loop does nothing else for some milliseconds."""
ATTEMPTS_MAX = 20
"""So often a log may run away from its copy; then the loop copies what is left, whatever it is."""
WAIT_MS = 1_000
"""How long a move waits for a bulk load, or for a log that is being recovered."""
NOT_POSSIBLE = (OSError, SourceError, CorruptIndexError, FileTooLargeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMovesOptions:
    """What ReplicaMoves need from outside."""

    files: Files
    clock: Clock
    scheduler: Scheduler
    pool: IoPool
    logs: LogManager
    replicas: ReplicaManager
    bulk_loads: BulkLoads
    let_go: Callable[[TopicPartition], None]
    """Ends the clean of a log."""


class ReplicaMoves:
    """The moves of one broker."""

    def __init__(self, options: ReplicaMovesOptions) -> None:
        self._options = options
        self.running: dict[TopicPartition, Move] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Go on with the moves that the last stop, or a crash, interrupted."""
        folders, self._options.logs.future_folders = self._options.logs.future_folders, []
        for found in folders:
            self._resume(found)

    def stop(self) -> None:
        """Leave everything as it is; the next start goes on."""
        self._is_stopped = True
        for move in self.running.values():
            move.is_over = True

    def request(self, partition: Partition, target: LogDirectory) -> None:
        """Move a partition's log to a directory, or let it stay there; raises ApiError where there is no room."""
        name = partition.topic_partition
        running = self.running.get(name)
        if running is not None and running.target is target:
            return
        source = self._options.logs.directory_of(name)
        if source is not target:
            self._check_room(partition, target)
        if running is not None:
            running.cancel(f"it is to be in {target.path}")
        if source is not target:
            self._begin(partition, source, target)

    def _check_room(self, partition: Partition, target: LogDirectory) -> None:
        room = self._options.logs.disk_room
        size, free = partition.log.size_bytes, room.free_bytes(target)
        if target.is_full or free < size + room.reserve_bytes:
            message = f"{target.path} has {free} bytes free, too few for the {size} of {partition.topic_partition}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _begin(self, partition: Partition, source: LogDirectory, target: LogDirectory, path: str | None = None) -> None:
        name = partition.topic_partition
        try:
            future = self._options.logs.future_log(name, target, path)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path}: {error}") from error
        self._options.logs.moving.add(name)
        self._options.let_go(name)
        self.running[name] = Move(self._options, partition, source, target, future, self._ended)

    def _ended(self, move: "Move") -> None:
        if self.running.get(move.name) is move:
            del self.running[move.name]
            self._options.logs.moving.discard(move.name)

    def _resume(self, found: FoundFolder) -> None:
        """Go on with a move, when its log is there."""
        if self._is_stopped:
            return
        logs, name, target = self._options.logs, found.folder.partition, found.directory
        if target.failure is not None or name in logs.offline_partitions:
            return  # The next start looks again.
        partition = self._options.replicas.partitions.get(name)
        if partition is None and name in logs.loading.current:
            self._options.scheduler.call_later(WAIT_MS, partial(self._resume, found))
            return
        if partition is None or name in self.running or logs.directory_of(name) is target:
            logger.info("%s is a copy of a log that nobody waits for, and is removed", found.path)
            self._options.pool.submit(partial(self._options.files.remove_tree, found.path), _log_not_removed)
            return
        try:
            self._begin(partition, logs.directory_of(name), target, found.path)
        except ApiError as error:
            logger.error("%s stays where it is: %s", name, error.message)


class Move:
    """A log on its way to another directory."""

    def __init__(
        self,
        options: ReplicaMovesOptions,
        partition: Partition,
        source: LogDirectory,
        target: LogDirectory,
        future: FutureLog,
        ended: Callable[["Move"], None],
    ) -> None:
        self._options = options
        self._partition = partition
        self._source = source
        self.target = target
        self.future = future
        self._ended = ended
        self.is_over = False
        self._attempts = 0
        # Whether a thread is at the folder of the copy, which must not be removed under it.
        self._is_busy = False
        # Whether the folder of the copy is to be removed.
        self._is_unwanted = False
        self._started = options.clock.monotonic_seconds()
        target.log_count += 1
        logger.info("%s: %d bytes are moved from %s to %s", self.name, self._size, source.path, target.path)
        self._submit(partial(future.prepare, target, partition.topic_id), self._advance)

    @property
    def name(self) -> TopicPartition:
        """Whose log it is."""
        return self._partition.topic_partition

    @property
    def _size(self) -> int:
        return self.future.source.size_bytes

    # In the pool, and back.

    def _submit(self, work: Callable[[], None], then: Callable[[], None], step: CopyStep | None = None) -> None:
        def done(_: object, error: BaseException | None) -> None:
            self._is_busy = False
            if self.is_over:
                self._remove_folder_if_unwanted()
            elif error is None:
                then()
            elif step is not None and isinstance(error, SourceError) and not self.future.is_wanted(step):
                self._advance()  # Retention took the segment away meanwhile.
            else:
                self._fail(error)

        self._is_busy = True
        self._options.pool.submit(work, done)

    def _advance(self) -> None:
        """Copy the next part, or come to the end."""
        if self.is_over or not self._is_possible():
            return
        try:
            step = self.future.next_step()
        except NOT_POSSIBLE as error:
            self._fail(error)
            return
        if step is None or (step.is_active and self.future.lag_bytes <= TAIL_BYTES_MAX):
            self._submit(self.future.sync, self._finish)
            return
        found = step

        def then() -> None:
            self.future.stepped(found)
            self._advance()

        self._submit(found.run, then, found)

    def _is_possible(self) -> bool:
        """Tell whether log and directory are still there; the move is over if not."""
        replicas, logs = self._options.replicas, self._options.logs
        if self.target.failure is not None:
            self._end(f"{self.target.path} is offline")
        elif self.name in logs.offline_partitions:
            self._end(f"{self._source.path} is offline")
        elif replicas.partitions.get(self.name) is not self._partition or self.future.source.is_closed:
            self.cancel("it is deleted")
        return not self.is_over

    def _finish(self) -> None:
        """Let the copy take over, if little has been written since the last step."""
        if self.is_over or not self._is_possible():
            return
        self._attempts += 1
        if self._options.bulk_loads.is_loading(self.name.topic):
            self._options.scheduler.call_later(WAIT_MS, self._advance)
        elif self.future.lag_bytes > TAIL_BYTES_MAX and self._attempts <= ATTEMPTS_MAX:
            self._advance()
        else:
            self._take_over()

    def _take_over(self) -> None:
        size = self._size
        try:
            self._options.replicas.take_over_future(self._partition, self.future, self.target)
        except NOT_POSSIBLE as error:
            self._fail(error)
            return
        self._close()
        seconds = self._options.clock.monotonic_seconds() - self._started
        logger.info("%s is in %s now: %d bytes were moved in %.1f s", self.name, self.target.path, size, seconds)
        for directory in (self.target, self._source):
            self._options.scheduler.loop.call_soon(self._options.logs.write_stale_checkpoints, directory)

    # The end.

    def cancel(self, reason: str) -> None:
        """End the move, and remove the copy."""
        if not self.is_over:
            self._end(reason)
            self._is_unwanted = True
            if not self._is_busy:
                self._remove_folder_if_unwanted()

    def _fail(self, error: BaseException) -> None:
        """End the move because of an error; a disk that fails goes offline, one that is full gets its room back."""
        if not isinstance(error, NOT_POSSIBLE):
            self.cancel(str(error))
            raise error
        self.cancel(str(error))
        if isinstance(error, SourceError):
            if error.error.errno not in PASSING_ERRORS:
                self._options.replicas.on_log_failed(self.future.source, error.error)
        elif isinstance(error, OSError) and error.errno not in PASSING_ERRORS:
            self._options.replicas.fail_directory(self.target, error)

    def _end(self, reason: str) -> None:
        self._close()
        logger.warning("%s is not moved to %s: %s", self.name, self.target.path, reason)

    def _close(self) -> None:
        self.is_over = True
        self.target.log_count -= 1
        self._ended(self)

    def _remove_folder_if_unwanted(self) -> None:
        if self._is_unwanted and self.target.failure is None:
            self._is_unwanted = False
            remove = partial(self._options.files.remove_tree, self.future.directory)
            self._options.pool.submit(remove, _log_not_removed)


def _log_not_removed(_: object, error: BaseException | None) -> None:
    if error is not None:
        logger.warning("the copy of a log that is not moved could not be removed: %s", error)
