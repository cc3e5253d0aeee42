"""A broker whose disk fills up: who may still write, and that everything goes on by itself when there is room."""

import errno
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.broker.partition import ROOM_FOR_ALL, ROOM_FOR_NONE, ROOM_FOR_OWN
from barnabas.client.connection import Connection
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.storage.segment import ActiveSegment
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop, until, until_on_loop
from tests.storage.builders import batch_of
from tests.storage.memory_files import MemoryFiles

SETTINGS = {"offsets.topic.num.partitions": 1, "log.retention.ms": -1}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock, disk: MemoryFiles) -> Iterator[Broker]:
    with Broker(in_process=True, clock=clock, files=disk, data=tmp_path, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with connected(broker) as connection:
        yield connection


def room_of(broker: Broker, topic: str) -> int:
    return on_loop(broker, lambda: broker.server.services.replica_manager.partitions[topic, 0].room)


def commit(connection: Connection, offset: int) -> int:
    """Commit an offset of a group without members."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="billing", topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    )
    code: int = connection.request(request, 8).topics[0].partitions[0].error_code
    return code


def turned(clock: ManualClock, condition: Callable[[], bool]) -> Callable[[], bool]:
    """Look at a condition a second later every time."""

    def look() -> bool:
        clock.advance(1_000)
        return condition()

    return look


def until_committed(connection: Connection, offset: int) -> None:
    until(lambda: commit(connection, offset) == ErrorCode.NONE)


def fill_up(broker: Broker, connection: Connection, disk: MemoryFiles) -> None:
    """Let a write of a client find no room."""
    disk.fail_next_write(errno.ENOSPC, under=f"{broker.data}/orders-0")
    disk.fail("allocate", code=errno.ENOSPC, once=False)
    assert produce(connection, "orders", batch_of()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    until(lambda: room_of(broker, "orders") != ROOM_FOR_ALL)


def test_clients_are_refused_at_once_and_coordinators_are_not(
    broker: Broker,
    connection: Connection,
    clock: ManualClock,
    disk: MemoryFiles,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    create_topic(connection, "orders")
    assert produce(connection, "orders", batch_of()).error_code == ErrorCode.NONE
    connection_to_groups(connection)
    until_committed(connection, 1)
    fill_up(broker, connection, disk)
    writes = disk.steps
    for _ in range(10):
        assert produce(connection, "orders", batch_of()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.steps == writes
    assert offsets_of(fetch(connection, "orders", 0)) == [0]
    # There is room in the reserve for what lets consumers go on.
    assert room_of(broker, "orders") == ROOM_FOR_OWN
    assert commit(connection, 2) == ErrorCode.NONE
    disk.heal()
    clock.advance(1_000)
    until(lambda: room_of(broker, "orders") == ROOM_FOR_ALL)
    assert produce(connection, "orders", batch_of()).base_offset == 1
    said = [record.getMessage() for record in caplog.records if "full" in record.getMessage()]
    assert len(said) == 1
    assert caplog.text.count("has room again") == 1


def test_room_that_logs_have_reserved_is_given_back(broker: Broker, connection: Connection, disk: MemoryFiles) -> None:
    for topic in ("orders", "payments"):
        create_topic(connection, topic)
        assert produce(connection, topic, batch_of(50)).error_code == ErrorCode.NONE
        on_loop(broker, active_of(broker, topic).reserve_ahead)
    payments = disk.open(active_of(broker, "payments").segment.path)
    assert payments.has_room_ahead()
    fill_up(broker, connection, disk)
    assert not payments.has_room_ahead()
    assert offsets_of(fetch(connection, "payments", 0)) == list(range(50))


def active_of(broker: Broker, topic: str) -> ActiveSegment:
    return broker.server.services.replica_manager.partitions[topic, 0].log.active


def connection_to_groups(connection: Connection) -> None:
    """Have the topic of the group coordinator made."""
    until(lambda: connection.request(FindCoordinatorRequest(key="billing"), 2).error_code == ErrorCode.NONE)


def test_with_the_reserve_used_up_nobody_writes_and_nothing_is_lost(
    broker: Broker, connection: Connection, clock: ManualClock, disk: MemoryFiles
) -> None:
    create_topic(connection, "orders")
    connection_to_groups(connection)
    until_committed(connection, 1)
    disk.capacity_bytes -= disk.disk_space("/")[1]
    fill_up(broker, connection, disk)
    manager = broker.server.services.log_manager
    disk.capacity_bytes -= disk.disk_space("/")[1]  # Somebody else takes the room of the reserve.
    clock.advance(1_000)
    until(lambda: room_of(broker, "orders") == ROOM_FOR_NONE)
    assert commit(connection, 2) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    disk.heal()
    disk.capacity_bytes = 1 << 40
    until_on_loop(broker, turned(clock, lambda: not manager.directories[0].is_full))
    until_committed(connection, 3)
    assert produce(connection, "orders", batch_of()).error_code == ErrorCode.NONE


def test_what_could_not_be_flushed_is_flushed_when_there_is_room(
    broker: Broker, connection: Connection, clock: ManualClock, disk: MemoryFiles
) -> None:
    """The index of a sealed segment is written by its flush, which is no fsync that failed: it can be tried again."""
    create_topic(connection, "orders", config={"flush.messages": 1, "index.interval.bytes": 0})
    partition = on_loop(broker, lambda: broker.server.services.replica_manager.partitions["orders", 0])
    disk.fail("write", code=errno.ENOSPC, under=f"{broker.data}/orders-0/leader-epoch-checkpoint.tmp", once=False)
    disk.fail("allocate", code=errno.ENOSPC, once=False)
    manager = broker.server.services.log_manager
    answers: list[int] = []

    def ask() -> None:
        with connected(broker) as another:
            answers.append(produce(another, "orders", batch_of()).error_code)

    asking = threading.Thread(target=ask)
    asking.start()
    until_on_loop(broker, lambda: manager.directories[0].is_full)
    assert on_loop(broker, lambda: manager.directories[0].failure) is None
    disk.heal()
    until_on_loop(broker, turned(clock, lambda: not manager.directories[0].is_full))
    asking.join(60)
    assert answers == [ErrorCode.NONE]
    assert on_loop(broker, lambda: partition.log.recovery_point) == 1


def test_a_directory_that_fails_while_it_is_full_is_offline(tmp_path: Path) -> None:
    disk, clock = MemoryFiles(), ManualClock()
    folders = f"{tmp_path}/a,{tmp_path}/b"
    (tmp_path / "a").mkdir()
    broker = Broker(in_process=True, clock=clock, files=disk, data=folders, settings=SETTINGS)
    with broker, connected(broker) as connection:
        create_topic(connection, "orders", 2)
        disk.fail_next_write(errno.ENOSPC, under=f"{tmp_path}/b")
        lost = 0 if disk.exists(f"{tmp_path}/b/orders-0") else 1
        assert produce(connection, "orders", batch_of(), lost).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        watch = broker.server._disk_watch
        assert watch is not None
        until_on_loop(broker, lambda: bool(watch._watched))
        disk.fail("allocate", code=errno.EIO, under=f"{tmp_path}/b", once=False)
        until_on_loop(broker, turned(clock, lambda: not watch._watched))
        partitions = broker.server.services.replica_manager.partitions
        assert ("orders", lost) not in on_loop(broker, lambda: dict(partitions))
        assert produce(connection, "orders", batch_of(), 1 - lost).error_code == ErrorCode.NONE
