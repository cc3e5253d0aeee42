"""ReplicaManager: the partitions that this broker has a replica of, and everything that happens to them.

    produce --> append_records --> Partition.append_records_to_leader --> Log
    fetch   --> partition + Log.read (apis/fetch.py)
    metadata that changed --> become_leader_or_follower: the only way a partition comes into being here

Rule 1: it lives on the loop; what waits for the disk (new logs, fsyncs) is handed to the pool and comes back.
Rule 2: whoever appends or moves a high watermark tells it, and delayed fetches are woken once a turn of the loop, not
once an append.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from barnabas.broker.log_flusher import LogFlusher
from barnabas.broker.metrics import BrokerTopicStats
from barnabas.broker.partition import Partition
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.cluster.metadata_cache import MetadataCache, PartitionState, TopicImage
from barnabas.model import TopicPartition
from barnabas.storage.disk_room import FULL_ERRORS
from barnabas.storage.files import PASSING_ERRORS
from barnabas.storage.future_log import FutureLog
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_loading import PendingLog
from barnabas.storage.log_manager import LogManager, NoLogDirectoryError
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerOptions:
    """What a ReplicaManager needs from outside."""

    node_id: int
    log_manager: LogManager
    cache: MetadataCache
    loop: asyncio.AbstractEventLoop
    scheduler: Scheduler
    pool: IoPool
    on_fatal: Callable[[str], None]
    """Called when no log directory is left; a broker without any has to stop."""


class ReplicaManager:
    """The replicas of this broker."""

    def __init__(self, options: ReplicaManagerOptions) -> None:
        self._options = options
        self._logs = options.log_manager
        self._loop = options.loop
        self.scheduler = options.scheduler
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._partitions_of_logs: dict[Log, Partition] = {}
        self.topic_stats = BrokerTopicStats()
        self.delayed_produce = Purgatory(options.scheduler)
        self.delayed_fetch = Purgatory(options.scheduler)
        self._changed: dict[tuple[str, int], None] = {}
        self.partition_listeners: list[Callable[[Collection[str]], None]] = []
        """Told of topics whose partitions came or went, so that nobody goes on with one that is out of service."""
        self.room_of: Callable[[LogDirectory], int] = lambda _: 0
        """Says who may write to a log directory: see Partition.room."""
        # Logs that could not be flushed for want of room.
        self._unflushed: dict[Log, None] = {}
        # Partitions that are deleted while their logs are loading, and who waits for these to be let go of.
        self._letting_go: list[tuple[Sequence[TopicPartition], Callable[[], None]]] = []
        self.flusher = LogFlusher(options.loop, options.pool, self._on_flushed, self.on_log_failed)

    # Which partitions there are.

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition; raises ApiError when it is not here, not yet, or its log directory is offline."""
        found = self.partitions.get((topic, index))
        if found is not None:
            return found
        name = TopicPartition(topic, index)
        if name in self._logs.offline_partitions:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {name} is offline")
        image = self._options.cache.topics.get(topic)
        if image is not None and 0 <= index < len(image.partitions):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is not on this broker, or not yet")
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")

    def is_log_loading(self, name: TopicPartition) -> bool:
        """Tell whether the log of a partition is here, and not loaded yet."""
        return name in self._logs.loading.current

    def become_leader_or_follower(
        self, image: TopicImage, done: Callable[[list[ApiError]], None], *, is_new: bool = True
    ) -> None:
        """Have what a topic's metadata says that this broker has; `done(errors)` when its logs are there."""
        missing: list[tuple[int, PartitionState]] = []
        for index, state in enumerate(image.partitions):
            if self._options.node_id not in state.replicas:
                continue
            partition = self.partitions.get((image.name, index))
            log = self._own_log(image, index)
            if partition is not None:
                self._lead(partition, state)
            elif log is not None:
                self._add(image, index, state, log)
            elif TopicPartition(image.name, index) not in self._logs.loading.current:
                missing.append((index, state))
        creation = _LogCreation(self, image, len(missing), done)
        for index, state in missing:
            creation.begin(index, state, is_new=is_new)
        creation.finish_if_done()

    def _own_log(self, image: TopicImage, index: int) -> Log | None:
        """Return the log of a partition if it is there; one of another topic of the same name is set aside."""
        name = TopicPartition(image.name, index)
        managed = self._logs.current_logs.get(name)
        if managed is None:
            return None
        if managed.topic_id is not None and managed.topic_id != image.topic_id:
            kept = self._logs.set_aside(name)
            logger.warning("%s had the log of another topic of that name, which is kept as %s", name, kept)
            return None
        return self._logs.get_or_create_log(name, image.topic_id)  # It may lack the id.

    def _add(self, image: TopicImage, index: int, state: PartitionState, log: Log) -> None:
        name = TopicPartition(image.name, index)
        stats = self.topic_stats.topic(image.name)
        partition = Partition(name, image.topic_id, log, stats, self._on_storage_error)
        partition.room = self.room_of(self._logs.directory_of(name))
        self._lead(partition, state)
        self.partitions[name] = partition
        self._partitions_of_logs[log] = partition
        self._partitions_changed({image.name})

    def _partitions_changed(self, topics: Collection[str]) -> None:
        for listener in self.partition_listeners:
            listener(topics)

    def _lead(self, partition: Partition, state: PartitionState) -> None:
        assert state.leader == self._options.node_id, "there are no followers yet"
        partition.make_leader(state.leader, state.leader_epoch, state.replicas, state.isr)
        self.on_change(partition)

    def stop_replicas(self, names: Sequence[TopicPartition]) -> None:
        """Give up partitions whose topic is deleted, with their logs; `settle_deletions` makes it last."""
        deleted = []
        for name in names:
            partition = self.partitions.pop(name, None)
            if partition is not None:
                partition.is_leader = False
                self._partitions_of_logs.pop(partition.log, None)
            if name in self._logs.current_logs or name in self._logs.loading.current:
                deleted.append(name)
        self._partitions_changed({name.topic for name in names})
        self._logs.delete_logs(deleted)
        self._check(names)

    def when_let_go(self, names: Sequence[TopicPartition], done: Callable[[], None]) -> None:
        """Call back when no thread is at the logs of partitions that are deleted, which may be at once."""
        if any(name in self._logs.loading.current for name in names):
            self._letting_go.append((names, done))
        else:
            done()

    def take_loaded(self) -> None:
        """Take logs into service that were loaded after the start."""
        loaded: list[TopicPartition] = []
        try:
            loaded = self._logs.take_loaded()
        except NoLogDirectoryError as fatal:
            self._options.on_fatal(str(fatal))
        for name in loaded:
            try:
                self._take_loaded(name)
            except OSError as error:
                self._on_storage_error(name, error)
        self.forget_offline()
        waiting, self._letting_go = self._letting_go, []
        for names, done in waiting:
            self.when_let_go(names, done)

    def _take_loaded(self, name: TopicPartition) -> None:
        image = self._options.cache.topics.get(name.topic)
        if image is None or name.partition >= len(image.partitions):
            kept = self._logs.set_aside(name)
            logger.warning("%s belongs to no topic that is known here, and is kept as %s", name, kept)
            return
        log = self._own_log(image, name.partition)
        if log is not None:
            self._add(image, name.partition, image.partitions[name.partition], log)
        else:
            self.become_leader_or_follower(image, _log_errors, is_new=False)

    def settle_deletions(self) -> bool:
        """Make all deletions so far durable, and tell whether they are."""
        try:
            is_durable = self._logs.settle_deletions()
        except NoLogDirectoryError as fatal:
            self._options.on_fatal(str(fatal))
            is_durable = False
        if not is_durable:
            self.forget_offline()
        return is_durable

    # What happens to them.

    def on_change(self, partition: Partition) -> None:
        """Wake what waits for data of a partition, at the end of this turn of the loop."""
        if not self.delayed_fetch.size and not self.delayed_produce.size:
            return
        key = partition.topic_partition
        if self.delayed_fetch.is_watching(key) or self.delayed_produce.is_watching(key):
            if not self._changed:
                self._loop.call_soon(self._check_changed)
            self._changed[key] = None

    def _check_changed(self) -> None:
        changed, self._changed = self._changed, {}
        self._check(changed)

    def _check(self, keys: Collection[tuple[str, int]]) -> None:
        self.delayed_produce.check_all(keys)
        self.delayed_fetch.check_all(keys)

    def on_records_deleted(self, partitions: Collection[Partition]) -> None:
        """Write down where logs start, once for all, before a client is told that the records before that are gone."""
        if partitions:
            self._logs.checkpoint_log_start_offsets()
        for partition in partitions:
            self.on_change(partition)

    def _on_flushed(self, log: Log) -> None:
        partition = self._partitions_of_logs.get(log)
        if partition is not None:
            partition.maybe_increment_high_watermark()
            self.delayed_produce.check(partition.topic_partition)
            self.on_change(partition)

    def on_log_failed(self, log: Log, error: OSError) -> None:
        """Take the log directory of a log offline whose disk failed."""
        partition = self._partitions_of_logs.get(log)
        if partition is not None:
            if error.errno in FULL_ERRORS:
                self._unflushed[log] = None
            self._on_storage_error(partition.topic_partition, error)

    def flush_again(self, directory: LogDirectory) -> None:
        """Flush the logs of a directory that has room again, where that could not be done before."""
        logs = [log for partition in self.partitions_in(directory) if (log := partition.log) in self._unflushed]
        for log in logs:
            del self._unflushed[log]
            self.flusher.request(log)

    def give_room_back(self, directory: LogDirectory) -> None:
        """Let whoever needs it have the room that the logs of a full directory have reserved."""
        for partition in self.partitions_in(directory):
            try:
                partition.log.give_room_back()
            except OSError as error:
                partition.storage_error(error)
                return

    def partitions_in(self, directory: LogDirectory) -> list[Partition]:
        """Return the partitions whose logs are in a directory."""
        logs = self._logs.current_logs
        return [
            partition
            for partition in self.partitions.values()
            if (managed := logs.get(partition.topic_partition)) is not None and managed.directory is directory
        ]

    def _on_storage_error(self, name: TopicPartition, error: OSError) -> None:
        """Take the log directory of a partition offline, with all its partitions; one that is full is only noted."""
        if name not in self._logs.current_logs:
            return
        if error.errno in FULL_ERRORS:
            self._logs.disk_room.note_full(self._logs.directory_of(name), error)
            return
        self.fail_directory(self._logs.directory_of(name), error)

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a log directory offline whose disk failed, with its partitions; the broker stops with the last one."""
        try:
            self._logs.fail_directory(directory, error)
        except NoLogDirectoryError as fatal:
            self._options.on_fatal(str(fatal))
        self.forget_offline()

    def forget_offline(self) -> None:
        """Give up the partitions whose log directory went offline."""
        gone = [name for name in self.partitions if name in self._logs.offline_partitions]
        for name in gone:
            partition = self.partitions.pop(name)
            self._partitions_of_logs.pop(partition.log, None)
        self._partitions_changed({name.topic for name in gone})
        self._check(gone)

    def take_over_future(self, partition: Partition, future: FutureLog, target: LogDirectory) -> None:
        """Let the copy of a partition's log, in another directory, be its log; raises what the LogManager raises."""
        old = partition.log
        new = self._logs.take_over_future(future, target)
        del self._partitions_of_logs[old]
        self._unflushed.pop(old, None)
        self._partitions_of_logs[new] = partition
        partition.log = new
        partition.room = self.room_of(target)
        partition.maybe_increment_high_watermark()
        # The copy is on the disk up to its end, which some may have waited for.
        self._check([partition.topic_partition])
        self.forget_offline()  # The disk that it came from may have failed in the end.

    def shutdown(self) -> None:
        """Answer what still waits with what there is."""
        self.delayed_fetch.expire_all()
        self.delayed_produce.expire_all()

    # Used by _LogCreation.

    def prepare_log(self, image: TopicImage, index: int, *, is_new: bool) -> PendingLog:
        """Begin the log of a partition."""
        return self._logs.prepare_log(TopicPartition(image.name, index), image.topic_id, is_new=is_new)

    def run_in_pool(self, pending: PendingLog, done: Callable[[Log | None, BaseException | None], None]) -> None:
        """Make a log on a thread."""
        self._options.pool.submit(pending.run, done)

    def log_made(self, image: TopicImage, state: PartitionState, pending: PendingLog, log: Log) -> None:
        """Take a new log into service."""
        self._logs.finish_log(pending, log)
        current = self._options.cache.topics.get(image.name)
        if current is None or current.topic_id != image.topic_id:
            self._logs.delete_logs([pending.partition])  # The topic was deleted while its logs were made.
        else:
            self._add(image, pending.partition.partition, state, log)

    def log_not_made(self, pending: PendingLog, error: OSError) -> None:
        """Note that a log could not be made: its directory is full, or has failed."""
        self._logs.cancel_log(pending)
        logger.error("%s can not be created in %s: %s", pending.partition, pending.directory.path, error)
        if error.errno in FULL_ERRORS:
            self._logs.disk_room.note_full(pending.directory, error)
        elif error.errno not in PASSING_ERRORS:
            self.fail_directory(pending.directory, error)


class _LogCreation:
    """The logs of a topic that are being made, several at a time."""

    def __init__(
        self, manager: ReplicaManager, image: TopicImage, count: int, done: Callable[[list[ApiError]], None]
    ) -> None:
        self._manager = manager
        self._image = image
        self._left = count
        self._done = done
        self._errors: list[ApiError] = []

    def begin(self, index: int, state: PartitionState, *, is_new: bool) -> None:
        try:
            pending = self._manager.prepare_log(self._image, index, is_new=is_new)
        except (ApiError, OSError) as error:
            self._fail(error)
            return
        self._manager.run_in_pool(pending, lambda log, error: self._made(pending, state, log, error))

    def _made(self, pending: PendingLog, state: PartitionState, log: Log | None, error: BaseException | None) -> None:
        if log is not None:
            self._manager.log_made(self._image, state, pending, log)
            self._left -= 1
        elif isinstance(error, OSError):
            self._manager.log_not_made(pending, error)
            self._fail(error)
        else:
            assert error is not None
            raise error
        self.finish_if_done()

    def _fail(self, error: ApiError | OSError) -> None:
        self._left -= 1
        self._errors.append(
            error if isinstance(error, ApiError) else ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        )

    def finish_if_done(self) -> None:
        if self._left == 0:
            self._left = -1
            self._done(self._errors)


def _log_errors(errors: list[ApiError]) -> None:
    for error in errors:
        logger.error("%s", error)
