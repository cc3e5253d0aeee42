"""ListOffsets: v1-11, the offset of a time or of an end of a log. OffsetForLeaderEpoch: v2-4, where an epoch ends.

ListOffsets. -1 is the end that a consumer can read up to (with read_committed the last stable offset), -2 the start, -3
the record with the largest timestamp (7+, KIP-734), -4 the start of what is local (8+), -5 the end of what is tiered
(9+) and -6 what is to be tiered (11+): nothing is tiered here, so the last two have no offset. Any other number is a
time, and the answer the first record at or after it, or -1 when there is none that the consumer may read. A partition
that is named twice is INVALID_REQUEST.

OffsetForLeaderEpoch. The answer is the largest epoch that is not above the one asked for, and the offset where it ends.
"""

from collections import Counter

from barnabas.broker.partition import Partition
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, TimestampOffset
from barnabas.storage.batches import CorruptLogError
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.list_offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NOTHING = TimestampOffset(NO_TIMESTAMP, NO_OFFSET)

# From which version on each of the special times may be asked for.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle_list_offsets(broker: Services, request: Request, body: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer each partition by itself."""
    answer = ListOffsetsResponse()
    named = Counter((topic.name, asked.partition_index) for topic in body.topics for asked in topic.partitions)
    for topic in body.topics:
        partitions = []
        for asked in topic.partitions:
            one = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            try:
                if named[topic.name, asked.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a partition is named more than once")
                partition = broker.replica_manager.partition(topic.name, asked.partition_index)
                partition.check_leader(asked.current_leader_epoch)
                found = _find(partition, asked, request.version, body.isolation_level)
                one.timestamp, one.offset = found
                one.leader_epoch = _epoch_of(partition, found.offset)
            except ApiError as error:
                one.error_code = int(error.code)
            partitions.append(one)
        answer.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return answer


def _find(partition: Partition, asked: ListOffsetsPartition, version: int, isolation_level: int) -> TimestampOffset:
    time, log = asked.timestamp, partition.log
    if time < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(time, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version {version} knows no time {time}")
    end_offset = partition.fetch_limit(isolation_level).message_offset
    if time == LATEST:
        return TimestampOffset(NO_TIMESTAMP, end_offset)
    if time in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(NO_TIMESTAMP, log.log_start_offset)
    if time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    try:
        found = log.find_offset_of_max_timestamp() if time == MAX_TIMESTAMP else log.find_offset_by_timestamp(time)
    except CorruptLogError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except OSError as error:
        raise partition.storage_error(error) from error
    return found if found is not None and found.offset < end_offset else NOTHING


def _epoch_of(partition: Partition, offset: int) -> int:
    """Return the leader epoch that an offset was, or will be, written in."""
    if offset == NO_OFFSET:
        return -1
    epochs = [epoch for epoch, start_offset in partition.log.leader_epochs.entries if start_offset <= offset]
    return epochs[-1] if epochs else partition.leader_epoch


def handle_offset_for_leader_epoch(
    broker: Services, request: Request, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer each partition by itself."""
    answer = OffsetForLeaderEpochResponse()
    for topic in body.topics:
        partitions = [_epoch_end(broker, topic.topic, asked) for asked in topic.partitions]
        answer.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return answer


def _epoch_end(broker: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    one = EpochEndOffset(partition=asked.partition)
    try:
        partition = broker.replica_manager.partition(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
        log = partition.log
        one.leader_epoch, end_offset = log.leader_epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
        one.end_offset = end_offset
    except ApiError as error:
        one.error_code = int(error.code)
    return one
