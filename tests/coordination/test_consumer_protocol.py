"""The consumer protocol of classic groups: every version is read and written, and garbage is an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
    write_subscription,
)
from barnabas.wire.primitives import DecodeError

FULL = ConsumerProtocolSubscription(
    topics=["news", "sports"],
    user_data=b"mine",
    owned_partitions=[TopicPartition(topic="news", partitions=[0, 2])],
    generation_id=5,
    rack_id="east",
)


def test_bytes_of_the_first_version_are_as_kafka_writes_them() -> None:
    data = bytes.fromhex("0000 00000001 0004 6e657773 ffffffff".replace(" ", ""))
    assert read_subscription(data) == ConsumerProtocolSubscription(topics=["news"])
    assert write_subscription(ConsumerProtocolSubscription(topics=["news"]), 0) == data
    data = bytes.fromhex("0000 00000001 0004 6e657773 00000002 00000000 00000001 ffffffff".replace(" ", ""))
    assigned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="news", partitions=[0, 1])])
    assert read_assignment(data) == assigned
    assert write_assignment(assigned, 0) == data


def test_each_version_keeps_what_it_has() -> None:
    assert [read_subscription(write_subscription(FULL, version)) for version in range(4)] == [
        ConsumerProtocolSubscription(topics=FULL.topics, user_data=b"mine"),
        ConsumerProtocolSubscription(topics=FULL.topics, user_data=b"mine", owned_partitions=FULL.owned_partitions),
        ConsumerProtocolSubscription(
            topics=FULL.topics, user_data=b"mine", owned_partitions=FULL.owned_partitions, generation_id=5
        ),
        FULL,
    ]


def test_a_later_version_is_read_as_the_last_known_one() -> None:
    data = (9).to_bytes(2, "big") + write_subscription(FULL, 3)[2:] + b"more"
    assert read_version(data) == 3
    assert read_subscription(data) == FULL


def test_no_bytes_are_an_empty_assignment() -> None:
    assert read_assignment(b"") == ConsumerProtocolAssignment()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"range"])
def test_garbage_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_subscription(data)


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_an_error(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except DecodeError:
            pass
