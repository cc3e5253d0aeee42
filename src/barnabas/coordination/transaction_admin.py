"""Transactional ids as an operator sees them: the answers of DescribeTransactions and ListTransactions."""

from collections.abc import Collection, Iterable
from typing import Protocol

from barnabas.coordination.transaction import DEAD, STATUS_NAMES, TransactionMetadata
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.transaction_admin import ListedTransaction, TopicData, TransactionState

ListedTransactions = list[ListedTransaction]

_NAMES = frozenset(STATUS_NAMES.values())


class TransactionalIdPattern(Protocol):
    """A compiled regular expression, of whichever library."""

    def fullmatch(self, string: str, /) -> object | None:
        """Return something if the whole text matches."""
        ...


def unknown_state_filters(state_filters: Iterable[str]) -> list[str]:
    """Return those names of states that there are not; ListTransactions answers them."""
    return [name for name in state_filters if name not in _NAMES]


def describe_transaction(transactional_id: str, transaction: TransactionMetadata | None) -> TransactionState:
    """Return everything about one transactional id, or why not."""
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    if transaction is None or transaction.status is DEAD:
        return TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    topics: dict[str, TopicData] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, TopicData(topic=topic)).partitions.append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATUS_NAMES[transaction.status],
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[*topics.values()],
    )


def list_transactions(
    transactions: Iterable[TransactionMetadata],
    state_filters: Collection[str],
    producer_id_filters: Collection[int],
    duration_filter: int,
    transactional_id_pattern: TransactionalIdPattern | None,
    now_ms: int,
) -> ListedTransactions:
    """Return the transactional ids that pass every filter.

    Args:
        duration_filter: only what started longer ago than this, in milliseconds; negative for all.
            As in Kafka an id without a transaction counts as started long ago.
    """
    return [
        ListedTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=STATUS_NAMES[transaction.status],
        )
        for transaction in transactions
        if (not producer_id_filters or transaction.producer_id in producer_id_filters)
        and (not state_filters or STATUS_NAMES[transaction.status] in state_filters)
        and (duration_filter < 0 or now_ms - transaction.start_timestamp_ms > duration_filter)
        and (transactional_id_pattern is None or transactional_id_pattern.fullmatch(transaction.transactional_id))
    ]
