"""Faults come in order, as often as they were asked for, and do to a real connection what they say."""

from collections.abc import Iterator

import pytest

from barnabas.broker.faults import ALWAYS, Faults
from barnabas.client.connection import ConnectionFailedError
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.acls import DescribeAclsRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce, produce_request
from tests.broker.turning import until_on_loop
from tests.storage.builders import batch_of


@pytest.fixture
def faults() -> Faults:
    return Faults(lambda delay_ms, callback: None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[Broker]:
    with Broker(in_process=True, clock=clock) as broker:
        yield broker


def test_faults_are_taken_in_order_and_as_often_as_asked_for(faults: Faults) -> None:
    faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    faults.delay("Produce", 500)
    faults.drop("Fetch")
    taken = [faults.take("Produce") for _ in range(4)]
    assert [fault and fault.error for fault in taken[:2]] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert taken[2] is not None
    assert taken[2].delay_ms == 500
    assert taken[3] is None
    dropped = faults.take("Fetch")
    assert dropped is not None
    assert dropped.is_dropped
    assert faults.take("Fetch") is None
    assert faults.take("Metadata") is None


def test_a_fault_can_last_until_it_is_taken_back(faults: Faults) -> None:
    faults.drop("Fetch", times=ALWAYS)
    assert all(faults.take("Fetch") for _ in range(10))
    assert faults.is_any_waiting
    faults.clear()
    assert faults.take("Fetch") is None
    assert not faults.is_any_waiting


def test_it_is_known_whether_any_fault_waits(faults: Faults) -> None:
    assert not faults.is_any_waiting
    faults.drop("Fetch")
    faults.drop("Produce", times=2)
    for api, is_any_waiting in [("Fetch", True), ("Produce", True), ("Produce", False)]:
        faults.take(api)
        assert faults.is_any_waiting == is_any_waiting


@pytest.mark.parametrize("times", [0, -2])
def test_a_number_of_times_that_makes_no_sense_is_refused(faults: Faults, times: int) -> None:
    with pytest.raises(ValueError, match="times"):
        faults.drop("Fetch", times=times)
    assert faults.take("Fetch") is None


def test_an_api_that_does_not_exist_is_refused_by_name(faults: Faults) -> None:
    with pytest.raises(ValueError, match=r"'Fetsch'; there are .*Fetch, .*Produce"):
        faults.drop("Fetsch")


def test_an_error_is_answered_and_nothing_is_done(broker: Broker, clock: ManualClock) -> None:
    with connected(broker) as connection:
        create_topic(connection, "orders")
        broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        answer = produce(connection, "orders", batch_of())
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert produce(connection, "orders", batch_of()).base_offset == 0


def test_a_dropped_request_ends_its_connection_only(broker: Broker) -> None:
    with connected(broker) as first, connected(broker) as second:
        broker.faults.drop("Metadata")
        with pytest.raises(ConnectionFailedError, match="closed the connection"):
            first.request(MetadataRequest())
        assert second.request(MetadataRequest()).brokers


def test_a_delayed_answer_comes_when_its_time_has_passed(broker: Broker, clock: ManualClock) -> None:
    with connected(broker) as connection:
        create_topic(connection, "orders")
        broker.faults.delay("Produce", 500)
        with connected(broker) as other:
            connection.send(produce_request("orders", {0: batch_of()}), 9)
            until_on_loop(broker, lambda: broker.server.channel.unanswered == 1)
            assert offsets_of(fetch(other, "orders", 0)) == [0]  # It is done at once, only not answered.
            clock.advance(499)
            assert not connection.has_answer(0.02)
            clock.advance(1)
            assert connection.receive().responses[0].partition_responses[0].base_offset == 0
    assert broker.server.channel.unanswered == 0


def test_an_answer_that_is_not_there_at_once_is_delayed_too(broker: Broker, clock: ManualClock) -> None:
    broker.faults.delay("CreateTopics", 500)
    with connected(broker) as connection:
        connection.send(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]))
        until_on_loop(broker, lambda: ("t", 0) in broker.server.services.replica_manager.partitions)
        assert not connection.has_answer(0.02)
        clock.advance(500)
        assert connection.receive().topics[0].error_code == ErrorCode.NONE


def test_a_refusal_is_delayed_as_any_other_answer(broker: Broker, clock: ManualClock) -> None:
    broker.faults.delay("DescribeAcls", 500)
    with connected(broker) as connection:
        connection.send(DescribeAclsRequest())
        until_on_loop(broker, lambda: broker.server.channel.unanswered == 1)
        clock.advance(500)
        assert connection.receive().error_code == ErrorCode.SECURITY_DISABLED
