"""Transactions as an operator sees them: which there are, what they hold, how to end one. Functions over a `Client`.

A transaction is aborted in one of two ways. Where its coordinator knows of it, the transactional id is initialized
anew, as its own producer would do after a restart: that aborts what is open, and fences the producer that opened it.
Where no coordinator knows of it (a hanging transaction, KIP-664), an abort marker is written into the very partition.

Rule 1: what is asked for several ids at once has an answer for each; errors are returned by id.
Rule 2: nothing is made by asking. An id that nobody uses is TRANSACTIONAL_ID_NOT_FOUND, and is not initialized.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.answers import check_answer, error_of
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, Connection, UnsupportedVersionError
from barnabas.client.coordinators import CoordinatorType, ask_all_brokers, ask_coordinators
from barnabas.client.offsets import ask_leaders
from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.producers import DescribeProducersRequest, InitProducerIdRequest, TopicRequest
from barnabas.wire.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from barnabas.wire.messages.transactions import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

ONGOING = "Ongoing"
UNDER_WAY = (ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of an id that has a transaction, from its first record to its last marker."""
STATES = (*UNDER_WAY, "Empty", "CompleteCommit", "CompleteAbort")

# Since these versions ListTransactions knows of durations (KIP-994) and patterns (KIP-1152).
_DURATION_VERSION = 1
_PATTERN_VERSION = 2


class NoOpenTransactionError(ClientError):
    """There is no transaction that could be aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id. `start_timestamp` is None, and there are no partitions, while it has no transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_timestamp: int | None
    coordinator_id: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_under_way(self) -> bool:
        """Whether there is a transaction that has not ended."""
        return self.state in UNDER_WAY


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """What a partition knows of a producer; `transaction_start_offset` is None unless it has an open transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    transaction_start_offset: int | None


def list_transactions(
    client: Client,
    *,
    states: Sequence[str] = (),
    older_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """Return the transactional ids of all brokers by name.

    Args:
        states: Only those in one of these states.
        older_than_ms: Only those whose transaction began longer ago. An id that has none counts as the oldest of all,
            so this is of use together with `states`.
        pattern: Only ids that match this regular expression (RE2) as a whole.
    """
    question = ListTransactionsRequest(
        state_filters=list(states),
        duration_filter=-1 if older_than_ms is None else older_than_ms,
        transactional_id_pattern=pattern,
    )

    def ask(connection: Connection, node_id: int) -> list[ListedTransaction]:
        version = connection.version_of("ListTransactions")
        needed = _PATTERN_VERSION if pattern is not None else _DURATION_VERSION if older_than_ms is not None else 0
        if version < needed:
            raise UnsupportedVersionError(f"{connection.address}: the broker is too old to filter transactions so")
        answer = connection.request(question, version)
        check_answer(answer.error_code, "the broker does not list its transactions")
        return [
            ListedTransaction(
                transactional_id=row.transactional_id,
                producer_id=row.producer_id,
                state=row.transaction_state,
                coordinator_id=node_id,
            )
            for row in answer.transaction_states
        ]

    listed = {each.transactional_id: each for rows in ask_all_brokers(client, ask) for each in rows}
    return [listed[transactional_id] for transactional_id in sorted(listed)]


def describe_transactions(
    client: Client, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | ApiError]:
    """Return each transactional id, or why not: TRANSACTIONAL_ID_NOT_FOUND where nobody uses it."""

    def ask(connection: Connection, node_id: int, names: list[str]) -> dict[str, TransactionDescription | ApiError]:
        answers: dict[str, TransactionDescription | ApiError] = {}
        for row in connection.request(DescribeTransactionsRequest(transactional_ids=names)).transaction_states:
            name = row.transactional_id
            if row.error_code != ErrorCode.NONE:
                is_missing = row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                what = f"there is no transactional id {name!r}" if is_missing else f"transactional id {name!r}"
                answers[name] = error_of(row.error_code, what)
                continue
            is_under_way = row.transaction_state in UNDER_WAY
            answers[name] = TransactionDescription(
                transactional_id=name,
                state=row.transaction_state,
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                timeout_ms=row.transaction_timeout_ms,
                start_timestamp=row.transaction_start_time_ms if is_under_way else None,
                coordinator_id=node_id,
                partitions=tuple(TopicPartition(each.topic, index) for each in row.topics for index in each.partitions),
            )
        return answers

    return ask_coordinators(client, transactional_ids, CoordinatorType.TRANSACTION, ask)


def abort_transaction(client: Client, transactional_id: str) -> TransactionDescription:
    """Abort the open transaction of an id and fence its producer; returns what it was, once it is aborted.

    Raises:
        ApiError: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator refuses.
        NoOpenTransactionError: The id has no transaction, or one that is about to end by itself.
    """
    described = describe_transactions(client, [transactional_id])[transactional_id]
    if isinstance(described, ApiError):
        raise described
    if described.state != ONGOING:
        reason = "has no open transaction"
        if described.is_under_way:
            reason = f"has a transaction that is being {'committed' if 'Commit' in described.state else 'aborted'}"
        raise NoOpenTransactionError(f"transactional id {transactional_id!r} {reason} ({described.state})")
    _fence(client, transactional_id, described.timeout_ms)
    return described


def _fence(client: Client, transactional_id: str, timeout_ms: int) -> None:
    question = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, ApiError | None]:
        answer = connection.request(question)
        if answer.error_code != ErrorCode.NONE:
            # CONCURRENT_TRANSACTIONS comes first: the abort has begun, and is done when the same question is answered.
            return {transactional_id: error_of(answer.error_code, f"aborting the transaction of {transactional_id!r}")}
        return {transactional_id: None}

    answer = ask_coordinators(client, [transactional_id], CoordinatorType.TRANSACTION, ask)[transactional_id]
    if isinstance(answer, ApiError):
        raise answer


def describe_producers(
    client: Client, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """Return the producers that the leader of each partition remembers."""

    def ask(
        connection: Connection, led: list[TopicPartition]
    ) -> Mapping[TopicPartition, list[ProducerState] | ApiError]:
        topics: dict[str, TopicRequest] = {}
        for partition in led:
            topic = topics.setdefault(partition.topic, TopicRequest(name=partition.topic))
            topic.partition_indexes.append(partition.partition)
        found: dict[TopicPartition, list[ProducerState] | ApiError] = {}
        for answer in connection.request(DescribeProducersRequest(topics=list(topics.values()))).topics:
            for row in answer.partitions:
                partition = TopicPartition(answer.name, row.partition_index)
                if row.error_code != ErrorCode.NONE:
                    found[partition] = error_of(row.error_code, f"the producers of {partition}", row.error_message)
                else:
                    found[partition] = [_producer(producer) for producer in row.active_producers]
        return found

    return ask_leaders(client, partitions, ask)


def abort_in_partition(client: Client, partition: TopicPartition, start_offset: int) -> ProducerState:
    """Write an abort marker for the transaction that begins at an offset of a partition; returns whose it was.

    Raises:
        NoOpenTransactionError: None of the open transactions begins there.
        ApiError: The leader refuses.
    """
    producers = describe_producers(client, [partition])[partition]
    opened = [producer for producer in producers if producer.transaction_start_offset is not None]
    for producer in opened:
        if producer.transaction_start_offset == start_offset:
            _write_abort_marker(client, partition, producer)
            return producer
    begins = ", ".join(f"{each.transaction_start_offset} (producer {each.producer_id})" for each in opened)
    raise NoOpenTransactionError(
        f"no open transaction of {partition} begins at offset {start_offset}; "
        + (f"the open ones begin at {begins}" if opened else "it has no open transaction")
    )


def _producer(row: Any) -> ProducerState:
    start_offset = row.current_txn_start_offset
    return ProducerState(
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        coordinator_epoch=row.coordinator_epoch,
        last_timestamp=row.last_timestamp,
        transaction_start_offset=None if start_offset == NO_OFFSET else start_offset,
    )


def _write_abort_marker(client: Client, partition: TopicPartition, producer: ProducerState) -> None:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        # A partition that has never had a marker of the producer knows no epoch of its coordinator.
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )

    def ask(connection: Connection, _: list[TopicPartition]) -> dict[TopicPartition, ApiError | None]:
        answer = connection.request(WriteTxnMarkersRequest(markers=[marker]))
        codes = [row.error_code for each in answer.markers for topic in each.topics for row in topic.partitions]
        if codes and codes[0] != ErrorCode.NONE:
            what = f"aborting the transaction of producer {producer.producer_id} in {partition}"
            return {partition: error_of(codes[0], what)}
        return {partition: None} if codes else {}

    ask_leaders(client, [partition], ask)
