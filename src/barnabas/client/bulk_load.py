"""Asks a broker to adopt the segments of a bulk load, which lie beside its logs. Only Barnabas can; see AdoptSegments.

Rule 1: the question is asked again after a connection broke. A broker that has adopted the load by then says so, with
the offsets, and that is the answer to the first question; without a break it is a load with an id that was used before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.answers import check_answer
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, Connection, ConnectionFailedError, UnsupportedVersionError
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.adopt_segments import AdoptSegmentsRequest


class NoBulkLoadError(ClientError):
    """The broker can not adopt segments; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedRange:
    """The offsets that the records of a load got in a partition."""

    partition: int
    base_offset: int
    end_offset: int


def adopt_segments(
    client: Client, load_id: str, topic: str, partitions: Sequence[int], *, check_crcs: bool = True
) -> list[AdoptedRange]:
    """Let the broker adopt a load; raises ApiError when it refuses, NoBulkLoadError when it is not a Barnabas."""
    question = AdoptSegmentsRequest(load_id=load_id, topic=topic, partitions=list(partitions), check_crcs=check_crcs)
    is_repeated = False

    def attempt() -> Any:
        nonlocal is_repeated
        connection = _leader(client, topic, partitions)
        try:
            return connection.request(question)
        except ConnectionFailedError:
            is_repeated = True
            raise

    answer = client.retrying(attempt)
    if not (is_repeated and answer.error_code == ErrorCode.DUPLICATE_RESOURCE):
        check_answer(answer.error_code, f"load {load_id} is not adopted", answer.error_message)
    return _ranges(answer)


def adopted_load(client: Client, load_id: str, topic: str) -> list[AdoptedRange]:
    """Return where the records of a load are that was adopted before; nothing when there is no such load."""

    def attempt() -> Any:
        return _leader(client, topic, [0]).request(AdoptSegmentsRequest(load_id=load_id, topic=topic))

    return _ranges(client.retrying(attempt))


def _ranges(answer: Any) -> list[AdoptedRange]:
    return [
        AdoptedRange(partition=one.partition_index, base_offset=one.base_offset, end_offset=one.end_offset)
        for one in answer.partitions
    ]


def _leader(client: Client, topic: str, partitions: Sequence[int]) -> Connection:
    """Return a connection to the one broker that leads all these partitions."""
    leaders = client.by_leader([TopicPartition(topic, partition) for partition in partitions])
    if len(leaders) != 1:
        raise NoBulkLoadError(f"bulk load needs one broker that leads all partitions, but {topic} has {len(leaders)}")
    connection = client.connection_to(next(iter(leaders)))
    try:
        connection.version_of("AdoptSegments")
    except UnsupportedVersionError:
        raise NoBulkLoadError(f"bulk load needs a Barnabas broker, and {connection.address} is none") from None
    return connection
