"""Finding brokers, knowing who leads what, asking again; against brokers that do what the test says."""

import socket
from typing import Any

import pytest

from barnabas.client.client import Client
from barnabas.client.connection import ConnectionFailedError
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.options import ClientOptions
from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from tests.client.fake_broker import FakeBroker, Hangup, after


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_the_first_server_that_answers_is_used() -> None:
    with FakeBroker(topics={"t": 1}) as broker:
        servers = f"127.0.0.1:{closed_port()},{broker.bootstrap_servers}"
        with Client(servers) as client:
            assert client.topic("t").name == "t"
            assert client.leader_of(TopicPartition("t", 0)) == 1
            client.connection_to(1)
        assert {request.connection for request in broker.requests} == {0}, "one connection serves for everything"


def test_a_wrong_address_is_said_at_once() -> None:
    clock = ManualClock()
    port = closed_port()
    with Client(f"127.0.0.1:{port}", clock=clock) as client:
        with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}: Connection refused"):
            client.topic("t")
        with pytest.raises(ConnectionFailedError):
            client.request(InitProducerIdRequest(transactional_id=None))
    assert clock.monotonic_seconds() == 0.0


def test_a_broker_that_was_there_is_waited_for() -> None:
    clock = ManualClock()
    with FakeBroker(topics={"t": 1}) as broker, Client(broker.bootstrap_servers, clock=clock) as client:
        client.topic("t")
        broker.close()
        client.forget_metadata()
        with pytest.raises(ConnectionFailedError):
            client.topic("t")
        assert clock.monotonic_seconds() >= client.options.default_api_timeout_ms / 1000


def test_a_connection_that_breaks_is_opened_again() -> None:
    init = after(Hangup(), then=lambda *_: InitProducerIdResponse(producer_id=9))
    with FakeBroker({"InitProducerId": init}) as broker:
        with Client(broker.bootstrap_servers, clock=ManualClock()) as client:
            client.cluster()
            assert client.request(InitProducerIdRequest(transactional_id=None)).producer_id == 9
        assert [request.connection for request in broker.named("InitProducerId")] == [0, 1]


def test_metadata_is_asked_for_once_until_it_is_forgotten() -> None:
    with FakeBroker(topics={"t": 2}) as broker, Client(broker.bootstrap_servers) as client:
        for _ in range(3):
            client.leader_of(TopicPartition("t", 1))
            client.connection_to_controller()
        assert len(broker.named("Metadata")) == 1
        client.forget_metadata()
        client.leader_of(TopicPartition("t", 1))
        assert len(broker.named("Metadata")) == 2


def test_several_topics_are_asked_for_together() -> None:
    with FakeBroker(topics={"a": 1, "b": 1}) as broker, Client(broker.bootstrap_servers) as client:
        partitions = [TopicPartition("a", 0), TopicPartition("b", 0)]
        assert client.by_leader(partitions) == {1: partitions}
        assert len(broker.named("Metadata")) == 1


def test_a_topic_that_does_not_exist_is_named_at_once() -> None:
    clock = ManualClock()
    with FakeBroker(topics={"t": 2}) as broker, Client(broker.bootstrap_servers, clock=clock) as client:
        with pytest.raises(UnknownTopicError, match="there is no topic 'orders'"):
            client.topic("orders")
        with pytest.raises(UnknownTopicError, match="topic 't' has partitions 0 to 1, but no 2"):
            client.partition(TopicPartition("t", 2))
        assert not broker.named("Metadata")[0].message.allow_auto_topic_creation
    assert clock.monotonic_seconds() == 0.0


def test_a_topic_that_asking_creates_is_waited_for() -> None:
    clock = ManualClock()
    with FakeBroker() as broker, Client(broker.bootstrap_servers, clock=clock) as client:

        def metadata(message: Any, version: int) -> Any:
            answer = broker.metadata(message, version)
            broker.topics, broker.topic_ids = {"new": 1}, {"new": bytes(15) + b"\1"}
            return answer

        broker.handlers["Metadata"] = metadata
        assert client.topic("new", allow_auto_topic_creation=True).name == "new"
        assert [request.message.allow_auto_topic_creation for request in broker.named("Metadata")] == [True, True]
        with pytest.raises(UnknownTopicError):
            client.topic("other", allow_auto_topic_creation=True)
    assert 5 <= clock.monotonic_seconds() < 10


def test_an_error_of_a_topic_is_raised_or_waited_out() -> None:
    clock = ManualClock()
    with FakeBroker(topics={"t": 1}) as broker, Client(broker.bootstrap_servers, clock=clock) as client:
        not_yet = MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=ErrorCode.LEADER_NOT_AVAILABLE)])
        broker.handlers["Metadata"] = after(not_yet, not_yet, then=broker.metadata)
        assert client.topic("t").name == "t"
        refused = MetadataResponse(topics=[MetadataResponseTopic(name="x", error_code=29)])
        broker.handlers["Metadata"] = lambda *_: refused
        with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: topic 'x' can not be used"):
            client.topic("x")


def test_a_partition_without_a_leader_and_a_broker_that_is_gone_are_said() -> None:
    with FakeBroker(topics={"t": 1}) as broker, Client(broker.bootstrap_servers) as client:
        broker.leaders["t", 0] = -1
        with pytest.raises(ApiError, match="LEADER_NOT_AVAILABLE: t-0 has no leader"):
            client.leader_of(TopicPartition("t", 0))
        with pytest.raises(ApiError, match="BROKER_NOT_AVAILABLE: broker 7"):
            client.connection_to(7)


def test_attempts_end_with_the_last_error() -> None:
    clock = ManualClock()
    options = ClientOptions(default_api_timeout_ms=1_000)
    attempts = []

    def attempt() -> None:
        attempts.append(clock.monotonic_seconds())
        raise ApiError(ErrorCode.NOT_CONTROLLER, f"attempt {len(attempts)}")

    with (
        Client("127.0.0.1:1", options, clock=clock) as client,
        pytest.raises(ApiError, match="NOT_CONTROLLER: attempt 5"),
    ):
        client.retrying(attempt)
    assert len(attempts) == 5


def test_a_real_broker_is_found(bootstrap_servers: str) -> None:
    with Client(f"127.0.0.1:{closed_port()},{bootstrap_servers}") as client:
        cluster = client.cluster()
        assert cluster.controller_id in cluster.nodes
        assert str(cluster.nodes[cluster.controller_id].address) == bootstrap_servers
