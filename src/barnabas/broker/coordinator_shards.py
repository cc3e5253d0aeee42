"""CoordinatorShards: the partitions of an internal topic that this broker leads, each with the machine of its state.

    request --> shard of its key --> machine --> Step --> carry_out: append, wait until it is safe, reply

A shard is loading until its log is read; whoever asks meanwhile is told to come again.

Rule 1: a machine that could not persist a step has a state that nobody may see. It is thrown away, and the shard loads
its log again; all that it owed an answer is refused.
Rule 2: no reply before everything appended so far is safe, which without other replicas and without `flush.messages`
is at once.
Rule 3: time for machines goes on evenly, whatever happens to the clock on the wall: a jump must not end every session.
"""

import logging
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from barnabas.broker.coordinator_log import NO_PRODUCER, CoordinatorLog, LiveRecord
from barnabas.broker.internal_topics import partition_for
from barnabas.broker.partition import ACKS_ALL, Partition
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import IoPool, Timer
from barnabas.clock import Clock
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.coordination.records import RecordKind, encode, is_too_long
from barnabas.coordination.step import CoordinatorRecord, Reply, Step
from barnabas.model import TopicPartition
from barnabas.records.batch import TRANSACTIONAL
from barnabas.records.builder import OwnBatch
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import DecodeError

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000
"""How long replies wait for the disk or for replicas, as `offsets.commit.timeout.ms` of Kafka."""

RELOAD_MS = 1_000
"""How long after a log could not be read it is tried again; and when a shard fails that was just loaded."""


RECORDS_A_TURN = 500
"""So many records are replayed before others have their turn: some milliseconds."""


class Machine(Protocol):
    """What every coordinator is, for those that carry it."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When it wants to be asked again."""
        ...

    @property
    def armings(self) -> int:
        """As long as this number stays the same, that moment does not come nearer."""
        ...

    def tick(self, now_ms: int) -> Any:
        """Do what it is time for."""
        ...

    def replay(self, record: CoordinatorRecord) -> None:
        """Take in a record of the log."""
        ...

    def finish_loading(self, now_ms: int) -> Any:
        """Begin, with everything taken in."""
        ...

    def waiting_replies(self, error: ErrorCode) -> list[Reply]:
        """Return who still waits."""
        ...


M = TypeVar("M", bound=Machine)

Producer = tuple[int, int]
"""Producer id and epoch."""


class Shard(Generic[M]):
    """One partition with its machine."""

    __slots__ = ("armings", "is_loaded", "loaded_end_offset", "machine", "partition", "timer", "wake_up_ms")

    def __init__(self, partition: Partition, machine: M) -> None:
        self.partition = partition
        self.machine = machine
        self.is_loaded = False
        self.loaded_end_offset = 0
        """How far the log was read; what was there need not have been on the disk."""
        self.timer: Timer | None = None
        self.wake_up_ms = 0
        self.armings = 0
        """Those of the machine when the timer was last looked at."""

    @property
    def is_safe(self) -> bool:
        """Whether everything that was appended is where no crash takes it back from."""
        return self.is_safe_to(self.partition.log.log_end_offset)

    def is_safe_to(self, end_offset: int) -> bool:
        """Whether that holds for everything below an offset."""
        return self.partition.acknowledgement(end_offset, ACKS_ALL) is ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions(Generic[M]):
    """What the shards of a topic need from outside."""

    topic: str
    kinds: tuple[RecordKind, ...]
    make: Callable[[Partition], M]
    """Makes an empty machine for a partition."""
    cache: MetadataCache
    replica_manager: ReplicaManager
    pool: IoPool
    clock: Clock


class CoordinatorShards(Generic[M]):
    """All shards of one internal topic."""

    def __init__(self, options: ShardOptions[M]) -> None:
        self._options = options
        self._manager = options.replica_manager
        self._scheduler = options.replica_manager.scheduler
        self._shards: dict[int, Shard[M]] = {}
        # When a step of a partition could last not be kept.
        self._failed_ms: dict[int, int] = {}
        clock = options.clock
        self._start_ms = clock.now_ms() - int(clock.monotonic_seconds() * 1000)
        self.replay_pending: Callable[[M, int, CoordinatorRecord], None] | None = None
        """Takes in a record whose transaction has no marker yet."""
        self.after_step: Callable[[Shard[M], Any], None] | None = None
        """Called with every step when its records are safe, for what a step has besides records and replies."""

    def now_ms(self) -> int:
        """Return the time, as machines are told it."""
        return self._start_ms + int(self._options.clock.monotonic_seconds() * 1000)

    # Which shards there are.

    def refresh(self) -> None:
        """Have a shard for each partition that this broker leads, and none for others."""
        topic = self._options.topic
        image = self._options.cache.topics.get(topic)
        count = 0 if image is None else len(image.partitions)
        for index in [*range(count), *(index for index in self._shards if index >= count)]:
            partition = self._manager.partitions.get((topic, index)) if index < count else None
            shard = self._shards.get(index)
            if shard is not None and (shard.partition is not partition or not partition.is_leader):
                self._unload(index, ErrorCode.NOT_COORDINATOR)
                shard = None
            if shard is None and partition is not None and partition.is_leader:
                self._load(index, partition)

    def index_of(self, key: str) -> int:
        """Return the partition of a group or a transactional id; raises ApiError while there is no topic."""
        image = self._options.cache.topics.get(self._options.topic)
        if image is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no topic {self._options.topic} yet")
        if is_too_long(key):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no record of a coordinator has room for so long a name")
        return partition_for(key, len(image.partitions))

    def shard_of(self, key: str) -> Shard[M]:
        """Return the shard of a group or a transactional id; raises ApiError while it can not answer."""
        return self.shard_at(self.index_of(key))

    def shard_at(self, index: int) -> Shard[M]:
        """Return the shard of a partition; raises ApiError while it can not answer."""
        shard = self._shards.get(index)
        if shard is None and self._manager.is_log_loading(TopicPartition(self._options.topic, index)):
            message = f"{self._options.topic}-{index} is being recovered"
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"this broker does not lead {self._options.topic}-{index}")
        if not shard.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._options.topic}-{index} is being read")
        return shard

    def find_loaded(self, index: int) -> Shard[M] | None:
        """Return the shard of a partition if it is there and has read its log."""
        shard = self._shards.get(index)
        return shard if shard is not None and shard.is_loaded else None

    def find_loaded_of(self, key: str) -> Shard[M] | None:
        """Return the shard of a group or a transactional id if it is there and has read its log."""
        image = self._options.cache.topics.get(self._options.topic)
        return None if image is None else self.find_loaded(partition_for(key, len(image.partitions)))

    @property
    def loaded(self) -> list[Shard[M]]:
        """The shards that can answer."""
        return [shard for shard in self._shards.values() if shard.is_loaded]

    @property
    def is_loading(self) -> bool:
        """Whether a shard can not answer yet."""
        if any(not shard.is_loaded for shard in self._shards.values()):
            return True
        topic = self._options.topic
        image = self._options.cache.topics.get(topic)
        count = 0 if image is None else len(image.partitions)
        return any(self._manager.is_log_loading(TopicPartition(topic, index)) for index in range(count))

    def close(self) -> None:
        """Refuse everybody who waits, because the broker stops."""
        for index in list(self._shards):
            self._unload(index, ErrorCode.NOT_COORDINATOR)

    # Loading.

    def _load(self, index: int, partition: Partition) -> None:
        shard = self._shards[index] = Shard(partition, self._options.make(partition))

        def loaded(found: Iterator[LiveRecord] | Exception) -> None:
            if self._shards.get(index) is not shard:
                return  # It was unloaded meanwhile.
            if isinstance(found, Exception):
                logger.error("%s can not be read: %s", partition.topic_partition, found)
                shard.timer = self._scheduler.call_later(RELOAD_MS, lambda: self._reload(index))
                return
            shard.loaded_end_offset = partition.log.log_end_offset
            self._take_in(index, shard, found, 0)

        CoordinatorLog(partition, self._options.pool, self._options.kinds).load(loaded)

    def _take_in(self, index: int, shard: Shard[M], found: Iterator[LiveRecord], count: int) -> None:
        """Replay so many records that nobody else has to wait for long, and the next ones in another turn."""
        if self._shards.get(index) is not shard:
            return
        some = list(islice(found, RECORDS_A_TURN))
        for producer_id, record in some:
            self._replay(shard, producer_id, record)
        count += len(some)
        if len(some) == RECORDS_A_TURN:
            self._scheduler.loop.call_soon(self._take_in, index, shard, found, count)
        elif shard.partition.log.log_end_offset != shard.loaded_end_offset:
            self._reload(index)  # A marker of a transaction came in between.
        else:
            self._loaded(shard, count)

    def _loaded(self, shard: Shard[M], count: int) -> None:
        shard.is_loaded = True
        if count:
            logger.info("%s: %d records read", shard.partition.topic_partition, count)
        self.carry_out(shard, shard.machine.finish_loading(self.now_ms()))

    def _replay(self, shard: Shard[M], producer_id: int, record: CoordinatorRecord) -> None:
        """Take in a record; one that makes no sense is left out, as it must not keep all others out."""
        try:
            if producer_id == NO_PRODUCER:
                shard.machine.replay(record)
            elif self.replay_pending is not None:
                self.replay_pending(shard.machine, producer_id, record)
        except DecodeError as error:
            logger.error("a record of %s is left out: %s", shard.partition.topic_partition, error)

    def _reload(self, index: int) -> None:
        self._unload(index, ErrorCode.NOT_COORDINATOR)
        self.refresh()

    def _unload(self, index: int, code: ErrorCode) -> None:
        shard = self._shards.pop(index)
        shard.is_loaded = False
        if shard.timer is not None:
            shard.timer.cancel()
        for reply in shard.machine.waiting_replies(code):
            reply.ticket.refuse(ApiError(code, f"{shard.partition.topic_partition} is coordinated here no longer"))

    # Steps.

    def carry_out(self, shard: Shard[M], step: Step, producer: Producer | None = None) -> bool:
        """Persist a step and send its replies when it is safe; tells whether it could be persisted."""
        if step.records:
            try:
                self._append(shard.partition, step.records, producer)
            except ApiError as error:
                self._fail(shard, step, error)
                return False
        if step.has_consequences:
            if shard.is_safe:
                self._finish(shard, step)
            else:
                self._watch(_DelayedStep(shard, step, self))
        self._look_at_timer(shard)
        return True

    def persist(self, shard: Shard[M], records: Collection[CoordinatorRecord]) -> None:
        """Persist records whose client waits for no ticket; raises ApiError with what that client is to be told."""
        try:
            self._append(shard.partition, records, None)
        except ApiError as error:
            self._fail(shard, Step(), error)
            raise ApiError(_told_to_client(error.code), error.message) from None
        self._look_at_timer(shard)

    def tell(self, shard: Shard[M], ticket: Any, message: Any) -> None:
        """Answer with something that was read from a machine, when all that it rests on is safe."""
        self.carry_out(shard, Step(replies=[Reply(ticket, message)]))

    def _append(self, partition: Partition, records: Collection[CoordinatorRecord], producer: Producer | None) -> None:
        now_ms = self._options.clock.now_ms()
        try:
            rows = [encode(record) for record in records]
        except struct.error as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"a record can not be written: {error}") from None
        if producer is None:
            partition.append_own(OwnBatch(rows, now_ms))
        else:
            partition.append_own(OwnBatch(rows, now_ms, TRANSACTIONAL, *producer))
        self._manager.on_change(partition)

    def _watch(self, delayed: "_DelayedStep") -> None:
        key = delayed.shard.partition.topic_partition
        self._manager.delayed_produce.watch(delayed, [key], COMMIT_TIMEOUT_MS)

    def _finish(self, shard: Shard[M], step: Step) -> None:
        for ticket, message in step.replies:
            ticket.answer(message)
        if self.after_step is not None and shard.is_loaded:  # Whoever has read the log since does it himself.
            self.after_step(shard, step)

    def _fail(self, shard: Shard[M], step: Step, error: ApiError) -> None:
        name = shard.partition.topic_partition
        # A disk that is full has said so once, and this may come again every second.
        level = logging.DEBUG if shard.partition.room else logging.ERROR
        logger.log(level, "%s: what was decided could not be written down and is taken back: %s", name, error)
        refusal = ApiError(_told_to_client(error.code), error.message)
        for reply in step.replies:
            reply.ticket.refuse(refusal)
        if self._shards.get(name.partition) is shard:
            # Whoever else waits has done nothing wrong, and is told what makes clients come again.
            self._unload(name.partition, ErrorCode.NOT_COORDINATOR)
            self._load_after_failure(name.partition, shard.partition)
        self.refresh()

    def _load_after_failure(self, index: int, partition: Partition) -> None:
        """Load at once, but not again and again: what failed may be a timer's, which would fail as soon as loaded."""
        now_ms = self.now_ms()
        last_ms, self._failed_ms[index] = self._failed_ms.get(index), now_ms
        if last_ms is not None and now_ms - last_ms < RELOAD_MS and partition.is_leader:
            shard = self._shards[index] = Shard(partition, self._options.make(partition))
            shard.timer = self._scheduler.call_later(RELOAD_MS, lambda: self._reload(index))

    def _look_at_timer(self, shard: Shard[M]) -> None:
        machine = shard.machine
        if shard.timer is not None and shard.armings == machine.armings:
            return
        deadline_ms = machine.next_deadline_ms
        shard.armings = machine.armings
        if deadline_ms is not None and (shard.timer is None or deadline_ms < shard.wake_up_ms):
            self._set_timer(shard, deadline_ms)  # A timer that comes too early looks again.

    def _set_timer(self, shard: Shard[M], deadline_ms: int) -> None:
        if shard.timer is not None:
            shard.timer.cancel()
        shard.wake_up_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self.now_ms())
        shard.timer = self._scheduler.call_later(delay_ms, lambda: self._tick(shard))

    def _tick(self, shard: Shard[M]) -> None:
        shard.timer = None
        if shard.is_loaded:
            self.carry_out(shard, shard.machine.tick(self.now_ms()))


class _DelayedStep:
    """A step that waits until what it tells is safe."""

    def __init__(self, shard: Shard[Any], step: Step, shards: CoordinatorShards[Any]) -> None:
        self.shard = shard
        self._step = step
        self._shards = shards
        self._end_offset = shard.partition.log.log_end_offset

    def try_complete(self) -> bool:
        """Finish, if it is safe."""
        code = self.shard.partition.acknowledgement(self._end_offset, ACKS_ALL)
        if code is None:
            return False
        if code is ErrorCode.NONE:
            self._shards._finish(self.shard, self._step)
            return True
        self._refuse(code)
        return not self._is_wanted

    def on_expiration(self) -> None:
        """Say that it took too long; whether it lasts is not known, and what follows from it still waits for that."""
        self._refuse(ErrorCode.REQUEST_TIMED_OUT)
        if self._is_wanted:
            self._shards._watch(self)

    @property
    def _is_wanted(self) -> bool:
        """Whether something follows from the step, such as markers, that nobody else would see to."""
        return self.shard.is_loaded and self._step.has_consequences

    def _refuse(self, code: ErrorCode) -> None:
        error = ApiError(_told_to_client(code), f"{self.shard.partition.topic_partition} did not keep up")
        replies, self._step.replies = self._step.replies, []
        for reply in replies:
            reply.ticket.refuse(error)


def _told_to_client(code: ErrorCode) -> ErrorCode:
    """Return what a client is told when a record of its coordinator could not be written, as in Kafka."""
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
