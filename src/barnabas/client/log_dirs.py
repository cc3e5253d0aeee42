"""Asks brokers which log directory a replica lies in, and to move it to another. Functions over a `Client`.

Rule 1: a broker answers a move before it is done. Until the replica is there, a second one is on its way (future).
"""

from collections.abc import Collection
from dataclasses import dataclass

from barnabas.client.answers import error_of
from barnabas.client.client import Client
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """A replica in a log directory."""

    partition: TopicPartition
    log_dir: str
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether it is on its way into the directory."""


def move_replicas(client: Client, partitions: Collection[TopicPartition], path: str) -> dict[TopicPartition, ApiError]:
    """Begin to move replicas of one topic, on the brokers that lead them, and return the errors by partition."""
    failures = {}
    for leader, led in client.by_leader(partitions).items():
        topic = AlterReplicaLogDirTopic(name=led[0].topic, partitions=[one.partition for one in led])
        question = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        for result in client.connection_to(leader).request(question).results:
            for row in result.partitions:
                if row.error_code != ErrorCode.NONE:
                    name = TopicPartition(result.topic_name, row.partition_index)
                    failures[name] = error_of(row.error_code, f"{name} can not be moved to {path}")
    return failures


def replica_places(client: Client, partitions: Collection[TopicPartition]) -> list[ReplicaPlace]:
    """Return where replicas of one topic are, and where they are on their way to."""
    found = []
    for leader, led in client.by_leader(partitions).items():
        topic = DescribableLogDirTopic(topic=led[0].topic, partitions=[one.partition for one in led])
        for result in client.connection_to(leader).request(DescribeLogDirsRequest(topics=[topic])).results:
            found += [
                ReplicaPlace(
                    partition=TopicPartition(one.name, row.partition_index),
                    log_dir=result.log_dir,
                    size_bytes=row.partition_size,
                    offset_lag=row.offset_lag,
                    is_future=row.is_future_key,
                )
                for one in result.topics
                for row in one.partitions
            ]
    return sorted(found, key=lambda place: (place.partition, place.is_future))
