"""What a client knows of a cluster: its brokers, and the topics that were asked for, with the leader of each partition.

It is read from a Metadata answer and is a picture of one moment; `client` decides when to take a new one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from barnabas.client.answers import check_answer
from barnabas.client.connection import ClientError
from barnabas.client.options import Address
from barnabas.model import ZERO_TOPIC_ID
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NO_NODE = -1


class UnknownTopicError(ClientError):
    """The cluster has no such topic, or the topic has no such partition."""


class UnknownPartitionError(UnknownTopicError):
    """The topic has no such partition."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        has = f"partitions 0 to {count - 1}" if count > 1 else "only partition 0"
        super().__init__(f"topic {topic!r} has {has}, but no {partition}")
        self.topic = topic
        self.partition = partition
        self.count = count

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.partition, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker, by the address that it wants clients to use."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """Where the replicas of a partition are. `leader_id` is NO_NODE while there is none."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic and its partitions, in order. Brokers from before topic ids give the zero id."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]

    @property
    def has_topic_id(self) -> bool:
        """Whether the topic can be named by its id."""
        return self.topic_id != ZERO_TOPIC_ID

    @property
    def replication_factor(self) -> int:
        """How many replicas the partitions have; that of the first, where they differ."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """One answer: brokers by id, topics by name, and the error code of each topic that was not found."""

    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicMetadata]
    missing: Mapping[str, int]


def metadata_request(topics: Sequence[str] | None, *, allow_auto_topic_creation: bool, version: int) -> MetadataRequest:
    """Return the question for these topics, for no topic at all if there are none, or for all topics if None."""
    # Version 0 has no null, and an empty list means all topics; then there are only too many in the answer.
    names = [] if topics is None and version == 0 else topics
    return MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=allow_auto_topic_creation,
    )


def read_metadata(answer: Any) -> ClusterMetadata:
    """Read a Metadata answer of any version."""
    check_answer(answer.error_code, "the broker answers Metadata with an error")
    return ClusterMetadata(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        nodes={
            node.node_id: Node(node_id=node.node_id, address=Address(node.host, node.port), rack=node.rack)
            for node in answer.brokers
        },
        topics={topic.name: _read_topic(topic) for topic in answer.topics if topic.error_code == ErrorCode.NONE},
        missing={topic.name: topic.error_code for topic in answer.topics if topic.error_code != ErrorCode.NONE},
    )


def _read_topic(topic: Any) -> TopicMetadata:
    partitions = (
        # An error of a single partition is LEADER_NOT_AVAILABLE or a replica that is away, and is seen in the fields.
        PartitionMetadata(
            partition=partition.partition_index,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replicas=tuple(partition.replica_nodes),
            isr=tuple(partition.isr_nodes),
            offline_replicas=tuple(partition.offline_replicas),
        )
        for partition in topic.partitions
    )
    return TopicMetadata(
        name=topic.name,
        topic_id=UUID(bytes=bytes(topic.topic_id)),
        is_internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda partition: partition.partition)),
    )
