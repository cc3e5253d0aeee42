"""The JSON of the nodes: byte for byte what Kafka writes, back again, and a sentence for what can not be read."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from barnabas.cluster import nodes
from barnabas.cluster.nodes import NodeValueError, PartitionState, PendingDeletion

TOPIC_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (nodes.encode_cluster_id("abc"), '{"version":"1","id":"abc"}'),
        (
            nodes.encode_topic(TOPIC_ID, [(0,), (1, 2)]),
            '{"version":3,"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":{"0":[0],"1":[1,2]},'
            '"adding_replicas":{},"removing_replicas":{}}',
        ),
        (
            nodes.encode_state(PartitionState(0, 5, (0, 1), (0,)), 7),
            '{"controller_epoch":7,"leader":0,"version":1,"leader_epoch":5,"isr":[0]}',
        ),
        (nodes.encode_config({"a": "ä"}), '{"version":1,"config":{"a":"ä"}}'),
        (nodes.encode_config_change("topics/a"), '{"version":2,"entity_path":"topics/a"}'),
        (nodes.encode_controller(3, 17), '{"version":1,"brokerid":3,"timestamp":"17"}'),
        (nodes.encode_controller_epoch(12), "12"),
        (
            nodes.encode_producer_ids(0, range(1000)),
            '{"version":1,"broker":0,"block_start":"0","block_end":"999"}',
        ),
        (
            nodes.encode_deletion(TOPIC_ID, 2),
            '{"version":1,"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":2}',
        ),
    ],
)
def test_json_is_as_kafka_writes_it(value: bytes, json: str) -> None:
    assert value.decode() == json


def test_values_come_back() -> None:
    assert nodes.decode_cluster_id(nodes.encode_cluster_id("abc")) == "abc"
    assert nodes.decode_topic("/", nodes.encode_topic(TOPIC_ID, [(0,), (1, 2)])) == (TOPIC_ID, [(0,), (1, 2)])
    assert nodes.decode_state("/", nodes.encode_state(PartitionState(0, 5, (0, 1), (0,)), 7)) == (0, 5, (0,))
    assert nodes.decode_config("/", nodes.encode_config({"a": "ä"})) == {"a": "ä"}
    assert nodes.decode_controller_epoch(b"12") == 12
    assert nodes.decode_producer_ids(nodes.encode_producer_ids(0, range(5, 9))) == range(5, 9)
    assert nodes.decode_deletion("a", nodes.encode_deletion(TOPIC_ID, 2)) == PendingDeletion("a", TOPIC_ID, 2)


def test_partitions_may_come_in_any_order() -> None:
    value = b'{"version":3,"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":{"1":[1],"0":[0]},"new_field":1}'
    assert nodes.decode_topic("/t", value) == (TOPIC_ID, [(0,), (1,)])


@pytest.mark.parametrize(
    ("decode", "value", "reason"),
    [
        (nodes.decode_topic, b"", "Expecting value"),
        (nodes.decode_topic, b"\xff", "decode"),
        (nodes.decode_topic, b"[]", "list"),
        (nodes.decode_topic, b'{"partitions":{}}', "'topic_id' is missing"),
        (nodes.decode_topic, b'{"topic_id":"a","partitions":{}}', "'a' is not a topic id"),
        (nodes.decode_topic, b'{"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":{"1":[0]}}', "leaves some out"),
        (nodes.decode_state, b'{"leader":0,"leader_epoch":0}', "'isr' is missing"),
        (nodes.decode_state, b'{"leader":0,"leader_epoch":0,"isr":3}', "int"),
        (nodes.decode_config, b'{"config":3}', "int"),
        (nodes.decode_config, b"[" * 100_000, "recursion"),
    ],
)
def test_a_value_that_can_not_be_read_names_its_node(
    decode: Callable[[str, bytes], Any], value: bytes, reason: str
) -> None:
    with pytest.raises(NodeValueError, match=f"the metadata node /some/node can not be read: .*{reason}") as caught:
        decode("/some/node", value)
    assert caught.value.path == "/some/node"


def test_paths_are_kafkas() -> None:
    assert nodes.state_path("a", 3) == "/brokers/topics/a/partitions/3/state"
    assert nodes.state_path("a", 3) == nodes.partition_path("a", 3) + "/state"
    assert nodes.partition_path("a", 3) == nodes.partitions_path("a") + "/3"
    assert nodes.partitions_path("a") == nodes.topic_path("a") + "/partitions"
    assert nodes.topic_config_path("a") == "/config/topics/a"
    assert nodes.broker_config_path(3) == "/config/brokers/3"
    assert nodes.broker_config_path(nodes.DEFAULT_BROKER) == "/config/brokers/<default>"
    assert nodes.delete_topic_path("a") == "/admin/delete_topics/a"
