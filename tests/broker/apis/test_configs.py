"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings, read and changed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.dynamic_config import CHANGEABLE, TOPIC_SETTINGS, ConfigSource
from barnabas.broker_config import BROKER_SETTINGS
from barnabas.client.connection import Connection
from barnabas.config import DAY_MS
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from tests.broker.asking import broker_changes, changes, connected, create_topic, incremental, produce, topic_changes
from tests.broker.turning import on_loop
from tests.storage.builders import batch_of

Topic = Callable[..., str]
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose own settings a test may change."""
    with Broker(in_process=True, data=tmp_path, settings={"num.partitions": 2, "retention.ms": 1000}) as broker:
        yield broker


def describe(
    connection: Connection, kind: int, name: str, *keys: str, version: int | None = None, **fields: bool
) -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    (result,) = connection.request(DescribeConfigsRequest(resources=[resource], **fields), version).results
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return {row.name: row for row in result.configs}


def alter(connection: Connection, kind: int, name: str, *, validate_only: bool = False, **values: str | None) -> Any:
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (result,) = connection.request(AlterConfigsRequest(resources=[resource], validate_only=validate_only)).responses
    return result


def change(connection: Connection, resource: Any, *, validate_only: bool = False) -> Any:
    (result,) = connection.request(incremental(resource, validate_only=validate_only)).responses
    return result


def overrides(connection: Connection, topic: str) -> dict[str, str]:
    """The settings that a topic has of its own."""
    found = describe(connection, TOPIC, topic)
    return {name: row.value for name, row in found.items() if row.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}


# Describe.


@pytest.mark.parametrize("version", range(1, 5))
def test_every_setting_of_a_topic_is_described_with_its_default(
    connection: Connection, topic: Topic, version: int
) -> None:
    found = describe(connection, TOPIC, topic(), version=version)
    assert list(found) == sorted(TOPIC_SETTINGS)
    del found["retention.ms"]  # Brokers of tests keep everything; see tests/conftest.py.
    assert found["segment.ms"].value == str(7 * DAY_MS)
    assert found["cleanup.policy"].value == "delete"
    assert found["preallocate"].value == "false"
    assert {row.config_source for row in found.values()} == {ConfigSource.DEFAULT_CONFIG}
    assert not any(row.read_only or row.is_sensitive or row.synonyms for row in found.values())


def test_a_setting_says_where_its_value_comes_from(own: Broker) -> None:
    with connected(own) as connection:
        create_topic(connection, "orders", config={"segment.bytes": 12345})
        change(connection, broker_changes("", ("log.segment.bytes", SET, "1000")))
        change(connection, broker_changes("0", ("log.segment.bytes", SET, "2000")))
        found = describe(connection, TOPIC, "orders", include_synonyms=True)
    assert [(one.name, one.value, one.source) for one in found["segment.bytes"].synonyms] == [
        ("segment.bytes", "12345", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "2000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.segment.bytes", "1000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.segment.bytes", str(1 << 30), ConfigSource.DEFAULT_CONFIG),
    ]
    assert found["segment.bytes"].value == "12345"
    row = found["retention.ms"]
    assert (row.value, row.config_source) == ("1000", ConfigSource.STATIC_BROKER_CONFIG)


def test_types_and_documentation_are_told_where_they_are_asked_for(connection: Connection, topic: Topic) -> None:
    name = topic()
    found = describe(connection, TOPIC, name, include_documentation=True)
    types = {
        "preallocate": 1,
        "compression.type": 2,
        "max.message.bytes": 3,
        "compression.gzip.level": 3,
        "retention.ms": 5,
        "min.cleanable.dirty.ratio": 6,
        "cleanup.policy": 7,
    }
    assert {key: found[key].config_type for key in types} == types
    assert found["retention.ms"].documentation == TOPIC_SETTINGS["retention.ms"].sentence
    assert describe(connection, TOPIC, name)["retention.ms"].documentation is None


def test_only_the_keys_that_are_asked_for_are_described(connection: Connection, topic: Topic) -> None:
    name = topic()
    found = describe(connection, TOPIC, name, "retention.ms", "segment.ms", "no.such.setting")
    assert list(found) == ["retention.ms", "segment.ms"]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[])
    (result,) = connection.request(DescribeConfigsRequest(resources=[resource])).results
    assert len(result.configs) == len(TOPIC_SETTINGS)


def test_every_setting_of_the_broker_is_described(connection: Connection) -> None:
    found = describe(connection, BROKER, "0")
    assert found.keys() == {row.name for rows in BROKER_SETTINGS.values() for row in rows}
    assert {name for name, row in found.items() if not row.read_only} == CHANGEABLE
    assert found["auto.create.topics.enable"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert found["listeners"].value.startswith("PLAINTEXT://127.0.0.1:")
    assert found["queued.max.requests"].value == "500"


def test_of_all_brokers_only_what_was_changed_is_described(own: Broker) -> None:
    with connected(own) as connection:
        assert describe(connection, BROKER, "") == {}
        change(connection, broker_changes("", ("num.partitions", SET, "5")))
        assert [(row.name, row.value) for row in describe(connection, BROKER, "").values()] == [("num.partitions", "5")]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "first", ErrorCode.INVALID_REQUEST),
        (16, "metrics", ErrorCode.INVALID_REQUEST),
        (0, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_that_does_not_exist_is_its_own_answer(
    connection: Connection, topic: Topic, kind: int, name: str, code: ErrorCode
) -> None:
    good = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic(), configuration_keys=None)
    bad = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    first, second = connection.request(DescribeConfigsRequest(resources=[bad, good])).results
    assert (first.error_code, second.error_code) == (code, ErrorCode.NONE)
    assert first.error_message
    (altered,) = connection.request(incremental(changes(kind, name, ("retention.ms", SET, "1")))).responses
    assert altered.error_code == code
    assert alter(connection, kind, name, retention_ms="1").error_code == code


# Change.


def test_alter_replaces_all_settings_of_a_topic(connection: Connection, topic: Topic) -> None:
    name = topic(**{"retention.ms": 5, "segment.ms": 6})
    assert alter(connection, TOPIC, name, retention_ms="7").error_code == ErrorCode.NONE
    assert overrides(connection, name) == {"retention.ms": "7"}
    assert alter(connection, TOPIC, name).error_code == ErrorCode.NONE
    assert overrides(connection, name) == {}


def test_incremental_changes_single_settings(connection: Connection, topic: Topic) -> None:
    name = topic(**{"retention.ms": 5, "segment.ms": 6})
    steps: list[tuple[tuple[str, int, str | None], dict[str, str]]] = [
        (("retention.bytes", SET, "9"), {"retention.ms": "5", "segment.ms": "6", "retention.bytes": "9"}),
        (("retention.ms", DELETE, None), {"segment.ms": "6", "retention.bytes": "9"}),
        (("retention.ms", DELETE, None), {"segment.ms": "6", "retention.bytes": "9"}),
    ]
    for step, expected in steps:
        assert change(connection, topic_changes(name, step)).error_code == ErrorCode.NONE
        assert overrides(connection, name) == expected


def test_lists_are_appended_to_and_subtracted_from(connection: Connection, topic: Topic) -> None:
    name = topic()
    for operation, value, expected in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ]:
        assert change(connection, topic_changes(name, ("cleanup.policy", operation, value))).error_code == 0
        assert overrides(connection, name) == {"cleanup.policy": expected}
    nothing_left = change(connection, topic_changes(name, ("cleanup.policy", SUBTRACT, "compact")))
    assert nothing_left.error_code == ErrorCode.INVALID_CONFIG


def test_lists_of_a_broker_are_appended_to_as_well(own: Broker) -> None:
    with connected(own) as connection:
        assert change(connection, broker_changes("0", ("log.cleanup.policy", APPEND, "compact"))).error_code == 0
        assert describe(connection, BROKER, "0")["log.cleanup.policy"].value == "delete,compact"


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        (("no.such.setting", SET, "1"), ErrorCode.INVALID_CONFIG, "no.such.setting"),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "retention.ms is 'soon'"),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "retention.ms"),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "no list"),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "operation 9"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_change_that_is_not_right_changes_nothing_of_its_resource(
    connection: Connection,
    topic: Topic,
    step: tuple[str, int, str | None],
    code: ErrorCode,
    words: str,
    validate_only: bool,
) -> None:
    name = topic(**{"segment.ms": 6})
    wrong = topic_changes(name, ("segment.ms", SET, "99"), step)
    result = change(connection, wrong, validate_only=validate_only)
    assert result.error_code == code
    assert words in result.error_message
    assert overrides(connection, name) == {"segment.ms": "6"}


def test_a_setting_that_is_changed_twice_is_refused(connection: Connection, topic: Topic) -> None:
    twice = topic_changes(topic(), ("segment.ms", SET, "1"), ("segment.ms", DELETE, None))
    assert change(connection, twice).error_code == ErrorCode.INVALID_REQUEST


def test_a_null_value_can_not_replace(connection: Connection, topic: Topic) -> None:
    assert alter(connection, TOPIC, topic(), retention_ms=None).error_code == ErrorCode.INVALID_REQUEST


def test_one_resource_that_is_not_right_leaves_the_others_alone(connection: Connection, topic: Topic) -> None:
    good, bad = topic(), topic()
    request = incremental(topic_changes(bad, ("x", SET, "1")), topic_changes(good, ("segment.ms", SET, "7")))
    assert [one.error_code for one in connection.request(request).responses] == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.NONE,
    ]
    assert overrides(connection, good) == {"segment.ms": "7"}


def test_validate_only_checks_and_changes_nothing(own: Broker) -> None:
    with connected(own) as connection:
        create_topic(connection, "orders")
        for resource in (
            topic_changes("orders", ("segment.ms", SET, "7")),
            broker_changes("0", ("num.partitions", SET, "7")),
        ):
            assert change(connection, resource, validate_only=True).error_code == ErrorCode.NONE
        assert alter(connection, TOPIC, "orders", validate_only=True, segment_ms="7").error_code == ErrorCode.NONE
        bad = alter(connection, BROKER, "0", validate_only=True, num_partitions="0")
        assert bad.error_code == ErrorCode.INVALID_CONFIG
        assert overrides(connection, "orders") == {}
        assert describe(connection, BROKER, "0")["num.partitions"].value == "2"


def test_a_broker_setting_that_is_read_once_can_not_be_changed(own: Broker) -> None:
    with connected(own) as connection:
        for name in ("node.id", "listeners", "queued.max.requests", "no.such.setting"):
            result = change(connection, broker_changes("0", (name, SET, "1")))
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert name in result.error_message


# What a change does.


def test_a_changed_topic_setting_holds_at_once(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    batch = batch_of(10, size=100, timestamp=broker.server.services.clock.now_ms())
    for value, code in [("100", ErrorCode.MESSAGE_TOO_LARGE), ("100000", ErrorCode.NONE)]:
        for _ in range(2):  # The second time by the short way.
            change(connection, topic_changes(name, ("max.message.bytes", SET, value)))
            assert produce(connection, name, batch).error_code == code


def test_a_changed_broker_setting_holds_at_once_where_a_topic_does_not_say(own: Broker) -> None:
    with connected(own) as connection:
        create_topic(connection, "plain")
        create_topic(connection, "special", config={"max.message.bytes": 100_000})
        change(connection, broker_changes("0", ("message.max.bytes", SET, "100"), ("num.partitions", SET, "7")))
        batch = batch_of(10, size=100, timestamp=own.server.services.clock.now_ms())
        assert produce(connection, "plain", batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert produce(connection, "special", batch).error_code == ErrorCode.NONE
        create_topic(connection, "new", partitions=-1)
        assert len(own.server.services.cache.topics["new"].partitions) == 7


def test_changes_survive_a_restart(own: Broker) -> None:
    with connected(own) as connection:
        create_topic(connection, "orders")
        change(connection, topic_changes("orders", ("segment.ms", SET, "7")))
        change(connection, broker_changes("0", ("num.partitions", SET, "7")))
    own.stop()
    own.start()
    with connected(own) as connection:
        assert overrides(connection, "orders") == {"segment.ms": "7"}
        assert describe(connection, BROKER, "0")["num.partitions"].value == "7"
    partition = on_loop(own, lambda: own.server.services.replica_manager.partitions["orders", 0])
    assert partition.log.config.segment_ms == 7


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_of_changes_that_come_together_none_is_lost(own: Broker, kind: int) -> None:
    settings = ["segment.ms", "segment.bytes", "retention.bytes", "flush.ms"]
    prefix = "" if kind == TOPIC else "log."
    names = {"flush.ms": "log.flush.interval.ms", "segment.ms": "log.roll.ms"} if kind == BROKER else {}
    with connected(own) as first, connected(own) as second:
        create_topic(first, "orders")
        name = "orders" if kind == TOPIC else "0"
        keys = [names.get(setting, prefix + setting) for setting in settings]
        for _ in range(5):
            change(first, changes(kind, name, *((key, DELETE, None) for key in keys)))
            for number, key in enumerate(keys):
                one = first if number % 2 else second
                one.send(incremental(changes(kind, name, (key, SET, "5000"))))
            for one in (first, second, first, second):
                assert one.receive().responses[0].error_code == ErrorCode.NONE
            assert [describe(first, kind, name)[key].value for key in keys] == ["5000"] * 4


# Resources.


def test_topics_and_the_broker_have_settings(connection: Connection, topic: Topic) -> None:
    name = topic()
    every = connection.request(ListConfigResourcesRequest(), 1)
    assert every.error_code == ErrorCode.NONE
    assert {(TOPIC, name), (BROKER, "0")} <= set(pairs(every))
    assert pairs(connection.request(ListConfigResourcesRequest(resource_types=[BROKER]), 1)) == [(BROKER, "0")]
    assert pairs(connection.request(ListConfigResourcesRequest(resource_types=[16]), 1)) == []
    assert connection.request(ListConfigResourcesRequest(resource_types=[99]), 1).error_code == (
        ErrorCode.UNSUPPORTED_VERSION
    )
    assert pairs(connection.request(ListConfigResourcesRequest(), 0)) == []


def pairs(answer: Any) -> list[tuple[int, str]]:
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]
