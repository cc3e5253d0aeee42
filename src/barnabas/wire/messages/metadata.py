"""Metadata, DescribeCluster, DescribeTopicPartitions: brokers, topics and who leads what."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, structure


@structure
class MetadataRequestTopic:
    topic_id: Annotated[bytes, "uuid 10+"] = ZERO_UUID
    name: Annotated[str | None, "string 0+ null 10+"] = ""


@structure
class MetadataRequest:
    topics: Annotated[list[MetadataRequestTopic] | None, "[] 0+ null 1+"] = field(default_factory=list)
    allow_auto_topic_creation: Annotated[bool, "bool 4+"] = True
    include_cluster_authorized_operations: Annotated[bool, "bool 8-10"] = False
    include_topic_authorized_operations: Annotated[bool, "bool 8+"] = False


@structure
class MetadataResponseBroker:
    node_id: Annotated[int, "int32"] = 0
    host: Annotated[str, "string"] = ""
    port: Annotated[int, "int32"] = 0
    rack: Annotated[str | None, "string 1+ null 1+"] = None


@structure
class MetadataResponsePartition:
    error_code: Annotated[int, "int16"] = 0
    partition_index: Annotated[int, "int32"] = 0
    leader_id: Annotated[int, "int32"] = 0
    leader_epoch: Annotated[int, "int32 7+"] = -1
    replica_nodes: Annotated[list[int], "[]int32"] = field(default_factory=list)
    isr_nodes: Annotated[list[int], "[]int32"] = field(default_factory=list)
    offline_replicas: Annotated[list[int], "[]int32 5+"] = field(default_factory=list)


@structure
class MetadataResponseTopic:
    error_code: Annotated[int, "int16"] = 0
    name: Annotated[str | None, "string 0+ null 12+"] = ""
    topic_id: Annotated[bytes, "uuid 10+"] = ZERO_UUID
    is_internal: Annotated[bool, "bool 1+"] = False
    partitions: Annotated[list[MetadataResponsePartition], "[]"] = field(default_factory=list)
    topic_authorized_operations: Annotated[int, "int32 8+"] = -2147483648


@structure
class MetadataResponse:
    throttle_time_ms: Annotated[int, "int32 3+"] = 0
    brokers: Annotated[list[MetadataResponseBroker], "[]"] = field(default_factory=list)
    cluster_id: Annotated[str | None, "string 2+ null 2+"] = None
    controller_id: Annotated[int, "int32 1+"] = -1
    topics: Annotated[list[MetadataResponseTopic], "[]"] = field(default_factory=list)
    cluster_authorized_operations: Annotated[int, "int32 8-10"] = -2147483648
    error_code: Annotated[int, "int16 13+"] = 0


@structure
class DescribeClusterRequest:
    include_cluster_authorized_operations: Annotated[bool, "bool"] = False
    endpoint_type: Annotated[int, "int8 1+"] = 1
    include_fenced_brokers: Annotated[bool, "bool 2+"] = False


@structure
class DescribeClusterBroker:
    broker_id: Annotated[int, "int32"] = 0
    host: Annotated[str, "string"] = ""
    port: Annotated[int, "int32"] = 0
    rack: Annotated[str | None, "string 0+ null 0+"] = None
    is_fenced: Annotated[bool, "bool 2+"] = False


@structure
class DescribeClusterResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    endpoint_type: Annotated[int, "int8 1+"] = 1
    cluster_id: Annotated[str, "string"] = ""
    controller_id: Annotated[int, "int32"] = -1
    brokers: Annotated[list[DescribeClusterBroker], "[]"] = field(default_factory=list)
    cluster_authorized_operations: Annotated[int, "int32"] = -2147483648


@structure
class TopicRequest:
    name: Annotated[str, "string"] = ""


@structure
class Cursor:
    topic_name: Annotated[str, "string"] = ""
    partition_index: Annotated[int, "int32"] = 0


@structure
class DescribeTopicPartitionsRequest:
    topics: Annotated[list[TopicRequest], "[]"] = field(default_factory=list)
    response_partition_limit: Annotated[int, "int32"] = 2000
    cursor: Annotated[Cursor | None, "struct 0+ null 0+"] = None


@structure
class DescribeTopicPartitionsResponsePartition:
    error_code: Annotated[int, "int16"] = 0
    partition_index: Annotated[int, "int32"] = 0
    leader_id: Annotated[int, "int32"] = 0
    leader_epoch: Annotated[int, "int32"] = -1
    replica_nodes: Annotated[list[int], "[]int32"] = field(default_factory=list)
    isr_nodes: Annotated[list[int], "[]int32"] = field(default_factory=list)
    eligible_leader_replicas: Annotated[list[int] | None, "[]int32 0+ null 0+"] = None
    last_known_elr: Annotated[list[int] | None, "[]int32 0+ null 0+"] = None
    offline_replicas: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class DescribeTopicPartitionsResponseTopic:
    error_code: Annotated[int, "int16"] = 0
    name: Annotated[str | None, "string 0+ null 0+"] = ""
    topic_id: Annotated[bytes, "uuid"] = ZERO_UUID
    is_internal: Annotated[bool, "bool"] = False
    partitions: Annotated[list[DescribeTopicPartitionsResponsePartition], "[]"] = field(default_factory=list)
    topic_authorized_operations: Annotated[int, "int32"] = -2147483648


@structure
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    topics: Annotated[list[DescribeTopicPartitionsResponseTopic], "[]"] = field(default_factory=list)
    next_cursor: Annotated[Cursor | None, "struct 0+ null 0+"] = None
