"""Rows on their way to batches: rounds, topics, sizes, and topics that change between tasks."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from barnabas import Broker
from barnabas.client.admin import create_partitions
from barnabas.client.client import Client
from barnabas.client.metadata import UnknownTopicError
from barnabas.model import TopicPartition
from barnabas.records.batch import read_header
from barnabas.records.record import batch_records
from barnabas.spark.sink import encoding
from barnabas.spark.sink.encoding import RowEncoder
from barnabas.spark.sink.options import read_options
from tests.spark.sink.topics import make_topic


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        Broker(settings={"auto.create.topics.enable": "false"}) as broker,
        Client(broker.bootstrap_servers) as opened,
    ):
        yield opened


def rows(values: list[bytes], **columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"Value": pa.array(values, pa.binary()), "other": pa.array(values, pa.binary()), **columns})


def encode(
    client: Client, columns: set[str], batches: list[pa.RecordBatch], **options: str
) -> list[dict[TopicPartition, list[list[bytes]]]]:
    """Return, round by round, the values of each batch of each partition."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    encoder = RowEncoder(client, read_options(named, is_streaming=False), frozenset(columns))
    rounds = [
        {
            partition: [
                [bytes(each.value or b"") for each in batch_records(made, read_header(made))] for made in batches
            ]
            for partition, batches in chunk
        }
        for chunk in encoder.chunks(iter(batches))
    ]
    assert encoder.rows == sum(batch.num_rows for batch in batches)
    return rounds


def test_rows_are_put_together_until_there_are_enough(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK_BYTES_MAX", 40)
    topic = make_topic(str(client.any_connection().address), partitions=1)
    batches = [rows([b"1" * 10, b"2" * 10]), rows([]), rows([b"3" * 10]), rows([b"4" * 10])]
    rounds = encode(client, {"value"}, batches, topic=topic)
    # Offsets count as well as values; columns that are not written do not.
    assert rounds == [
        {TopicPartition(topic, 0): [[b"1" * 10, b"2" * 10, b"3" * 10]]},
        {TopicPartition(topic, 0): [[b"4" * 10]]},
    ]


def test_batches_are_as_large_as_asked_for_and_as_the_topic_takes(client: Client) -> None:
    address = str(client.any_connection().address)
    narrow = make_topic(address, partitions=1, configs={"max.message.bytes": "1000"})
    values = [bytes(100)] * 50
    (made,) = encode(client, {"value"}, [rows(values)], topic=narrow)
    assert {len(batch) for batch in made[TopicPartition(narrow, 0)][:-1]} == {8}
    wide = make_topic(address, partitions=1)
    (made,) = encode(client, {"value"}, [rows(values)], topic=wide)
    assert made == {TopicPartition(wide, 0): [values]}
    (made,) = encode(client, {"value"}, [rows(values)], topic=wide, kafka_batch_size="300")
    assert {len(batch) for batch in made[TopicPartition(wide, 0)]} == {2}


def test_a_topic_that_grew_is_seen_by_the_next_task(client: Client) -> None:
    topic = make_topic(str(client.any_connection().address), partitions=1)
    batch = rows([b"value"], partition=pa.array([1], pa.int32()))
    with pytest.raises(Exception, match=f"but topic '{topic}' has 1 partitions, from 0"):
        encode(client, {"value", "partition"}, [batch], topic=topic)
    assert create_partitions(client, {topic: 2}) == {}
    assert encode(client, {"value", "partition"}, [batch], topic=topic) == [{TopicPartition(topic, 1): [[b"value"]]}]


def test_a_topic_that_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic 'missing'"):
        encode(client, {"value"}, [rows([b"value"])], topic="missing")
