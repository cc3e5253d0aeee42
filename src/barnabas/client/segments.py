"""Asks brokers what segments the logs of a topic have, and why each is still there. Only Barnabas can tell."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from barnabas.client.answers import check_answer
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, UnsupportedVersionError
from barnabas.model import TopicPartition
from barnabas.wire.messages.describe_segments import DescribeSegmentsRequest


class NoExplanationError(ClientError):
    """The broker can not tell of segments; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment of a log, and why it is still there. Times are in milliseconds since 1970, None where there is none."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int | None
    created_ms: int | None
    modified_ms: int | None
    is_active: bool
    goes: bool
    reason: str
    due_ms: int | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSegments:
    """The segments of a partition, oldest first."""

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    first_dirty_offset: int | None
    cleaning: str | None
    segments: tuple[Segment, ...]


def describe_segments(client: Client, partitions: Collection[TopicPartition]) -> list[PartitionSegments]:
    """Return the segments of partitions of one topic, by partition; raises ApiError, or NoExplanationError."""

    def attempt() -> list[Any]:
        rows: list[Any] = []
        for leader, led in client.by_leader(partitions).items():
            connection = client.connection_to(leader)
            question = DescribeSegmentsRequest(topic=led[0].topic, partitions=[one.partition for one in led])
            try:
                connection.version_of("DescribeSegments")
            except UnsupportedVersionError:
                message = f"only a Barnabas broker explains its segments, and {connection.address} is none"
                raise NoExplanationError(message) from None
            for row in connection.request(question).partitions:
                what = f"the segments of {TopicPartition(led[0].topic, row.partition_index)}"
                check_answer(row.error_code, what, row.error_message)
                rows.append(row)
        return rows

    return sorted((_partition(row) for row in client.retrying(attempt)), key=lambda one: one.partition)


def _partition(row: Any) -> PartitionSegments:
    return PartitionSegments(
        partition=row.partition_index,
        log_start_offset=row.log_start_offset,
        high_watermark=row.high_watermark,
        log_end_offset=row.log_end_offset,
        first_dirty_offset=_known(row.first_dirty_offset),
        cleaning=row.cleaning,
        segments=tuple(_segment(one) for one in row.segments),
    )


def _segment(row: Any) -> Segment:
    return Segment(
        base_offset=row.base_offset,
        end_offset=row.end_offset,
        size_bytes=row.size_bytes,
        largest_timestamp=_known(row.largest_timestamp),
        created_ms=_known(row.created_ms),
        modified_ms=_known(row.modified_ms),
        is_active=row.is_active,
        goes=row.goes,
        reason=row.reason,
        due_ms=_known(row.due_ms),
        sentence=row.sentence,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
