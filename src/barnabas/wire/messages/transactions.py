"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit: the course of a transaction."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class AddPartitionsToTxnTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class AddPartitionsToTxnTransaction:
    transactional_id: Annotated[str, "string 4+"] = ""
    producer_id: Annotated[int, "int64 4+"] = 0
    producer_epoch: Annotated[int, "int16 4+"] = 0
    verify_only: Annotated[bool, "bool 4+"] = False
    topics: Annotated[list[AddPartitionsToTxnTopic], "[] 4+"] = field(default_factory=list)


@structure
class AddPartitionsToTxnRequest:
    transactions: Annotated[list[AddPartitionsToTxnTransaction], "[] 4+"] = field(default_factory=list)
    v3_and_below_transactional_id: Annotated[str, "string 0-3"] = ""
    v3_and_below_producer_id: Annotated[int, "int64 0-3"] = 0
    v3_and_below_producer_epoch: Annotated[int, "int16 0-3"] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], "[] 0-3"] = field(default_factory=list)


@structure
class AddPartitionsToTxnPartitionResult:
    partition_index: Annotated[int, "int32"] = 0
    partition_error_code: Annotated[int, "int16"] = 0


@structure
class AddPartitionsToTxnTopicResult:
    name: Annotated[str, "string"] = ""
    results_by_partition: Annotated[list[AddPartitionsToTxnPartitionResult], "[]"] = field(default_factory=list)


@structure
class AddPartitionsToTxnResult:
    transactional_id: Annotated[str, "string 4+"] = ""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], "[] 4+"] = field(default_factory=list)


@structure
class AddPartitionsToTxnResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16 4+"] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], "[] 4+"] = field(default_factory=list)
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], "[] 0-3"] = field(
        default_factory=list
    )


@structure
class AddOffsetsToTxnRequest:
    transactional_id: Annotated[str, "string"] = ""
    producer_id: Annotated[int, "int64"] = 0
    producer_epoch: Annotated[int, "int16"] = 0
    group_id: Annotated[str, "string"] = ""


@structure
class AddOffsetsToTxnResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class EndTxnRequest:
    transactional_id: Annotated[str, "string"] = ""
    producer_id: Annotated[int, "int64"] = 0
    producer_epoch: Annotated[int, "int16"] = 0
    committed: Annotated[bool, "bool"] = False


@structure
class EndTxnResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    producer_id: Annotated[int, "int64 5+"] = -1
    producer_epoch: Annotated[int, "int16 5+"] = -1


@structure
class WritableTxnMarkerTopic:
    name: Annotated[str, "string"] = ""
    partition_indexes: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class WritableTxnMarker:
    producer_id: Annotated[int, "int64"] = 0
    producer_epoch: Annotated[int, "int16"] = 0
    transaction_result: Annotated[bool, "bool"] = False
    topics: Annotated[list[WritableTxnMarkerTopic], "[]"] = field(default_factory=list)
    coordinator_epoch: Annotated[int, "int32"] = 0
    transaction_version: Annotated[int, "int8 2+"] = 0


@structure
class WriteTxnMarkersRequest:
    markers: Annotated[list[WritableTxnMarker], "[]"] = field(default_factory=list)


@structure
class WritableTxnMarkerPartitionResult:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class WritableTxnMarkerTopicResult:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[WritableTxnMarkerPartitionResult], "[]"] = field(default_factory=list)


@structure
class WritableTxnMarkerResult:
    producer_id: Annotated[int, "int64"] = 0
    topics: Annotated[list[WritableTxnMarkerTopicResult], "[]"] = field(default_factory=list)


@structure
class WriteTxnMarkersResponse:
    markers: Annotated[list[WritableTxnMarkerResult], "[]"] = field(default_factory=list)


@structure
class TxnOffsetCommitRequestPartition:
    partition_index: Annotated[int, "int32"] = 0
    committed_offset: Annotated[int, "int64"] = 0
    committed_leader_epoch: Annotated[int, "int32 2+"] = -1
    committed_metadata: Annotated[str | None, "string 0+ null 0+"] = ""


@structure
class TxnOffsetCommitRequestTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[TxnOffsetCommitRequestPartition], "[]"] = field(default_factory=list)


@structure
class TxnOffsetCommitRequest:
    transactional_id: Annotated[str, "string"] = ""
    group_id: Annotated[str, "string"] = ""
    producer_id: Annotated[int, "int64"] = 0
    producer_epoch: Annotated[int, "int16"] = 0
    generation_id: Annotated[int, "int32 3+"] = -1
    member_id: Annotated[str, "string 3+"] = ""
    group_instance_id: Annotated[str | None, "string 3+ null 3+"] = None
    topics: Annotated[list[TxnOffsetCommitRequestTopic], "[]"] = field(default_factory=list)


@structure
class TxnOffsetCommitResponsePartition:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class TxnOffsetCommitResponseTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[TxnOffsetCommitResponsePartition], "[]"] = field(default_factory=list)


@structure
class TxnOffsetCommitResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    topics: Annotated[list[TxnOffsetCommitResponseTopic], "[]"] = field(default_factory=list)
