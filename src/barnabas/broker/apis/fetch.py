"""Fetch: v4-18, batches of the partitions that this broker leads, as they lie in the files.

Behaviour: answers when `min_bytes` are there, an error is, or `max_wait_ms` have passed (DelayedFetch). The first batch
of an answer comes whole even when it is over a limit, and the first batch of every other partition or none of it; the
last batch of a partition may be cut off, and clients know that. An offset inside a batch gets the whole batch. Readers
stop at the high watermark, with read_committed at the last stable offset, and are told the aborted transactions.
`records` is never null, also not on an error: clients fail on it. Partitions that the limit of the answer leaves no
room for are not read at all, and come first in the next fetch of a session.

Versions: 7+ incremental sessions (KIP-227), 9+ current leader epoch (KIP-320), 11+ rack, 12+ diverging epochs
(KIP-595), 13+ topic ids (KIP-516), 15+ replica state, 16+ node endpoints, 17+ directory ids, 18+ high watermark of the
fetcher.
"""

from collections.abc import Iterable
from typing import Any

from barnabas.broker.fetch_sessions import FetchContext, FetchTarget, topic_names
from barnabas.broker.partition import READ_COMMITTED, Partition
from barnabas.broker.purgatory import Watched
from barnabas.broker.request_channel import Outcome, Request
from barnabas.broker.services import Services
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, LogOffsetMetadata
from barnabas.storage.batches import CorruptLogError
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

TOPIC_ID_VERSION = 13
NO_RECORDS = b""


class FetchRead:
    """One reading of everything that a fetch is about."""

    def __init__(self, broker: Services, body: FetchRequest, context: FetchContext) -> None:
        self._broker = broker
        self._isolation_level = body.isolation_level
        self._bytes_left = min(body.max_bytes, broker.config.broker.fetch_max_bytes)
        self.answers: list[tuple[FetchTarget, PartitionData]] = []
        self.positions: list[tuple[Partition, FetchTarget, LogOffsetMetadata]] = []
        self.bytes_read = 0
        self.has_error = False
        for target in context.targets:
            self.answers.append((target, self._answer(target)))

    def _answer(self, target: FetchTarget) -> PartitionData:
        try:
            return self._read(target)
        except ApiError as error:
            self.has_error = True
            return PartitionData(
                partition_index=target.partition,
                error_code=int(error.code),
                high_watermark=NO_OFFSET,
                aborted_transactions=None,
                records=NO_RECORDS,
            )

    def _read(self, target: FetchTarget) -> PartitionData:
        partition = find_partition(self._broker, target)
        partition.check_leader(target.current_leader_epoch)
        log = partition.log
        data = PartitionData(
            partition_index=target.partition,
            high_watermark=log.high_watermark.message_offset,
            last_stable_offset=log.last_stable.message_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=NO_RECORDS,
        )
        if target.last_fetched_epoch != NO_LEADER_EPOCH and self._diverges(partition, target, data):
            return data
        if self._bytes_left <= 0 < self.bytes_read:
            return data
        limit = partition.fetch_limit(self._isolation_level)
        max_size = max(0, min(target.max_bytes, self._bytes_left))
        try:
            found = log.read(target.fetch_offset, max_size, limit, min_one_message=self.bytes_read == 0)
        except CorruptLogError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise partition.storage_error(error) from error
        self.positions.append((partition, target, found.offset_metadata))
        # A part of a batch is of no use where others have a whole one: its partition has its turn in a later fetch.
        if found.records is not None and found.is_first_batch_whole:
            data.records = found.records
            self.bytes_read += found.records.size
            self._bytes_left -= found.records.size
            if self._isolation_level == READ_COMMITTED:
                data.aborted_transactions = _aborted(partition, target.fetch_offset, limit.message_offset)
        return data

    def count(self) -> None:
        """Count what is answered; a reading that led to waiting is not."""
        sizes = {
            (target.topic, target.partition): data.records.size
            for target, data in self.answers
            if data.records is not None and data.records is not NO_RECORDS
        }
        for partition, target, _ in self.positions:
            partition.stats.total_fetch_requests += 1
            partition.stats.bytes_out += sizes.get((target.topic, target.partition), 0)

    def _diverges(self, partition: Partition, target: FetchTarget, data: PartitionData) -> bool:
        """Tell whether the fetcher's log is another than ours, and from where on."""
        log = partition.log
        epoch, end_offset = log.leader_epochs.end_offset_for(target.last_fetched_epoch, log.log_end_offset)
        if end_offset == NO_OFFSET:
            message = f"where epoch {target.last_fetched_epoch} of {partition.topic_partition} ends is not known"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if epoch == target.last_fetched_epoch and end_offset >= target.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        self.has_error = True
        return True


def find_partition(broker: Services, target: FetchTarget) -> Partition:
    """Return the partition that a fetch names, or raise ApiError."""
    name = target.topic
    if isinstance(name, bytes):
        image = broker.cache.topics_by_id.get(name)
        if image is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        name = image.name
    # Authorisation to read the topic has its place here.
    return broker.replica_manager.partition(name, target.partition)


def _aborted(partition: Partition, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions(start_offset, end_offset)
    ]


class DelayedFetch:
    """A fetch that waits for data."""

    def __init__(self, broker: Services, request: Request, body: FetchRequest, context: FetchContext) -> None:
        self._broker = broker
        self._request = request
        self._body = body
        self._context = context
        self._positions: list[tuple[Partition, FetchTarget, LogOffsetMetadata]] = []
        self.watched: Watched | None = None

    def wait(self, read: FetchRead) -> None:
        """Wait in the purgatory for more than a first reading found."""
        self._positions = read.positions
        keys = [partition.topic_partition for partition, _, _ in read.positions]
        purgatory = self._broker.replica_manager.delayed_fetch
        self.watched = purgatory.watch(self, keys, self._body.max_wait_ms)
        self._request.on_disconnect = self._give_up

    def _give_up(self) -> None:
        if self.watched is not None:
            self._broker.replica_manager.delayed_fetch.remove(self.watched)

    def try_complete(self) -> bool:
        """Answer, if enough bytes are there by now, or something is wrong."""
        if not self._is_ready():
            return False
        self.on_expiration()
        return True

    def _is_ready(self) -> bool:
        available = 0
        for partition, target, position in self._positions:
            if partition.log.is_closed or not partition.is_leader:
                return True
            limit = partition.fetch_limit(self._body.isolation_level)
            if limit.message_offset == position.message_offset:
                continue
            if limit.message_offset < position.message_offset or position.is_on_older_segment_than(limit):
                return True
            if limit.is_on_older_segment_than(position):
                return True
            available += min(limit.position_difference(position), target.max_bytes)
        return available >= self._body.min_bytes

    def on_expiration(self) -> None:
        """Answer with what there is."""
        read = FetchRead(self._broker, self._body, self._context)
        self._request.respond(answer_to(self._request, self._context, read))


def handle_fetch(broker: Services, request: Request, body: FetchRequest) -> Any:
    """Answer with batches, at once or when there are some."""
    uses_topic_ids = request.version >= TOPIC_ID_VERSION
    try:
        context = broker.fetch_sessions.context_for(body, uses_topic_ids)
    except ApiError as error:
        return FetchResponse(error_code=int(error.code))
    read = FetchRead(broker, body, context)
    if (
        body.max_wait_ms <= 0
        or not context.targets
        or read.has_error
        or read.bytes_read >= body.min_bytes
        or not read.positions
    ):
        return answer_to(request, context, read)
    DelayedFetch(broker, request, body, context).wait(read)
    return Outcome.LATER


def answer_to(request: Request, context: FetchContext, read: FetchRead) -> FetchResponse:
    """Return the answer, with the partitions by topic in the order they were asked for."""
    read.count()
    topics: dict[Any, FetchableTopicResponse] = {}
    for target, data in _told(context, read):
        topic = topics.get(target.topic)
        if topic is None:
            name, topic_id = topic_names(target.topic)
            topic = topics[target.topic] = FetchableTopicResponse(topic=name, topic_id=topic_id)
        if data.error_code:
            request.count_error(data.error_code)
        topic.partitions.append(data)
    return FetchResponse(session_id=context.session_id, responses=list(topics.values()))


def _told(context: FetchContext, read: FetchRead) -> Iterable[tuple[FetchTarget, PartitionData]]:
    return read.answers if context.session is None else context.answered(read.answers)
