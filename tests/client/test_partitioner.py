"""Keys land where Java's producers put them; kafka-python's port of Java's hash is the oracle."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from barnabas.client.partitioner import StickyPartitions, murmur2, partition_of_key


@given(st.binary(max_size=50))
def test_the_hash_is_that_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key)


# From the unit tests of Java's client: signed there, unsigned here.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_the_hash_is_that_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


@given(st.binary(max_size=20), st.integers(1, 100))
def test_the_partition_is_that_of_kafka_python(key: bytes, count: int) -> None:
    assert partition_of_key(key, count) == (murmur2_of_kafka_python(key) & 0x7FFFFFFF) % count


def test_every_key_has_a_partition() -> None:
    assert {partition_of_key(b"%d" % number, 5) for number in range(100)} == {0, 1, 2, 3, 4}
    assert partition_of_key(b"", 1) == 0


def test_records_without_a_key_stay_together_until_the_batch_is_full() -> None:
    sticky = StickyPartitions(random.Random(1))
    first = sticky.choose("t", 3)
    assert [sticky.choose("t", 3) for _ in range(10)] == [first] * 10
    sticky.move_on("t", (first + 1) % 3, 3)
    assert sticky.choose("t", 3) == first, "the batch of another partition is full"
    sticky.move_on("t", first, 3)
    assert sticky.choose("t", 3) == (first + 1) % 3
