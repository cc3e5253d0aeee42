"""Batch queries: the same rows as through Spark's own connector, and a sentence for what can not be read."""

import json

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.offsets import delete_records
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError, PipelineError, sentence_of
from barnabas.spark.source.range_partition import RangePartition
from barnabas.spark.source.reader import BatchReader
from tests.client.brokers import topic_name
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.populate import (
    APPEND_TIME,
    COMPACTED,
    OPEN_TRANSACTION,
    PARTITIONS,
    SEGMENTS,
    TRANSACTIONS,
    ConsumedRecord,
)
from tests.spark.comparing import produce, read, rows_of, rows_of_both

EVERYTHING = "codec-.*|append-time|segments|idempotent|transactions|open-transaction|compacted"


def as_consumed(row: Row) -> tuple[object, ...]:
    headers = tuple((header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ())
    key, value = (None if each is None else bytes(each) for each in (row.key, row.value))
    return row.topic, row.partition, row.offset, key, value, row.timestampType, headers


def as_rows(records: list[ConsumedRecord]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [
        (each.topic, each.partition, each.offset, each.key, each.value, each.timestamp_type.value, each.headers)
        for each in records
    ]
    return sorted(rows, key=lambda row: row[:3])


@pytest.mark.kafka
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_every_kind_of_record_is_the_same_row(
    spark: SparkSession, populated: str, stopped_kafka: KafkaDirectory, level: str
) -> None:
    rows = rows_of_both(
        spark,
        populated,
        subscribePattern=EVERYTHING,
        includeHeaders="true",
        kafka_isolation_level=level,
        # Tasks that begin and end in the middle of batches, holes and transactions, in one of the two.
        **({"maxRecordsPerPartition": 700} if level == "read_committed" else {}),
    )
    assert {row.topic for row in rows} == set(PARTITIONS)
    expected = getattr(stopped_kafka.data, level)
    assert [as_consumed(row) for row in rows] == as_rows(expected)
    for row, record in zip(
        rows, sorted(expected, key=lambda each: (each.topic, each.partition, each.offset)), strict=True
    ):
        assert round(row.timestamp.timestamp() * 1000) == record.timestamp_ms


@pytest.mark.kafka
def test_offsets_and_times_choose_the_same_rows(
    spark: SparkSession, populated: str, stopped_kafka: KafkaDirectory
) -> None:
    rows = rows_of_both(
        spark,
        populated,
        assign=json.dumps({SEGMENTS: [1], COMPACTED: [0], TRANSACTIONS: [0], OPEN_TRANSACTION: [0]}),
        startingOffsets=json.dumps(
            {SEGMENTS: {"1": 7}, COMPACTED: {"0": 3}, TRANSACTIONS: {"0": -2}, OPEN_TRANSACTION: {"0": 1}}
        ),
        endingOffsets=json.dumps(
            {SEGMENTS: {"1": 20}, COMPACTED: {"0": 70}, TRANSACTIONS: {"0": 9}, OPEN_TRANSACTION: {"0": -1}}
        ),
        minPartitions=9,
        kafka_isolation_level="read_committed",
    )
    assert [row.offset for row in rows if row.topic == SEGMENTS] == list(range(7, 20))
    # Times in the middle of what the topic has, and one that is too late for the other.
    times = sorted({each.timestamp_ms for each in stopped_kafka.data.read_uncommitted if each.topic == SEGMENTS})
    first, second = times[len(times) // 3], times[len(times) // 2]
    assert times[0] < first < second < times[-1]
    for options in (
        {"startingTimestamp": first, "endingTimestamp": second},
        {
            "startingOffsetsByTimestamp": json.dumps({SEGMENTS: {"0": first, "1": second}, APPEND_TIME: {"0": 2**62}}),
            "endingOffsetsByTimestamp": json.dumps({SEGMENTS: {"0": second, "1": 2**62}, APPEND_TIME: {"0": 2**62}}),
        },
    ):
        rows = rows_of_both(
            spark,
            populated,
            subscribe=f"{SEGMENTS},{APPEND_TIME}",
            startingOffsetsByTimestampStrategy="latest",
            **options,
        )
        assert rows
        assert APPEND_TIME not in {row.topic for row in rows}


def test_a_query_of_nothing_has_no_rows(spark: SparkSession, barnabas_broker: Broker, our_client: Client) -> None:
    topic = topic_name("empty")
    assert create_topics(our_client, [NewTopic(name=topic, partitions=2)]) == {}
    servers = barnabas_broker.bootstrap_servers
    assert rows_of(read(spark, "barnabas", servers, subscribe=topic)) == []
    assert rows_of(read(spark, "barnabas", servers, subscribePattern="no-topic-has-this-name")) == []


def test_what_goes_wrong_is_one_sentence_in_sparks_exception(spark: SparkSession, barnabas_broker: Broker) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, "barnabas", barnabas_broker.bootstrap_servers, subscribe="nowhere").collect()
    assert sentence_of(raised.value) == "option 'subscribe' names topic 'nowhere', but there is no such topic"


class Query:
    """A batch query without Spark: the driver's part and the tasks' part, one after the other."""

    def __init__(self, servers: str, **options: object) -> None:
        given = {name: str(value) for name, value in options.items()}
        self.reader = BatchReader({"kafka.bootstrap.servers": servers, **given})

    def plan(self) -> list[RangePartition]:
        planned = self.reader.partitions()
        assert all(isinstance(each, RangePartition) for each in planned)
        return list(planned)

    def values(self) -> list[bytes]:
        batches: list[pa.RecordBatch] = [batch for task in self.plan() for batch in self.reader.read(task)]
        return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def topic(our_client: Client, barnabas_broker: Broker) -> str:
    """A topic with ten records in partition 0, of which the first two are deleted, and none in partition 1."""
    name = topic_name("ten")
    assert create_topics(our_client, [NewTopic(name=name, partitions=2)]) == {}
    produce(barnabas_broker.bootstrap_servers, name, [b"%d" % number for number in range(10)])
    delete_records(our_client, {TopicPartition(name, 0): 2})
    return name


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"subscribe": "nowhere"}, OptionError, "names topic 'nowhere', but there is no such topic"),
        ({"subscribe": "bad name"}, OptionError, "names 'bad name', which can not be the name of a topic"),
        ({"assign": '{"TOPIC": [0, 2]}'}, OptionError, "names TOPIC-2, but topic 'TOPIC' has 2 partitions"),
        (
            {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 5}}'},
            OptionError,
            "option 'startingOffsets' must name every partition, but TOPIC-1 is not in it",
        ),
        (
            {"subscribe": "TOPIC", "endingOffsetsByTimestamp": '{"TOPIC": {"0": 5, "1": 5, "2": 5}}'},
            OptionError,
            "option 'endingOffsetsByTimestamp' names TOPIC-2, which is not among the partitions",
        ),
        (
            {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 1, "1": 0}}'},
            DataLossError,
            "option 'startingOffsets' asks for offset 1 of TOPIC-0, which has 2 to 10; with option 'failOnDataLoss'",
        ),
        (
            {"subscribe": "TOPIC", "endingOffsets": '{"TOPIC": {"0": 11, "1": 0}}'},
            DataLossError,
            "option 'endingOffsets' asks for offset 11 of TOPIC-0, which has 2 to 10",
        ),
        (
            {"subscribe": "TOPIC", "startingTimestamp": str(2**62)},
            PipelineError,
            f"option 'startingTimestamp' asks for {2**62}, but TOPIC-0 has no record as late as that",
        ),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(
    barnabas_broker: Broker, topic: str, options: dict[str, str], error: type[Exception], sentence: str
) -> None:
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(error) as raised:
        Query(barnabas_broker.bootstrap_servers, **given).plan()
    assert sentence.replace("TOPIC", topic) in str(raised.value)


def test_offsets_out_of_range_are_what_is_there_if_loss_is_allowed(barnabas_broker: Broker, topic: str) -> None:
    query = Query(
        barnabas_broker.bootstrap_servers,
        subscribe=topic,
        failOnDataLoss=False,
        startingOffsets=json.dumps({topic: {"0": 1, "1": 5}}),
        endingOffsets=json.dumps({topic: {"0": 99, "1": 9}}),
    )
    assert query.values() == [b"%d" % number for number in range(2, 10)]


def test_large_ranges_are_split_by_their_bytes(barnabas_broker: Broker, our_client: Client) -> None:
    name = topic_name("large")
    assert create_topics(our_client, [NewTopic(name=name, partitions=1)]) == {}
    values = [b"%4d" % number + bytes(1000) for number in range(400)]
    produce(barnabas_broker.bootstrap_servers, name, values)
    query = Query(barnabas_broker.bootstrap_servers, subscribe=name, maxBytesPerPartition=100_000)
    assert 4 <= len(query.plan()) <= 6
    assert query.values() == values
    assert len(Query(barnabas_broker.bootstrap_servers, subscribe=name, maxBytesPerPartition=0).plan()) == 1


def test_a_broker_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(PipelineError, match=r"planning the query failed, because the broker can not be reached: 127"):
        Query("127.0.0.1:1", subscribe="orders").plan()
