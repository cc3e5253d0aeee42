"""Where replicas lie, and moving them, as a client sees it."""

from pathlib import Path

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.log_dirs import ReplicaPlace, move_replicas, replica_places
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from tests.broker.turning import until

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def test_replicas_are_found_and_moved(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    with Broker(data=f"{a},{b}") as broker, Client(broker.bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name="orders", partitions=2)]) == {}
        with Producer(client) as producer:
            producer.send("orders", b"v", partition=0)
        assert sorted(place.log_dir for place in replica_places(client, ORDERS)) == [a, b]
        assert move_replicas(client, ORDERS, b) == {}
        until(lambda: {(it.log_dir, it.is_future) for it in replica_places(client, ORDERS)} == {(b, False)})
        first, second = replica_places(client, ORDERS)
        assert first.size_bytes > 0
        assert second == ReplicaPlace(partition=ORDERS[1], log_dir=b, size_bytes=0, offset_lag=0, is_future=False)
        failures = move_replicas(client, ORDERS[:1], "/no/such/directory")
        assert {name: error.code for name, error in failures.items()} == {ORDERS[0]: ErrorCode.LOG_DIR_NOT_FOUND}
