"""Admin calls: topics, partitions, settings, records, the cluster, and the errors of each."""

from tests.compat.model import ClientError, Need, NewRecord, ProducerOptions
from tests.compat.scenarios.scenario import (
    Context,
    eventually,
    numbered,
    numbers_of,
    read_all,
    refused,
    scenario,
    wait_for_leaders,
)


@scenario("A topic is created, listed, described with leaders and replicas, deleted, and gone.")
def create_describe_and_delete_topics(context: Context) -> None:
    topic = context.new_topic(3)
    assert topic in context.driver.list_topics()
    cluster = context.driver.describe_cluster()
    described = context.driver.describe_topic(topic)
    assert [partition.number for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader in cluster.brokers
        assert partition.replicas == partition.in_sync_replicas == (partition.leader,)
    context.driver.delete_topic(topic)
    eventually(lambda: topic not in context.driver.list_topics(), f"{topic} is gone")


@scenario("Topics have ids, and a new topic of the same name has another.", Need.TOPIC_ID)
def topic_ids(context: Context) -> None:
    topic = context.new_topic()
    first = context.driver.describe_topic(topic).topic_id
    context.driver.delete_topic(topic)
    context.driver.create_topic(topic, 1, {})

    def is_new() -> bool:
        try:
            return context.driver.describe_topic(topic).topic_id != first
        except ClientError:
            return False

    eventually(is_new, "the new topic has a new id")


@scenario("Creating a topic that exists is refused with TOPIC_ALREADY_EXISTS.")
def create_an_existing_topic(context: Context) -> None:
    topic = context.new_topic()
    with refused("TOPIC_ALREADY_EXISTS"):
        context.driver.create_topic(topic, 1, {})


@scenario("A name with characters that no topic may have is refused with INVALID_TOPIC_EXCEPTION.")
def invalid_topic_names(context: Context) -> None:
    with refused("INVALID_TOPIC_EXCEPTION"):
        context.driver.create_topic(context.topic_name("no spaces!"), 1, {})


@scenario("More replicas than brokers are refused with INVALID_REPLICATION_FACTOR.")
def too_many_replicas(context: Context) -> None:
    with refused("INVALID_REPLICATION_FACTOR"):
        context.driver.create_topic(context.topic_name(), 1, {}, replicas=3)


@scenario("A topic with a setting that does not exist, or a bad value, is refused with INVALID_CONFIG.")
def create_with_invalid_settings(context: Context) -> None:
    with refused("INVALID_CONFIG"):
        context.driver.create_topic(context.topic_name(), 1, {"no.such.setting": "1"})
    with refused("INVALID_CONFIG"):
        context.driver.create_topic(context.topic_name(), 1, {"retention.ms": "soon"})
    assert context.topic_name() not in context.driver.list_topics()


@scenario("Deleting a topic that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION.")
def delete_an_unknown_topic(context: Context) -> None:
    with refused("UNKNOWN_TOPIC_OR_PARTITION"):
        context.driver.delete_topic(context.topic_name())


@scenario(
    "Describing a topic that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION, and creates nothing.",
    Need.DESCRIBE_WITHOUT_CREATING,
)
def describe_an_unknown_topic(context: Context) -> None:
    with refused("UNKNOWN_TOPIC_OR_PARTITION"):
        context.driver.describe_topic(context.topic_name())
    assert context.topic_name() not in context.driver.list_topics()


@scenario("A deleted topic is created again and used at once: it is empty and begins at offset 0.")
def recreate_a_topic(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(5))
    context.driver.delete_topic(topic)
    context.driver.create_topic(topic, 2, {})
    wait_for_leaders(context.driver, topic, 2)
    positions = context.send(topic, numbered(3, start=100))
    assert [position.offset for position in positions] == [0, 1, 2]
    assert numbers_of(read_all(context.driver, topic, 2)) == [100, 101, 102]


@scenario("Partitions are added and used; fewer than there are is refused with INVALID_PARTITIONS.")
def create_partitions(context: Context) -> None:
    topic = context.new_topic(1)
    context.send(topic, numbered(2))
    context.driver.create_partitions(topic, 3)
    wait_for_leaders(context.driver, topic, 3)
    context.send(topic, numbered(2, start=2, partition=2))
    assert numbers_of(read_all(context.driver, topic, 3)) == [0, 1, 2, 3]
    with refused("INVALID_PARTITIONS"):
        context.driver.create_partitions(topic, 2)


@scenario("All settings of a topic are described, with their defaults and which of them were given.")
def describe_topic_settings(context: Context) -> None:
    topic = context.new_topic(segment_ms="86400000")
    settings = context.driver.topic_settings(topic)
    assert settings["segment.ms"].value == "86400000"
    assert not settings["segment.ms"].is_default
    assert settings["cleanup.policy"].value == "delete"
    assert settings["cleanup.policy"].is_default
    expected = {
        "compression.type",
        "max.message.bytes",
        "message.timestamp.type",
        "min.insync.replicas",
        "segment.bytes",
    }
    assert expected <= set(settings)


@scenario("The settings of a broker are described, given ones and defaults.")
def describe_broker_settings(context: Context) -> None:
    [broker_id] = context.driver.describe_cluster().brokers
    settings = context.driver.broker_settings(broker_id)
    assert settings["num.partitions"].value == "2"
    assert not settings["num.partitions"].is_default
    assert settings["message.max.bytes"].value == "1048588"
    assert settings["message.max.bytes"].is_default
    assert settings["log.dirs"].is_read_only


@scenario("One setting is changed and removed while another stays (IncrementalAlterConfigs).", Need.INCREMENTAL_ALTER)
def alter_settings(context: Context) -> None:
    topic = context.new_topic(segment_ms="86400000", segment_bytes="2000000")

    def shows(name: str, value: str) -> bool:
        return context.driver.topic_settings(topic)[name].value == value

    context.driver.alter_topic(topic, {"segment.ms": "3600000"})
    eventually(lambda: shows("segment.ms", "3600000"), "the new value is shown")
    context.driver.alter_topic(topic, {"segment.ms": None})
    eventually(lambda: context.driver.topic_settings(topic)["segment.ms"].is_default, "the default is back")
    assert shows("segment.bytes", "2000000")


@scenario("A bad value is refused with INVALID_CONFIG, and nothing changes.", Need.INCREMENTAL_ALTER)
def alter_to_invalid_settings(context: Context) -> None:
    topic = context.new_topic()
    with refused("INVALID_CONFIG"):
        context.driver.alter_topic(topic, {"cleanup.policy": "burn"})
    assert context.driver.topic_settings(topic)["cleanup.policy"].value == "delete"


@scenario("A changed setting holds for the next record.", Need.INCREMENTAL_ALTER)
def altered_settings_take_effect(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, [NewRecord(value=bytes(20_000))])
    context.driver.alter_topic(topic, {"max.message.bytes": "10000"})
    eventually(
        lambda: context.driver.topic_settings(topic)["max.message.bytes"].value == "10000", "the new value is shown"
    )
    with refused("MESSAGE_TOO_LARGE"):
        context.send(topic, [NewRecord(value=bytes(20_000))])


@scenario(
    "All settings are replaced: those not named go back to their defaults (the old AlterConfigs).", Need.LEGACY_ALTER
)
def replace_settings(context: Context) -> None:
    topic = context.new_topic(segment_ms="86400000")
    context.driver.replace_topic_settings(topic, {"segment.bytes": "2000000"})
    eventually(
        lambda: context.driver.topic_settings(topic)["segment.bytes"].value == "2000000", "the new value is shown"
    )
    assert context.driver.topic_settings(topic)["segment.ms"].is_default
    with refused("INVALID_CONFIG"):
        context.driver.replace_topic_settings(topic, {"segment.ms": "soon"})


@scenario("Records before an offset are deleted; past the end is refused with OFFSET_OUT_OF_RANGE.")
def delete_records(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(10))
    assert context.driver.delete_records(topic, 0, 4) == 4
    assert context.driver.list_offset(topic, 0, "earliest").offset == 4
    assert numbers_of(read_all(context.driver, topic)) == list(range(4, 10))
    # -1 is the end.
    assert context.driver.delete_records(topic, 0, -1) == 10
    with refused("OFFSET_OUT_OF_RANGE"):
        context.driver.delete_records(topic, 0, 1_000)


@scenario("The cluster's id, its controller and its brokers, at the address that clients were given.")
def describe_cluster(context: Context) -> None:
    cluster = context.driver.describe_cluster()
    # Kafka's ids are 16 bytes in base64.
    assert len(cluster.cluster_id or "") == 22
    assert cluster.controller_id in cluster.brokers
    assert list(cluster.brokers.values()) == [context.broker.bootstrap_servers]


@scenario("The bytes that each partition has on disk.", Need.LOG_DIRS)
def describe_log_directories(context: Context) -> None:
    topic = context.new_topic(2)
    context.send(topic, [NewRecord(value=bytes(10_000), partition=1)])
    sizes = context.driver.log_dirs(topic)
    assert sorted(sizes) == [0, 1]
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 11_000


@scenario(
    "The idempotent producers that a partition knows, with epoch and last sequence number.", Need.DESCRIBE_PRODUCERS
)
def describe_producers(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(5), ProducerOptions(idempotent=True))
    [state] = context.driver.describe_producers(topic, 0)
    assert state.producer_id >= 0
    assert state.epoch == 0
    assert state.last_sequence == 4


SCENARIOS = [
    create_describe_and_delete_topics,
    topic_ids,
    create_an_existing_topic,
    invalid_topic_names,
    too_many_replicas,
    create_with_invalid_settings,
    delete_an_unknown_topic,
    describe_an_unknown_topic,
    recreate_a_topic,
    create_partitions,
    describe_topic_settings,
    describe_broker_settings,
    alter_settings,
    alter_to_invalid_settings,
    altered_settings_take_effect,
    replace_settings,
    delete_records,
    describe_cluster,
    describe_log_directories,
    describe_producers,
]
