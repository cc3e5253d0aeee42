"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.dynamic_config import TOPIC_SETTINGS, ConfigSource
from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop
from tests.storage.builders import batch_of

Topic = Callable[..., str]


def new(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def assigned(*replicas: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)]


def create(connection: Connection, *topics: CreatableTopic, version: int | None = None, **fields: Any) -> list[Any]:
    return list(connection.request(CreateTopicsRequest(topics=list(topics), **fields), version).topics)


def exists(broker: Broker, name: str) -> bool:
    return on_loop(broker, lambda: name in broker.server.services.cache.topics)


def now(broker: Broker) -> int:
    return broker.server.services.clock.now_ms()


# Create.


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_a_topic_that_can_be_written_to(
    connection: Connection, broker: Broker, version: int
) -> None:
    name = f"created-{version}"
    (result,) = create(connection, new(name, 2), version=version)
    assert (result.name, result.error_code, result.error_message) == (name, ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == ((2, 1) if version >= 5 else (-1, -1))
    assert result.topic_id == (broker.server.services.cache.topics[name].topic_id.bytes if version >= 7 else bytes(16))
    for partition in (0, 1):
        assert produce(connection, name, batch_of(timestamp=now(broker)), partition).error_code == ErrorCode.NONE


def test_what_is_not_said_goes_by_the_defaults_of_the_broker() -> None:
    with Broker(in_process=True, settings={"num.partitions": 5}) as broker, connected(broker) as connection:
        (result,) = create(connection, new("orders", -1, -1))
        assert (result.num_partitions, result.replication_factor) == (5, 1)


def test_settings_are_stored_and_answered_with_their_source(connection: Connection, broker: Broker) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="77")]
    (result,) = create(connection, new("with-settings", configs=configs))
    answered = {row.name: (row.value, row.config_source) for row in result.configs}
    assert answered.keys() == TOPIC_SETTINGS.keys()
    assert answered["retention.ms"] == ("77", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert answered["segment.ms"][1] == ConfigSource.DEFAULT_CONFIG
    partition = broker.server.services.replica_manager.partitions["with-settings", 0]
    assert partition.log.config.retention_ms == 77


def test_replicas_can_be_assigned(connection: Connection) -> None:
    (result,) = create(connection, new("assigned", -1, -1, assignments=assigned([0], [0], [0])))
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("__cluster_metadata"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("bad", 0), ErrorCode.INVALID_PARTITIONS),
        (new("bad", -2), ErrorCode.INVALID_PARTITIONS),
        (new("bad", 10_001), ErrorCode.INVALID_PARTITIONS),
        (new("bad", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("bad", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("bad", 1, 1, assignments=assigned([0])), ErrorCode.INVALID_REQUEST),
        (new("bad", -1, -1, assignments=assigned([7])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("bad", -1, -1, assignments=assigned([0, 0])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("bad", -1, -1, assignments=assigned([0], [0])[1:]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("bad", -1, -1, assignments=assigned([0]) * 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new("bad", configs=[CreatableTopicConfig(name="no.such", value="1")]), ErrorCode.INVALID_CONFIG),
        (new("bad", configs=[CreatableTopicConfig(name="retention.ms", value="x")]), ErrorCode.INVALID_CONFIG),
        (new("bad", configs=[CreatableTopicConfig(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_can_not_be_is_refused_in_words(
    connection: Connection, broker: Broker, topic: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    (result,) = create(connection, topic, validate_only=validate_only)
    assert (result.name, result.error_code) == (topic.name, code)
    assert result.error_message
    assert result.configs == []
    assert not exists(broker, topic.name)


def test_one_bad_topic_leaves_the_others_alone(connection: Connection, broker: Broker) -> None:
    results = create(connection, new("good-1"), new("a b"), new("good-2"))
    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    assert exists(broker, "good-1")
    assert exists(broker, "good-2")


def test_validate_only_says_what_would_be_and_creates_nothing(connection: Connection, broker: Broker) -> None:
    (result,) = create(connection, new("only-checked", 4), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 4)
    assert not exists(broker, "only-checked")


def test_a_topic_that_exists_or_collides_is_refused(connection: Connection) -> None:
    create_topic(connection, "taken.name")
    same, similar = create(connection, new("taken.name"), new("taken_name"))
    assert same.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert similar.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "taken.name" in similar.error_message


def test_a_topic_that_is_named_twice_is_refused_once(connection: Connection, broker: Broker) -> None:
    results = create(connection, new("twice"), new("once"), new("twice", 2))
    assert {result.name: result.error_code for result in results} == {
        "twice": ErrorCode.INVALID_REQUEST,
        "once": ErrorCode.NONE,
    }
    assert not exists(broker, "twice")


# Delete.


def delete(connection: Connection, *topics: DeleteTopicState) -> list[Any]:
    return list(connection.request(DeleteTopicsRequest(topics=list(topics)), 6).responses)


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(connection: Connection, broker: Broker, topic: Topic, version: int) -> None:
    name = topic()
    request = DeleteTopicsRequest(topic_names=[name, "no-such-topic"])
    gone, unknown = connection.request(request, version).responses
    assert (gone.name, gone.error_code) == (name, ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert bool(unknown.error_message) == (version >= 5)
    assert not exists(broker, name)


def test_topics_are_deleted_by_id(connection: Connection, broker: Broker, topic: Topic) -> None:
    first, second = topic(), topic()
    ids = {name: broker.server.services.cache.topics[name].topic_id.bytes for name in (first, second)}
    by_name, by_id, unknown = delete(
        connection,
        DeleteTopicState(name=first),
        DeleteTopicState(topic_id=ids[second]),
        DeleteTopicState(topic_id=b"x" * 16),
    )
    assert (by_name.name, by_name.topic_id, by_name.error_code) == (first, ids[first], ErrorCode.NONE)
    assert (by_id.name, by_id.topic_id, by_id.error_code) == (second, ids[second], ErrorCode.NONE)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)
    assert not exists(broker, first)
    assert not exists(broker, second)


def test_a_topic_that_is_named_wrongly_is_refused(connection: Connection, broker: Broker, topic: Topic) -> None:
    name, other = topic(), topic()
    topic_id = broker.server.services.cache.topics[name].topic_id.bytes
    results = delete(
        connection,
        DeleteTopicState(name=name, topic_id=topic_id),
        DeleteTopicState(),
        DeleteTopicState(name=other),
        DeleteTopicState(name=other),
    )
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 4
    assert exists(broker, name)
    assert exists(broker, other)


def test_a_broker_can_forbid_that_topics_are_deleted() -> None:
    with Broker(in_process=True, settings={"delete.topic.enable": False}) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        (result,) = delete(connection, DeleteTopicState(name="orders"))
        assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert exists(broker, "orders")


def test_a_deleted_topic_is_created_again_at_once_and_is_empty(connection: Connection, broker: Broker) -> None:
    ids = set()
    for _ in range(5):
        ids.add(create_topic(connection, "phoenix", config={"retention.ms": 12345}))
        assert produce(connection, "phoenix", batch_of(timestamp=now(broker))).base_offset == 0
        delete(connection, DeleteTopicState(name="phoenix"))
        assert fetch(connection, "phoenix", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(ids) == 5
    create_topic(connection, "phoenix")
    partition = broker.server.services.replica_manager.partitions["phoenix", 0]
    assert partition.log.config.retention_ms != 12345


def test_the_counters_of_a_deleted_topic_go_with_it(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    produce(connection, name, batch_of(timestamp=now(broker)))
    assert name in broker.server.services.replica_manager.topic_stats.topics
    delete(connection, DeleteTopicState(name=name))
    assert name not in broker.server.services.replica_manager.topic_stats.topics


# More partitions.


def extend(connection: Connection, name: str, count: int, assignments: Any = None, **fields: Any) -> Any:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    version = fields.pop("version", None)
    (result,) = connection.request(CreatePartitionsRequest(topics=[topic], **fields), version).results
    assert result.name == name
    return result


@pytest.mark.parametrize("version", range(4))
def test_a_topic_gets_more_partitions(connection: Connection, broker: Broker, topic: Topic, version: int) -> None:
    name = topic()
    assert extend(connection, name, 3, version=version).error_code == ErrorCode.NONE
    assert produce(connection, name, batch_of(timestamp=now(broker)), 2).error_code == ErrorCode.NONE
    assert produce(connection, name, batch_of(timestamp=now(broker)), 3).error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_new_partitions_can_be_assigned(connection: Connection, topic: Topic) -> None:
    name = topic()
    here, elsewhere = CreatePartitionsAssignment(broker_ids=[0]), CreatePartitionsAssignment(broker_ids=[5])
    assert extend(connection, name, 3, [here, elsewhere]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert extend(connection, name, 3, [here]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert extend(connection, name, 3, [here, here]).error_code == ErrorCode.NONE


def test_a_number_of_partitions_that_can_not_be_is_refused(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic(partitions=2)
    for count in (0, 1, 2, -1, 20_000):
        result = extend(connection, name, count)
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
        assert result.error_message
    assert extend(connection, "no-such-topic", 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert extend(connection, name, 3, validate_only=True).error_code == ErrorCode.NONE
    assert len(broker.server.services.cache.topics[name].partitions) == 2


def test_a_topic_that_is_extended_twice_in_a_request_is_refused(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic()
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for count in (2, 3)]
    results = connection.request(CreatePartitionsRequest(topics=topics)).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(broker.server.services.cache.topics[name].partitions) == 1


# Fewer records.


def delete_records(connection: Connection, name: str, offset: int, index: int = 0, version: int | None = None) -> Any:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[partition])])
    (topic,) = connection.request(request, version).topics
    assert topic.name == name
    return topic.partitions[0]


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset_or_all(
    connection: Connection, broker: Broker, topic: Topic, version: int
) -> None:
    name = topic()
    for _ in range(3):
        produce(connection, name, batch_of(2, timestamp=now(broker)))
    for offset, low_watermark in [(3, 3), (1, 3), (-1, 6)]:
        result = delete_records(connection, name, offset, version=version)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, low_watermark)
    assert fetch(connection, name, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert produce(connection, name, batch_of(timestamp=now(broker))).base_offset == 6
    assert offsets_of(fetch(connection, name, 6)) == [6]


def test_where_logs_start_is_written_down_once_for_all_partitions_of_a_request(
    connection: Connection, broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(3)
    for index in range(3):
        produce(connection, name, batch_of(2, timestamp=now(broker)), index)
    logs = broker.server.services.log_manager
    partitions = broker.server.services.replica_manager.partitions
    write = logs.checkpoint_log_start_offsets
    written: list[list[int]] = []

    def note() -> None:
        written.append([partitions[name, index].log.log_start_offset for index in range(3)])
        write()

    monkeypatch.setattr(logs, "checkpoint_log_start_offsets", note)
    wanted = [DeleteRecordsPartition(partition_index=index, offset=index) for index in range(4)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=wanted)])
    (answer,) = connection.request(request).topics
    assert [one.error_code for one in answer.partitions] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert written == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("offset", "index", "code"),
    [
        (3, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_records_that_are_not_there_can_not_be_deleted(
    connection: Connection, broker: Broker, topic: Topic, offset: int, index: int, code: ErrorCode
) -> None:
    name = topic()
    produce(connection, name, batch_of(2, timestamp=now(broker)))
    result = delete_records(connection, name, offset, index)
    assert (result.error_code, result.low_watermark) == (code, -1)
    assert fetch(connection, name, 0).log_start_offset == 0


def test_records_of_compacted_and_internal_topics_are_kept(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    compacted = topic(**{"cleanup.policy": "compact"})
    assert delete_records(connection, compacted, 0).error_code == ErrorCode.POLICY_VIOLATION
    both = topic(**{"cleanup.policy": "compact,delete"})
    assert delete_records(connection, both, 0).error_code == ErrorCode.NONE
    assert delete_records(connection, "__consumer_offsets", 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_deleted_records_stay_deleted(tmp_path: Path, end: str) -> None:
    with Broker(data=tmp_path) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
            for _ in range(3):
                assert produce(connection, "orders", batch_of(2)).error_code == ErrorCode.NONE
            assert delete_records(connection, "orders", 3).low_watermark == 3
        getattr(broker, end)()
        broker.start()
        with connected(broker) as connection:
            assert fetch(connection, "orders", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            data = fetch(connection, "orders", 3)
            assert (data.error_code, data.log_start_offset) == (ErrorCode.NONE, 3)
            assert produce(connection, "orders", batch_of()).base_offset == 6
