"""DescribeLogDirs: v1-5, what lies where. AlterReplicaLogDirs: v1-2, moving a replica to another log directory.

DescribeLogDirs answers every log directory with the partitions that were asked for (null: all), their sizes and, from
version 4 on, the room on the disk (KIP-827). A directory that is offline has KAFKA_STORAGE_ERROR. A log on its way
into a directory is there too, with is_future_key and how many offsets it lacks.

AlterReplicaLogDirs begins moves and does not wait for them (broker/replica_moves.py). Naming the directory that a log
is in ends its move. A partition that is not here is refused; Kafka also remembers the wish until the partition comes.
"""

import os

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.model import TopicPartition
from barnabas.storage.future_log import FutureLog
from barnabas.storage.log_directory import LogDirectory
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle_describe_log_dirs(
    broker: Services, request: Request, body: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Answer each directory by itself."""
    asked = None
    if body.topics is not None:
        asked = {(topic.topic, partition) for topic in body.topics for partition in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(broker, directory, asked) for directory in broker.log_manager.directories]
    )


def _describe(broker: Services, directory: LogDirectory, asked: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path)
    if directory.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.total_bytes, result.usable_bytes = _room(directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    manager = broker.log_manager
    current = [(it.partition, it.log.size_bytes) for it in manager.current_logs.values() if it.directory is directory]
    current += [(one.partition, one.size_bytes) for one in manager.loading.in_directory(directory)]
    moves = [move for move in broker.replica_moves.running.values() if move.target is directory]
    found = [
        *((name, DescribeLogDirsPartition(partition_index=name.partition, partition_size=it)) for name, it in current),
        *((move.name, _future(move.name, move.future)) for move in moves),
    ]
    for name, partition in found:
        if asked is None or name in asked:
            topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic)).partitions.append(partition)
    result.topics = list(topics.values())
    return result


def _future(name: TopicPartition, future: FutureLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=name.partition,
        partition_size=future.size_bytes,
        offset_lag=future.offset_lag,
        is_future_key=True,
    )


def _room(path: str) -> tuple[int, int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return -1, -1
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def handle_alter_replica_log_dirs(
    broker: Services, request: Request, body: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Answer each partition by itself."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in body.dirs:
        for asked in directory.topics:
            result = topics.setdefault(asked.name, AlterReplicaLogDirTopicResult(topic_name=asked.name))
            for index in asked.partitions:
                one = AlterReplicaLogDirPartitionResult(partition_index=index)
                try:
                    _move(broker, TopicPartition(asked.name, index), directory.path)
                except ApiError as error:
                    one.error_code = int(error.code)
                result.partitions.append(one)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(broker: Services, name: TopicPartition, path: str) -> None:
    """Begin to move a replica; the move goes on after the answer."""
    try:
        wanted = os.path.realpath(path)
    except ValueError:  # It has a zero byte in it.
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path!r} is no path") from None
    target = next((one for one in broker.log_manager.directories if one.path == wanted), None)
    if target is None:
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of log.dirs")
    if target.failure is not None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
    partition = broker.replica_manager.partition(name.topic, name.partition)
    broker.replica_moves.request(partition, target)
