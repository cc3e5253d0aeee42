"""Topics and settings, against a real broker; and the controller that is not."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.admin import (
    ConfigChange,
    ConfigOperation,
    NewTopic,
    ResourceType,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topics,
    list_topics,
)
from barnabas.client.client import Client
from barnabas.client.metadata import UnknownTopicError
from barnabas.clock import ManualClock
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.topics import CreatableTopicResult, CreateTopicsResponse
from tests.client.brokers import topic_name
from tests.client.fake_broker import FakeBroker, after
from tests.kafka_peer.populate import wait_until


def overridden(client: Client, name: str) -> dict[str, str | None]:
    return {e.name: e.value for e in describe_configs(client, [name])[name].values() if e.is_overridden}


def test_a_topic_is_created_described_and_deleted(client: Client) -> None:
    name = topic_name("admin")
    new = NewTopic(name=name, partitions=3, replication_factor=1, configs={"retention.ms": "12345"})
    assert create_topics(client, [new]) == {}
    (topic,) = describe_topics(client, [name])
    assert (topic.name, len(topic.partitions), topic.replication_factor) == (name, 3, 1)
    assert topic.has_topic_id
    assert all(partition.leader_id >= 0 and partition.isr for partition in topic.partitions)
    assert name in [topic.name for topic in list_topics(client)]
    assert overridden(client, name) == {"retention.ms": "12345"}
    assert delete_topics(client, [name]) == {}
    with pytest.raises(UnknownTopicError, match=f"there is no topic '{name}'"):
        describe_topics(client, [name])
    with pytest.raises(UnknownTopicError):
        client.topic(name)


def test_the_broker_chooses_partitions_and_replicas(client: Client) -> None:
    name = topic_name("admin")
    assert create_topics(client, [NewTopic(name=name)]) == {}
    assert len(describe_topics(client, [name])[0].partitions) == 3


def test_what_fails_is_told_by_name_and_the_rest_is_done(client: Client, make_topic: Callable[..., str]) -> None:
    old, new = make_topic(), topic_name("admin")
    failures = create_topics(client, [NewTopic(name=old), NewTopic(name=new), NewTopic(name="no good")])
    assert {name: error.code for name, error in failures.items()} == {
        old: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    missing = topic_name("missing")
    failures = delete_topics(client, [new, missing])
    assert {name: error.code for name, error in failures.items()} == {missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_creation_can_be_tried_without_being_done(client: Client) -> None:
    name = topic_name("admin")
    assert create_topics(client, [NewTopic(name=name)], validate_only=True) == {}
    with pytest.raises(UnknownTopicError):
        describe_topics(client, [name])


def test_partitions_are_added_and_never_taken_away(client: Client, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    assert create_partitions(client, {name: 4}) == {}
    assert len(client.topic(name).partitions) == 4
    failures = create_partitions(client, {name: 2})
    assert failures[name].code is ErrorCode.INVALID_PARTITIONS


def test_settings_are_changed_one_by_one(client: Client, make_topic: Callable[..., str]) -> None:
    name = make_topic(**{"retention.ms": "1000", "segment.ms": "5000"})
    changes = [
        ConfigChange(name="retention.ms", value=None, operation=ConfigOperation.DELETE),
        ConfigChange(name="max.message.bytes", value="2000"),
    ]
    assert alter_configs(client, {name: changes}) == {}
    # A broker of Kafka hears of a change a moment after its controller has answered.
    wait_until(
        lambda: overridden(client, name) == {"segment.ms": "5000", "max.message.bytes": "2000"}, "settings to change"
    )
    failures = alter_configs(client, {name: [ConfigChange(name="retention.ms", value="soon")]})
    assert failures[name].code is ErrorCode.INVALID_CONFIG
    assert "retention.ms" in str(failures[name])


def test_settings_of_a_missing_topic_are_an_error(client: Client) -> None:
    missing = topic_name("missing")
    clock = ManualClock()
    with pytest.raises(ApiError, match=f"the settings of '{missing}'"):
        describe_with_manual_clock(client, missing, clock)


def describe_with_manual_clock(client: Client, name: str, clock: ManualClock) -> None:
    """A broker may hear of a topic later than a client does, so that the question is repeated for a while."""
    servers = ",".join(str(node.address) for node in client.cluster().nodes.values())
    with Client(servers, clock=clock) as impatient:
        describe_configs(impatient, [name])


def test_a_broker_has_settings_too(client: Client) -> None:
    cluster = describe_cluster(client)
    node = str(cluster.controller_id)
    assert describe_configs(client, [node], ResourceType.BROKER)[node]["num.partitions"].value == "3"


def test_a_controller_that_has_changed_is_looked_for() -> None:
    def create(message: Any, version: int) -> Any:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=message.topics[0].name, error_code=37)])

    not_me = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)])
    with FakeBroker({"CreateTopics": after(not_me, then=create)}) as broker:
        with Client(broker.bootstrap_servers, clock=ManualClock()) as client:
            failures = create_topics(client, [NewTopic(name="t")])
        assert failures["t"].code is ErrorCode.INVALID_PARTITIONS
        assert [request.name for request in broker.requests[1:]] == ["Metadata", "CreateTopics"] * 2
