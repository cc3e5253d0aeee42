"""Members of groups, by a client of the field: they hold what they are assigned until the block ends.

with member_of(bootstrap_servers, "billing", "orders", protocol="consumer") as member:
    member.commit(offsets=[...])
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

from barnabas.clock import SystemClock

PROTOCOLS = ("classic", "consumer")
CLIENT_ID = "a-client"
DEADLINE_SECONDS = 60


@contextmanager
def member_of(bootstrap_servers: str, group_id: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """The only member of a group, which has all partitions of a topic."""
    with _subscribed(bootstrap_servers, group_id, topic, protocol) as consumer:
        _poll_until(consumer, lambda: bool(consumer.assignment()))
        yield consumer


@contextmanager
def idle_member_of(bootstrap_servers: str, group_id: str, topic: str, is_there: Callable[[], bool]) -> Iterator[None]:
    """The only member of a group, which has nothing, because the topic does not exist."""
    # By the classic protocol, librdkafka joins only when the topic is there.
    with _subscribed(bootstrap_servers, group_id, topic, "consumer") as consumer:
        _poll_until(consumer, is_there)
        yield


@contextmanager
def _subscribed(bootstrap_servers: str, group_id: str, topic: str, protocol: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "group.protocol": protocol,
            "client.id": CLIENT_ID,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def _poll_until(consumer: Consumer, is_reached: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline = clock.monotonic_seconds() + DEADLINE_SECONDS
    while not is_reached():
        consumer.poll(0.1)
        assert clock.monotonic_seconds() < deadline, "the member has not come so far in time"


def commit_as(consumer: Consumer, topic: str, offset: int, metadata: str = "") -> None:
    """Commit an offset of partition 0 as a member."""
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
