"""InitProducerId and DescribeProducers: ids for idempotent producers, and what a partition knows of them."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class InitProducerIdRequest:
    transactional_id: Annotated[str | None, "string 0+ null 0+"] = ""
    transaction_timeout_ms: Annotated[int, "int32"] = 0
    producer_id: Annotated[int, "int64 3+"] = -1
    producer_epoch: Annotated[int, "int16 3+"] = -1
    enable2_pc: Annotated[bool, "bool 6+"] = False
    keep_prepared_txn: Annotated[bool, "bool 6+"] = False


@structure
class InitProducerIdResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    producer_id: Annotated[int, "int64"] = -1
    producer_epoch: Annotated[int, "int16"] = 0
    ongoing_txn_producer_id: Annotated[int, "int64 6+"] = -1
    ongoing_txn_producer_epoch: Annotated[int, "int16 6+"] = -1


@structure
class TopicRequest:
    name: Annotated[str, "string"] = ""
    partition_indexes: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class DescribeProducersRequest:
    topics: Annotated[list[TopicRequest], "[]"] = field(default_factory=list)


@structure
class ProducerState:
    producer_id: Annotated[int, "int64"] = 0
    producer_epoch: Annotated[int, "int32"] = 0
    last_sequence: Annotated[int, "int32"] = -1
    last_timestamp: Annotated[int, "int64"] = -1
    coordinator_epoch: Annotated[int, "int32"] = 0
    current_txn_start_offset: Annotated[int, "int64"] = -1


@structure
class PartitionResponse:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    active_producers: Annotated[list[ProducerState], "[]"] = field(default_factory=list)


@structure
class TopicResponse:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[PartitionResponse], "[]"] = field(default_factory=list)


@structure
class DescribeProducersResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    topics: Annotated[list[TopicResponse], "[]"] = field(default_factory=list)
