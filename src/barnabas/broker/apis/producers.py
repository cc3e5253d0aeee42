"""InitProducerId: v0-5, an id for an idempotent producer. DescribeProducers: v0, what a partition knows of producers.

InitProducerId: every call without a transactional id gets a new id and epoch 0, also one that brings an id to have its
epoch raised (3+, KIP-360): clients take what they get. An id without an epoch, or the other way round, is
INVALID_REQUEST. A transactional id is refused until there are transactions.
"""

from typing import Any

from barnabas.broker.request_channel import Outcome, Request
from barnabas.broker.services import Services
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
    if body.transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if body.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_PRODUCER_EPOCH)
    answers: list[InitProducerIdResponse] = []

    def done(found: int | ApiError) -> None:
        if isinstance(found, ApiError):
            answer = InitProducerIdResponse(error_code=found.code, producer_epoch=NO_PRODUCER_EPOCH)
        else:
            answer = InitProducerIdResponse(producer_id=found, producer_epoch=0)
        if is_waiting:
            request.respond(answer)
        else:
            answers.append(answer)

    is_waiting = False
    broker.producer_ids.next(done)
    is_waiting = True
    return answers[0] if answers else Outcome.LATER


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
