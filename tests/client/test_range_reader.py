"""Reading a range: whole, with a request ahead, through failures, and never of another topic."""

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.connection import ConnectionFailedError
from barnabas.client.fetcher import FetchOptions, TopicRecreatedError
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.offsets import delete_records
from barnabas.client.producer import Producer
from barnabas.client.range_reader import RangeEndError, RangeReader
from barnabas.clock import ManualClock
from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.records.builder import build_batch
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.client.fake_broker import FakeBroker, Hangup, after

DEADLINE_SECONDS = 60
SMALL = FetchOptions(max_partition_fetch_bytes=2000)


def fill(client: Client, topic: str, count: int) -> TopicPartition:
    with Producer(client) as producer:
        for number in range(count):
            producer.send(topic, b"%5d" % number, partition=0)
            if number % 10 == 9:
                producer.flush()
    return TopicPartition(topic, 0)


def offsets_of(reader: RangeReader) -> list[int]:
    return [record.offset for fetched in reader for record in fetched.records()]


def reader_of(client: Client, partition: TopicPartition, start: int, end: int, **options: Any) -> RangeReader:
    options.setdefault("options", SMALL)
    return RangeReader(client, partition, client.topic(partition.topic).topic_id, start, end, **options)


def test_a_range_comes_whole_in_many_answers(client: Client, make_topic: Callable[..., str]) -> None:
    partition = fill(client, make_topic(), 500)
    offsets = offsets_of(reader_of(client, partition, 0, 500))
    assert offsets == list(range(500))
    # Batches come whole, so that some records behind the range may come with them.
    inner = offsets_of(reader_of(client, partition, 123, 247))
    assert inner[:124] == list(range(123, 247))
    assert len(inner) < 300
    assert offsets_of(reader_of(client, partition, 7, 7)) == []


def test_a_range_that_is_not_there_is_an_error(client: Client, make_topic: Callable[..., str]) -> None:
    partition = fill(client, make_topic(), 30)
    delete_records(client, {partition: 10})
    with pytest.raises(ApiError, match=r"OFFSET_OUT_OF_RANGE: fetching .* from offset 5"):
        offsets_of(reader_of(client, partition, 5, 30))
    with pytest.raises(RangeEndError, match="is to be read to offset 31, but it ends at 30"):
        offsets_of(reader_of(client, partition, 10, 31, options=FetchOptions(fetch_max_wait_ms=1), timeout_ms=1))


def test_another_topic_of_the_same_name_is_not_read(client: Client, make_topic: Callable[..., str]) -> None:
    partition = fill(client, make_topic(), 300)
    before = client.topic(partition.topic).topic_id
    reader = RangeReader(client, partition, before, 0, 300, SMALL)
    answers = iter(reader)
    next(answers)
    assert delete_topics(client, [partition.topic]) == {}
    with pytest.raises(UnknownTopicError):
        offsets_of(RangeReader(client, partition, before, 0, 300))
    assert create_topics(client, [NewTopic(name=partition.topic)]) == {}
    fill(client, partition.topic, 300)
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        for _ in answers:
            pass
    # Whoever does not know the id gets what there is, and a client that knows the old topic finds the new one.
    assert len(offsets_of(RangeReader(client, partition, ZERO_TOPIC_ID, 0, 300))) == 300


def test_a_partition_that_was_added_is_found_by_a_client_that_knows_the_old_ones(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with Client(bootstrap_servers) as other:
        topic_id = other.topic(topic).topic_id
        assert create_partitions(client, {topic: 2}) == {}
        with Producer(client) as producer:
            producer.send(topic, b"new", partition=1)
        assert offsets_of(RangeReader(other, TopicPartition(topic, 1), topic_id, 0, 1)) == [0]


def test_a_broker_that_comes_back_is_read_on() -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name="orders")]) == {}
        partition = fill(client, "orders", 300)
        reader = reader_of(client, partition, 0, 300)
        found = []
        for number, fetched in enumerate(reader):
            found += [record.offset for record in fetched.records()]
            if number == 0:
                broker.kill()
                broker.start()
        assert number > 1
        assert found == list(range(300))


# Against brokers that do what the test says.


def answer(message: Any, *, error_code: int = 0, records: bytes = b"", high_watermark: int = 100) -> Any:
    topic = message.topics[0]
    row = PartitionData(partition_index=0, error_code=error_code, records=records, high_watermark=high_watermark)
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[row])]
    )


def one_record(message: Any, version: int) -> Any:
    wanted = message.topics[0].partitions[0]
    return answer(message, records=bytes(build_batch([(1, None, b"v", ())], base_offset=wanted.fetch_offset)))


ORDERS = TopicPartition("orders", 0)


def test_the_next_request_is_sent_before_an_answer_is_used() -> None:
    was_sent = Event()

    def noting(message: Any, version: int) -> Any:
        if message.topics[0].partitions[0].fetch_offset == 1:
            was_sent.set()
        return one_record(message, version)

    with FakeBroker({"Fetch": noting}, topics={"orders": 1}) as broker, Client(broker.bootstrap_servers) as client:
        answers = iter(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3))
        next(answers)
        assert was_sent.wait(DEADLINE_SECONDS)
        assert [request.message.topics[0].partitions[0].fetch_offset for request in broker.named("Fetch")] == [0, 1]
        assert len(list(answers)) == 2
        assert len(broker.named("Fetch")) == 3


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, None])
def test_a_failure_that_may_pass_is_tried_again(code: ErrorCode | None) -> None:
    def failing(message: Any, version: int) -> Any:
        if len(broker.named("Fetch")) > 2:
            return one_record(message, version)
        return Hangup() if code is None else answer(message, error_code=code)

    clock = ManualClock()
    with (
        FakeBroker({"Fetch": failing}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers, clock=clock) as client,
    ):
        assert offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3)) == [0, 1, 2]


def test_a_hole_at_the_end_of_a_range_is_its_end() -> None:
    def hole_behind_1(message: Any, version: int) -> Any:
        wanted = message.topics[0].partitions[0].fetch_offset
        return one_record(message, version) if wanted < 2 else answer(message, high_watermark=50)

    with (
        FakeBroker({"Fetch": hole_behind_1}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        assert offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 50)) == [0, 1]
        with pytest.raises(RangeEndError, match="is to be read to offset 51, but it ends at 50"):
            offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 51))


def test_a_broker_that_brings_nothing_for_a_while_is_asked_again() -> None:
    """As one does whose disk is slow: what comes late is not taken for a hole."""
    asked: list[int] = []

    def slow(message: Any, version: int) -> Any:
        asked.append(1)
        return answer(message, high_watermark=3) if len(asked) < 5 else one_record(message, version)

    with (
        FakeBroker({"Fetch": slow}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        assert offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3)) == [0, 1, 2]


def test_an_answer_without_the_partition_is_asked_for_again() -> None:
    handler = after(FetchResponse(responses=[]), then=one_record)
    with (
        FakeBroker({"Fetch": handler}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        assert offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3)) == [0, 1, 2]
    with (
        FakeBroker({"Fetch": lambda *_: FetchResponse(responses=[])}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
        pytest.raises(RangeEndError, match="but the broker brings nothing"),
    ):
        offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3))


def test_a_leader_that_stays_away_is_said() -> None:
    clock = ManualClock()
    with (
        FakeBroker({"Fetch": lambda *_: Hangup()}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers, clock=clock) as client,
        pytest.raises(ConnectionFailedError),
    ):
        offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3))
    assert 60 <= clock.monotonic_seconds() < 65


def test_bytes_without_a_whole_batch_are_an_error() -> None:
    def cut(message: Any, version: int) -> Any:
        return answer(message, records=bytes(build_batch([(1, None, b"v", ())]))[:-1])

    with (
        FakeBroker({"Fetch": cut}, topics={"orders": 1}) as broker,
        Client(broker.bootstrap_servers) as client,
        pytest.raises(ApiError, match=r"CORRUPT_MESSAGE: orders-0 brought .* but no whole batch"),
    ):
        offsets_of(RangeReader(client, ORDERS, ZERO_TOPIC_ID, 0, 3))
