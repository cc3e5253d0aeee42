"""Segments as a client sees them, and a broker that does not speak of them."""

import pytest

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.metadata import UnknownPartitionError
from barnabas.client.producer import Producer
from barnabas.client.segments import NoExplanationError, describe_segments
from barnabas.model import TopicPartition
from barnabas.wire.apis import DESCRIBE_SEGMENTS_KEY

ORDERS = [TopicPartition("orders", 1), TopicPartition("orders", 0)]


def test_segments_come_by_partition_with_none_where_nothing_is_known() -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name="orders", partitions=2, configs={"retention.ms": "-1"})]) == {}
        with Producer(client) as producer:
            producer.send("orders", b"v", partition=1)
        first, second = describe_segments(client, ORDERS)
        assert (first.partition, second.partition) == (0, 1)
        assert (second.log_start_offset, second.high_watermark, second.log_end_offset) == (0, 1, 1)
        assert (second.first_dirty_offset, second.cleaning) == (None, None)
        (segment,) = second.segments
        assert (segment.base_offset, segment.end_offset, segment.is_active, segment.goes) == (0, 1, True, False)
        assert (segment.reason, segment.due_ms) == ("no-limit", None)
        assert segment.largest_timestamp is not None
        assert first.segments[0].largest_timestamp is None
        with pytest.raises(UnknownPartitionError, match="but no 9"):
            describe_segments(client, [TopicPartition("orders", 9)])


def test_a_broker_that_does_not_know_the_question_is_said_so() -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name="orders", partitions=2)]) == {}
        for leader in client.by_leader(ORDERS):
            del client.connection_to(leader)._supported[DESCRIBE_SEGMENTS_KEY]
        with pytest.raises(NoExplanationError, match="only a Barnabas broker explains"):
            describe_segments(client, ORDERS)
