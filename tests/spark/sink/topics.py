"""Topics to write to, and what a client of the field reads from them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.clock import SystemClock

DEADLINE_SECONDS = 60


class Read(NamedTuple):
    """A record as it was read."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Sequence[str | bytes | None], ...]
    timestamp: int


def make_topic(bootstrap_servers: str, partitions: int = 3, configs: Mapping[str, str] | None = None) -> str:
    """Create a topic of a name that no other has."""
    name = f"topic-{uuid4().hex[:8]}"
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=partitions, configs=dict(configs or {}))]) == {}
    return name


def read_topic(bootstrap_servers: str, topic: str) -> list[Read]:
    """Everything that is committed, by partition and in order; waits until no transaction is open."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "isolation.level": "read_committed"}
    )
    records: list[Read] = []
    deadline = SystemClock().monotonic_seconds() + DEADLINE_SECONDS
    try:
        partitions = consumer.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions
        for number in sorted(partitions):
            end = consumer.get_watermark_offsets(TopicPartition(topic, number), DEADLINE_SECONDS)[1]
            consumer.assign([TopicPartition(topic, number, 0)])
            while consumer.position([TopicPartition(topic, number)])[0].offset < end and end > 0:
                assert SystemClock().monotonic_seconds() < deadline, f"{topic}-{number} is not read to its end, {end}"
                message = consumer.poll(0.2)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                time = message.timestamp()[1]
                records.append(Read(number, message.key(), message.value(), headers, time))
    finally:
        consumer.close()
    return records


def values(records: list[Read]) -> Counter[bytes | None]:
    """How often each value was read."""
    return Counter(record.value for record in records)
