"""The record of `__transaction_state`: all there is to know of a transactional id. Names and order are Kafka's."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class TransactionLogKey:
    transactional_id: Annotated[str, "string 0"] = ""


@structure
class TransactionPartitions:
    topic: Annotated[str, "string"] = ""
    partition_ids: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class TransactionLogValue:
    producer_id: Annotated[int, "int64"] = 0
    previous_producer_id: Annotated[int, "int64 1+ tag 0"] = -1
    next_producer_id: Annotated[int, "int64 1+ tag 1"] = -1
    producer_epoch: Annotated[int, "int16"] = 0
    next_producer_epoch: Annotated[int, "int16 1+ tag 3"] = -1
    transaction_timeout_ms: Annotated[int, "int32"] = 0
    transaction_status: Annotated[int, "int8"] = 0
    transaction_partitions: Annotated[list[TransactionPartitions] | None, "[] 0+ null 0+"] = field(default_factory=list)
    transaction_last_update_timestamp_ms: Annotated[int, "int64"] = 0
    transaction_start_timestamp_ms: Annotated[int, "int64"] = 0
    client_transaction_version: Annotated[int, "int16 1+ tag 2"] = 0
