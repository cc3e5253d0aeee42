"""ListOffsets and OffsetForLeaderEpoch: which offset a time, an end of a log or a leader epoch has."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.asking import produce
from tests.broker.turning import append, on_loop
from tests.storage.builders import batch_of, sent_by

Topic = Callable[..., str]
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


def ask(connection: Connection, name: str, *times: int, version: int | None = None, **fields: Any) -> list[Any]:
    """Ask for times of partition 0, one after the other."""
    found = []
    for time in times:
        asked = ListOffsetsPartition(partition_index=0, timestamp=time, **fields.get("partition", {}))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=fields.get("isolation_level", 0),
            topics=[ListOffsetsTopic(name=name, partitions=[asked])],
        )
        (topic,) = connection.request(request, version).topics
        assert topic.name == name
        found.append(topic.partitions[0])
    return found


def offsets(connection: Connection, name: str, *times: int, **fields: Any) -> list[tuple[int, int]]:
    found = ask(connection, name, *times, **fields)
    assert [one.error_code for one in found] == [ErrorCode.NONE] * len(times)
    return [(one.timestamp, one.offset) for one in found]


@pytest.fixture
def now(broker: Broker) -> int:
    return broker.server.services.clock.now_ms() - 100_000


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_knows_the_ends_and_times(connection: Connection, topic: Topic, now: int, version: int) -> None:
    name = topic()
    assert offsets(connection, name, LATEST, EARLIEST, now, version=version) == [(-1, 0), (-1, 0), (-1, -1)]
    for number in range(3):
        produce(connection, name, batch_of(2, timestamp=now + 10 * number))
    assert offsets(connection, name, LATEST, EARLIEST, version=version) == [(-1, 6), (-1, 0)]
    # Records have times now, now + 1, now + 10, now + 11, now + 20, now + 21.
    assert offsets(connection, name, 0, now, now + 1, now + 2, now + 21, now + 22, version=version) == [
        (now, 0),
        (now, 0),
        (now + 1, 1),
        (now + 10, 2),
        (now + 21, 5),
        (-1, -1),
    ]


def test_the_start_moves_with_deleted_records(connection: Connection, topic: Topic, now: int) -> None:
    name = topic()
    produce(connection, name, batch_of(5, timestamp=now))
    deleted = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
    connection.request(DeleteRecordsRequest(topics=[deleted]))
    assert offsets(connection, name, EARLIEST, EARLIEST_LOCAL) == [(-1, 3), (-1, 3)]
    ((_, offset),) = offsets(connection, name, 0)
    assert offset == 3


def test_the_record_with_the_largest_time_is_found(connection: Connection, topic: Topic, now: int) -> None:
    name = topic()
    assert offsets(connection, name, MAX_TIMESTAMP) == [(-1, -1)]
    for time in (now, now + 500, now + 100):
        produce(connection, name, batch_of(2, timestamp=time))
    assert offsets(connection, name, MAX_TIMESTAMP) == [(now + 501, 3)]


def test_nothing_is_tiered(connection: Connection, topic: Topic, now: int) -> None:
    name = topic()
    produce(connection, name, batch_of(timestamp=now))
    assert offsets(connection, name, LATEST_TIERED, PENDING_UPLOAD) == [(-1, -1), (-1, -1)]


@pytest.mark.parametrize(
    ("time", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
def test_a_special_time_needs_its_version(connection: Connection, topic: Topic, time: int, since: int) -> None:
    name = topic()
    (before,) = ask(connection, name, time, version=since - 1)
    assert (before.error_code, before.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    (after,) = ask(connection, name, time, version=since)
    assert after.error_code == ErrorCode.NONE


def test_a_time_that_nobody_knows_is_refused(connection: Connection, topic: Topic) -> None:
    (found,) = ask(connection, topic(), -7)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_read_committed_ends_at_the_last_stable_offset(
    connection: Connection, broker: Broker, topic: Topic, now: int
) -> None:
    name = topic()
    produce(connection, name, batch_of(2, timestamp=now))
    append(broker, name, sent_by(7, 0, transactional=True, timestamp=now + 50))
    assert offsets(connection, name, LATEST, now + 50) == [(-1, 3), (now + 50, 2)]
    assert offsets(connection, name, LATEST, now + 50, isolation_level=1) == [(-1, 2), (-1, -1)]


def test_the_epoch_of_an_offset_is_told_from_version_4_on(
    connection: Connection, broker: Broker, topic: Topic, now: int
) -> None:
    name = topic()
    produce(connection, name, batch_of(2, timestamp=now))
    partition = broker.server.services.replica_manager.partitions[name, 0]
    on_loop(broker, lambda: partition.make_leader(0, 3, [0], [0]))
    produce(connection, name, batch_of(2, timestamp=now + 50))
    found = ask(connection, name, EARLIEST, now + 1, now + 50, LATEST, now + 99, version=4)
    assert [one.leader_epoch for one in found] == [0, 0, 3, 3, -1]
    assert ask(connection, name, LATEST, version=3)[0].leader_epoch == -1


def test_each_partition_is_answered_by_itself(connection: Connection, topic: Topic) -> None:
    name = topic(partitions=2)
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 5, 1, 1)]
    partitions.append(ListOffsetsPartition(partition_index=0, timestamp=LATEST))
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(name=name, partitions=partitions[:2]),
            ListOffsetsTopic(name="no-such-topic", partitions=[partitions[4]]),
        ]
    )
    known, unknown = connection.request(request).topics
    assert [one.error_code for one in known.partitions] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[*partitions[2:4], partitions[0]])])
    (twice,) = connection.request(request).topics
    assert [one.error_code for one in twice.partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


def test_the_leader_epoch_is_compared(connection: Connection, topic: Topic) -> None:
    name = topic()
    for epoch, code in [(0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)]:
        (found,) = ask(connection, name, LATEST, partition={"current_leader_epoch": epoch})
        assert found.error_code == code


# OffsetForLeaderEpoch.


def epoch_ends(connection: Connection, name: str, *epochs: int, version: int = 4, current: int = -1) -> list[Any]:
    partitions = [
        OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current) for epoch in epochs
    ]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=partitions)])
    (topic,) = connection.request(request, version).topics
    assert topic.topic == name
    return list(topic.partitions)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_the_next_begins(
    connection: Connection, broker: Broker, topic: Topic, now: int, version: int
) -> None:
    name = topic()
    partition = broker.server.services.replica_manager.partitions[name, 0]
    produce(connection, name, batch_of(2, timestamp=now))
    for epoch in (3, 5):
        on_loop(broker, lambda epoch=epoch: partition.make_leader(0, epoch, [0], [0]))  # type: ignore[misc]
        produce(connection, name, batch_of(2, timestamp=now))
    found = epoch_ends(connection, name, 0, 2, 3, 4, 5, 6, version=version)
    assert [(one.leader_epoch, one.end_offset) for one in found] == [
        (0, 2),
        (0, 2),
        (3, 4),
        (3, 4),
        (5, 6),
        (-1, -1),  # It lies in the future.
    ]


def test_an_epoch_of_what_is_not_here_is_an_error(connection: Connection, topic: Topic) -> None:
    (unknown,) = epoch_ends(connection, "no-such-topic", 0)
    assert (unknown.error_code, unknown.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    (ahead,) = epoch_ends(connection, topic(), 0, current=7)
    assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
