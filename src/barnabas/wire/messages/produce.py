"""Produce: records from a producer. Versions 0 to 2 carry message sets of magic 0 and 1; 13 names topics by id."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, Records, structure


@structure
class PartitionProduceData:
    index: Annotated[int, "int32"] = 0
    records: Annotated[Records | None, "records 0+ null 0+"] = None


@structure
class TopicProduceData:
    name: Annotated[str, "string 0-12"] = ""
    topic_id: Annotated[bytes, "uuid 13+"] = ZERO_UUID
    partition_data: Annotated[list[PartitionProduceData], "[]"] = field(default_factory=list)


@structure
class ProduceRequest:
    transactional_id: Annotated[str | None, "string 3+ null 3+"] = None
    acks: Annotated[int, "int16"] = 0
    timeout_ms: Annotated[int, "int32"] = 0
    topic_data: Annotated[list[TopicProduceData], "[]"] = field(default_factory=list)


@structure
class BatchIndexAndErrorMessage:
    batch_index: Annotated[int, "int32 8+"] = 0
    batch_index_error_message: Annotated[str | None, "string 8+ null 8+"] = None


@structure
class LeaderIdAndEpoch:
    leader_id: Annotated[int, "int32 10+"] = -1
    leader_epoch: Annotated[int, "int32 10+"] = -1


@structure
class PartitionProduceResponse:
    index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    base_offset: Annotated[int, "int64"] = 0
    log_append_time_ms: Annotated[int, "int64 2+"] = -1
    log_start_offset: Annotated[int, "int64 5+"] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], "[] 8+"] = field(default_factory=list)
    error_message: Annotated[str | None, "string 8+ null 8+"] = None
    current_leader: Annotated[LeaderIdAndEpoch, "struct 10+ tag 0"] = field(default_factory=LeaderIdAndEpoch)


@structure
class TopicProduceResponse:
    name: Annotated[str, "string 0-12"] = ""
    topic_id: Annotated[bytes, "uuid 13+"] = ZERO_UUID
    partition_responses: Annotated[list[PartitionProduceResponse], "[]"] = field(default_factory=list)


@structure
class NodeEndpoint:
    node_id: Annotated[int, "int32 10+"] = 0
    host: Annotated[str, "string 10+"] = ""
    port: Annotated[int, "int32 10+"] = 0
    rack: Annotated[str | None, "string 10+ null 10+"] = None


@structure
class ProduceResponse:
    responses: Annotated[list[TopicProduceResponse], "[]"] = field(default_factory=list)
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    node_endpoints: Annotated[list[NodeEndpoint], "[] 10+ tag 0"] = field(default_factory=list)
