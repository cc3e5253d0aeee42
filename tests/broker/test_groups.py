"""The groups of a broker: topics as machines see them, topics that go, and producers that were replaced."""

from barnabas.broker.groups import CachedTopics
from barnabas.coordination.step import TopicDescription
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic
from tests.broker.coordinating import TRANSACTION, commit, commit_in, committed, end, find, init
from tests.broker.turning import on_loop, until


def test_machines_see_the_topics_of_the_metadata() -> None:
    with Broker(in_process=True) as broker, connected(broker) as connection:
        topic_id = create_topic(connection, "orders", 3)
        topics = CachedTopics(broker.server.services.cache)
        expected = TopicDescription("orders", topic_id, 3)
        assert on_loop(broker, lambda: (topics.by_name("orders"), topics.by_id(topic_id))) == (expected, expected)
        assert on_loop(broker, lambda: (topics.by_name("other"), topics.by_id(bytes(16)))) == (None, None)
        assert on_loop(broker, lambda: list(topics.names())) == ["orders"]


def test_the_offsets_of_a_topic_go_with_it() -> None:
    with Broker(in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        find(connection, "g")
        assert commit(connection, "g", {("orders", 0): 5}) == [0]
        connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))
        until(lambda: committed(connection, "g", "orders")[0] == -1)
        create_topic(connection, "orders")
        assert committed(connection, "g", "orders")[0] == -1, "it is another topic"


def test_a_producer_that_was_replaced_commits_nothing_and_disturbs_nobody() -> None:
    with Broker(in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        find(connection, "g")
        find(connection, "tx", TRANSACTION)
        old = init(connection, "tx")
        new = init(connection, "tx")
        assert commit_in(connection, new, "g", {("orders", 0): 5}) == [0]
        assert commit_in(connection, old, "g", {("orders", 0): 6}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert end(connection, new) is ErrorCode.NONE
        assert committed(connection, "g", "orders") == (5, 0)
