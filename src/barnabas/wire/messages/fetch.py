"""Fetch: records for consumers and followers. From 7 on with sessions (KIP-227), from 13 on topics by id (KIP-516)."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, Records, structure


@structure
class ReplicaState:
    replica_id: Annotated[int, "int32 15+"] = -1
    replica_epoch: Annotated[int, "int64 15+"] = -1


@structure
class FetchPartition:
    partition: Annotated[int, "int32"] = 0
    current_leader_epoch: Annotated[int, "int32 9+"] = -1
    fetch_offset: Annotated[int, "int64"] = 0
    last_fetched_epoch: Annotated[int, "int32 12+"] = -1
    log_start_offset: Annotated[int, "int64 5+"] = -1
    partition_max_bytes: Annotated[int, "int32"] = 0
    replica_directory_id: Annotated[bytes, "uuid 17+ tag 0"] = ZERO_UUID
    high_watermark: Annotated[int, "int64 18+ tag 1"] = 2**63 - 1


@structure
class FetchTopic:
    topic: Annotated[str, "string 0-12"] = ""
    topic_id: Annotated[bytes, "uuid 13+"] = ZERO_UUID
    partitions: Annotated[list[FetchPartition], "[]"] = field(default_factory=list)


@structure
class ForgottenTopic:
    topic: Annotated[str, "string 7-12"] = ""
    topic_id: Annotated[bytes, "uuid 13+"] = ZERO_UUID
    partitions: Annotated[list[int], "[]int32 7+"] = field(default_factory=list)


@structure
class FetchRequest:
    cluster_id: Annotated[str | None, "string 12+ null 12+ tag 0"] = None
    replica_id: Annotated[int, "int32 0-14"] = -1
    replica_state: Annotated[ReplicaState, "struct 15+ tag 1"] = field(default_factory=ReplicaState)
    max_wait_ms: Annotated[int, "int32"] = 0
    min_bytes: Annotated[int, "int32"] = 0
    max_bytes: Annotated[int, "int32 3+"] = 2**31 - 1
    isolation_level: Annotated[int, "int8 4+"] = 0
    session_id: Annotated[int, "int32 7+"] = 0
    session_epoch: Annotated[int, "int32 7+"] = -1
    topics: Annotated[list[FetchTopic], "[]"] = field(default_factory=list)
    forgotten_topics_data: Annotated[list[ForgottenTopic], "[] 7+"] = field(default_factory=list)
    rack_id: Annotated[str, "string 11+"] = ""


@structure
class EpochEndOffset:
    epoch: Annotated[int, "int32 12+"] = -1
    end_offset: Annotated[int, "int64 12+"] = -1


@structure
class LeaderIdAndEpoch:
    leader_id: Annotated[int, "int32 12+"] = -1
    leader_epoch: Annotated[int, "int32 12+"] = -1


@structure
class SnapshotId:
    end_offset: Annotated[int, "int64"] = -1
    epoch: Annotated[int, "int32"] = -1


@structure
class AbortedTransaction:
    producer_id: Annotated[int, "int64 4+"] = 0
    first_offset: Annotated[int, "int64 4+"] = 0


@structure
class PartitionData:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    high_watermark: Annotated[int, "int64"] = 0
    last_stable_offset: Annotated[int, "int64 4+"] = -1
    log_start_offset: Annotated[int, "int64 5+"] = -1
    diverging_epoch: Annotated[EpochEndOffset, "struct 12+ tag 0"] = field(default_factory=EpochEndOffset)
    current_leader: Annotated[LeaderIdAndEpoch, "struct 12+ tag 1"] = field(default_factory=LeaderIdAndEpoch)
    snapshot_id: Annotated[SnapshotId, "struct 12+ tag 2"] = field(default_factory=SnapshotId)
    aborted_transactions: Annotated[list[AbortedTransaction] | None, "[] 4+ null 4+"] = field(default_factory=list)
    preferred_read_replica: Annotated[int, "int32 11+"] = -1
    records: Annotated[Records | None, "records 0+ null 0+"] = None


@structure
class FetchableTopicResponse:
    topic: Annotated[str, "string 0-12"] = ""
    topic_id: Annotated[bytes, "uuid 13+"] = ZERO_UUID
    partitions: Annotated[list[PartitionData], "[]"] = field(default_factory=list)


@structure
class NodeEndpoint:
    node_id: Annotated[int, "int32 16+"] = 0
    host: Annotated[str, "string 16+"] = ""
    port: Annotated[int, "int32 16+"] = 0
    rack: Annotated[str | None, "string 16+ null 16+"] = None


@structure
class FetchResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16 7+"] = 0
    session_id: Annotated[int, "int32 7+"] = 0
    responses: Annotated[list[FetchableTopicResponse], "[]"] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], "[] 16+ tag 0"] = field(default_factory=list)
