"""TopicChanges: metadata and logs come together, after every crash between the two, and in any order of requests."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from barnabas.client.connection import Connection
from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.server.broker_server import METADATA_FILE
from barnabas.storage.files import OsFiles
from barnabas.storage.log_loading import PendingLog
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.asking import connected, create_topic, fetch, incremental, offsets_of, produce, topic_changes
from tests.broker.turning import on_loop, until_on_loop
from tests.storage.builders import batch_of


class Gate:
    """Lets logs be made in the pool when it is opened, and counts those that were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.begun: list[str] = []
        run = PendingLog.run

        def gated(pending: PendingLog) -> object:
            self.begun.append(str(pending.partition))
            assert self.open.wait(60)
            return run(pending)

        monkeypatch.setattr(PendingLog, "run", gated)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(in_process=True, data=tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with connected(broker) as connection:
        yield connection


def create_request(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def delete_request(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])


def extend_request(name: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])


def now() -> int:
    return SystemClock().now_ms()


# While it runs.


def test_a_topic_is_answered_when_its_logs_are_there(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    connection.send(create_request("orders", 3))
    until_on_loop(broker, lambda: len(gate.begun) == 3)
    assert "orders" in broker.server.services.cache.topics
    assert not connection.has_answer(0.02)
    gate.open.set()
    assert connection.receive().topics[0].error_code == ErrorCode.NONE
    for partition in range(3):
        assert produce(connection, "orders", batch_of(timestamp=now()), partition).error_code == ErrorCode.NONE


def test_a_change_of_settings_while_the_logs_are_made_makes_none_twice(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with connected(broker) as other:
        connection.send(create_request("orders", 2))
        until_on_loop(broker, lambda: len(gate.begun) == 2)
        other.send(incremental(topic_changes("orders", ("retention.ms", 0, "5"))))
        until_on_loop(broker, lambda: broker.server.services.cache.topics["orders"].config)
        gate.open.set()
        assert connection.receive().topics[0].error_code == ErrorCode.NONE
        assert other.receive().responses[0].error_code == ErrorCode.NONE
    assert sorted(gate.begun) == ["orders-0", "orders-1"]
    log = on_loop(broker, lambda: broker.server.services.replica_manager.partitions["orders", 1].log)
    assert log.config.retention_ms == 5


def test_more_partitions_while_the_first_are_made_are_all_there_in_the_end(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with connected(broker) as other:
        connection.send(create_request("orders", 1))
        until_on_loop(broker, lambda: gate.begun)
        other.send(extend_request("orders", 3))
        until_on_loop(broker, lambda: len(broker.server.services.cache.topics["orders"].partitions) == 3)
        assert not other.has_answer(0.02)
        gate.open.set()
        assert connection.receive().topics[0].error_code == ErrorCode.NONE
        assert other.receive().results[0].error_code == ErrorCode.NONE
        assert produce(other, "orders", batch_of(timestamp=now()), 2).error_code == ErrorCode.NONE
    assert sorted(gate.begun) == ["orders-0", "orders-1", "orders-2"]


def test_a_topic_that_is_deleted_while_its_logs_are_made_leaves_none(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with connected(broker) as other:
        connection.send(create_request("orders"))
        until_on_loop(broker, lambda: gate.begun)
        other.send(delete_request("orders"), 6)
        until_on_loop(broker, lambda: "orders" not in broker.server.services.cache.topics)
        gate.open.set()
        assert other.receive().responses[0].error_code == ErrorCode.NONE
        connection.receive()
        assert produce(connection, "orders", batch_of(timestamp=now())).error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    assert on_loop(broker, lambda: list(broker.server.services.log_manager.current_logs)) == []


def test_a_topic_that_takes_the_name_of_one_whose_logs_are_being_made_gets_its_own(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with connected(broker) as other:
        connection.send(create_request("orders"))
        until_on_loop(broker, lambda: gate.begun)
        other.send(delete_request("orders"), 6)
        other.send(create_request("orders"))
        until_on_loop(broker, lambda: "orders" not in broker.server.services.cache.topics)
        gate.open.set()
        connection.receive()
        (deleted,) = other.receive().responses
        assert deleted.error_code == ErrorCode.NONE
        (created,) = other.receive().topics
        assert created.error_code == ErrorCode.NONE
    answer = produce(connection, "orders", batch_of(timestamp=now()))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    partition = on_loop(broker, lambda: broker.server.services.replica_manager.partitions["orders", 0])
    assert partition.topic_id.bytes == created.topic_id


def test_a_topic_that_is_deleted_and_created_at_once_is_empty(connection: Connection) -> None:
    first = create_topic(connection, "orders")
    for _ in range(3):
        assert produce(connection, "orders", batch_of(timestamp=now())).base_offset == 0
        connection.request(delete_request("orders"), 6)
        assert create_topic(connection, "orders") != first


# At the start.


def stopped_with_topic(data: Path, name: str = "orders", partitions: int = 2) -> bytes:
    """A data directory with a topic that has a record in each partition."""
    with Broker(in_process=True, data=data) as broker, connected(broker) as connection:
        topic_id = create_topic(connection, name, partitions)
        for partition in range(partitions):
            produce(connection, name, batch_of(timestamp=now()), partition)
        return topic_id


def test_logs_that_are_missing_are_made_at_the_start(tmp_path: Path) -> None:
    stopped_with_topic(tmp_path)
    shutil.rmtree(tmp_path / "orders-1")
    with Broker(in_process=True, data=tmp_path) as broker, connected(broker) as connection:
        assert offsets_of(fetch(connection, "orders", 0)) == [0]
        assert offsets_of(fetch(connection, "orders", 0, partition=1)) == []
        assert produce(connection, "orders", batch_of(timestamp=now()), 1).base_offset == 0


def test_logs_of_a_topic_whose_deletion_was_cut_short_are_removed_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(in_process=True, data=tmp_path) as broker, connected(broker) as connection:
        create_topic(connection, "orders", 2)
        produce(connection, "orders", batch_of(timestamp=now()))
        # The metadata says that it is gone, and then the broker stops.
        on_loop(broker, lambda: setattr(broker.server.services.controller, "on_topic_deleted", lambda image: None))
        connection.request(delete_request("orders"), 6)
    assert (tmp_path / "orders-0").exists()
    with Broker(in_process=True, data=tmp_path) as broker, connected(broker) as connection:
        assert not (tmp_path / "orders-0").exists()
        assert broker.server.services.controller.pending_deletions == {}
        create_topic(connection, "orders")
        assert produce(connection, "orders", batch_of(timestamp=now())).base_offset == 0


def test_a_log_without_a_topic_is_kept_aside_with_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped_with_topic(tmp_path)
    (tmp_path / "orders-1").rename(tmp_path / "stray-0")
    (tmp_path / "stray-0" / "partition.metadata").unlink()
    with Broker(in_process=True, data=tmp_path):
        pass
    (kept,) = tmp_path.glob("stray-0.*-stray")
    assert [record.getMessage() for record in caplog.records if "belongs to no topic" in record.getMessage()] == [
        f"stray-0 belongs to no topic that is known here, and is kept as {kept}"
    ]
    assert list(kept.glob("*.log"))


def kafka_directory(data: Path, logs: dict[TopicPartition, UUID | None]) -> None:
    """A data directory as Kafka leaves one: logs with their ids, and no metadata of ours."""
    data.mkdir()
    manager = LogManager(
        LogManagerOptions(
            files=OsFiles(),
            clock=SystemClock(),
            config=LogManagerConfig(log_dirs=(str(data),)),
            topic_config=lambda topic: LogConfig(),
            identity={"node.id": "0", "cluster.id": "kafka-cluster-id-22-chr"},
        )
    )
    manager.take_directories()
    manager.start()
    for partition, topic_id in logs.items():
        log = manager.get_or_create_log(partition, topic_id)
        log.append_as_leader(memoryview(batch_of(2, timestamp=now())), 4)
        log.update_high_watermark(2)
    manager.shutdown()
    assert not (data / METADATA_FILE).exists()


def test_a_data_directory_of_kafka_is_taken_over_with_its_topic_ids(tmp_path: Path) -> None:
    orders, clicks = uuid4(), uuid4()
    data = tmp_path / "data"
    kafka_directory(
        data,
        {
            TopicPartition("orders", 0): orders,
            TopicPartition("orders", 2): orders,
            TopicPartition("clicks", 0): clicks,
            TopicPartition("old", 0): None,
        },
    )
    for _ in range(2):  # The second time as a directory of our own.
        with Broker(in_process=True, data=data) as broker, connected(broker) as connection:
            answer = connection.request(MetadataRequest(topics=None))
            assert answer.cluster_id == "kafka-cluster-id-22-chr"
            found = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in answer.topics}
            assert found["orders"] == (orders.bytes, 3)
            assert found["clicks"] == (clicks.bytes, 1)
            assert found["old"][1] == 1
            for name, partition in (("orders", 0), ("orders", 2), ("clicks", 0), ("old", 0)):
                assert offsets_of(fetch(connection, name, 0, partition)) == [0, 1]
            assert offsets_of(fetch(connection, "orders", 0, 1)) == []
