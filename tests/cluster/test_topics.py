"""Names, assignments and the operations of topics."""

from collections import Counter

import pytest

from barnabas.cluster import topics
from barnabas.cluster.nodes import PartitionState
from barnabas.cluster.topics import assign_replicas, check_topic_name
from barnabas.cluster.tree import Create, Delete, MetadataTree
from barnabas.storage.checkpoint import encode_topic_id
from barnabas.wire.errors import ApiError, ErrorCode


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__consumer_offsets", "x" * 249])
def test_good_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "can not be empty"),
        (".", "that of a folder"),
        ("..", "that of a folder"),
        ("x" * 250, "has 250 characters, .* at most 249"),
        ("a b", "'a b' can not"),
        ("a/b", "only ASCII letters"),
        ("ä", "only ASCII letters"),
        ("a\n", "only ASCII letters"),
    ],
)
def test_bad_names(name: str, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        check_topic_name(name)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_assignment_is_kafkas_example() -> None:
    """The table in the comment of Kafka's AdminUtils: ten partitions, three replicas, five brokers, start 0."""
    assert assign_replicas(range(5), 10, 3) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


@pytest.mark.parametrize("brokers", [1, 2, 3, 7])
@pytest.mark.parametrize("start", [0, 1, 5])
def test_assignment_is_even_and_on_different_brokers(brokers: int, start: int) -> None:
    ids = [100 + number for number in range(brokers)]
    for replication_factor in range(1, brokers + 1):
        assigned = assign_replicas(ids, 6 * brokers, replication_factor, start)
        assert all(len(set(replicas)) == replication_factor for replicas in assigned)
        assert set(Counter(replicas[0] for replicas in assigned).values()) == {6}
        assert set(Counter(broker for replicas in assigned for broker in replicas).values()) == {6 * replication_factor}


def test_assignment_of_more_partitions_goes_on_where_it_stopped() -> None:
    more = assign_replicas(range(5), 7, 3, 2, first_partition=3)
    assert [replicas[0] for replicas in more] == [0, 1, 2, 3, 4, 0, 1]


def test_topic_ids_can_be_arguments_of_commands() -> None:
    ids = {topics.new_topic_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert not any(encode_topic_id(topic_id).startswith("-") for topic_id in ids)
    assert {topic_id.version for topic_id in ids} == {4}


def test_operations_make_extend_and_remove_a_topic() -> None:
    tree = MetadataTree()
    tree.apply([Create(path, b"") for path in ("/brokers", "/brokers/topics", "/config", "/config/topics")])
    before = sorted(tree.rows())
    topic_id = topics.new_topic_id()
    states = topics.new_partitions([(0, 1), (1, 0)])
    assert states == (PartitionState(0, 0, (0, 1), (0, 1)), PartitionState(1, 0, (1, 0), (1, 0)))
    tree.apply(topics.operations_to_create("a", topic_id, states, {}, False, 1))
    tree.apply(topics.operations_to_extend("a", topic_id, states, states, 0, 1))
    assert tree.children("/brokers/topics/a/partitions") == ["0", "1", "2", "3"]
    assert tree.children("/brokers/topics/a/partitions/3") == ["state"]
    tree.apply([*topics.operations_to_remove(tree, "/brokers/topics/a"), Delete("/config/topics/a")])
    assert sorted(tree.rows()) == before
    assert topics.operations_to_remove(tree, "/brokers/topics/a") == []
