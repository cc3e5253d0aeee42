"""DescribeTransactions and ListTransactions: transactions as an operator sees them."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class DescribeTransactionsRequest:
    transactional_ids: Annotated[list[str], "[]string"] = field(default_factory=list)


@structure
class TopicData:
    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class TransactionState:
    error_code: Annotated[int, "int16"] = 0
    transactional_id: Annotated[str, "string"] = ""
    transaction_state: Annotated[str, "string"] = ""
    transaction_timeout_ms: Annotated[int, "int32"] = 0
    transaction_start_time_ms: Annotated[int, "int64"] = 0
    producer_id: Annotated[int, "int64"] = 0
    producer_epoch: Annotated[int, "int16"] = 0
    topics: Annotated[list[TopicData], "[]"] = field(default_factory=list)


@structure
class DescribeTransactionsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    transaction_states: Annotated[list[TransactionState], "[]"] = field(default_factory=list)


@structure
class ListTransactionsRequest:
    state_filters: Annotated[list[str], "[]string"] = field(default_factory=list)
    producer_id_filters: Annotated[list[int], "[]int64"] = field(default_factory=list)
    duration_filter: Annotated[int, "int64 1+"] = -1
    transactional_id_pattern: Annotated[str | None, "string 2+ null 2+"] = None


@structure
class ListedTransaction:
    transactional_id: Annotated[str, "string"] = ""
    producer_id: Annotated[int, "int64"] = 0
    transaction_state: Annotated[str, "string"] = ""


@structure
class ListTransactionsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    unknown_state_filters: Annotated[list[str], "[]string"] = field(default_factory=list)
    transaction_states: Annotated[list[ListedTransaction], "[]"] = field(default_factory=list)
