"""Producing: what we write other clients read the same, and batches are as large as they should be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.fetcher import Fetcher
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.producer import Producer, ProducerOptions
from barnabas.client.sender import ACKS_LEADER, ACKS_NONE, Delivered, ProduceError, SendOptions
from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from tests.client.brokers import topic_name
from tests.client.test_fetcher import DEADLINE_SECONDS, RECORDS, START_MS, expected_records, read_all


def produce_all(client: Client, topic: str, options: ProducerOptions | None = None) -> None:
    with Producer(client, options) as producer:
        for number, (key, value, headers) in enumerate(RECORDS):
            encoded = [(name.encode(), content) for name, content in headers]
            producer.send(topic, value, key=key, headers=encoded, timestamp=START_MS + number, partition=0)


@pytest.mark.parametrize("codec", list(Codec))
def test_confluent_kafka_reads_what_we_write(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str], codec: Codec
) -> None:
    topic = make_topic()
    produce_all(client, topic, ProducerOptions(codec=codec, batch_size=2_000))
    settings: dict[str, str | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": topic,
        # Without these it would look for a coordinator when it is closed.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([ConfluentPartition(topic, 0, 0)])
        found: list[tuple[Any, ...]] = []
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, "the end was not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                break
            found.append((message.timestamp()[1], message.key(), message.value(), message.headers() or []))
    finally:
        consumer.close()
    assert found == [(START_MS + n, key, value, headers) for n, (key, value, headers) in enumerate(RECORDS)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_what_we_write(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str], codec: Codec
) -> None:
    topic = make_topic()
    produce_all(client, topic, ProducerOptions(codec=codec))
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", check_crcs=True)
    try:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        found: list[tuple[Any, ...]] = []
        deadline = SystemClock().monotonic_seconds() + DEADLINE_SECONDS
        while len(found) < len(RECORDS):
            assert SystemClock().monotonic_seconds() < deadline, "the end was not reached"
            for records in consumer.poll(timeout_ms=500).values():
                found += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
    finally:
        consumer.close()
    assert found == [(n, START_MS + n, key, value, headers) for n, (key, value, headers) in enumerate(RECORDS)]


@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_NONE])
def test_less_than_all_acknowledgements_are_enough_where_asked_for(
    client: Client, make_topic: Callable[..., str], acks: int
) -> None:
    topic = make_topic()
    produce_all(client, topic, ProducerOptions(sending=SendOptions(acks=acks)))
    fetcher = Fetcher(client, {TopicPartition(topic, 0): 0})
    found: list[Record] = []
    deadline = client.clock.monotonic_seconds() + DEADLINE_SECONDS
    while len(found) < len(RECORDS):
        assert client.clock.monotonic_seconds() < deadline
        for fetched in fetcher.poll():
            found += fetched.records()
    assert found == expected_records()


def test_keys_land_where_others_put_them(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    ours, theirs = make_topic(partitions=7), make_topic(partitions=7)
    keys = [b"key %d" % number for number in range(200)]
    with Producer(client) as producer:
        for key in keys:
            producer.send(ours, b"v", key=key)
    kafka_python = KafkaProducer(bootstrap_servers=bootstrap_servers)
    try:
        for key in keys:
            kafka_python.send(theirs, b"v", key)
        kafka_python.flush(DEADLINE_SECONDS)
    finally:
        kafka_python.close()

    def keys_of(topic: str) -> dict[int, list[bytes | None]]:
        return {partition: [record.key for record in records] for partition, records in read_all(client, topic).items()}

    assert keys_of(ours) == keys_of(theirs)


def test_records_without_a_key_go_to_all_partitions_a_batch_each(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=3)
    delivered: list[Delivered] = []
    with Producer(client, ProducerOptions(batch_records_max=10), delivered.append) as producer:
        for _ in range(60):
            producer.send(topic, b"v")
        producer.flush()
        assert producer.records_acknowledged == 60
    assert {each.count for each in delivered} == {10}
    assert {partition: len(records) for partition, records in read_all(client, topic).items()} == {0: 20, 1: 20, 2: 20}


def test_nothing_is_written_before_a_batch_is_full_or_flushed(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    delivered: list[Delivered] = []
    producer = Producer(client, ProducerOptions(batch_size=1_000), delivered.append)
    producer.send(topic, b"x" * 400)
    producer.send(topic, b"x" * 400)
    assert read_all(client, topic) == {0: []}
    producer.send(topic, b"x" * 400)  # It does not fit any more, so that the first two go.
    producer.flush()
    producer.send(topic, b"x" * 5_000)  # Larger than a batch: it is one of its own.
    producer.flush()
    producer.close()
    assert [each.count for each in delivered] == [2, 1, 1]


def test_memory_of_open_batches_is_bounded(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=20)
    options = ProducerOptions(batch_size=100_000, sending=SendOptions(buffer_memory=10_000))
    with Producer(client, options) as producer:
        for number in range(20):
            producer.send(topic, b"x" * 1_000, partition=number)
        producer.flush()
        assert producer.records_acknowledged == 20


def test_a_record_that_the_topic_refuses_is_said_on_flush(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(**{"max.message.bytes": "1000"})
    producer = Producer(client)
    producer.send(topic, b"x" * 5_000)
    with pytest.raises(ProduceError, match=f"1 record was not acknowledged by {topic}-0: MESSAGE_TOO_LARGE"):
        producer.flush()
    producer.send(topic, b"small")
    producer.flush()
    assert producer.records_acknowledged == 1
    producer.close()


def test_a_topic_is_made_by_writing_only_where_that_is_asked_for(client: Client) -> None:
    topic = topic_name("auto")
    with Producer(client) as producer, pytest.raises(UnknownTopicError, match=f"there is no topic '{topic}'"):
        producer.send(topic, b"v")
    with Producer(client, ProducerOptions(allow_auto_topic_creation=True)) as producer:
        producer.send(topic, b"v")
        with pytest.raises(UnknownTopicError, match=f"topic '{topic}' has partitions 0 to 2, but no 3"):
            producer.send(topic, b"v", partition=3)
    assert sum(len(records) for records in read_all(client, topic).values()) == 1


def test_a_broker_that_is_killed_and_comes_back_has_every_record_once(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name="t", partitions=2)]) == {}
        with Producer(client, ProducerOptions(batch_records_max=5)) as producer:
            for number in range(2_000):
                producer.send("t", b"%d" % number, partition=number % 2)
                if number in (500, 1_501):
                    broker.kill()
                    broker.start()
        found = {
            partition: [record.value for record in records] for partition, records in read_all(client, "t").items()
        }
    assert found == {half: [b"%d" % number for number in range(half, 2_000, 2)] for half in (0, 1)}
