"""ReplicaManager: partitions come and go with the metadata; the disk is waited for, and a broken one goes offline."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.connection import Connection
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.storage.log_types import PendingFlush
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from barnabas.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic, fetch, fetch_request, offsets_of, produce, produce_request
from tests.broker.turning import on_loop, until_on_loop
from tests.storage.builders import batch_of, refused
from tests.storage.memory_files import MemoryFiles

DURABLE = {"flush.messages": 1}


class Gate:
    """Lets flushes begin in the pool, and end when it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.begun = 0
        run = PendingFlush.run

        def gated(flush: PendingFlush) -> None:
            self.begun += 1
            assert self.open.wait(60)
            run(flush)

        monkeypatch.setattr(PendingFlush, "run", gated)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock, disk: MemoryFiles) -> Iterator[Broker]:
    folders = ",".join(str(tmp_path / name) for name in ("a", "b"))
    (tmp_path / "a").mkdir()
    with Broker(in_process=True, clock=clock, files=disk, data=folders) as broker:
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with connected(broker) as connection:
        yield connection


def high_watermark(broker: Broker, topic: str) -> int:
    return on_loop(
        broker, lambda: broker.server.services.replica_manager.partitions[topic, 0].log.high_watermark.message_offset
    )


def leaders_of(connection: Connection, topic: str) -> list[tuple[int, int]]:
    """The leader and the error of each partition, of which both APIs tell the same."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (found,) = connection.request(asked).topics
    leaders = [(one.leader_id, one.error_code) for one in found.partitions]
    described = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)], response_partition_limit=100)
    (found,) = connection.request(described).topics
    assert [(one.leader_id, one.error_code) for one in found.partitions] == leaders
    return leaders


# The disk is waited for.


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_an_append_is_answered_and_seen_after_its_fsync(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    create_topic(connection, "orders", config=DURABLE)
    gate = Gate(monkeypatch)
    connection.send(produce_request("orders", {0: batch_of(3)}, acks=acks), 9)
    until_on_loop(broker, lambda: gate.begun == 1)
    assert not connection.has_answer(0.02)
    assert high_watermark(broker, "orders") == 0
    with connected(broker) as reader:
        assert offsets_of(fetch(reader, "orders", 0)) == []
    gate.open.set()
    assert connection.receive().responses[0].partition_responses[0].base_offset == 0
    assert high_watermark(broker, "orders") == 3


def test_appends_that_wait_together_share_an_fsync(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "orders", config=DURABLE)
    gate = Gate(monkeypatch)
    connection.send(produce_request("orders", {0: batch_of()}), 9)
    until_on_loop(broker, lambda: gate.begun == 1)
    for _ in range(10):
        connection.send(produce_request("orders", {0: batch_of()}), 9)
    until_on_loop(broker, lambda: broker.server.services.replica_manager.delayed_produce.size == 11)
    gate.open.set()
    answers = [connection.receive().responses[0].partition_responses[0] for _ in range(11)]
    assert [answer.base_offset for answer in answers] == list(range(11))
    assert gate.begun == 2


def test_two_partitions_that_wait_for_the_disk_do_not_wait_for_each_other(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "orders", 2, config=DURABLE)
    gate = Gate(monkeypatch)
    for partition in (0, 0, 1, 1, 0, 1):
        connection.send(produce_request("orders", {partition: batch_of()}), 9)
        until_on_loop(broker, lambda: True)
    gate.open.set()
    for _ in range(6):
        assert connection.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_produce_whose_time_is_over_is_told_so_and_its_records_stay(
    broker: Broker, connection: Connection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "orders", config=DURABLE)
    gate = Gate(monkeypatch)
    connection.send(produce_request("orders", {0: batch_of()}, timeout_ms=500), 9)
    until_on_loop(broker, lambda: gate.begun == 1)
    clock.advance(500)
    (answer,) = connection.receive().responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    gate.open.set()
    until_on_loop(
        broker,
        lambda: broker.server.services.replica_manager.partitions["orders", 0].log.high_watermark.message_offset == 1,
    )
    assert offsets_of(fetch(connection, "orders", 0)) == [0]


def test_a_fetch_is_woken_by_the_fsync_and_not_by_the_append(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "orders", config=DURABLE)
    gate = Gate(monkeypatch)
    with connected(broker) as reader:
        reader.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
        until_on_loop(broker, lambda: broker.server.services.replica_manager.delayed_fetch.size == 1)
        connection.send(produce_request("orders", {0: batch_of()}), 9)
        until_on_loop(broker, lambda: gate.begun == 1)
        assert not reader.has_answer(0.02)
        gate.open.set()
        assert offsets_of(reader.receive().responses[0].partitions[0]) == [0]
        connection.receive()


# A broken disk.


def test_a_failed_fsync_takes_its_directory_offline_with_all_who_wait(
    broker: Broker, connection: Connection, disk: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "orders", 2, config=DURABLE)  # One partition in each directory.
    services = broker.server.services
    folder = on_loop(broker, lambda: services.replica_manager.partitions["orders", 0].log.directory)
    gate = Gate(monkeypatch)
    disk.fail_next_sync(under=folder)
    with connected(broker) as reader:
        reader.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
        until_on_loop(broker, lambda: services.replica_manager.delayed_fetch.size == 1)
        connection.send(produce_request("orders", {0: batch_of()}), 9)
        gate.open.set()
        (answer,) = connection.receive().responses[0].partition_responses
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert reader.receive().responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(connection, "orders", batch_of()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(connection, "orders", batch_of(), partition=1).error_code == ErrorCode.NONE
    assert offsets_of(fetch(connection, "orders", 0, partition=1)) == [0]


def test_a_failed_write_takes_its_directory_offline(broker: Broker, connection: Connection, disk: MemoryFiles) -> None:
    create_topic(connection, "orders", 2)
    folder = on_loop(broker, lambda: broker.server.services.replica_manager.partitions["orders", 0].log.directory)
    disk.fail_next_write(errno.EIO, under=folder)
    for _ in range(2):
        assert produce(connection, "orders", batch_of()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(connection, "orders", batch_of(), partition=1).error_code == ErrorCode.NONE


def test_a_full_disk_is_written_to_again_when_there_is_room(
    broker: Broker, connection: Connection, clock: ManualClock, disk: MemoryFiles
) -> None:
    create_topic(connection, "orders")
    watch = broker.server._disk_watch
    assert watch is not None
    for _ in range(2):  # The short way knows the partition the second time.
        disk.fail("write", code=errno.ENOSPC, after_bytes=20, once=False)
        assert produce(connection, "orders", batch_of()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        until_on_loop(broker, lambda: len(watch._watched) == 1)
        disk.heal()
        clock.advance(1_000)
        until_on_loop(broker, lambda: not any(it.is_full for it in broker.server.services.log_manager.directories))
        assert produce(connection, "orders", batch_of()).error_code == ErrorCode.NONE
    assert offsets_of(fetch(connection, "orders", 0)) == [0, 1]
    stats = broker.server.services.replica_manager.topic_stats.topic("orders")
    assert (stats.failed_produce_requests, stats.bytes_rejected) == (2, 0)


def test_the_last_directory_that_fails_is_fatal(tmp_path: Path, disk: MemoryFiles) -> None:
    with Broker(in_process=True, files=disk, data=tmp_path) as broker, connected(broker) as connection:
        fatal: list[str] = []
        object.__setattr__(broker.server.services.replica_manager._options, "on_fatal", fatal.append)
        create_topic(connection, "orders")
        now = broker.server.services.clock.now_ms()
        disk.fail("write", code=errno.EIO, under=str(tmp_path))
        assert produce(connection, "orders", batch_of(timestamp=now)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(fatal) == 1
        assert "no log directory is left" in fatal[0]


def test_a_log_that_can_not_be_made_is_the_answer_to_its_topic(
    broker: Broker, connection: Connection, disk: MemoryFiles
) -> None:
    disk.fail("make_directory", code=errno.ENOSPC)
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    (result,) = connection.request(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    # The metadata came first: it exists, and is not here yet.
    assert produce(connection, "orders", batch_of()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("operation", ["make_directory", "open", "write", "sync_directory"])
def test_logs_that_found_no_room_are_made_where_there_is_some(
    broker: Broker, connection: Connection, clock: ManualClock, disk: MemoryFiles, operation: str
) -> None:
    folder = broker.server.services.log_manager.directories[1].path  # The metadata is in the other one.
    disk.fail(operation, "allocate", code=errno.ENOSPC, under=folder, once=False)
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    (result,) = connection.request(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert leaders_of(connection, "orders") == [(0, 0), (-1, ErrorCode.LEADER_NOT_AVAILABLE)]
    partitions = broker.server.services.replica_manager.partitions
    assert not disk.exists(f"{folder}/orders-1")
    clock.advance(10_000)
    until_on_loop(broker, lambda: ("orders", 1) in partitions)
    assert leaders_of(connection, "orders") == [(0, 0), (0, 0)]
    for index in range(2):
        batch = batch_of(timestamp=clock.now_ms())
        assert produce(connection, "orders", batch, index).error_code == ErrorCode.NONE


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES])
def test_a_directory_in_which_no_log_can_be_made_is_offline_alone(
    broker: Broker,
    connection: Connection,
    clock: ManualClock,
    disk: MemoryFiles,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    folder = broker.server.services.log_manager.directories[1].path
    disk.fail("write", code=code, under=folder, once=False)
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    (result,) = connection.request(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert caplog.text.count(f"{folder} failed and is offline until a restart") == 1
    clock.advance(10_000)
    partitions = broker.server.services.replica_manager.partitions
    until_on_loop(broker, lambda: len(partitions) == 2)
    assert leaders_of(connection, "orders") == [(0, 0), (0, 0)]


def test_a_deleted_topic_is_not_tried_again(
    broker: Broker, connection: Connection, clock: ManualClock, disk: MemoryFiles
) -> None:
    disk.fail("make_directory", code=errno.ENOSPC)
    connection.request(
        CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
    )
    connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
    clock.advance(10_000)
    changes = broker.server.services.topic_changes
    until_on_loop(broker, lambda: not changes._incomplete)
    assert on_loop(broker, lambda: list(broker.server.services.log_manager.current_logs)) == []


# Deletion.


def test_topics_that_are_deleted_together_are_settled_together_before_their_names_are_free(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"topic-{number}" for number in range(50)]
    for name in names:
        create_topic(connection, name)
    services = broker.server.services
    settle = services.log_manager.settle_deletions
    settled: list[set[str]] = []

    def note() -> bool:
        markers = set(services.controller._store.tree.children("/admin/delete_topics"))
        assert set(services.controller.pending_deletions) <= markers
        settled.append(markers)
        return settle()

    monkeypatch.setattr(services.log_manager, "settle_deletions", note)
    answer = connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names]), 6)
    assert {one.error_code for one in answer.responses} == {ErrorCode.NONE}
    assert set().union(*settled) == set(names)
    # The first commit has one topic, the next those that came while it was made, on a slow disk a few more follow.
    assert len(settled) < len(names) / 4
    for name in names:
        create_topic(connection, name)


def test_a_deletion_that_the_disk_refuses_is_told_and_stays_in_the_metadata(
    broker: Broker, connection: Connection, disk: MemoryFiles
) -> None:
    create_topic(connection, "orders", 2)
    services = broker.server.services
    disk.fail("sync_directory", under=services.log_manager.directories[1].path)
    answer = connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
    assert answer.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert on_loop(broker, lambda: list(services.controller.pending_deletions)) == ["orders"]
    assert on_loop(broker, lambda: services.controller._store.tree.children("/admin/delete_topics")) == ["orders"]


# Which partitions there are.


def test_a_partition_that_is_not_here_is_told_apart(broker: Broker, connection: Connection) -> None:
    create_topic(connection, "orders")
    manager = broker.server.services.replica_manager
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders-1"):
        manager.partition("orders", 1)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        manager.partition("orders", -1)
    removed = on_loop(broker, lambda: manager.partitions.pop(("orders", 0)))
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not yet"):
        manager.partition("orders", 0)
    manager.partitions["orders", 0] = removed


def test_who_waits_for_a_partition_is_answered_when_its_topic_is_deleted(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(connection, "orders", config=DURABLE)
    gate = Gate(monkeypatch)
    with connected(broker) as reader, connected(broker) as writer:
        reader.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
        writer.send(produce_request("orders", {0: batch_of()}), 9)
        until_on_loop(broker, lambda: gate.begun == 1)
        until_on_loop(broker, lambda: broker.server.services.replica_manager.delayed_fetch.size == 1)
        connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
        assert reader.receive().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (answer,) = writer.receive().responses[0].partition_responses
        assert answer.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        gate.open.set()
    manager = broker.server.services.replica_manager
    assert on_loop(broker, lambda: (manager.delayed_fetch.size, manager.delayed_produce.size)) == (0, 0)


def test_a_broker_that_stops_answers_who_waits(tmp_path: Path) -> None:
    with Broker(in_process=True, data=tmp_path) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        connection.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
        until_on_loop(broker, lambda: broker.server.services.replica_manager.delayed_fetch.size == 1)
        broker.stop()
        assert connection.receive().responses[0].partitions[0].error_code == ErrorCode.NONE
