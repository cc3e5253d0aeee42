"""Fetching: what other clients wrote comes back the same, and what goes wrong is mended or said."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer

from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.connection import ConnectionFailedError
from barnabas.client.fetcher import Fetcher, FetchOptions, TopicRecreatedError
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.offsets import EARLIEST, LATEST, IsolationLevel, delete_records, offsets_at
from barnabas.client.producer import Producer
from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.schema import Versions
from tests.client.fake_broker import FakeBroker, Hangup, after

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = 1_700_000_000_000
DEADLINE_SECONDS = 60

# (key, value, headers) with everything that is special about records.
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"", b"", [("empty", b""), ("null", None), ("twice", b"1"), ("twice", b"2")]),
    (b"\xff\x00", b"\x00\xff" * 50, [("h\u00e9", b"\xff")]),
    *[(b"%d" % number, b"value %d " % number * 20, []) for number in range(200)],
]


def read_all(client: Client, topic: str, options: FetchOptions | None = None) -> dict[int, list[Record]]:
    """Every record of a topic, by partition."""
    options = options or FetchOptions()
    partitions = [TopicPartition(topic, p.partition) for p in client.topic(topic).partitions]
    ends = offsets_at(client, partitions, LATEST, options.isolation_level)
    fetcher = Fetcher(client, offsets_at(client, partitions, EARLIEST), options)
    found: dict[int, list[Record]] = {partition.partition: [] for partition in partitions}
    deadline = client.clock.monotonic_seconds() + DEADLINE_SECONDS
    while any(fetcher.positions[partition] < end for partition, end in ends.items()):
        assert client.clock.monotonic_seconds() < deadline, "the end was not reached"
        for fetched in fetcher.poll():
            found[fetched.partition.partition] += fetched.records()
    return found


def expected_records() -> list[Record]:
    return [
        Record(offset, START_MS + offset, key, value, tuple((name.encode(), content) for name, content in headers))
        for offset, (key, value, headers) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_confluent_kafka_wrote_comes_back(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic()
    producer = ConfluentProducer({"bootstrap.servers": bootstrap_servers, "compression.type": codec, "linger.ms": 50})
    for number, (key, value, headers) in enumerate(RECORDS):
        producer.produce(topic, value, key, timestamp=START_MS + number, headers=list(headers))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert read_all(client, topic) == {0: expected_records()}


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_kafka_python_wrote_comes_back(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic()
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, compression_type=None if codec == "none" else codec, linger_ms=50
    )
    try:
        for number, (key, value, headers) in enumerate(RECORDS):
            # It has no null in headers.
            headers = [(name, content or b"") for name, content in headers]
            producer.send(topic, value, key, headers=headers, timestamp_ms=START_MS + number)
        producer.flush(DEADLINE_SECONDS)
    finally:
        producer.close()
    expected = [
        record._replace(headers=tuple((name, content or b"") for name, content in record.headers))
        for record in expected_records()
    ]
    assert read_all(client, topic) == {0: expected}


def test_small_answers_bring_everything_too(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    with Producer(client) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number + b"." * 500, partition=number % 3)
            if number % 7 == 0:
                producer.flush()
    found = read_all(client, topic, FetchOptions(max_partition_fetch_bytes=2_000, fetch_max_bytes=3_000))
    values = {p: [int(record.value.split(b".")[0]) for record in rs if record.value] for p, rs in found.items()}
    assert values == {number: list(range(number, 300, 3)) for number in range(3)}


def test_a_position_in_the_middle_and_elsewhere(client: Client, make_topic: Callable[..., str]) -> None:
    partition = TopicPartition(make_topic(), 0)
    with Producer(client) as producer:
        for number in range(10):
            producer.send(partition.topic, b"%d" % number)
    fetcher = Fetcher(client, {partition: 7})
    (fetched,) = fetcher.poll()
    assert [record.offset for record in fetched.records()] == [7, 8, 9]
    assert (fetched.high_watermark, fetched.log_start_offset) == (10, 0)
    assert fetcher.positions == {partition: 10}
    assert [list(each.records()) for each in fetcher.poll(max_wait_ms=10)] == [[]]
    fetcher.seek(partition, 9)
    assert [record.offset for each in fetcher.poll() for record in each.records()] == [9]
    fetcher.drop(partition)
    assert fetcher.poll() == []


def test_a_consumer_of_committed_records_sees_no_others(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producer = ConfluentProducer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"id of {topic}"})
    producer.init_transactions(DEADLINE_SECONDS)
    for number, is_committed in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d.%d" % (number, part))
            producer.flush(DEADLINE_SECONDS)
        if is_committed:
            producer.commit_transaction(DEADLINE_SECONDS)
        else:
            producer.abort_transaction(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(DEADLINE_SECONDS)
    committed = FetchOptions(isolation_level=IsolationLevel.READ_COMMITTED)
    values = [record.value for record in read_all(client, topic, committed)[0]]
    assert values == [b"0.0", b"0.1", b"0.2", b"2.0", b"2.1", b"2.2"]
    assert len(read_all(client, topic)[0]) == 13
    producer.abort_transaction(DEADLINE_SECONDS)


def test_an_offset_out_of_range_is_an_error_or_a_new_beginning(client: Client, make_topic: Callable[..., str]) -> None:
    partition = TopicPartition(make_topic(), 0)
    with Producer(client) as producer:
        for number in range(10):
            producer.send(partition.topic, b"%d" % number)
    delete_records(client, {partition: 4})
    with pytest.raises(ApiError, match=f"OFFSET_OUT_OF_RANGE: fetching {partition} from offset 2"):
        Fetcher(client, {partition: 2}).poll()
    fetcher = Fetcher(client, {partition: 2}, FetchOptions(auto_offset_reset="earliest"))
    assert fetcher.poll() == []
    assert fetcher.positions == {partition: 4}
    fetcher = Fetcher(client, {partition: 99}, FetchOptions(auto_offset_reset="latest"))
    fetcher.poll()
    assert fetcher.positions == {partition: 10}


def test_a_topic_that_is_deleted_or_made_anew_is_noticed(client: Client, make_topic: Callable[..., str]) -> None:
    partition = TopicPartition(make_topic(), 0)
    fetcher = Fetcher(client, {partition: 0})
    fetcher.poll(max_wait_ms=10)
    assert delete_topics(client, [partition.topic]) == {}
    with pytest.raises(UnknownTopicError):
        fetcher.poll(max_wait_ms=10)
    assert create_topics(client, [NewTopic(name=partition.topic)]) == {}
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        fetcher.poll(max_wait_ms=10)


# Against brokers that do what the test says.


def answer_for(message: Any, version: int, *, error_code: int = 0, records: bytes = b"", partition: int = 0) -> Any:
    topic = message.topics[0]
    row = PartitionData(partition_index=partition, error_code=error_code, records=records, high_watermark=5)
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[row])]
    )


def one_record(message: Any, version: int) -> Any:
    wanted = message.topics[0].partitions[0]
    data = bytes(build_batch([(1, None, b"v", ())], base_offset=wanted.fetch_offset))
    return answer_for(message, version, records=data, partition=wanted.partition)


@pytest.mark.parametrize("highest", [4, 6, 7, 11, 12, 13, 18])
def test_every_version_brings_records(highest: int) -> None:
    partition = TopicPartition("t", 0)
    with FakeBroker({"Fetch": one_record}, topics={"t": 1}, versions={"Fetch": Versions(0, highest)}) as broker:
        with Client(broker.bootstrap_servers) as client:
            fetcher = Fetcher(client, {partition: 41})
            assert [record.offset for each in fetcher.poll() for record in each.records()] == [41]
        assert broker.named("Fetch")[0].version == highest


def test_topics_are_named_where_the_broker_has_no_ids() -> None:
    with FakeBroker({"Fetch": one_record}, topics={"t": 1}) as broker, Client(broker.bootstrap_servers) as client:
        broker.topic_ids["t"] = bytes(16)
        assert len(Fetcher(client, {TopicPartition("t", 0): 0}).poll()) == 1
        assert broker.named("Fetch")[0].version == 12


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, None])
def test_a_failure_that_may_pass_is_tried_again(code: ErrorCode | None) -> None:
    def failing(message: Any, version: int) -> Any:
        if len(broker.named("Fetch")) > 1:
            return one_record(message, version)
        return Hangup() if code is None else answer_for(message, version, error_code=code)

    clock = ManualClock()
    with FakeBroker({"Fetch": failing}, topics={"t": 1}) as broker:
        with Client(broker.bootstrap_servers, clock=clock) as client:
            fetcher = Fetcher(client, {TopicPartition("t", 0): 0})
            assert fetcher.poll() == []
            assert clock.monotonic_seconds() == 0.1
            assert len(fetcher.poll()) == 1
        assert len(broker.named("Metadata")) == 2


def test_a_failure_that_does_not_pass_is_raised_at_the_end() -> None:
    clock = ManualClock()

    def failing(message: Any, version: int) -> Any:
        return answer_for(message, version, error_code=ErrorCode.KAFKA_STORAGE_ERROR)

    with (
        FakeBroker({"Fetch": failing}, topics={"t": 1}) as broker,
        Client(broker.bootstrap_servers, clock=clock) as client,
    ):
        fetcher = Fetcher(client, {TopicPartition("t", 0): 0})
        with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR: fetching t-0 from offset 0"):
            while True:
                assert fetcher.poll() == []
    assert 60 <= clock.monotonic_seconds() < 65


def test_all_leaders_are_asked_before_the_first_answer_is_waited_for() -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with (
        FakeBroker({"Fetch": one_record}, topics={"t": 2}) as first,
        FakeBroker({"Fetch": one_record}, topics={"t": 2}, node_id=2) as second,
    ):
        first.nodes[2], first.leaders["t", 1] = second.port, 2
        with Client(first.bootstrap_servers) as client:
            fetcher = Fetcher(client, dict.fromkeys(partitions, 7))
            assert {fetched.partition for fetched in fetcher.poll()} == set(partitions)
            second.close()
            # One leader is gone: the other goes on meanwhile.
            fetched = fetcher.poll()
            assert [each.partition for each in fetched] == [partitions[0]]
            assert fetcher.positions == {partitions[0]: 9, partitions[1]: 8}


def test_a_leader_that_is_gone_for_too_long_is_said() -> None:
    clock = ManualClock()
    with (
        FakeBroker({"Fetch": lambda *_: Hangup()}, topics={"t": 1}) as broker,
        Client(broker.bootstrap_servers, clock=clock) as client,
    ):
        fetcher = Fetcher(client, {TopicPartition("t", 0): 0})
        with pytest.raises(ConnectionFailedError, match="closed the connection before it answered Fetch"):
            while True:
                assert fetcher.poll() == []
    assert clock.monotonic_seconds() >= 60


def test_bytes_without_a_whole_batch_are_an_error() -> None:
    whole = bytes(build_batch([(1, None, b"v", ())]))

    def cut(message: Any, version: int) -> Any:
        return answer_for(message, version, records=whole[:-1])

    with (
        FakeBroker({"Fetch": cut}, topics={"t": 1}) as broker,
        Client(broker.bootstrap_servers) as client,
        pytest.raises(ApiError, match="but no whole batch"),
    ):
        Fetcher(client, {TopicPartition("t", 0): 0}).poll()


def test_a_part_of_a_batch_behind_others_is_fetched_again() -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    whole = bytes(build_batch([(1, None, b"v", ())]))

    def first_whole(message: Any, version: int) -> Any:
        topic = message.topics[0]
        rows = [
            PartitionData(partition_index=wanted.partition, records=whole if number == 0 else whole[:-1])
            for number, wanted in enumerate(topic.partitions)
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=rows)])

    with FakeBroker({"Fetch": first_whole}, topics={"t": 2}) as broker, Client(broker.bootstrap_servers) as client:
        fetcher = Fetcher(client, dict.fromkeys(partitions, 0))
        for expected in ({partitions[0]: 1, partitions[1]: 0}, {partitions[0]: 1, partitions[1]: 1}):
            fetcher.poll()
            assert fetcher.positions == expected
        asked = [[wanted.partition for wanted in r.message.topics[0].partitions] for r in broker.named("Fetch")]
        assert asked == [[0, 1], [1, 0]], "what brought something goes to the end"


def test_an_error_of_the_whole_answer_concerns_every_partition() -> None:
    broken = FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    with (
        FakeBroker({"Fetch": after(broken, then=one_record)}, topics={"t": 1}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        fetcher = Fetcher(client, {TopicPartition("t", 0): 0})
        assert (fetcher.poll(), len(fetcher.poll())) == ([], 1)
