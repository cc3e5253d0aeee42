"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, structure


@structure
class CreatableReplicaAssignment:
    partition_index: Annotated[int, "int32"] = 0
    broker_ids: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class CreatableTopicConfig:
    name: Annotated[str, "string"] = ""
    value: Annotated[str | None, "string 0+ null 0+"] = ""


@structure
class CreatableTopic:
    name: Annotated[str, "string"] = ""
    num_partitions: Annotated[int, "int32"] = 0
    replication_factor: Annotated[int, "int16"] = 0
    assignments: Annotated[list[CreatableReplicaAssignment], "[]"] = field(default_factory=list)
    configs: Annotated[list[CreatableTopicConfig], "[]"] = field(default_factory=list)


@structure
class CreateTopicsRequest:
    topics: Annotated[list[CreatableTopic], "[]"] = field(default_factory=list)
    timeout_ms: Annotated[int, "int32"] = 60000
    validate_only: Annotated[bool, "bool 1+"] = False


@structure
class CreatableTopicConfigs:
    name: Annotated[str, "string 5+"] = ""
    value: Annotated[str | None, "string 5+ null 5+"] = ""
    read_only: Annotated[bool, "bool 5+"] = False
    config_source: Annotated[int, "int8 5+"] = -1
    is_sensitive: Annotated[bool, "bool 5+"] = False


@structure
class CreatableTopicResult:
    name: Annotated[str, "string"] = ""
    topic_id: Annotated[bytes, "uuid 7+"] = ZERO_UUID
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 1+ null 0+"] = ""
    topic_config_error_code: Annotated[int, "int16 5+ tag 0"] = 0
    num_partitions: Annotated[int, "int32 5+"] = -1
    replication_factor: Annotated[int, "int16 5+"] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, "[] 5+ null 5+"] = field(default_factory=list)


@structure
class CreateTopicsResponse:
    throttle_time_ms: Annotated[int, "int32 2+"] = 0
    topics: Annotated[list[CreatableTopicResult], "[]"] = field(default_factory=list)


@structure
class DeleteTopicState:
    name: Annotated[str | None, "string 6+ null 6+"] = None
    topic_id: Annotated[bytes, "uuid 6+"] = ZERO_UUID


@structure
class DeleteTopicsRequest:
    topics: Annotated[list[DeleteTopicState], "[] 6+"] = field(default_factory=list)
    topic_names: Annotated[list[str], "[]string 0-5"] = field(default_factory=list)
    timeout_ms: Annotated[int, "int32"] = 0


@structure
class DeletableTopicResult:
    name: Annotated[str | None, "string 0+ null 6+"] = ""
    topic_id: Annotated[bytes, "uuid 6+"] = ZERO_UUID
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 5+ null 5+"] = None


@structure
class DeleteTopicsResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    responses: Annotated[list[DeletableTopicResult], "[]"] = field(default_factory=list)


@structure
class CreatePartitionsAssignment:
    broker_ids: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class CreatePartitionsTopic:
    name: Annotated[str, "string"] = ""
    count: Annotated[int, "int32"] = 0
    assignments: Annotated[list[CreatePartitionsAssignment] | None, "[] 0+ null 0+"] = field(default_factory=list)


@structure
class CreatePartitionsRequest:
    topics: Annotated[list[CreatePartitionsTopic], "[]"] = field(default_factory=list)
    timeout_ms: Annotated[int, "int32"] = 0
    validate_only: Annotated[bool, "bool"] = False


@structure
class CreatePartitionsTopicResult:
    name: Annotated[str, "string"] = ""
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None


@structure
class CreatePartitionsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    results: Annotated[list[CreatePartitionsTopicResult], "[]"] = field(default_factory=list)


@structure
class DeleteRecordsPartition:
    partition_index: Annotated[int, "int32"] = 0
    offset: Annotated[int, "int64"] = 0


@structure
class DeleteRecordsTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[DeleteRecordsPartition], "[]"] = field(default_factory=list)


@structure
class DeleteRecordsRequest:
    topics: Annotated[list[DeleteRecordsTopic], "[]"] = field(default_factory=list)
    timeout_ms: Annotated[int, "int32"] = 0


@structure
class DeleteRecordsPartitionResult:
    partition_index: Annotated[int, "int32"] = 0
    low_watermark: Annotated[int, "int64"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class DeleteRecordsTopicResult:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[DeleteRecordsPartitionResult], "[]"] = field(default_factory=list)


@structure
class DeleteRecordsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    topics: Annotated[list[DeleteRecordsTopicResult], "[]"] = field(default_factory=list)
