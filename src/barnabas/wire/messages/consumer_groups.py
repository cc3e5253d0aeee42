"""ConsumerGroupHeartbeat: the one request by which members join, go on in and leave a consumer group (KIP-848)."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, structure


@structure
class TopicPartitions:
    topic_id: Annotated[bytes, "uuid"] = ZERO_UUID
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class ConsumerGroupHeartbeatRequest:
    group_id: Annotated[str, "string"] = ""
    member_id: Annotated[str, "string"] = ""
    member_epoch: Annotated[int, "int32"] = 0
    instance_id: Annotated[str | None, "string 0+ null 0+"] = None
    rack_id: Annotated[str | None, "string 0+ null 0+"] = None
    rebalance_timeout_ms: Annotated[int, "int32"] = -1
    subscribed_topic_names: Annotated[list[str] | None, "[]string 0+ null 0+"] = None
    subscribed_topic_regex: Annotated[str | None, "string 1+ null 1+"] = None
    server_assignor: Annotated[str | None, "string 0+ null 0+"] = None
    topic_partitions: Annotated[list[TopicPartitions] | None, "[] 0+ null 0+"] = None


@structure
class Assignment:
    topic_partitions: Annotated[list[TopicPartitions], "[]"] = field(default_factory=list)


@structure
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    member_id: Annotated[str | None, "string 0+ null 0+"] = None
    member_epoch: Annotated[int, "int32"] = 0
    heartbeat_interval_ms: Annotated[int, "int32"] = 0
    assignment: Annotated[Assignment | None, "struct 0+ null 0+"] = None
