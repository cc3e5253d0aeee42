"""The cache over a tree that is made by hand; that it follows every change is tested with the controller."""

import pytest

from barnabas.cluster import nodes, topics
from barnabas.cluster.metadata_cache import MetadataCache, PartitionState
from barnabas.cluster.nodes import NodeValueError
from barnabas.cluster.tree import Create, Delete, MetadataTree, Set

TOPIC_ID = topics.new_topic_id()


@pytest.fixture
def tree() -> MetadataTree:
    tree = MetadataTree()
    tree.apply([Create(path, b"") for path in nodes.ROOT_NODES])
    states = topics.new_partitions([(0, 1), (1, 0)])
    tree.apply(topics.operations_to_create("a.b", TOPIC_ID, states, {"retention.ms": "5"}, False, 1))
    return tree


def test_an_empty_tree_is_an_empty_cache() -> None:
    cache = MetadataCache(MetadataTree())
    assert (cache.topics, cache.topics_by_id, cache.broker_configs, cache.cluster_id) == ({}, {}, {}, None)


def test_topics_are_found_by_name_and_id(tree: MetadataTree) -> None:
    cache = MetadataCache(tree)
    image = cache.topics["a.b"]
    assert cache.topics_by_id == {TOPIC_ID.bytes: image}
    assert image.partitions == (PartitionState(0, 0, (0, 1), (0, 1)), PartitionState(1, 0, (1, 0), (1, 0)))
    assert image.config == {"retention.ms": "5"}
    assert cache.refresh_topic("other") is None


def test_an_image_stays_as_it_was(tree: MetadataTree) -> None:
    cache = MetadataCache(tree)
    old = cache.topics["a.b"]
    tree.apply([Set("/config/topics/a.b", nodes.encode_config({}))])
    new = cache.refresh_topic("a.b")
    assert new is cache.topics["a.b"] is cache.topics_by_id[TOPIC_ID.bytes]
    assert (old.config, new.config) == ({"retention.ms": "5"}, {})
    with pytest.raises(TypeError):
        new.config["a"] = "b"  # type: ignore[index]


def test_a_topic_that_goes_or_comes_again_leaves_nothing(tree: MetadataTree) -> None:
    cache = MetadataCache(tree)
    tree.apply(topics.operations_to_remove(tree, "/brokers/topics/a.b"))
    new_id = topics.new_topic_id()
    tree.apply(topics.operations_to_create("a.b", new_id, topics.new_partitions([(0,)]), {}, True, 1))
    assert cache.refresh_topic("a.b") is not None
    assert list(cache.topics_by_id) == [new_id.bytes]
    tree.apply(topics.operations_to_remove(tree, "/brokers/topics/a.b"))
    assert cache.refresh_topic("a.b") is None
    assert (cache.topics, cache.topics_by_id, cache.names_by_collision_key) == ({}, {}, {})


def test_partitions_without_a_state_have_no_leader(tree: MetadataTree) -> None:
    tree.apply([Delete("/brokers/topics/a.b/partitions/1/state"), Delete("/config/topics/a.b")])
    image = MetadataCache(tree).topics["a.b"]
    assert image.partitions[1] == PartitionState(nodes.NO_LEADER, 0, (1, 0), ())
    assert image.config == {}


def test_settings_of_brokers(tree: MetadataTree) -> None:
    cache = MetadataCache(tree)
    tree.apply([Create("/config/brokers/3", nodes.encode_config({"a": "1"}))])
    tree.apply([Create("/config/brokers/<default>", nodes.encode_config({"a": "2"}))])
    assert cache.broker_configs == {}
    cache.refresh_broker_configs()
    assert cache.broker_configs == {3: {"a": "1"}, -1: {"a": "2"}}
    tree.apply([Create("/config/brokers/x", b"")])
    with pytest.raises(NodeValueError, match="/config/brokers/x"):
        cache.refresh_broker_configs()


def test_a_node_that_can_not_be_read_is_named(tree: MetadataTree) -> None:
    tree.apply([Set("/brokers/topics/a.b/partitions/1/state", b"{")])
    with pytest.raises(NodeValueError, match=r"/brokers/topics/a\.b/partitions/1/state"):
        MetadataCache(tree)
