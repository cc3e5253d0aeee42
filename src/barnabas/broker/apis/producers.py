"""InitProducerId: v0-5, an id for an idempotent producer. DescribeProducers: v0, what a partition knows of producers.

InitProducerId: every call without a transactional id gets a new id and epoch 0, also one that brings an id to have its
epoch raised (3+, KIP-360): clients take what they get. An id without an epoch, or the other way round, is
INVALID_REQUEST. With a transactional id the coordinator of transactions answers: it ends what a producer of the same
id left open, and fences that producer by a higher epoch.
"""

from typing import Any

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.broker.ticket import Ticket
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle_init_producer_id(broker: Services, request: Request, body: InitProducerIdRequest) -> Any:
    """Answer with an id that nobody else has."""
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_PRODUCER_EPOCH)
    if body.transactional_id is not None:
        return _init_transactional(broker, request, body, body.transactional_id)
    ticket = Ticket(request, body)

    def done(found: int | ApiError) -> None:
        if isinstance(found, ApiError):
            ticket.answer(InitProducerIdResponse(error_code=found.code, producer_epoch=NO_PRODUCER_EPOCH))
        else:
            ticket.answer(InitProducerIdResponse(producer_id=found, producer_epoch=0))

    broker.producer_ids.next(done)
    return ticket.outcome()


def _init_transactional(broker: Services, request: Request, body: InitProducerIdRequest, transactional_id: str) -> Any:
    if not transactional_id:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_PRODUCER_EPOCH)
    transactions = broker.transactions
    try:
        machine = transactions.shards.shard_of(transactional_id).machine
    except ApiError as error:
        request.count_error(error.code)
        return InitProducerIdResponse(error_code=error.code, producer_epoch=NO_PRODUCER_EPOCH)
    ask = transactions.ask_with_producer_id if machine.needs_producer_id(body) else transactions.ask
    return ask(
        request,
        body,
        transactional_id,
        lambda machine, ticket, now_ms, producer_id: machine.init_producer_id(
            ticket, body, request.version, now_ms, producer_id
        ),
    )


def handle_describe_producers(
    broker: Services, request: Request, body: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Answer with the producers that each partition remembers."""
    answer = DescribeProducersResponse()
    for topic in body.topics:
        partitions = [_describe(broker, topic.name, index) for index in topic.partition_indexes]
        answer.topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return answer


def _describe(broker: Services, topic: str, index: int) -> PartitionResponse:
    try:
        partition = broker.replica_manager.partition(topic, index)
        partition.check_leader()
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in partition.log.producers.producers.values()
    ]
    return PartitionResponse(partition_index=index, active_producers=producers)
