"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has come. From 10 on topics are named by id."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, structure


@structure
class OffsetCommitRequestPartition:
    partition_index: Annotated[int, "int32"] = 0
    committed_offset: Annotated[int, "int64"] = 0
    committed_leader_epoch: Annotated[int, "int32 6+"] = -1
    committed_metadata: Annotated[str | None, "string 0+ null 0+"] = ""


@structure
class OffsetCommitRequestTopic:
    name: Annotated[str, "string 0-9"] = ""
    topic_id: Annotated[bytes, "uuid 10+"] = ZERO_UUID
    partitions: Annotated[list[OffsetCommitRequestPartition], "[]"] = field(default_factory=list)


@structure
class OffsetCommitRequest:
    group_id: Annotated[str, "string"] = ""
    generation_id_or_member_epoch: Annotated[int, "int32 1+"] = -1
    member_id: Annotated[str, "string 1+"] = ""
    group_instance_id: Annotated[str | None, "string 7+ null 7+"] = None
    retention_time_ms: Annotated[int, "int64 2-4"] = -1
    topics: Annotated[list[OffsetCommitRequestTopic], "[]"] = field(default_factory=list)


@structure
class OffsetCommitResponsePartition:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class OffsetCommitResponseTopic:
    name: Annotated[str, "string 0-9"] = ""
    topic_id: Annotated[bytes, "uuid 10+"] = ZERO_UUID
    partitions: Annotated[list[OffsetCommitResponsePartition], "[]"] = field(default_factory=list)


@structure
class OffsetCommitResponse:
    throttle_time_ms: Annotated[int, "int32 3+"] = 0
    topics: Annotated[list[OffsetCommitResponseTopic], "[]"] = field(default_factory=list)


@structure
class OffsetFetchRequestTopic:
    name: Annotated[str, "string 0-7"] = ""
    partition_indexes: Annotated[list[int], "[]int32 0-7"] = field(default_factory=list)


@structure
class OffsetFetchRequestTopics:
    name: Annotated[str, "string 8-9"] = ""
    topic_id: Annotated[bytes, "uuid 10+"] = ZERO_UUID
    partition_indexes: Annotated[list[int], "[]int32 8+"] = field(default_factory=list)


@structure
class OffsetFetchRequestGroup:
    group_id: Annotated[str, "string 8+"] = ""
    member_id: Annotated[str | None, "string 9+ null 9+"] = None
    member_epoch: Annotated[int, "int32 9+"] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, "[] 8+ null 8+"] = field(default_factory=list)


@structure
class OffsetFetchRequest:
    group_id: Annotated[str, "string 0-7"] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, "[] 0-7 null 2-7"] = field(default_factory=list)
    groups: Annotated[list[OffsetFetchRequestGroup], "[] 8+"] = field(default_factory=list)
    require_stable: Annotated[bool, "bool 7+"] = False


@structure
class OffsetFetchResponsePartition:
    partition_index: Annotated[int, "int32 0-7"] = 0
    committed_offset: Annotated[int, "int64 0-7"] = 0
    committed_leader_epoch: Annotated[int, "int32 5-7"] = -1
    metadata: Annotated[str | None, "string 0-7 null 0-7"] = ""
    error_code: Annotated[int, "int16 0-7"] = 0


@structure
class OffsetFetchResponseTopic:
    name: Annotated[str, "string 0-7"] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], "[] 0-7"] = field(default_factory=list)


@structure
class OffsetFetchResponsePartitions:
    partition_index: Annotated[int, "int32 8+"] = 0
    committed_offset: Annotated[int, "int64 8+"] = 0
    committed_leader_epoch: Annotated[int, "int32 8+"] = -1
    metadata: Annotated[str | None, "string 8+ null 8+"] = ""
    error_code: Annotated[int, "int16 8+"] = 0


@structure
class OffsetFetchResponseTopics:
    name: Annotated[str, "string 8-9"] = ""
    topic_id: Annotated[bytes, "uuid 10+"] = ZERO_UUID
    partitions: Annotated[list[OffsetFetchResponsePartitions], "[] 8+"] = field(default_factory=list)


@structure
class OffsetFetchResponseGroup:
    group_id: Annotated[str, "string 8+"] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], "[] 8+"] = field(default_factory=list)
    error_code: Annotated[int, "int16 8+"] = 0


@structure
class OffsetFetchResponse:
    throttle_time_ms: Annotated[int, "int32 3+"] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], "[] 0-7"] = field(default_factory=list)
    error_code: Annotated[int, "int16 2-7"] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], "[] 8+"] = field(default_factory=list)


@structure
class OffsetDeleteRequestPartition:
    partition_index: Annotated[int, "int32"] = 0


@structure
class OffsetDeleteRequestTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[OffsetDeleteRequestPartition], "[]"] = field(default_factory=list)


@structure
class OffsetDeleteRequest:
    group_id: Annotated[str, "string"] = ""
    topics: Annotated[list[OffsetDeleteRequestTopic], "[]"] = field(default_factory=list)


@structure
class OffsetDeleteResponsePartition:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class OffsetDeleteResponseTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[OffsetDeleteResponsePartition], "[]"] = field(default_factory=list)


@structure
class OffsetDeleteResponse:
    error_code: Annotated[int, "int16"] = 0
    throttle_time_ms: Annotated[int, "int32"] = 0
    topics: Annotated[list[OffsetDeleteResponseTopic], "[]"] = field(default_factory=list)
