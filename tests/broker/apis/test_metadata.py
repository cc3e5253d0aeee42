"""Metadata, DescribeCluster, DescribeTopicPartitions: brokers, topics and who leads what."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker_config import Endpoint
from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from tests.broker.asking import connected, create_topic, incremental, produce, topic_changes
from tests.storage.builders import batch_of

Topic = Callable[..., str]
NO_OPERATIONS = -(2**31)


@pytest.fixture
def open_broker() -> Iterator[Broker]:
    """A broker that creates topics when they are asked for."""
    with Broker(in_process=True, settings={"num.partitions": 3}) as broker:
        yield broker


def asking_for(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_brokers_and_topics(
    connection: Connection, broker: Broker, topic: Topic, version: int
) -> None:
    name = topic(partitions=2)
    answer = connection.request(asking_for(name), version)
    (node,) = answer.brokers
    assert (node.node_id, f"{node.host}:{node.port}", node.rack) == (0, broker.bootstrap_servers, None)
    assert answer.controller_id == (0 if version >= 1 else -1)
    assert answer.cluster_id == (broker.server.services.cluster_id if version >= 2 else None)
    (found,) = answer.topics
    assert (found.error_code, found.name, found.is_internal) == (ErrorCode.NONE, name, False)
    topic_id = broker.server.services.cache.topics[name].topic_id.bytes
    assert found.topic_id == (topic_id if version >= 10 else bytes(16))
    partitions = [
        (one.error_code, one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes, one.offline_replicas)
        for one in found.partitions
    ]
    assert partitions == [(0, 0, 0, [0], [0], []), (0, 1, 0, [0], [0], [])]
    assert [one.leader_epoch for one in found.partitions] == ([0, 0] if version >= 7 else [-1, -1])


def test_no_list_is_all_topics_and_an_empty_one_none(connection: Connection, topic: Topic) -> None:
    names = {topic(), topic()}
    assert names <= {found.name for found in connection.request(MetadataRequest(topics=[]), 0).topics}
    for version in range(1, 14):
        assert names <= {found.name for found in connection.request(MetadataRequest(topics=None), version).topics}
        assert connection.request(MetadataRequest(topics=[]), version).topics == []


def test_topics_are_answered_in_the_order_they_were_asked_for(connection: Connection, topic: Topic) -> None:
    first, second = topic(), topic()
    answer = connection.request(asking_for(second, "no-such-topic", first, allow_auto_topic_creation=False))
    assert [(one.name, one.error_code) for one in answer.topics] == [
        (second, ErrorCode.NONE),
        ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (first, ErrorCode.NONE),
    ]


def test_topics_are_found_by_id(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    topic_id = broker.server.services.cache.topics[name].topic_id.bytes
    asked = [MetadataRequestTopic(name=None, topic_id=one) for one in (topic_id, b"x" * 16)]
    known, unknown = connection.request(MetadataRequest(topics=asked), 12).topics
    assert (known.name, known.topic_id, len(known.partitions)) == (name, topic_id, 1)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_10_and_11_have_no_topics_by_id(connection: Connection, topic: Topic, version: int) -> None:
    name = topic()
    asked = [MetadataRequestTopic(name=None, topic_id=b"x" * 16), MetadataRequestTopic(name=name)]
    refused, found = connection.request(MetadataRequest(topics=asked), version).topics
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert (found.name, found.error_code) == (name, ErrorCode.NONE)


def test_operations_are_told_where_they_are_asked_for(connection: Connection, topic: Topic) -> None:
    name = topic()
    plain = connection.request(asking_for(name), 8)
    assert (plain.cluster_authorized_operations, plain.topics[0].topic_authorized_operations) == (NO_OPERATIONS,) * 2
    fields = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    asked = connection.request(asking_for(name, **fields), 8)
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS by Kafka's numbers.
    assert asked.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert asked.cluster_authorized_operations > 0


# Topics that come into being.


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_topic_is_created_when_it_is_asked_for(open_broker: Broker, version: int) -> None:
    with connected(open_broker) as connection:
        (created,) = connection.request(asking_for("new"), version).topics
        assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 3)
        now = open_broker.server.services.clock.now_ms()
        for partition in range(3):
            assert produce(connection, "new", batch_of(timestamp=now), partition).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(4, 14))
def test_a_client_can_forbid_that_a_topic_is_created(open_broker: Broker, version: int) -> None:
    with connected(open_broker) as connection:
        (found,) = connection.request(asking_for("new", allow_auto_topic_creation=False), version).topics
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert connection.request(MetadataRequest(topics=None)).topics == []


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_broker_can_forbid_that_topics_are_created(connection: Connection, broker: Broker, version: int) -> None:
    (found,) = connection.request(asking_for("forbidden"), version).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "forbidden" not in broker.server.services.cache.topics


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(open_broker: Broker, name: str) -> None:
    with connected(open_broker) as connection:
        (found,) = connection.request(asking_for(name)).topics
        assert (found.name, found.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_an_internal_topic_is_not_created_by_asking_for_it(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        for name in ("__consumer_offsets", "__transaction_state"):
            (found,) = connection.request(asking_for(name)).topics
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert connection.request(MetadataRequest(topics=None)).topics == []


def test_a_name_that_collides_is_refused(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        create_topic(connection, "a.b")
        (found,) = connection.request(asking_for("a_b")).topics
        assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_many_clients_that_ask_for_a_topic_at_once_find_the_same(open_broker: Broker) -> None:
    ids: list[bytes] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        with connected(open_broker) as connection:
            barrier.wait(60)
            answer = connection.request(asking_for("popular", "common"))
            assert [one.error_code for one in answer.topics] == [ErrorCode.NONE] * 2
            assert [len(one.partitions) for one in answer.topics] == [3, 3]
            ids.append(answer.topics[0].topic_id)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1


def test_a_name_that_is_asked_for_twice_is_created_once(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        first, second = connection.request(asking_for("twice", "twice")).topics
        assert first == second
        assert first.error_code == ErrorCode.NONE


def test_a_changed_setting_is_no_new_topic(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        (before,) = connection.request(asking_for("orders")).topics
        connection.request(incremental(topic_changes("orders", ("segment.ms", 0, "5"))))
        (after,) = connection.request(asking_for("orders")).topics
        assert before == after


# Where the broker is.


def test_a_client_is_told_the_advertised_address_and_rack() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://broker.example:12345", "broker.rack": "r7", "node.id": 4}
    with Broker(in_process=True, settings=settings) as broker, connected(broker) as connection:
        (node,) = connection.request(MetadataRequest()).brokers
        assert (node.node_id, node.host, node.port, node.rack) == (4, "broker.example", 12345, "r7")
        (node,) = connection.request(DescribeClusterRequest()).brokers
        assert (node.broker_id, node.host, node.port, node.rack) == (4, "broker.example", 12345, "r7")


def test_of_a_listener_on_every_address_a_client_is_told_the_one_it_came_to() -> None:
    with Broker(in_process=True, listen="0.0.0.0:0") as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        with connected(broker) as connection:
            (node,) = connection.request(MetadataRequest()).brokers
        assert (node.host, node.port) == ("127.0.0.1", int(port))


def test_a_client_of_another_listener_is_told_another_address(broker: Broker) -> None:
    services = broker.server.services
    services.listening["EXTERNAL"] = Endpoint("EXTERNAL", "0.0.0.0", 777)
    assert services.advertised("EXTERNAL", "192.0.2.9") == Endpoint("EXTERNAL", "192.0.2.9", 777)
    del services.listening["EXTERNAL"]


# DescribeCluster.


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(connection: Connection, broker: Broker, version: int) -> None:
    answer = connection.request(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert (answer.cluster_id, answer.controller_id) == (broker.server.services.cluster_id, 0)
    assert [f"{node.host}:{node.port}" for node in answer.brokers] == [broker.bootstrap_servers]
    assert answer.cluster_authorized_operations == NO_OPERATIONS
    asked = connection.request(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations > 0


def test_there_are_no_controllers_of_their_own_to_describe(connection: Connection) -> None:
    answer = connection.request(DescribeClusterRequest(endpoint_type=2), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert answer.brokers == []


# DescribeTopicPartitions.


def pages(connection: Connection, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    """Go through all pages, and return the topics and partitions of each."""
    found = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        answer = connection.request(request)
        found.append([(one.name, [row.partition_index for row in one.partitions]) for one in answer.topics])
        cursor = answer.next_cursor
        if cursor is None:
            return found


def test_partitions_are_described_page_by_page(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            create_topic(connection, name, partitions)
        everything = [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
        assert pages(connection, 100) == [everything]
        assert pages(connection, 6) == [everything]
        assert pages(connection, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
        assert pages(connection, 4) == [[("a", [0, 1]), ("b", [0, 1])], [("b", [2]), ("c", [0])]]
        assert pages(connection, 1, "c", "b") == [[("b", [0])], [("b", [1])], [("b", [2])], [("c", [0])]]
        assert pages(connection, 0, "c") == [[("c", [0])]]


def test_a_page_has_at_most_as_many_partitions_as_the_broker_allows() -> None:
    settings = {"max.request.partition.size.limit": 2}
    with Broker(in_process=True, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "orders", 3)
        assert pages(connection, 2000) == [[("orders", [0, 1])], [("orders", [2])]]


def test_a_described_topic_has_everything_that_metadata_has(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic()
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    (found,) = connection.request(request).topics
    assert found.topic_id == broker.server.services.cache.topics[name].topic_id.bytes
    (row,) = found.partitions
    assert (row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes) == (0, 0, [0], [0])
    assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ([], [], [])


def test_topics_that_do_not_exist_are_told_and_not_created(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="missing"), TopicRequest(name="a b")])
        found = {one.name: one.error_code for one in connection.request(request).topics}
        assert found == {
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert connection.request(MetadataRequest(topics=None)).topics == []


def test_a_cursor_that_points_nowhere_begins_at_what_follows(open_broker: Broker) -> None:
    with connected(open_broker) as connection:
        create_topic(connection, "b", 2)
        for cursor, expected in [
            (Cursor(topic_name="a", partition_index=1), [("b", 2)]),
            (Cursor(topic_name="b", partition_index=1), [("b", 1)]),
            (Cursor(topic_name="b", partition_index=7), [("b", 0)]),
            (Cursor(topic_name="z", partition_index=0), []),
        ]:
            answer = connection.request(DescribeTopicPartitionsRequest(cursor=cursor))
            assert [(one.name, len(one.partitions)) for one in answer.topics] == expected
            assert answer.next_cursor is None


def test_a_cursor_before_the_first_partition_is_refused(connection: Connection, topic: Topic) -> None:
    cursor = Cursor(topic_name="a", partition_index=-1)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic())], cursor=cursor)
    assert connection.request(request).topics[0].error_code == ErrorCode.INVALID_REQUEST
