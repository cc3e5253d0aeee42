"""Offsets by place and time, deleting records, and leaders that move."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.client import Client
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    TO_HIGH_WATERMARK,
    delete_records,
    list_offsets,
    offsets_at,
)
from barnabas.client.producer import Producer
from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.fake_broker import FakeBroker, Hangup, after

START_MS = 1_700_000_000_000


@pytest.fixture
def partition(client: Client, make_topic: Callable[..., str]) -> TopicPartition:
    """Ten records, a second apart."""
    topic = make_topic(partitions=2)
    with Producer(client) as producer:
        for number in range(10):
            producer.send(topic, b"v", partition=0, timestamp=START_MS + number * 1_000)
            producer.flush()
    return TopicPartition(topic, 0)


def test_offsets_are_found_by_place_and_by_time(client: Client, partition: TopicPartition) -> None:
    empty = TopicPartition(partition.topic, 1)
    assert offsets_at(client, [partition, empty], EARLIEST) == {partition: 0, empty: 0}
    assert offsets_at(client, [partition, empty], LATEST) == {partition: 10, empty: 0}
    assert offsets_at(client, [partition, empty], START_MS + 2_500) == {partition: 3, empty: 0}
    assert offsets_at(client, [partition], START_MS + 3_000) == {partition: 3}
    assert offsets_at(client, [partition], START_MS + 60_000) == {partition: 10}, "the end, when nothing is so late"
    found = list_offsets(client, {partition: MAX_TIMESTAMP})[partition]
    assert (found.offset, found.timestamp) == (9, START_MS + 9_000)


def test_records_are_deleted_up_to_an_offset(client: Client, partition: TopicPartition) -> None:
    assert delete_records(client, {partition: 4}) == {partition: 4}
    assert offsets_at(client, [partition], EARLIEST) == {partition: 4}
    with pytest.raises(ApiError, match=rf"OFFSET_OUT_OF_RANGE: deleting records of {partition} before offset 99"):
        delete_records(client, {partition: 99})
    assert delete_records(client, {partition: TO_HIGH_WATERMARK}) == {partition: 10}


def test_a_missing_partition_is_named(client: Client, partition: TopicPartition) -> None:
    with pytest.raises(UnknownTopicError, match="but no 7"):
        offsets_at(client, [TopicPartition(partition.topic, 7)], LATEST)


def answer_for(*rows: tuple[int, int, int]) -> ListOffsetsResponse:
    """(partition, error code, offset) of the topic t."""
    partitions = [ListOffsetsPartitionResponse(partition_index=p, error_code=e, offset=o) for p, e, o in rows]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


def echo(message: Any, version: int) -> Any:
    return answer_for(*((p.partition_index, 0, 100 + p.partition_index) for p in message.topics[0].partitions))


@pytest.mark.parametrize(
    "first", [answer_for((0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (1, 0, 101)), answer_for((1, 0, 101)), Hangup()]
)
def test_only_what_failed_is_asked_again(first: Any) -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with FakeBroker({"ListOffsets": after(first, then=echo)}, topics={"t": 2}) as broker:
        with Client(broker.bootstrap_servers, clock=ManualClock()) as client:
            if isinstance(first, ListOffsetsResponse) and len(first.topics[0].partitions) == 1:
                with pytest.raises(ApiError, match="t-0 is missing in the leader's answer"):
                    offsets_at(client, partitions, LATEST)
                return
            assert offsets_at(client, partitions, LATEST) == {partitions[0]: 100, partitions[1]: 101}
        asked = [len(request.message.topics[0].partitions) for request in broker.named("ListOffsets")]
        assert asked == ([2, 2] if isinstance(first, Hangup) else [2, 1])
        assert len(broker.named("Metadata")) == 2


def test_an_error_that_stays_is_raised_before_one_that_may_pass() -> None:
    rows = answer_for((0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (1, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1))
    clock = ManualClock()
    with (
        FakeBroker({"ListOffsets": lambda *_: rows}, topics={"t": 2}) as broker,
        Client(broker.bootstrap_servers, clock=clock) as client,
        pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: the offsets of t-1"),
    ):
        offsets_at(client, [TopicPartition("t", 0), TopicPartition("t", 1)], LATEST)
    assert clock.monotonic_seconds() == 0.0
