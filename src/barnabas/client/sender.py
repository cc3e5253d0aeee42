"""Brings finished batches to the leaders of their partitions, in order, and again where that helps.

Batches come from `producer`, or from whoever builds them in another way, and go into Produce requests: several
partitions a request, several requests on the way to a broker at once. There are no threads: things move while `submit`
or `flush` is called.

Rule 1: the batches of a partition are appended in the order in which they were submitted. Without idempotence only one
of them is on its way; with it several are, because the broker refuses one that comes before its turn. So it is from
the first acknowledgement on: a broker that knows nothing of a producer would take any sequence for its first.
Rule 2: when a batch comes back, those of its partition that were sent after it are waited for, and all are sent again
in order, under the sequences they have. What the broker has already, it acknowledges without appending it twice.
Rule 3: an error that no attempt can mend ends its partition: what was submitted after it fails too, because it would
be out of order. `flush` raises it, and the next batches start as a new producer.
Rule 4: in a transaction the sender is the producer that began it, and stays that one; its partitions have been added to
the transaction before they are sent to (see `transactional`).
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from barnabas.client.answers import check_answer, error_of, is_retriable
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, Connection, ConnectionFailedError, readable
from barnabas.client.metadata import UnknownTopicError
from barnabas.model import TopicPartition
from barnabas.records.batch import (
    ATTRIBUTES_POSITION,
    PRODUCER_ID_POSITION,
    SEQUENCE_MODULUS,
    TRANSACTIONAL,
    read_header,
    restamp_crc,
)
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.schema import VERSION_MAX

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0

# The last version that names topics; later ones have their ids.
_VERSION_WITH_NAMES_MAX = 12
# The last version whose transactions have partitions added by a request of their own; later ones add them silently, and
# are for producers that take a new epoch with every transaction (KIP-890).
_VERSION_WITH_ADDED_PARTITIONS_MAX = 11

# Producer id, epoch and base sequence follow each other in the header of a batch.
_PRODUCER = Struct(">qhi")

Failure = ApiError | ClientError


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How batches are sent; names and defaults are those of Kafka's producer."""

    acks: int = ACKS_ALL
    # Only with acks=all: without the broker's word for every batch, nothing is known to be there once.
    enable_idempotence: bool = True
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1024 * 1024
    buffer_memory: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000

    @property
    def is_idempotent(self) -> bool:
        """Whether the broker is to tell a batch that is sent twice."""
        return self.enable_idempotence and self.acks == ACKS_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHandle:
    """All that a process needs to write into a transaction or to end it, whoever began it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A batch that is in the log. With acks=0, or when it was there already, the offset may be -1."""

    partition: TopicPartition
    base_offset: int
    count: int


class ProduceError(ClientError):
    """Some records were not written, or nobody knows; by partition, the first reason."""

    def __init__(self, failures: dict[TopicPartition, Failure], records_lost: int) -> None:
        partition, reason = next(iter(failures.items()))
        others = f", and {len(failures) - 1} more partitions" if len(failures) > 1 else ""
        records = "1 record was" if records_lost == 1 else f"{records_lost:,} records were"
        super().__init__(f"{records} not acknowledged by {partition}{others}: {reason}")
        self.failures = failures
        self.records_lost = records_lost


# Two batches with the same bytes are still two batches.
@dataclass(slots=True, kw_only=True, eq=False)
class _Batch:
    data: bytearray
    count: int
    deadline: float
    is_on_its_way: bool = False


@dataclass(slots=True, kw_only=True)
class _Lane:
    """One partition: what is to be sent, and what was sent and is not acknowledged."""

    partition: TopicPartition
    queue: deque[_Batch] = field(default_factory=deque)
    # Invariant: these come before everything in the queue, and are in order.
    sent: deque[_Batch] = field(default_factory=deque)
    next_sequence: int = 0
    was_acknowledged: bool = False
    is_returning: bool = False
    not_before: float = 0.0
    backoff_seconds: float = 0.0
    failure: Failure | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self.queue or self.sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request that is on its way."""

    batches: dict[TopicPartition, _Batch]
    topic_names: dict[bytes, str]
    deadline: float


class Sender:
    """Batches on their way to their leaders."""

    def __init__(
        self,
        client: Client,
        options: SendOptions | None = None,
        on_delivery: Callable[[Delivered], None] | None = None,
        transaction: TransactionHandle | None = None,
    ) -> None:
        self._client = client
        self._options = SendOptions() if options is None else options
        if transaction is not None and not self._options.is_idempotent:
            raise ValueError("a transaction needs acks=all and enable.idempotence=true")
        self._on_delivery = on_delivery
        self._transaction = transaction
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._connections: dict[int, Connection] = {}
        self._requests: dict[int, deque[_Request]] = {}
        self._producer: tuple[int, int] | None = None
        self._records_lost = 0
        self.buffered_bytes = 0
        self.records_acknowledged = 0
        # Whether `flush` has an error to raise.
        self.has_failed = False

    def submit(self, partition: TopicPartition, batch: bytearray) -> None:
        """Take a finished batch, and send it now or later. It is stamped in place, and belongs to the sender now."""
        header = read_header(batch)
        lane = self._lanes.setdefault(partition, _Lane(partition=partition))
        if lane.failure is not None:
            self._records_lost += header.count
            return
        if self._options.is_idempotent:
            _PRODUCER.pack_into(batch, PRODUCER_ID_POSITION, *self._producer_id(), lane.next_sequence)
            if self._transaction is not None:
                batch[ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL
            restamp_crc(batch, 0, len(batch))
            lane.next_sequence = (lane.next_sequence + header.last_offset_delta + 1) % SEQUENCE_MODULUS
        deadline = self._client.clock.monotonic_seconds() + self._options.delivery_timeout_ms / 1000
        lane.queue.append(_Batch(data=batch, count=header.count, deadline=deadline))
        self.buffered_bytes += len(batch)
        self._step(is_patient=False)
        while self.buffered_bytes > self._options.buffer_memory:
            self._step(is_patient=True)

    def flush(self) -> None:
        """Wait until every batch is acknowledged; raises ProduceError when one is not.

        After that, a transaction can only be aborted: part of it is missing.
        """
        while any(lane.is_busy for lane in self._lanes.values()):
            self._step(is_patient=True)
        failures = {lane.partition: lane.failure for lane in self._lanes.values() if lane.failure is not None}
        if not failures:
            return
        error = ProduceError(failures, self._records_lost)
        self._records_lost = 0
        self.has_failed = False
        # Sequences of the batches that failed are missing, so that a new producer id has to begin anew.
        self._producer = None
        self._lanes.clear()
        raise error

    def close(self) -> None:
        """Close the connections; what is not acknowledged may be lost."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._requests.clear()

    def _producer_id(self) -> tuple[int, int]:
        if self._transaction is not None:
            return self._transaction.producer_id, self._transaction.producer_epoch
        if self._producer is None:
            question = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=self._client.options.default_api_timeout_ms
            )

            def attempt() -> tuple[int, int]:
                answer = self._client.any_connection().request(question)
                check_answer(answer.error_code, "an idempotent producer needs an id")
                return answer.producer_id, answer.producer_epoch

            self._producer = self._client.retrying(attempt)
        return self._producer

    # Going out

    def _step(self, *, is_patient: bool) -> None:
        """Send what can be sent and take in what has come; if patient, wait for something to happen."""
        while self._send_once():
            pass
        waiting = [connection for connection in self._connections.values() if connection.in_flight]
        if waiting:
            seconds = self._patience() if is_patient else 0.0
            for connection in readable(waiting, seconds):
                self._receive(connection)
            self._end_late_requests()
        elif is_patient:
            self._client.clock.sleep(self._patience())

    def _patience(self) -> float:
        """Return how long nothing but an answer can make a difference."""
        now = self._client.clock.monotonic_seconds()
        moments = [lane.not_before for lane in self._lanes.values() if lane.queue and lane.not_before > now]
        moments += [requests[0].deadline for requests in self._requests.values() if requests]
        return max(0.001, min(moments, default=now) - now)

    def _send_once(self) -> bool:
        """Send one request to each leader that can take one; tell whether there was any."""
        was_sent = False
        for leader_id, lanes in self._ready_lanes().items():
            try:
                connection = self._connection(leader_id)
                if connection.in_flight >= self._options.max_in_flight_requests_per_connection:
                    continue
                self._send(leader_id, connection, lanes)
                was_sent = True
            except UnknownTopicError:
                continue  # It was deleted just now. The next look for a leader says whose it was.
            except (ApiError, ConnectionFailedError) as error:
                self._lose_connection(leader_id, error)
                for lane in lanes:
                    self._back_off(lane, error)
        return was_sent

    def _ready_lanes(self) -> dict[int, list[_Lane]]:
        """Return the partitions that have a batch to send now, by leader."""
        now = self._client.clock.monotonic_seconds()
        ready: dict[int, list[_Lane]] = {}
        for lane in self._lanes.values():
            if not lane.queue or lane.is_returning or lane.not_before > now:
                continue
            most = self._options.max_in_flight_requests_per_connection if self._options.is_idempotent else 1
            if len(lane.sent) >= (most if lane.was_acknowledged else 1):
                continue
            try:
                ready.setdefault(self._client.leader_of(lane.partition), []).append(lane)
            except UnknownTopicError as error:
                self._fail(lane, error)
            except (ApiError, ConnectionFailedError) as error:
                self._back_off(lane, error)
        return ready

    def _connection(self, leader_id: int) -> Connection:
        known = self._connections.get(leader_id)
        if known is not None and known.is_open:
            return known
        self._connections[leader_id] = self._client.own_connection_to(leader_id)
        return self._connections[leader_id]

    def _send(self, leader_id: int, connection: Connection, lanes: Collection[_Lane]) -> None:
        batches: dict[TopicPartition, _Batch] = {}
        size = 0
        for lane in lanes:
            size += len(lane.queue[0].data)
            if batches and size > self._options.max_request_size:
                break
            batches[lane.partition] = lane.queue[0]
        topics: dict[str, TopicProduceData] = {}
        has_ids = True
        for partition, batch in batches.items():
            known = self._client.topic(partition.topic)
            has_ids = has_ids and known.has_topic_id
            topic = topics.setdefault(
                partition.topic, TopicProduceData(name=partition.topic, topic_id=known.topic_id.bytes)
            )
            topic.partition_data.append(PartitionProduceData(index=partition.partition, records=batch.data))
        version_max = VERSION_MAX if has_ids else _VERSION_WITH_NAMES_MAX
        transactional_id = None
        if self._transaction is not None:
            version_max = _VERSION_WITH_ADDED_PARTITIONS_MAX
            transactional_id = self._transaction.transactional_id
        version = connection.version_of("Produce", version_max)
        acks = self._options.acks
        question = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=self._client.options.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        connection.send(question, version, is_answered=acks != ACKS_NONE)
        for partition, batch in batches.items():
            lane = self._lanes[partition]
            lane.queue.popleft()
            lane.sent.append(batch)
            batch.is_on_its_way = True
            if acks == ACKS_NONE:
                self._acknowledge(lane, batch, -1)
        if acks != ACKS_NONE:
            names = {t.topic_id: name for name, t in topics.items()} if version > _VERSION_WITH_NAMES_MAX else {}
            deadline = self._client.clock.monotonic_seconds() + self._client.options.request_timeout_ms / 1000
            request = _Request(batches=batches, topic_names=names, deadline=deadline)
            self._requests.setdefault(leader_id, deque()).append(request)

    # Coming in

    def _receive(self, connection: Connection) -> None:
        leader_id = next(key for key, value in self._connections.items() if value is connection)
        try:
            answer = connection.receive()
        except ConnectionFailedError as error:
            self._lose_connection(leader_id, error)
            return
        request = self._requests[leader_id].popleft()
        rows: dict[TopicPartition, Any] = {}
        for topic in answer.responses:
            name = request.topic_names.get(topic.topic_id, "") if request.topic_names else topic.name
            rows.update({TopicPartition(name, row.index): row for row in topic.partition_responses})
        for partition, batch in request.batches.items():
            self._settle(self._lanes[partition], batch, rows.get(partition))

    def _settle(self, lane: _Lane, batch: _Batch, row: Any) -> None:
        """Do what the answer to a batch asks for."""
        batch.is_on_its_way = False
        if row is None:
            self._return(lane, error_of(ErrorCode.NETWORK_EXCEPTION, f"the answer says nothing of {lane.partition}"))
        elif row.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(lane, batch, row.base_offset)
        else:
            message = row.error_message or next((each.batch_index_error_message for each in row.record_errors), None)
            self._return(lane, error_of(row.error_code, f"producing to {lane.partition}", message))
        self._send_again_if_all_are_back(lane)

    def _acknowledge(self, lane: _Lane, batch: _Batch, base_offset: int) -> None:
        lane.sent.remove(batch)
        lane.was_acknowledged = True
        lane.backoff_seconds = 0.0
        self.buffered_bytes -= len(batch.data)
        self.records_acknowledged += batch.count
        if self._on_delivery is not None:
            self._on_delivery(Delivered(partition=lane.partition, base_offset=base_offset, count=batch.count))

    def _return(self, lane: _Lane, error: ApiError | ConnectionFailedError) -> None:
        """Note that a batch came back; it is sent again when those sent after it are back too."""
        if lane.failure is not None:
            return
        # A batch whose predecessor came back is out of order, and will not be when both are sent again.
        code = error.code if isinstance(error, ApiError) else None
        is_after_another = lane.is_returning and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        lane.is_returning = True
        if not is_after_another:
            self._back_off(lane, error)

    def _send_again_if_all_are_back(self, lane: _Lane) -> None:
        if any(batch.is_on_its_way for batch in lane.sent):
            return
        if lane.failure is not None:
            self._drop(lane)
        elif lane.is_returning:
            lane.queue.extendleft(reversed(lane.sent))
            lane.sent.clear()
            lane.is_returning = False

    def _back_off(self, lane: _Lane, error: ApiError | ConnectionFailedError) -> None:
        """Wait before the next attempt, or give the partition up."""
        options = self._client.options
        now = self._client.clock.monotonic_seconds()
        oldest = (lane.sent or lane.queue)[0]
        is_worth_it = is_retriable(error) if isinstance(error, ApiError) else True
        if not is_worth_it or now >= oldest.deadline:
            self._fail(lane, error)
            return
        self._client.forget_metadata()
        least, most = options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000
        lane.backoff_seconds = min(max(lane.backoff_seconds * 2, least), most)
        lane.not_before = now + lane.backoff_seconds

    def _fail(self, lane: _Lane, error: Failure) -> None:
        lane.failure = error
        self.has_failed = True
        if not any(batch.is_on_its_way for batch in lane.sent):
            self._drop(lane)

    def _drop(self, lane: _Lane) -> None:
        for batch in (*lane.sent, *lane.queue):
            self._records_lost += batch.count
            self.buffered_bytes -= len(batch.data)
        lane.sent.clear()
        lane.queue.clear()

    def _end_late_requests(self) -> None:
        now = self._client.clock.monotonic_seconds()
        for leader_id, requests in self._requests.items():
            if requests and requests[0].deadline <= now and not self._connections[leader_id].has_answer():
                seconds = self._client.options.request_timeout_ms / 1000
                address = self._connections[leader_id].address
                self._lose_connection(
                    leader_id, ConnectionFailedError(address, f"no answer to Produce within {seconds:g} s")
                )

    def _lose_connection(self, leader_id: int, error: ApiError | ConnectionFailedError) -> None:
        """Take back everything that was on its way to a broker."""
        connection = self._connections.pop(leader_id, None)
        if connection is not None:
            connection.close()
        for request in self._requests.pop(leader_id, ()):
            for partition, batch in request.batches.items():
                batch.is_on_its_way = False
                self._return(self._lanes[partition], error)
        for lane in self._lanes.values():
            self._send_again_if_all_are_back(lane)
