"""DescribeSegments: what is told of segments, and of partitions that are not here."""

import errno
from collections.abc import Callable

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.storage.segment import LogSegment
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_segments import DescribeSegmentsRequest
from tests.broker.turning import append, on_loop
from tests.storage.builders import batch_of


def test_every_segment_is_explained(broker: Broker, connection: Connection, topic: Callable[..., str]) -> None:
    name = topic(2, **{"segment.bytes": 100, "retention.ms": -1, "retention.bytes": 10_000})
    now = broker.server.services.clock.now_ms()
    for number in range(3):
        append(broker, name, batch_of(1, timestamp=now - 100 + number), 1)
    answer = connection.request(DescribeSegmentsRequest(topic=name, partitions=[1, 0]))
    first, second = answer.partitions
    assert (first.partition_index, second.partition_index) == (1, 0)
    assert (first.error_code, first.error_message) == (ErrorCode.NONE, None)
    assert (first.log_start_offset, first.high_watermark, first.log_end_offset) == (0, 3, 3)
    assert (first.first_dirty_offset, first.cleaning) == (-1, None)
    rows = [(it.base_offset, it.end_offset, it.largest_timestamp, it.is_active) for it in first.segments]
    assert rows == [(0, 1, now - 100, False), (1, 2, now - 99, False), (2, 3, now - 98, True)]
    assert {(it.goes, it.reason, it.due_ms) for it in first.segments} == {(False, "within-limits", -1)}
    assert all("retention.bytes=10000" in it.sentence for it in first.segments)
    assert all(it.modified_ms >= now - 100 and it.created_ms >= now - 100 for it in first.segments)
    assert [it.reason for it in second.segments] == ["empty"]


def test_what_the_cleaner_says_is_told(
    broker: Broker, connection: Connection, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(**{"cleanup.policy": "compact"})
    append(broker, name, batch_of(1))
    services = broker.server.services
    monkeypatch.setattr(services, "cleaning_of", lambda partition: f"{partition} waits")
    monkeypatch.setattr(services, "first_dirty_offset_of", lambda partition: 7)
    (row,) = connection.request(DescribeSegmentsRequest(topic=name, partitions=[0])).partitions
    assert (row.cleaning, row.first_dirty_offset) == (f"{name}-0 waits", 7)
    assert [it.reason for it in row.segments] == ["compacted"]


def test_partitions_that_are_not_here_have_an_error_of_their_own(
    connection: Connection, topic: Callable[..., str]
) -> None:
    name = topic()
    found, missing = connection.request(DescribeSegmentsRequest(topic=name, partitions=[0, 9])).partitions
    assert found.error_code == ErrorCode.NONE
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.segments == []
    (unknown,) = connection.request(DescribeSegmentsRequest(topic="nobody", partitions=[0])).partitions
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_file_that_can_not_be_looked_at_is_an_answer(
    broker: Broker, connection: Connection, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()

    def fail(segment: LogSegment) -> int:
        raise OSError(errno.EIO, "no")

    on_loop(broker, lambda: monkeypatch.setattr(LogSegment, "modified_ms", fail))
    (row,) = connection.request(DescribeSegmentsRequest(topic=name, partitions=[0])).partitions
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "no" in row.error_message
