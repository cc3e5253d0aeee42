"""ListOffsets and OffsetForLeaderEpoch: which offset a time or a leader epoch has."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class ListOffsetsPartition:
    partition_index: Annotated[int, "int32"] = 0
    current_leader_epoch: Annotated[int, "int32 4+"] = -1
    timestamp: Annotated[int, "int64"] = 0
    max_num_offsets: Annotated[int, "int32 0"] = 1


@structure
class ListOffsetsTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[ListOffsetsPartition], "[]"] = field(default_factory=list)


@structure
class ListOffsetsRequest:
    replica_id: Annotated[int, "int32"] = 0
    isolation_level: Annotated[int, "int8 2+"] = 0
    topics: Annotated[list[ListOffsetsTopic], "[]"] = field(default_factory=list)
    timeout_ms: Annotated[int, "int32 10+"] = 0


@structure
class ListOffsetsPartitionResponse:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    old_style_offsets: Annotated[list[int], "[]int64 0"] = field(default_factory=list)
    timestamp: Annotated[int, "int64 1+"] = -1
    offset: Annotated[int, "int64 1+"] = -1
    leader_epoch: Annotated[int, "int32 4+"] = -1


@structure
class ListOffsetsTopicResponse:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[ListOffsetsPartitionResponse], "[]"] = field(default_factory=list)


@structure
class ListOffsetsResponse:
    throttle_time_ms: Annotated[int, "int32 2+"] = 0
    topics: Annotated[list[ListOffsetsTopicResponse], "[]"] = field(default_factory=list)


@structure
class OffsetForLeaderPartition:
    partition: Annotated[int, "int32"] = 0
    current_leader_epoch: Annotated[int, "int32 2+"] = -1
    leader_epoch: Annotated[int, "int32"] = 0


@structure
class OffsetForLeaderTopic:
    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[OffsetForLeaderPartition], "[]"] = field(default_factory=list)


@structure
class OffsetForLeaderEpochRequest:
    replica_id: Annotated[int, "int32 3+"] = -2
    topics: Annotated[list[OffsetForLeaderTopic], "[]"] = field(default_factory=list)


@structure
class EpochEndOffset:
    error_code: Annotated[int, "int16"] = 0
    partition: Annotated[int, "int32"] = 0
    leader_epoch: Annotated[int, "int32 1+"] = -1
    end_offset: Annotated[int, "int64"] = -1


@structure
class OffsetForLeaderTopicResult:
    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[EpochEndOffset], "[]"] = field(default_factory=list)


@structure
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Annotated[int, "int32 2+"] = 0
    topics: Annotated[list[OffsetForLeaderTopicResult], "[]"] = field(default_factory=list)
