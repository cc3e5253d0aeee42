"""A running group moves from the classic protocol to the consumer protocol (KIP-848) and back, with real consumers."""

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas import Broker
from tests.broker.turning import until

PARTITIONS = 6


class Members:
    """Consumers of one group, each on a thread, and what they have and have seen."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._threads: dict[str, threading.Thread] = {}
        self._leaving: set[str] = set()
        self.assigned: dict[str, list[int]] = {}
        self.seen: set[bytes] = set()

    def join(self, protocol: str, name: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "group.id": "moving",
            "auto.offset.reset": "earliest",
            "group.protocol": protocol,
            "client.id": name,
        }
        if protocol == "classic":
            settings |= {
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                # Not cooperative-sticky: from its third generation on librdkafka adds data of its own to assignments,
                # and a group that has such data is refused, as Kafka does, because the data would be lost.
                "partition.assignment.strategy": "range",
            }
        thread = threading.Thread(target=self._consume, args=(settings, name))
        self._threads[name] = thread
        thread.start()

    def _consume(self, settings: dict[str, Any], name: str) -> None:
        consumer = Consumer(settings)
        try:
            consumer.subscribe(["orders"])
            while name not in self._leaving:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    value = message.value()
                    assert value is not None
                    self.seen.add(value)
                self.assigned[name] = [one.partition for one in consumer.assignment()]
        finally:
            consumer.close()
            self.assigned.pop(name, None)

    def leave(self, *names: str) -> None:
        self._leaving.update(names)
        for name in names:
            self._threads[name].join(60)
            assert not self._threads[name].is_alive()

    def share_all_partitions(self, count: int) -> Callable[[], bool]:
        def is_so() -> bool:
            assigned = list(self.assigned.values())
            owned = sorted(partition for partitions in assigned for partition in partitions)
            return len(assigned) == count and all(assigned) and owned == list(range(PARTITIONS))

        return is_so


def test_a_group_moves_to_the_consumer_protocol_and_back_while_it_reads() -> None:
    with Broker(settings={"group.consumer.heartbeat.interval.ms": 300}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        members = Members(broker.bootstrap_servers)
        sent: set[bytes] = set()

        def settle(count: int, kind: ConsumerGroupType) -> None:
            """Wait until so many members share all partitions, and let them read something."""
            until(members.share_all_partitions(count))
            (group,) = admin.list_consumer_groups().result().valid
            assert group.type == kind
            batch = {f"{len(sent) + number}".encode() for number in range(60)}
            for value in batch:
                producer.produce("orders", value)
            producer.flush()
            sent.update(batch)
            until(lambda: members.seen >= sent)

        try:
            members.join("classic", "first")
            members.join("classic", "second")
            settle(2, ConsumerGroupType.CLASSIC)
            members.join("consumer", "third")
            settle(3, ConsumerGroupType.CONSUMER)
            members.join("consumer", "fourth")
            settle(4, ConsumerGroupType.CONSUMER)
            members.leave("first")
            settle(3, ConsumerGroupType.CONSUMER)
            members.leave("third", "fourth")
            settle(1, ConsumerGroupType.CLASSIC)
        finally:
            members.leave("second")
        assert members.seen == sent
