"""Metadata answers of any version."""

import pickle
from uuid import UUID

import pytest

from barnabas.client.metadata import NO_NODE, UnknownPartitionError, metadata_request, read_metadata
from barnabas.client.options import Address
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def test_brokers_topics_and_errors_are_read() -> None:
    answer = MetadataResponse(
        cluster_id="c",
        controller_id=2,
        brokers=[MetadataResponseBroker(node_id=2, host="h", port=9, rack="r")],
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=bytes(15) + b"\7",
                partitions=[
                    MetadataResponsePartition(partition_index=1, leader_id=-1, error_code=5, replica_nodes=[2, 3]),
                    MetadataResponsePartition(partition_index=0, leader_id=2, replica_nodes=[2, 3], isr_nodes=[2]),
                ],
            ),
            MetadataResponseTopic(name="gone", error_code=3),
        ],
    )
    cluster = read_metadata(answer)
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)
    assert (cluster.nodes[2].address, cluster.nodes[2].rack) == (Address("h", 9), "r")
    assert cluster.missing == {"gone": 3}
    topic = cluster.topics["t"]
    assert (topic.topic_id, topic.has_topic_id, topic.replication_factor) == (UUID(int=7), True, 2)
    assert [(p.partition, p.leader_id, p.isr) for p in topic.partitions] == [(0, 2, (2,)), (1, NO_NODE, ())]


def test_a_topic_of_an_old_broker_has_no_id() -> None:
    topic = read_metadata(MetadataResponse(topics=[MetadataResponseTopic(name="t")])).topics["t"]
    assert (topic.has_topic_id, topic.replication_factor) == (False, 0)


def test_an_error_of_the_whole_answer_is_raised() -> None:
    with pytest.raises(ApiError, match="REBOOTSTRAP_REQUIRED"):
        read_metadata(MetadataResponse(error_code=129))


def test_a_partition_that_is_not_there_is_told_with_those_that_are() -> None:
    error = pickle.loads(pickle.dumps(UnknownPartitionError("t", 5, 3)))
    assert str(error) == "topic 't' has partitions 0 to 2, but no 5"
    assert str(UnknownPartitionError("t", 1, 1)) == "topic 't' has only partition 0, but no 1"


def test_version_0_has_no_null_for_all_topics() -> None:
    assert metadata_request(None, allow_auto_topic_creation=False, version=0).topics == []
    assert metadata_request(None, allow_auto_topic_creation=False, version=1).topics is None
    some = metadata_request(["a"], allow_auto_topic_creation=True, version=4)
    assert some.topics is not None
    assert ([topic.name for topic in some.topics], some.allow_auto_topic_creation) == (["a"], True)
