"""DescribeLogDirs and AlterReplicaLogDirs: what lies where."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.broker.asking import connected, create_topic, produce
from tests.broker.turning import on_loop, until_on_loop
from tests.storage.builders import batch_of


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two log directories, and a topic with a partition in each."""
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[0].mkdir()
    with Broker(in_process=True, data=",".join(map(str, folders))) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with connected(broker) as connection:
        yield connection


def described(connection: Connection, request: DescribeLogDirsRequest, version: int | None = None) -> dict[str, Any]:
    answer = connection.request(request, version)
    assert answer.error_code == ErrorCode.NONE
    return {Path(result.log_dir).name: result for result in answer.results}


def names_in(result: Any) -> list[tuple[str, int]]:
    return [(topic.name, one.partition_index) for topic in result.topics for one in topic.partitions]


@pytest.mark.parametrize("version", range(1, 6))
def test_every_directory_is_described_with_its_partitions(connection: Connection, version: int) -> None:
    size = len(batch_of(5))
    assert produce(connection, "orders", batch_of(5)).error_code == ErrorCode.NONE
    found = described(connection, DescribeLogDirsRequest(topics=None), version)
    assert sorted(found) == ["a", "b"]
    assert sorted(names_in(found["a"]) + names_in(found["b"])) == [("orders", 0), ("orders", 1)]
    sizes = {
        one.partition_index: (one.partition_size, one.offset_lag, one.is_future_key)
        for result in found.values()
        for topic in result.topics
        for one in topic.partitions
    }
    assert sizes == {0: (size, 0, False), 1: (0, 0, False)}
    for result in found.values():
        assert (result.total_bytes > result.usable_bytes > 0) if version >= 4 else result.total_bytes == -1


def test_only_the_partitions_that_are_asked_for_are_described(connection: Connection) -> None:
    asked = [
        DescribableLogDirTopic(topic="orders", partitions=[1, 9]),
        DescribableLogDirTopic(topic="unknown", partitions=[0]),
    ]
    found = described(connection, DescribeLogDirsRequest(topics=asked))
    assert sorted(names_in(found["a"]) + names_in(found["b"])) == [("orders", 1)]
    assert names_in(described(connection, DescribeLogDirsRequest(topics=[]))["a"]) == []


def test_a_directory_that_is_offline_is_told(broker: Broker, connection: Connection) -> None:
    manager = broker.server.services.log_manager
    gone = on_loop(broker, lambda: manager.directories[0])
    on_loop(broker, lambda: manager.fail_directory(gone, OSError(5, "Input/output error")))
    found = described(connection, DescribeLogDirsRequest(topics=None))
    assert found["a"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (found["a"].topics, found["b"].error_code) == ([], ErrorCode.NONE)


def move(connection: Connection, path: str, topic: str, *partitions: int) -> list[int]:
    wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))])
    (result,) = connection.request(AlterReplicaLogDirsRequest(dirs=[wanted])).results
    assert result.topic_name == topic
    assert [one.partition_index for one in result.partitions] == list(partitions)
    return [one.error_code for one in result.partitions]


def test_a_move_is_answered_partition_by_partition(broker: Broker, connection: Connection) -> None:
    manager = broker.server.services.log_manager
    own = on_loop(broker, lambda: manager.directory_of(next(iter(manager.current_logs))).path)
    index = on_loop(broker, lambda: next(iter(manager.current_logs)).partition)
    assert move(connection, own, "orders", index) == [ErrorCode.NONE]  # It is there already.
    assert move(connection, own, "orders", 1 - index, 9) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    until_on_loop(broker, lambda: not broker.server.services.replica_moves.running)
    found = described(connection, DescribeLogDirsRequest(topics=None))
    assert sorted(names_in(found[Path(own).name])) == [("orders", 0), ("orders", 1)]
    for path in ("/no/such/directory", "a\0b", ""):
        assert move(connection, path, "orders", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    gone = on_loop(broker, lambda: manager.directories[0])
    on_loop(broker, lambda: manager.fail_directory(gone, OSError(5, "Input/output error")))
    assert move(connection, gone.path, "orders", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
