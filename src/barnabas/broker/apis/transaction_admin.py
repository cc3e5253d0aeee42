"""DescribeTransactions v0 and ListTransactions v0-2: transactions as operators see them.

Versions: List 1+ only those that have lasted for a while (KIP-994), 2+ by a pattern of transactional ids (KIP-1152).
"""

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.coordination.topic_patterns import compile_pattern
from barnabas.coordination.transaction_admin import unknown_state_filters
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle_describe_transactions(
    broker: Services, request: Request, body: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Tell of transactional ids: state, producer, partitions."""
    answer = DescribeTransactionsResponse()
    for transactional_id in body.transactional_ids:
        try:
            if not transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id has at least one character")
            machine = broker.transactions.shards.shard_of(transactional_id).machine
            answer.transaction_states.append(machine.describe(transactional_id))
        except ApiError as error:
            request.count_error(error.code)
            answer.transaction_states.append(
                TransactionState(transactional_id=transactional_id, error_code=int(error.code))
            )
    return answer


def handle_list_transactions(
    broker: Services, request: Request, body: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Tell which transactional ids there are."""
    shards = broker.transactions.shards
    if shards.is_loading:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the transactions are being read")
    answer = ListTransactionsResponse(unknown_state_filters=unknown_state_filters(body.state_filters))
    pattern = compile_pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
    for shard in shards.loaded:
        answer.transaction_states += shard.machine.list(
            body.state_filters, body.producer_id_filters, body.duration_filter, pattern, shards.now_ms()
        )
    return answer
