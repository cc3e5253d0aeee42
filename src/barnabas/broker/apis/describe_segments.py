"""DescribeSegments: v0, an API of our own. What segments the logs of a topic have, and why each is still there.

Behaviour: a row for every partition that is asked for, with an error of its own where it is not here. Reasons are those
of storage/retention.py, with a sentence for people; -1 stands for times and offsets that there are none of. `due_ms` is
the first moment at which the segment goes if nothing is written.

Errors: those of Fetch for partitions that are not here; KAFKA_STORAGE_ERROR when a file can not be looked at.
"""

from barnabas.broker.log_retention import ExplainedSegment
from barnabas.broker.partition import Partition
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.model import NO_OFFSET
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_segments import (
    DescribedSegment,
    DescribedSegmentsPartition,
    DescribeSegmentsRequest,
    DescribeSegmentsResponse,
)

NO_TIME = -1


def handle_describe_segments(
    broker: Services, request: Request, body: DescribeSegmentsRequest
) -> DescribeSegmentsResponse:
    """Tell of the segments of some partitions of a topic."""
    answer = DescribeSegmentsResponse()
    found: dict[int, Partition] = {}
    for index in body.partitions:
        row = DescribedSegmentsPartition(partition_index=index)
        answer.partitions.append(row)
        try:
            found[index] = broker.replica_manager.partition(body.topic, index)
        except ApiError as error:
            row.error_code, row.error_message = int(error.code), error.message
    try:
        explained = broker.log_retention.explain(body.topic) if found else {}
    except OSError as error:
        explained = {}
        for row in answer.partitions:
            row.error_code, row.error_message = int(ErrorCode.KAFKA_STORAGE_ERROR), str(error)
    for row in answer.partitions:
        if row.partition_index in explained and row.error_code == ErrorCode.NONE:
            _fill(broker, row, found[row.partition_index])
            row.segments = [_segment(one) for one in explained[row.partition_index]]
    return answer


def _fill(broker: Services, row: DescribedSegmentsPartition, partition: Partition) -> None:
    log, name = partition.log, partition.topic_partition
    row.log_start_offset = log.log_start_offset
    row.high_watermark = log.high_watermark.message_offset
    row.log_end_offset = log.log_end_offset
    first_dirty_offset = broker.first_dirty_offset_of(name)
    row.first_dirty_offset = NO_OFFSET if first_dirty_offset is None else first_dirty_offset
    row.cleaning = broker.cleaning_of(name)


def _segment(explained: ExplainedSegment) -> DescribedSegment:
    facts, verdict = explained.facts, explained.verdict
    return DescribedSegment(
        base_offset=facts.base_offset,
        end_offset=facts.end_offset,
        size_bytes=facts.size_bytes,
        largest_timestamp=facts.largest_timestamp,
        created_ms=explained.created_ms,
        modified_ms=NO_TIME if facts.modified_ms is None else facts.modified_ms,
        is_active=facts.is_active,
        goes=verdict.goes,
        reason=verdict.reason.value,
        due_ms=NO_TIME if verdict.due_ms is None else verdict.due_ms,
        sentence=verdict.sentence,
    )
