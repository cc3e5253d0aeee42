"""Internal topics: who is where in them, and how they are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.internal_topics import (
    GROUP_TOPIC,
    TRANSACTION_TOPIC,
    internal_topic,
    java_hash,
    partition_for,
)
from barnabas.broker_config import resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_texts_have_the_hash_that_java_gives_them(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_one_hash_without_a_positive_number_is_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 1000))
def test_every_key_has_a_partition(key: str, count: int) -> None:
    assert 0 <= partition_for(key, count) < count


def test_internal_topics_are_compacted_and_have_no_more_replicas_than_there_are_brokers() -> None:
    settings = resolve({"offsets.topic.num.partitions": "7", "offsets.topic.segment.bytes": "2000000"})
    groups = internal_topic(GROUP_TOPIC, settings, 1)
    assert (groups.num_partitions, groups.replication_factor) == (7, 1)
    assert groups.config["cleanup.policy"] == "compact"
    assert groups.config["segment.bytes"] == "2000000"
    transactions = internal_topic(TRANSACTION_TOPIC, settings, 5)
    assert (transactions.num_partitions, transactions.replication_factor) == (50, 3)
    assert (transactions.config["cleanup.policy"], transactions.config["min.insync.replicas"]) == ("compact", "2")
    assert internal_topic(TRANSACTION_TOPIC, settings, 1).config["min.insync.replicas"] == "1"
