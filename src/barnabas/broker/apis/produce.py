"""Produce: v0-13, records of a producer into the logs of the partitions that this broker leads.

Behaviour: each partition is appended and answered by itself; an error of one leaves the others alone. acks=0 sends no
answer, and ends the connection on an error, so that the client looks for the leader anew. acks=1 answers when the
leader has the records, acks=-1 when the in-sync replicas have them (DelayedProduce), both after an fsync where
`flush.messages` asks for one. Produce never creates a partition. The first batch of a transaction in a partition is
admitted by the transaction's coordinator (KIP-890).

Versions: 0-2 carry message sets of magic 0 and 1, which are stored as v2; 3+ carry exactly one batch of magic 2 a
partition; 7+ may be zstd (KIP-110); 8+ say why in words (KIP-467); 11+ know that TRANSACTION_ABORTABLE lets them go on
after an abort; 12+ add partitions to transactions by themselves (KIP-890); 13+ name topics by id (KIP-516).

Differences from Kafka (ProduceRequest.validateRecords): it refuses 0-2, and ends the connection for a batch of the
wrong magic; here that partition is answered INVALID_RECORD.
"""

from collections.abc import Collection
from struct import Struct
from typing import Any

from barnabas.broker import produce_frame
from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.partition import Partition
from barnabas.broker.produce_frame import PlainProduce, PlainTarget
from barnabas.broker.request_channel import Outcome, Request
from barnabas.broker.services import Services
from barnabas.model import NO_OFFSET
from barnabas.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    PRODUCER_ID_POSITION,
    TRANSACTIONAL,
)
from barnabas.storage.log_types import LogAppendInfo
from barnabas.wire.apis import APIS, response_encoder
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.frames import SIZE, response_frame
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ADMIN_CLIENT_ID = "__admin_client"
BATCH_VERSION = 3
ZSTD_VERSION = 7
ABORTABLE_VERSION = 11
IMPLICIT_VERSION = 12
TOPIC_ID_VERSION = 13
ZSTD = 4
LOG_START_OFFSET_VERSION = 5
UNEXPECTED_ERRORS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})
"""What a client can not help; all else is a refusal of what it sent."""
_LENGTH = Struct(">i")
_PRODUCER = Struct(">qh")
# Partition, error code, base offset, log append time, and from version 5 on log start offset.
_HOLE = Struct(">ihqq")
_HOLE_WITH_START = Struct(">ihqqq")
_ATTRIBUTES_LOW_BYTE = 22


class DelayedProduce:
    """A produce whose records are appended and not yet where its acks asks for them. It holds no record bytes."""

    def __init__(self, request: Request, acks: int, answer: ProduceResponse) -> None:
        self._request = request
        self._acks = acks
        self._answer = answer
        self._waiting: list[tuple[Partition, int, PartitionProduceResponse]] = []

    def wait_for(self, partition: Partition, end_offset: int, answer: PartitionProduceResponse) -> None:
        """Wait until a partition acknowledges everything below an offset."""
        self._waiting.append((partition, end_offset, answer))

    def keys(self) -> list[Any]:
        """Return the partitions that are waited for."""
        return [partition.topic_partition for partition, _, _ in self._waiting]

    def try_complete(self) -> bool:
        """Answer, if no partition is left to wait for."""
        left = []
        for partition, end_offset, answer in self._waiting:
            code = partition.acknowledgement(end_offset, self._acks)
            if code is None:
                left.append((partition, end_offset, answer))
            elif code is not ErrorCode.NONE:
                _refuse(answer, ApiError(code, f"{partition.topic_partition} was lost while the produce waited"))
                self._request.count_error(code)
                partition.stats.failed_produce_requests += code in UNEXPECTED_ERRORS
        self._waiting = left
        if not left:
            self._request.respond(self._answer)
        return not left

    def on_expiration(self) -> None:
        """Answer those that are left with a time-out; their records are in the log all the same."""
        for _, _, answer in self._waiting:
            _refuse(answer, ApiError(ErrorCode.REQUEST_TIMED_OUT, "the replicas or the disk did not keep up"))
            self._request.count_error(ErrorCode.REQUEST_TIMED_OUT)
        self._request.respond(self._answer)


def handle_produce(broker: Services, request: Request, body: ProduceRequest) -> Any:
    """Append, and answer when the records are where `acks` asks for them."""
    acks = body.acks
    if acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
    if not body.transactional_id and _has_transactional(body):
        if acks == 0:
            return Outcome.CLOSE  # Its client does not wait for an answer.
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction has a transactional id")
    answer = ProduceResponse()
    delayed: DelayedProduce | None = None
    has_error = False
    for topic in body.topic_data:
        topic_answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        answer.responses.append(topic_answer)
        name = _topic_name(broker, request, topic)
        for data in topic.partition_data:
            partition_answer = PartitionProduceResponse(index=data.index)
            topic_answer.partition_responses.append(partition_answer)
            try:
                partition, end_offset = _append(broker, request, body, name, data, partition_answer)
                is_acknowledged = acks == 0 or partition.acknowledgement(end_offset, acks) is ErrorCode.NONE
            except ApiError as error:
                _refuse(partition_answer, error)
                request.count_error(error.code)
                _count_refusal(broker, name, data, error.code)
                has_error = True
                continue
            if not is_acknowledged:
                delayed = delayed or DelayedProduce(request, acks, answer)
                delayed.wait_for(partition, end_offset, partition_answer)
    if acks == 0:
        return Outcome.CLOSE if has_error else Outcome.NO_RESPONSE
    if delayed is None:
        return answer
    broker.replica_manager.delayed_produce.watch(delayed, delayed.keys(), body.timeout_ms)
    return Outcome.LATER


class _AnswerTemplate:
    """The answer for one topic and version, with a hole for what differs: made by the codec, so that it is the same."""

    def __init__(self, topic: bytes, version: int) -> None:
        by_id = version >= TOPIC_ID_VERSION
        hole = PartitionProduceResponse(index=-1, error_code=-1, base_offset=-1, log_start_offset=-1)
        named = TopicProduceResponse(topic_id=topic) if by_id else TopicProduceResponse(name=topic.decode())
        named.partition_responses = [hole]
        api = APIS[0]
        (body,) = response_encoder(api, version)(ProduceResponse(responses=[named]))
        frame = b"".join(response_frame(api, version, 0, [body]))
        # These fields follow each other in all versions, and every bit of them is set.
        self._hole = _HOLE_WITH_START if version >= LOG_START_OFFSET_VERSION else _HOLE
        self._offsets = 3 if version >= LOG_START_OFFSET_VERSION else 2
        start = frame.index(b"\xff" * self._hole.size)
        self._frame, self._start = frame, start
        self._size = frame[:4]
        self._before = frame[8:start]
        self._after = frame[start + self._hole.size :]

    def target(self, partition: Partition) -> PlainTarget:
        """Return a partition with the answer to its plain requests."""
        frame = bytearray(self._frame)
        self._hole.pack_into(frame, self._start, partition.topic_partition.partition, 0, *[NO_OFFSET] * self._offsets)
        return PlainTarget(partition, bytes(frame), self._start + 6, self._hole is _HOLE_WITH_START)

    def fill(self, correlation_id: int, index: int, info: LogAppendInfo) -> bytes:
        """Return the answer to one request."""
        if self._hole is _HOLE_WITH_START:
            hole = _HOLE_WITH_START.pack(index, 0, info.first_offset, info.log_append_time, info.log_start_offset)
        else:
            hole = _HOLE.pack(index, 0, info.first_offset, info.log_append_time)
        return b"".join((self._size, SIZE.pack(correlation_id), self._before, hole, self._after))


class ProduceShortcut:
    """The short way for a produce request of one partition that is answered at once, which almost every one is.

    It appends the same bytes by the same Partition and answers the same bytes as `handle_produce`, without making the
    messages: half the price of a small request. Whatever is not as usual goes the long way, which knows all of it: a
    request that was refused here changed nothing.
    """

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        manager = self._manager = broker.replica_manager
        self.plain = PlainProduce(
            self._plain_target, self._admit, manager.on_change, manager.delayed_fetch, manager.delayed_produce
        )
        # By what stands on the wire. Both are forgotten whenever a topic changes.
        self._partitions: dict[tuple[bytes, int, bool], Partition] = {}
        self._answers: dict[tuple[bytes, int], _AnswerTemplate] = {}
        self._manager.partition_listeners.append(self._forget)

    def _forget(self, _: Collection[str]) -> None:
        self._partitions.clear()
        self._answers.clear()
        self.plain.forget()

    def __call__(self, frame: memoryview) -> bytes | None:
        """Return the answer, which for acks=0 has no bytes, or None for a request that has to go the long way."""
        found = produce_frame.read_produce(frame)
        if found is None:
            return None
        version, correlation_id, acks, _, topic, index, start, end, transactional_id = found
        partition = self._partitions.get((topic, index, version >= TOPIC_ID_VERSION))
        if partition is None:
            self._learn(version, topic, index)
            return None
        if not -1 <= acks <= 1 or not partition.acknowledges_at_once:
            return None
        try:
            if transactional_id:
                self._admit(transactional_id, frame[start:end], partition, version)
            info = partition.append_records_to_leader(frame[start:end], acks)
        except ApiError:
            return None
        partition.stats.total_produce_requests += 1
        manager = self._manager
        if manager.delayed_fetch.size or manager.delayed_produce.size:
            manager.on_change(partition)
        if acks == 0:
            return b""
        answer = self._answers.get((topic, version))
        if answer is None:
            answer = self._answers[topic, version] = _AnswerTemplate(topic, version)
        return answer.fill(correlation_id, index, info)

    def _admit(self, transactional_id: bytes, batch: memoryview, partition: Partition, version: int) -> None:
        _admit(self._broker, transactional_id.decode(errors="replace"), batch, partition, version)

    def _learn(self, version: int, topic: bytes, index: int) -> None:
        """Remember a partition, if it is one that is written to without further questions, and go the long way."""
        partition = self._find(version, topic, index)
        if partition is not None:
            self._partitions[topic, index, version >= TOPIC_ID_VERSION] = partition

    def _plain_target(self, version: int, topic: bytes, index: int) -> PlainTarget | None:
        partition = self._find(version, topic, index)
        return None if partition is None else _AnswerTemplate(topic, version).target(partition)

    def _find(self, version: int, topic: bytes, index: int) -> Partition | None:
        # Authorisation has its place here as well: requests of a client that may not write must never be taken shortly.
        by_id = version >= TOPIC_ID_VERSION
        image = self._broker.cache.topics_by_id.get(topic) if by_id else None
        if by_id and image is None:
            return None
        name = image.name if image is not None else topic.decode(errors="replace")
        return self._manager.partitions.get((name, index)) if name not in INTERNAL_TOPICS else None


def _topic_name(broker: Services, request: Request, topic: TopicProduceData) -> str | ApiError:
    """Return the name of a topic, or the error that all its partitions are answered with."""
    name = topic.name
    if request.version >= TOPIC_ID_VERSION:
        image = broker.cache.topics_by_id.get(topic.topic_id)
        if image is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        name = image.name
    # Authorisation to write to the topic has its place here.
    if name in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker only")
    return name


def _has_transactional(body: ProduceRequest) -> bool:
    """Tell whether a batch says that it is part of a transaction."""
    return any(
        _is_transactional(data.records) for topic in body.topic_data for data in topic.partition_data if data.records
    )


def _is_transactional(records: memoryview) -> bool:
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_POSITION] == MAGIC
        and bool(records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)
    )


def _append(
    broker: Services,
    request: Request,
    body: ProduceRequest,
    name: str | ApiError,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
) -> tuple[Partition, int]:
    """Append the records of one partition; return it, and the offset behind them."""
    if isinstance(name, ApiError):
        raise name
    manager = broker.replica_manager
    partition = manager.partitions.get((name, data.index)) or manager.partition(name, data.index)
    partition.stats.total_produce_requests += 1
    records = data.records
    if records is None or len(records) == 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition comes without records")
    if request.version >= BATCH_VERSION:
        _check_batch(records, request.version)
    if body.transactional_id and _is_transactional(records):
        _admit(broker, body.transactional_id, records, partition, request.version)
    info = partition.append_records_to_leader(records, body.acks)
    manager.on_change(partition)
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.log_append_time
    answer.log_start_offset = info.log_start_offset
    return partition, info.last_offset + 1


def _admit(broker: Services, transactional_id: str, batch: memoryview, partition: Partition, version: int) -> None:
    """Raise ApiError unless the partition is part of the transaction; newer clients leave it to us to add it."""
    producer = _PRODUCER.unpack_from(batch, PRODUCER_ID_POSITION)
    broker.transactions.admit(
        transactional_id,
        producer,
        partition,
        implicit=version >= IMPLICIT_VERSION,
        knows_abortable=version >= ABORTABLE_VERSION,
    )


def _check_batch(records: memoryview, version: int) -> None:
    """Raise ApiError unless there is exactly one batch, of the format and a codec that this version may carry."""
    size = len(records)
    if size < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, f"version {version} carries batches of magic 2, and these are not")
    if _LENGTH.unpack_from(records, LENGTH_POSITION)[0] + LOG_OVERHEAD != size:
        raise ApiError(ErrorCode.INVALID_RECORD, f"version {version} carries exactly one whole batch a partition")
    if records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == ZSTD and version < ZSTD_VERSION:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"version {version} can not carry zstd")


def _refuse(answer: PartitionProduceResponse, error: ApiError) -> None:
    answer.error_code = int(error.code)
    answer.error_message = error.message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = NO_OFFSET


def _count_refusal(broker: Services, name: str | ApiError, data: PartitionProduceData, code: ErrorCode) -> None:
    if isinstance(name, str) and name in broker.cache.topics:
        stats = broker.replica_manager.topic_stats.topic(name)
        if code in UNEXPECTED_ERRORS:
            stats.failed_produce_requests += 1
        elif data.records is not None:
            stats.bytes_rejected += len(data.records)
