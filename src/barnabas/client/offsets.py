"""Offsets of partitions, as their leaders know them: the first, the end, the one of a time; and deleting up to one.

Questions go to the leader of each partition, one request a leader, and are asked again for what failed in a way that
another attempt may mend.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from barnabas.client.answers import error_of, is_retriable
from barnabas.client.client import Client
from barnabas.client.connection import Connection
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

# What a timestamp may be besides a time: the protocol's own numbers.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

CONSUMER_REPLICA_ID = -1
TO_HIGH_WATERMARK = -1
"""As the offset to delete records up to: everything there is."""

# Since this version a read_committed consumer is told the last stable offset instead of the high watermark.
_ISOLATION_VERSION = 2

Answer = TypeVar("Answer")


class IsolationLevel(IntEnum):
    """Which records a consumer sees: all, or those of finished transactions that were not aborted."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """The offset that was asked for. Both are -1 when no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


def ask_leaders(
    client: Client,
    partitions: Collection[TopicPartition],
    ask: Callable[[Connection, list[TopicPartition]], Mapping[TopicPartition, Answer | ApiError]],
) -> dict[TopicPartition, Answer]:
    """Ask the leader of each partition, until all have answered; raises the first error that no attempt can mend."""
    answers: dict[TopicPartition, Answer] = {}

    def attempt() -> None:
        left = [partition for partition in partitions if partition not in answers]
        failure: ApiError | None = None
        for leader_id, led in client.by_leader(left).items():
            found = ask(client.connection_to(leader_id), led)
            for partition in led:
                silence = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, f"{partition} is missing in the leader's answer")
                answer = found.get(partition, silence)
                if not isinstance(answer, ApiError):
                    answers[partition] = answer
                elif failure is None or is_retriable(failure):
                    failure = answer
        if failure is not None:
            raise failure

    client.retrying(attempt)
    return answers


def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """Return, for each partition, the offset of the first record at or after a time, or of EARLIEST, LATEST, ..."""

    def ask(connection: Connection, partitions: list[TopicPartition]) -> dict[TopicPartition, FoundOffset | ApiError]:
        version = connection.version_of("ListOffsets")
        assert isolation == IsolationLevel.READ_UNCOMMITTED or version >= _ISOLATION_VERSION
        topics: dict[str, ListOffsetsTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamps[partition])
            )
        question = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=isolation,
            topics=list(topics.values()),
            timeout_ms=client.options.request_timeout_ms,
        )
        found: dict[TopicPartition, FoundOffset | ApiError] = {}
        for topic_answer in connection.request(question, version).topics:
            for row in topic_answer.partitions:
                partition = TopicPartition(topic_answer.name, row.partition_index)
                if row.error_code != ErrorCode.NONE:
                    found[partition] = error_of(row.error_code, f"the offsets of {partition}")
                else:
                    found[partition] = FoundOffset(
                        offset=row.offset, timestamp=row.timestamp, leader_epoch=row.leader_epoch
                    )
        return found

    return ask_leaders(client, timestamps, ask)


def offsets_at(
    client: Client,
    partitions: Collection[TopicPartition],
    timestamp: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return the same for several partitions; where no record is that late, the end of the partition."""
    found = list_offsets(client, dict.fromkeys(partitions, timestamp), isolation)
    offsets = {partition: answer.offset for partition, answer in found.items()}
    late = [partition for partition, offset in offsets.items() if offset < 0]
    if late and timestamp not in (EARLIEST, LATEST):
        offsets |= offsets_at(client, late, LATEST, isolation)
    return offsets


def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete what is below an offset of each partition, and return the first offset that each has then."""

    def ask(connection: Connection, partitions: list[TopicPartition]) -> dict[TopicPartition, int | ApiError]:
        topics: dict[str, DeleteRecordsTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic))
            topic.partitions.append(
                DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
            )
        question = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=client.options.request_timeout_ms)
        deleted: dict[TopicPartition, int | ApiError] = {}
        for topic_answer in connection.request(question).topics:
            for row in topic_answer.partitions:
                partition = TopicPartition(topic_answer.name, row.partition_index)
                is_fine = row.error_code == ErrorCode.NONE
                failure = f"deleting records of {partition} before offset {before[partition]}"
                deleted[partition] = row.low_watermark if is_fine else error_of(row.error_code, failure)
        return deleted

    return ask_leaders(client, before, ask)
