"""BulkLoads: sealed segments that somebody wrote beside the logs of a topic become part of them, all at once.

    1. pool   the folders of the load are claimed, and every batch and index entry in them is checked
    2. pool   the logs are flushed up to their ends, and the batches stamped with the offsets that come next
    3. loop   if nothing was appended since: the load is written into the journal, which is the decision,
              the files are renamed, and the logs end behind them
    4. pool   the names are made durable, the folders removed, and the journal notes that the load is complete

Producers go on all the while. Where one was faster than step 2, that step is done again for its partition; after a few
attempts it is done on the loop, where nobody can be faster.

Rule 1: a load is refused before the decision, and nothing of it is seen then. After the decision it is there, all of
it, in all partitions: a broker that is killed in the middle of step 3 finishes it at its start.
Rule 2: one load at a time. Others wait for their turn.
Rule 3: the partitions of a load are checked and synced a few at a time: whoever loads waits for the slowest of them
and not for their sum. Reading, checksums and syncs leave the GIL.
Rule 4: after the decision an error of the disk takes the log directory offline, because its files are neither the old
log nor the new one until the next start has finished the load.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.partition import Partition
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import IoPool
from barnabas.clock import Clock
from barnabas.storage.files import Files
from barnabas.storage.index import CorruptIndexError
from barnabas.storage.load_journal import AdoptedLoad, AdoptedPartition, LoadJournal
from barnabas.storage.log_types import PendingFlush
from barnabas.storage.staged_load import (
    LoadError,
    StagedPartition,
    adopt_into,
    check,
    check_load_id,
    claim,
    clear,
    sync_stamps,
    unclaim,
    write_stamps,
)
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

ATTEMPTS_BESIDE_THE_LOOP = 3
# More would take the cores from the loop, which serves others meanwhile.
PARTITIONS_AT_ONCE = 4

Item = TypeVar("Item")
Done = Callable[[AdoptedLoad | ApiError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A load that is to be adopted."""

    load_id: str
    topic: str
    partitions: tuple[int, ...]
    check_crcs: bool = True


class RepeatedLoadError(ApiError):
    """A load was adopted before; says where its records are."""

    def __init__(self, load: AdoptedLoad) -> None:
        message = f"load {load.load_id} was adopted before, into topic {load.topic}; a load has an id of its own"
        super().__init__(ErrorCode.DUPLICATE_RESOURCE, message)
        self.load = load


@dataclass(slots=True)
class _Part:
    """One partition of a load that is under way."""

    partition: Partition
    staged: StagedPartition
    # What its batches are stamped with; it is right while the log still ends there and has this leader.
    base_offset: int = -1
    leader_epoch: int = -1

    @property
    def is_stamped(self) -> bool:
        at = (self.partition.log.log_end_offset, self.partition.leader_epoch)
        return at == (self.base_offset, self.leader_epoch)

    def aim(self) -> PendingFlush | None:
        """Note where the log ends, and return what has to be flushed before anything can follow there."""
        self.base_offset, self.leader_epoch = self.partition.log.log_end_offset, self.partition.leader_epoch
        return self.partition.log.prepare_flush()


class BulkLoads:
    """The loads that this broker adopts."""

    def __init__(
        self, files: Files, journal: LoadJournal, replicas: ReplicaManager, pool: IoPool, clock: Clock | None = None
    ) -> None:
        """Without a clock, the ages of records do not matter: nobody deletes by them."""
        self._clock = clock
        self._files = files
        self._journal = journal
        self._replicas = replicas
        self._pool = pool
        # The first is under way.
        self._waiting: deque[tuple[LoadRequest, Done]] = deque()

    def adopt(self, request: LoadRequest, done: Done) -> None:
        """Adopt a load; `done` gets where its records are, or the ApiError that it is refused with."""
        self._waiting.append((request, done))
        if len(self._waiting) == 1:
            self._begin()

    def is_loading(self, topic: str) -> bool:
        """Tell whether a load into a topic is under way or waits for its turn; its files lie beside the logs."""
        return any(request.topic == topic for request, _ in self._waiting)

    def _begin(self) -> None:
        request, _ = self._waiting[0]
        try:
            partitions = self._partitions(request)
        except ApiError as error:
            self._end(error)
            return
        folders = [(partition, partition.log.directory) for partition in partitions]
        self._pool.submit(partial(self._check, request, folders), self._checked)

    def _partitions(self, request: LoadRequest) -> list[Partition]:
        """Return the partitions of a load; raises ApiError when one is not led here, or the load is not a new one."""
        try:
            check_load_id(request.load_id)
        except LoadError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        known = self._journal.find(request.load_id)
        if known is not None:
            raise RepeatedLoadError(known)
        if request.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{request.topic} belongs to the broker")
        if not request.partitions or len(set(request.partitions)) != len(request.partitions):
            message = f"load {request.load_id} names no partition, or one of them twice"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        partitions = [self._replicas.partition(request.topic, index) for index in request.partitions]
        for partition in partitions:
            partition.check_leader()
        return partitions

    # 1. On a thread, and back.

    def _check(self, request: LoadRequest, folders: list[tuple[Partition, str]]) -> list[_Part]:
        """Claim and check what was staged; raises ApiError after giving it back."""
        parts = []
        try:
            for partition, folder in folders:
                staged = claim(self._files, folder, partition.topic_partition, request.load_id)
                parts.append(_Part(partition, staged))
            _for_each(partial(self._check_part, check_crcs=request.check_crcs), parts)
        except (LoadError, OSError) as error:
            self._give_back(request.load_id, [folder for _, folder in folders])
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        return parts

    def _check_part(self, part: _Part, *, check_crcs: bool) -> None:
        now_ms = None if self._clock is None else self._clock.now_ms()
        check(self._files, part.staged, part.partition.log.config, check_crcs=check_crcs, now_ms=now_ms)

    def _give_back(self, load_id: str, folders: list[str]) -> None:
        for folder in folders:
            try:
                unclaim(self._files, folder, load_id)
            except OSError as error:
                logger.warning("load %s is refused, and its folder in %s keeps its name: %s", load_id, folder, error)

    def _checked(self, parts: list[_Part] | None, error: BaseException | None) -> None:
        if parts is None:
            assert error is not None
            self._fail(error, [])
        else:
            self._aim(parts, 1)

    # 2. On a thread, and back.

    def _aim(self, parts: list[_Part], attempt: int) -> None:
        if self._is_gone(parts):
            return
        late = [part for part in parts if not part.is_stamped]
        if not late:
            self._decide(parts)
            return
        work = partial(self._stamp, [(part, part.aim()) for part in late])
        if attempt <= ATTEMPTS_BESIDE_THE_LOOP:
            self._pool.submit(work, lambda _, error: self._stamped(parts, attempt, error))
            return
        try:
            work()
        except OSError as error:
            self._fail(error, parts)
        else:
            self._decide(parts)

    def _stamp(self, late: list[tuple[_Part, PendingFlush | None]]) -> None:
        # Many small writes: threads would only wait for each other, because the GIL is between any two of them.
        for part, _ in late:
            write_stamps(self._files, part.staged, part.base_offset, part.leader_epoch)
        _for_each(self._sync_part, late)

    def _sync_part(self, late: tuple[_Part, PendingFlush | None]) -> None:
        part, flush = late
        if flush is not None:
            # A power cut must not leave a hole before the load. The recovery point is left to the log's own flush.
            flush.run()
        sync_stamps(self._files, part.staged)

    def _stamped(self, parts: list[_Part], attempt: int, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error, parts)
        else:
            self._aim(parts, attempt + 1)

    def _is_gone(self, parts: list[_Part]) -> bool:
        """Refuse a load whose topic was deleted, or whose disk failed, since it was checked; tell whether it was."""
        for part in parts:
            name = part.partition.topic_partition
            if self._replicas.partitions.get(name) is not part.partition or part.partition.log.is_closed:
                message = f"{name} went away while load {part.staged.load_id} was checked"
                self._fail(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message), parts)
                return True
        return False

    def _fail(self, error: BaseException, parts: list[_Part]) -> None:
        """Refuse a load before its decision."""
        if isinstance(error, OSError) and parts:
            error = parts[0].partition.storage_error(error)
        if not isinstance(error, ApiError):
            self._end(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the load failed: {error}"))
            raise error
        if parts:
            self._give_back(parts[0].staged.load_id, [part.staged.directory for part in parts])
        self._end(error)

    # 3. On the loop.

    def _decide(self, parts: list[_Part]) -> None:
        """Adopt the load in all its partitions, without anybody coming between."""
        first = parts[0]
        load = AdoptedLoad(
            load_id=first.staged.load_id,
            topic=first.staged.partition.topic,
            topic_id=first.partition.topic_id,
            partitions=tuple(
                AdoptedPartition(
                    partition=part.staged.partition.partition,
                    base_offset=part.base_offset,
                    end_offset=part.base_offset + part.staged.records,
                    leader_epoch=part.leader_epoch,
                    segments=part.staged.segments,
                )
                for part in parts
            ),
        )
        try:
            self._journal.decide(load)
        except OSError as error:
            self._fail(error, parts)
            return
        failed: ApiError | None = None
        for part in parts:
            try:
                self._append(part)
            except (OSError, CorruptIndexError, ApiError) as error:
                # The log may be closed already, by the failure of another one in its directory.
                name = part.staged.partition
                logger.error("%s: load %s is finished at the next start: %s", name, load.load_id, error)
                failed = part.partition.storage_error(OSError(errno.EIO, str(error)))
        if failed is not None:
            self._end(failed)
            return
        self._pool.submit(partial(self._settle, load, parts), lambda _, error: self._settled(load, error))

    def _append(self, part: _Part) -> None:
        partition, staged = part.partition, part.staged
        adopt_into(partition.log, self._files, staged, part.leader_epoch)
        partition.stats.bytes_in += sum(segment.size for segment in staged.segments)
        partition.stats.messages_in += staged.records
        partition.maybe_increment_high_watermark()
        self._replicas.on_change(partition)

    # 4. On a thread, and back.

    def _settle(self, load: AdoptedLoad, parts: list[_Part]) -> None:
        for part in parts:
            clear(self._files, part.staged)
        self._journal.complete(load.load_id)

    def _settled(self, load: AdoptedLoad, error: BaseException | None) -> None:
        if error is not None:
            # The records are there and stay there: the next start finds the decision, and nothing left to place.
            logger.warning("load %s is adopted; what is left of its files goes at the next start: %s", load, error)
        records = sum(one.end_offset - one.base_offset for one in load.partitions)
        logger.info("load %s: %d records adopted into %s", load.load_id, records, load.topic)
        self._end(load)

    def _end(self, result: AdoptedLoad | ApiError) -> None:
        _, done = self._waiting.popleft()
        if self._waiting:
            self._begin()
        done(result)


def _for_each(work: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Do work for every item, a few at a time; raises the error of the first that has one, when none runs any more."""
    with ThreadPoolExecutor(min(PARTITIONS_AT_ONCE, len(items)), thread_name_prefix="barnabas-load") as threads:
        try:
            running = threads.map(work, items)
        except RuntimeError:
            running = map(work, items)  # The machine has no more threads. What is done twice is the same.
        for _ in running:
            pass
