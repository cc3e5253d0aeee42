"""The records of `__consumer_offsets`: committed offsets, classic groups, and consumer groups (KIP-848).

Which number stands for which kind, and which versions are written, is in coordination/records.py. Names and order of
the fields are Kafka's.
"""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, structure


@structure
class OffsetCommitKey:
    group: Annotated[str, "string 0"] = ""
    topic: Annotated[str, "string 0"] = ""
    partition: Annotated[int, "int32 0"] = 0


@structure
class OffsetCommitValue:
    offset: Annotated[int, "int64"] = 0
    leader_epoch: Annotated[int, "int32 3+"] = -1
    metadata: Annotated[str, "string"] = ""
    commit_timestamp: Annotated[int, "int64"] = 0
    expire_timestamp: Annotated[int, "int64 1"] = -1
    topic_id: Annotated[bytes, "uuid 4+ tag 0"] = ZERO_UUID


@structure
class GroupMetadataKey:
    group: Annotated[str, "string 0"] = ""


@structure
class MemberMetadata:
    member_id: Annotated[str, "string"] = ""
    group_instance_id: Annotated[str | None, "string 3+ null 3+"] = None
    client_id: Annotated[str, "string"] = ""
    client_host: Annotated[str, "string"] = ""
    rebalance_timeout: Annotated[int, "int32 1+"] = -1
    session_timeout: Annotated[int, "int32"] = 0
    subscription: Annotated[bytes, "bytes"] = b""
    assignment: Annotated[bytes, "bytes"] = b""


@structure
class GroupMetadataValue:
    protocol_type: Annotated[str, "string"] = ""
    generation: Annotated[int, "int32"] = 0
    protocol: Annotated[str | None, "string 0+ null 0+"] = None
    leader: Annotated[str | None, "string 0+ null 0+"] = None
    current_state_timestamp: Annotated[int, "int64 2+"] = -1
    members: Annotated[list[MemberMetadata], "[]"] = field(default_factory=list)


@structure
class ConsumerGroupMetadataKey:
    group_id: Annotated[str, "string 0"] = ""


@structure
class ConsumerGroupMetadataValue:
    epoch: Annotated[int, "int32"] = 0
    metadata_hash: Annotated[int, "int64 0+ tag 0"] = 0


@structure
class ConsumerGroupPartitionMetadataKey:
    group_id: Annotated[str, "string 0"] = ""


@structure
class ConsumerGroupMemberMetadataKey:
    group_id: Annotated[str, "string 0"] = ""
    member_id: Annotated[str, "string 0"] = ""


@structure
class ClassicProtocol:
    name: Annotated[str, "string"] = ""
    metadata: Annotated[bytes, "bytes"] = b""


@structure
class ClassicMemberMetadata:
    session_timeout_ms: Annotated[int, "int32"] = 0
    supported_protocols: Annotated[list[ClassicProtocol], "[]"] = field(default_factory=list)


@structure
class ConsumerGroupMemberMetadataValue:
    instance_id: Annotated[str | None, "string 0+ null 0+"] = None
    rack_id: Annotated[str | None, "string 0+ null 0+"] = None
    client_id: Annotated[str, "string"] = ""
    client_host: Annotated[str, "string"] = ""
    subscribed_topic_names: Annotated[list[str], "[]string"] = field(default_factory=list)
    subscribed_topic_regex: Annotated[str | None, "string 0+ null 0+"] = None
    rebalance_timeout_ms: Annotated[int, "int32"] = -1
    server_assignor: Annotated[str | None, "string 0+ null 0+"] = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, "struct 0+ null 0+ tag 0"] = None


@structure
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: Annotated[str, "string 0"] = ""


@structure
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Annotated[int, "int32"] = 0
    assignment_timestamp: Annotated[int, "int64 0+ tag 0"] = 0


@structure
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: Annotated[str, "string 0"] = ""
    member_id: Annotated[str, "string 0"] = ""


@structure
class TargetPartitions:
    topic_id: Annotated[bytes, "uuid"] = ZERO_UUID
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Annotated[list[TargetPartitions], "[]"] = field(default_factory=list)


@structure
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: Annotated[str, "string 0"] = ""
    member_id: Annotated[str, "string 0"] = ""


@structure
class OwnedPartitions:
    topic_id: Annotated[bytes, "uuid"] = ZERO_UUID
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)
    assignment_epochs: Annotated[list[int] | None, "[]int32 0+ null 0+ tag 0"] = None


@structure
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Annotated[int, "int32"] = 0
    previous_member_epoch: Annotated[int, "int32"] = 0
    state: Annotated[int, "int8"] = 0
    assigned_partitions: Annotated[list[OwnedPartitions], "[]"] = field(default_factory=list)
    partitions_pending_revocation: Annotated[list[OwnedPartitions], "[]"] = field(default_factory=list)


@structure
class ConsumerGroupRegularExpressionKey:
    group_id: Annotated[str, "string 0"] = ""
    regular_expression: Annotated[str, "string 0"] = ""


@structure
class ConsumerGroupRegularExpressionValue:
    topics: Annotated[list[str], "[]string"] = field(default_factory=list)
    version: Annotated[int, "int64"] = 0
    timestamp: Annotated[int, "int64"] = 0
