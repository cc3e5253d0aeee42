"""Batches on their way: order, acknowledgements, sequences; and brokers that refuse, forget, drop and keep silent.

The broker here checks sequences as Kafka does. What it appended is in `Appending.log`, where duplicates and gaps show.
"""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.client import Client
from barnabas.client.options import ClientOptions
from barnabas.client.sender import ACKS_LEADER, ACKS_NONE, Delivered, ProduceError, Sender, SendOptions
from barnabas.clock import ManualClock, SystemClock
from barnabas.model import TopicPartition
from barnabas.records.batch import check_crc, read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import batch_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from barnabas.wire.messages.producers import InitProducerIdResponse
from barnabas.wire.schema import Versions
from tests.client.fake_broker import FakeBroker, Hangup, Silence

ZERO = TopicPartition("t", 0)
ONE = TopicPartition("t", 1)

Fault = Callable[[int], int | Hangup | Silence | None]


class Appending:
    """The log of a broker that knows sequences. `fault` may spoil the n-th request, before or after it is appended."""

    def __init__(self, before: Fault = lambda n: None, after: Fault = lambda n: None) -> None:
        self.log: dict[int, list[bytes]] = {}
        self.requests = 0
        self.producer_ids = 0
        self._before = before
        self._after = after
        self._batches: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    def init_producer_id(self, message: Any, version: int) -> Any:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=1_000 + self.producer_ids, producer_epoch=0)

    def produce(self, message: Any, version: int) -> Any:
        self.requests += 1
        number = self.requests
        fault = self._before(number)
        if isinstance(fault, Hangup | Silence):
            return fault
        topic = message.topic_data[0]
        rows = [self._append(row, fault) for row in topic.partition_data]
        fault = self._after(number)
        if isinstance(fault, Hangup | Silence):
            return fault
        if message.acks == ACKS_NONE:
            return Silence()
        if isinstance(fault, int):
            rows = [PartitionProduceResponse(index=row.index, error_code=fault) for row in rows]
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        return ProduceResponse(responses=[answer])

    def _append(self, row: Any, fault: int | None) -> PartitionProduceResponse:
        if fault:
            return PartitionProduceResponse(index=row.index, error_code=fault, error_message="as the test says")
        header = read_header(row.records)
        check_crc(row.records, 0, header)
        log = self.log.setdefault(row.index, [])
        base_offset = len(log)
        if header.producer_id >= 0:
            known = self._batches.setdefault((row.index, header.producer_id), [])
            for first, last, offset in known[-5:]:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return PartitionProduceResponse(index=row.index, base_offset=offset)
            if known and header.base_sequence != known[-1][1] + 1:
                return PartitionProduceResponse(index=row.index, error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            known.append((header.base_sequence, header.last_sequence, base_offset))
        log += [record.value or b"" for record in batch_records(row.records, header)]
        return PartitionProduceResponse(index=row.index, base_offset=base_offset)

    def broker(self, **more: Any) -> FakeBroker:
        handlers = {"Produce": self.produce, "InitProducerId": self.init_producer_id}
        return FakeBroker(handlers, topics={"t": 2}, **more)


def batch(*values: bytes) -> bytearray:
    return build_batch([(1, None, value, ()) for value in values])


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_batches_arrive_in_order_and_are_reported() -> None:
    appending = Appending()
    delivered: list[Delivered] = []
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client, on_delivery=delivered.append)
        for value in numbered(20):
            sender.submit(ZERO, batch(value))
            sender.submit(ONE, batch(value, value))
        sender.flush()
        sender.close()
        assert (sender.records_acknowledged, sender.buffered_bytes) == (60, 0)
    assert appending.log[0] == numbered(20)
    assert appending.log[1] == [value for value in numbered(20) for _ in range(2)]
    assert [each.base_offset for each in delivered if each.partition == ZERO] == list(range(20))
    assert appending.producer_ids == 1


def test_several_requests_wait_together_after_the_first_acknowledgement() -> None:
    waiting: list[int] = []

    def note_waiting(number: int) -> None:
        waiting.append(max((connection.in_flight for connection in sender._connections.values()), default=0))

    appending = Appending(before=note_waiting)
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client, SendOptions(max_in_flight_requests_per_connection=3))
        sender.submit(ZERO, batch(b"first"))
        sender.flush()
        for value in numbered(50):
            sender.submit(ZERO, batch(value))
        sender.flush()
        sender.close()
    assert appending.log[0] == [b"first", *numbered(50)]
    assert max(waiting) <= 3


@pytest.mark.parametrize("faulty", [1, 2, 5, 9])
@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        Hangup(),
        Hangup(after=b"\0\0"),
    ],
)
@pytest.mark.parametrize("is_after", [False, True])
def test_what_fails_is_sent_again_without_duplicates_or_gaps(faulty: int, fault: Any, is_after: bool) -> None:
    def spoil(number: int) -> Any:
        return fault if number == faulty else None

    appending = Appending(after=spoil) if is_after else Appending(before=spoil)
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client)
        for value in numbered(30):
            sender.submit(ZERO, batch(value))
        sender.flush()
        sender.close()
    assert appending.log == {0: numbered(30)}
    assert sender.records_acknowledged == 30


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    appending = Appending(after=lambda n: Silence() if n == 2 else None)
    with (
        appending.broker() as broker,
        Client(broker.bootstrap_servers, ClientOptions(request_timeout_ms=200)) as client,
    ):
        sender = Sender(client)
        for value in numbered(3):
            sender.submit(ZERO, batch(value))
        sender.flush()
        sender.close()
    assert appending.log == {0: numbered(3)}


def test_without_idempotence_one_batch_of_a_partition_is_on_its_way() -> None:
    def slow(number: int) -> int | None:
        # So that more would be on their way, if they could be.
        SystemClock().sleep(0.01)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 3 else None

    appending = Appending(before=slow)
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client, SendOptions(acks=ACKS_LEADER))
        sender.submit(ZERO, batch(b"first"))
        sender.flush()
        for value in numbered(10):
            sender.submit(ZERO, batch(value))
            assert len(sender._lanes[ZERO].sent) <= 1
        sender.flush()
        sender.close()
        assert broker.named("Produce")[0].message.acks == 1
    assert appending.log == {0: [b"first", *numbered(10)]}
    assert appending.producer_ids == 0


def test_with_acks_0_nothing_is_waited_for() -> None:
    appending = Appending()
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client, SendOptions(acks=ACKS_NONE))
        for value in numbered(10):
            sender.submit(ZERO, batch(value))
        sender.flush()
        assert sender.records_acknowledged == 10
        deadline = client.clock.monotonic_seconds() + 30
        while len(broker.named("Produce")) < 10:
            assert client.clock.monotonic_seconds() < deadline
            client.clock.sleep(0.01)
        sender.close()
    assert appending.log == {0: numbered(10)}


def test_an_error_that_stays_ends_the_partition_and_leaves_the_others() -> None:
    appending = Appending()

    def produce(message: Any, version: int) -> Any:
        answer = appending.produce(message, version)
        for row in answer.responses[0].partition_responses:
            if row.index == 0:
                row.error_code = ErrorCode.MESSAGE_TOO_LARGE
        return answer

    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        broker.handlers["Produce"] = produce
        sender = Sender(client)
        for value in numbered(5):
            sender.submit(ZERO, batch(value, value))
            sender.submit(ONE, batch(value))
        with pytest.raises(ProduceError, match="10 records were not acknowledged by t-0: MESSAGE_TOO_LARGE") as failed:
            sender.flush()
        assert failed.value.failures.keys() == {ZERO}
        assert failed.value.records_lost == 10
        assert (sender.records_acknowledged, sender.buffered_bytes, sender.has_failed) == (5, 0, False)
        # A new producer id begins anew, and everything goes on.
        broker.handlers["Produce"] = appending.produce
        sender.submit(ZERO, batch(b"again"))
        sender.flush()
        sender.close()
    assert appending.producer_ids == 2
    assert appending.log[1] == numbered(5)
    assert appending.log[0][-1] == b"again"


def test_one_record_is_one_record() -> None:
    appending = Appending(before=lambda n: ErrorCode.INVALID_RECORD)
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client)
        sender.submit(ZERO, batch(b"v"))
        with pytest.raises(
            ProduceError, match=r"1 record was not .* INVALID_RECORD: producing to t-0: as the test says"
        ):
            sender.flush()
        sender.close()


def test_attempts_end_at_the_delivery_timeout() -> None:
    clock = ManualClock()
    appending = Appending(before=lambda n: ErrorCode.NOT_ENOUGH_REPLICAS)
    with appending.broker() as broker, Client(broker.bootstrap_servers, clock=clock) as client:
        sender = Sender(client, SendOptions(delivery_timeout_ms=5_000))
        sender.submit(ZERO, batch(b"v"))
        with pytest.raises(ProduceError, match="NOT_ENOUGH_REPLICAS"):
            sender.flush()
        sender.close()
    assert 5 <= clock.monotonic_seconds() < 10
    assert appending.log == {}


def test_a_topic_that_is_deleted_meanwhile_is_said() -> None:
    appending = Appending(before=lambda n: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        client.topic("t")
        broker.topics.clear()
        sender = Sender(client)
        sender.submit(ZERO, batch(b"v"))
        with pytest.raises(ProduceError, match="there is no topic 't'"):
            sender.flush()
        sender.close()


def test_memory_is_bounded_while_the_broker_is_slow() -> None:
    appending = Appending()
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client, SendOptions(buffer_memory=10_000))
        for _ in range(50):
            sender.submit(ZERO, batch(b"x" * 3_000))
            assert sender.buffered_bytes <= 10_000
        sender.flush()
        sender.close()
    assert len(appending.log[0]) == 50


def test_a_request_has_no_more_than_its_size_of_batches() -> None:
    appending = Appending()
    with appending.broker() as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client, SendOptions(max_request_size=1_000, max_in_flight_requests_per_connection=1))
        for value in (b"x" * 400, b"y" * 2_000):
            sender.submit(ZERO, batch(value))
            sender.submit(ONE, batch(value))
        sender.flush()
        sender.close()
        assert all(len(request.message.topic_data[0].partition_data) == 1 for request in broker.named("Produce")[-2:])
    assert [len(values) for values in appending.log.values()] == [2, 2]


@pytest.mark.parametrize("highest", [3, 8, 9, 12, 13])
def test_every_version_takes_batches(highest: int) -> None:
    appending = Appending()
    versions = {"Produce": Versions(0, highest), "InitProducerId": Versions(0, 1)}
    with appending.broker(versions=versions) as broker, Client(broker.bootstrap_servers) as client:
        sender = Sender(client)
        sender.submit(ZERO, batch(b"v"))
        sender.flush()
        sender.close()
        assert broker.named("Produce")[0].version == highest
    assert appending.log == {0: [b"v"]}


def test_a_leader_that_moves_is_followed() -> None:
    first, second = Appending(before=lambda n: ErrorCode.NOT_LEADER_OR_FOLLOWER), Appending()
    with first.broker() as old, second.broker(node_id=2) as new, Client(old.bootstrap_servers) as client:
        old.nodes[2] = new.port
        client.topic("t")
        old.leaders["t", 0] = 2
        sender = Sender(client)
        for value in numbered(5):
            sender.submit(ZERO, batch(value))
        sender.flush()
        sender.close()
    assert second.log == {0: numbered(5)}
