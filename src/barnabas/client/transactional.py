"""A producer's transaction: begun and written by one process, ended by the same or another.

    transaction = Transaction(client, "orders-7", timeout_ms=60_000)    # aborts what the id had open
    transaction.submit(partition, batch)
    transaction.flush()
    end_transactions(client, [transaction.handle], committed=True)

Batches go through a `Sender`; ids, partitions and ends go to the transaction's coordinator. The requests are those
that every broker since Kafka 0.11 knows: partitions are added before they are written to, and the epoch stays the same
when a transaction ends, so that who ends it again, or only wants to know whether it was, is told.

Rule 1: `Transaction` never ends itself. Whoever has its handle does, once; what nobody ends, the coordinator aborts
after the timeout.
Rule 2: to end a transaction again in the same way is no error. That it ended in the other way is one.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.client.answers import error_of
from barnabas.client.client import Client
from barnabas.client.connection import Connection
from barnabas.client.coordinators import CoordinatorType, ask_coordinators
from barnabas.client.sender import Sender, SendOptions, TransactionHandle
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest

# Later versions of these are for brokers among themselves, and for transactions that take a new epoch each (KIP-890).
_ADD_PARTITIONS_VERSION_MAX = 3
_END_VERSION_MAX = 4

ENDED_OTHERWISE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""What the coordinator says of a transaction that it has aborted, or has forgotten."""


class Transaction:
    """An open transaction, and the sender that writes into it; raises ApiError when the coordinator refuses."""

    def __init__(
        self, client: Client, transactional_id: str, *, timeout_ms: int, options: SendOptions | None = None
    ) -> None:
        self._client = client
        self.handle = _begin(client, transactional_id, timeout_ms)
        self._sender = Sender(client, options, transaction=self.handle)
        self._added: set[TopicPartition] = set()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What it may have written to. The coordinator knows nothing of a transaction before its first partition."""
        return frozenset(self._added)

    @property
    def records_acknowledged(self) -> int:
        """How many records are known to be written."""
        return self._sender.records_acknowledged

    @property
    def has_failed(self) -> bool:
        """Whether `flush` has an error to raise."""
        return self._sender.has_failed

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions with one request; those that `submit` meets without it take a request each."""
        missing = sorted(set(partitions) - self._added)
        if missing:
            _add_partitions(self._client, self.handle, missing)
            self._added.update(missing)

    def submit(self, partition: TopicPartition, batch: bytearray) -> None:
        """Take a finished batch, and send it now or later; it belongs to the transaction now."""
        self.add((partition,))
        self._sender.submit(partition, batch)

    def flush(self) -> None:
        """Wait until everything is acknowledged; after a ProduceError the transaction can only be aborted."""
        self._sender.flush()

    def close(self) -> None:
        """Close the connections. The transaction stays open."""
        self._sender.close()


def end_transactions(
    client: Client, handles: Sequence[TransactionHandle], *, committed: bool
) -> dict[TransactionHandle, ApiError | None]:
    """End transactions, each with None for done (now or before) or the error that no attempt can mend.

    A code of `ENDED_OTHERWISE` says that it is aborted, when it was to be committed, or that nobody knows it.
    """
    by_id = {handle.transactional_id: handle for handle in handles}
    assert len(by_id) == len(handles), "a transactional id has one transaction at a time"

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, ApiError | None]:
        version = connection.version_of("EndTxn", _END_VERSION_MAX)
        return {name: _end(connection, version, by_id[name], committed) for name in names}

    answers = ask_coordinators(client, by_id, CoordinatorType.TRANSACTION, ask)
    return {by_id[name]: answer for name, answer in answers.items()}


def _end(connection: Connection, version: int, handle: TransactionHandle, committed: bool) -> ApiError | None:
    question = EndTxnRequest(
        transactional_id=handle.transactional_id,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        committed=committed,
    )
    code = connection.request(question, version).error_code
    if code == ErrorCode.NONE:
        return None
    return error_of(code, f"{'committing' if committed else 'aborting'} the transaction of {handle.transactional_id!r}")


def _begin(client: Client, transactional_id: str, timeout_ms: int) -> TransactionHandle:
    question = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, TransactionHandle | ApiError]:
        answer = connection.request(question)
        if answer.error_code != ErrorCode.NONE:
            # CONCURRENT_TRANSACTIONS is among these while the last transaction of the id is being ended.
            return {transactional_id: error_of(answer.error_code, f"beginning a transaction of {transactional_id!r}")}
        return {
            transactional_id: TransactionHandle(
                transactional_id=transactional_id,
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )
        }

    handle: TransactionHandle = _only(ask_coordinators(client, [transactional_id], CoordinatorType.TRANSACTION, ask))
    return handle


def _add_partitions(client: Client, handle: TransactionHandle, partitions: Sequence[TopicPartition]) -> None:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, AddPartitionsToTxnTopic(name=partition.topic)).partitions.append(
            partition.partition
        )
    question = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=handle.transactional_id,
        v3_and_below_producer_id=handle.producer_id,
        v3_and_below_producer_epoch=handle.producer_epoch,
        v3_and_below_topics=list(topics.values()),
    )

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, ApiError | None]:
        version = connection.version_of("AddPartitionsToTxn", _ADD_PARTITIONS_VERSION_MAX)
        answer = connection.request(question, version)
        return {handle.transactional_id: _refusal(handle, answer)}

    _only(ask_coordinators(client, [handle.transactional_id], CoordinatorType.TRANSACTION, ask))


def _refusal(handle: TransactionHandle, answer: Any) -> ApiError | None:
    """Return why partitions were not added. One that can not be makes OPERATION_NOT_ATTEMPTED of the others."""
    rows = [(topic.name, row) for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition]
    refused = [(name, row) for name, row in rows if row.partition_error_code != ErrorCode.NONE]
    if not refused:
        return None
    name, row = next(
        (each for each in refused if each[1].partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED), refused[0]
    )
    partition = TopicPartition(name, row.partition_index)
    return error_of(row.partition_error_code, f"adding {partition} to the transaction of {handle.transactional_id!r}")


def _only(answers: dict[str, Any]) -> Any:
    (answer,) = answers.values()
    if isinstance(answer, ApiError):
        raise answer
    return answer
