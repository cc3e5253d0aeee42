"""AddPartitionsToTxn v0-5, AddOffsetsToTxn v0-4, EndTxn v0-5, WriteTxnMarkers v1-2: the course of a transaction.

Behaviour: the machine of the transactional id answers (coordination/transaction_coordinator.py). EndTxn is answered
when the decision is kept; the markers follow. WriteTxnMarkers is what coordinators of other brokers send, and an
operator who ends a transaction that hangs (`abortTransaction`).

Versions: AddPartitions 0-3 for one transaction and from clients, 4+ for many and from brokers, also only to verify
(KIP-890); a producer that was replaced is told INVALID_PRODUCER_EPOCH in the first versions, PRODUCER_FENCED later;
EndTxn 5 raises the epoch with every transaction (`transaction.version` 2).
"""

from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.internal_topics import GROUP_TOPIC, INTERNAL_TOPICS
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.broker.ticket import Ticket
from barnabas.broker.transaction_markers import EndMarker, Written
from barnabas.coordination.transaction_coordinator import fenced_error
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MANY_VERSION = 4
FENCED_VERSION = 2
ABORTABLE_VERSION = 5


def handle_add_partitions_to_txn(broker: Services, request: Request, body: AddPartitionsToTxnRequest) -> Any:
    """Make partitions part of transactions, or verify that they are."""
    asked = body.transactions if request.version >= MANY_VERSION else [_only_transaction(body)]
    answer = AddPartitionsToTxnResponse()
    results = [AddPartitionsToTxnResult(transactional_id=one.transactional_id) for one in asked]

    def finish() -> AddPartitionsToTxnResponse:
        if request.version >= MANY_VERSION:
            answer.results_by_transaction = results
        else:
            answer.results_by_topic_v3_and_below = results[0].topic_results
        return answer

    gathering = Gathering(request, answer, finish)
    for one, result in zip(asked, results, strict=True):
        _add(broker, request, one, result, gathering)
    return gathering.outcome()


def _only_transaction(body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )


class _PlacedTicket:
    """Puts the codes of a transaction's partitions into its place, when they are safe."""

    def __init__(self, request: Request, asked: list[AddPartitionsToTxnTopic], result: Any, done: Any) -> None:
        self._request = request
        self._asked = asked
        self._result = result
        self._done = done

    def answer(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        """Say what each partition got."""
        for code in {code for code in codes.values() if code is not ErrorCode.NONE}:
            self._request.count_error(code)
        self._result.topic_results = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=_told(codes[TopicPartition(topic.name, index)], self._request.version),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in self._asked
        ]
        self._done(None)

    def refuse(self, error: ApiError) -> None:
        """Say of all partitions why they got nothing."""
        self.answer(dict.fromkeys(_partitions(self._asked), error.code))


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _told(code: ErrorCode, version: int) -> int:
    """Return an error as clients of a version know it."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return int(ErrorCode.INVALID_TXN_STATE)
    return int(fenced_error(code, version, FENCED_VERSION))


def _add(
    broker: Services,
    request: Request,
    asked: AddPartitionsToTxnTransaction,
    result: AddPartitionsToTxnResult,
    gathering: Gathering,
) -> None:
    ticket = _PlacedTicket(request, asked.topics, result, gathering.expect(lambda _: None))
    partitions = _partitions(asked.topics)
    refused = {name: code for name in partitions if (code := _refusal_of(broker, request.version, name))}
    if refused:
        # All or none: the others are told that they were not tried.
        ticket.answer(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        return
    producer = (asked.producer_id, asked.producer_epoch)
    transactions = broker.transactions
    try:
        client_version = 2 if request.version >= MANY_VERSION else 0
        shard, codes = transactions.add_partitions(
            asked.transactional_id, producer, partitions, client_version, is_verify_only=asked.verify_only
        )
    except ApiError as error:
        ticket.refuse(error)
        return
    transactions.shards.tell(shard, ticket, codes)


def _refusal_of(broker: Services, version: int, name: TopicPartition) -> ErrorCode:
    """Return why a partition can not be part of a transaction, or NONE. Clients do not write internal topics."""
    if version < MANY_VERSION and name.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    image = broker.cache.topics.get(name.topic)
    is_there = image is not None and 0 <= name.partition < len(image.partitions)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def handle_add_offsets_to_txn(broker: Services, request: Request, body: AddOffsetsToTxnRequest) -> Any:
    """Make the offsets of a group part of a transaction."""
    transactions = broker.transactions
    name = TopicPartition(GROUP_TOPIC, broker.groups.shards.index_of(body.group_id))
    producer = (body.producer_id, body.producer_epoch)
    shard, codes = transactions.add_partitions(body.transactional_id, producer, [name], 0)
    ticket = Ticket(request, body)
    if codes[name] is not ErrorCode.NONE:
        request.count_error(codes[name])
    message = AddOffsetsToTxnResponse(error_code=_told(codes[name], request.version))
    transactions.shards.tell(shard, ticket, message)
    return ticket.outcome()


def handle_end_txn(broker: Services, request: Request, body: EndTxnRequest) -> Any:
    """Commit or abort a transaction."""
    transactions = broker.transactions
    machine = transactions.shards.shard_of(body.transactional_id).machine
    needs_id = machine.needs_producer_id_to_end(body, request.version)
    ask = transactions.ask_with_producer_id if needs_id else transactions.ask
    return ask(
        request,
        body,
        body.transactional_id,
        lambda machine, ticket, now_ms, producer_id: machine.end_transaction(
            ticket, body, request.version, now_ms, producer_id
        ),
    )


def handle_write_txn_markers(broker: Services, request: Request, body: WriteTxnMarkersRequest) -> Any:
    """Write markers into the partitions that this broker leads."""
    answer = WriteTxnMarkersResponse()
    gathering = Gathering(request, answer)
    for asked in body.markers:
        marker = EndMarker(asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch)
        result = WritableTxnMarkerResult(producer_id=asked.producer_id)
        answer.markers.append(result)
        for topic in asked.topics:
            topic_result = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(topic_result)
            for index in topic.partition_indexes:
                one = WritableTxnMarkerPartitionResult(partition_index=index)
                topic_result.partitions.append(one)
                written = _code_taker(gathering, one)
                broker.transactions.markers.write(marker, TopicPartition(topic.name, index), written)
    return gathering.outcome()


def _code_taker(gathering: Gathering, result: WritableTxnMarkerPartitionResult) -> Written:
    def take(code: ErrorCode) -> None:
        result.error_code = int(code)

    done = gathering.expect(take)
    return lambda _, code: done(code)
