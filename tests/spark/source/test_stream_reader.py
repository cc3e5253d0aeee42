"""Streaming queries: the same rows as through Spark's own connector while topics change, losses, limits, and lag."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.groups import fetch_group_offsets
from barnabas.client.offsets import delete_records
from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError, sentence_of
from barnabas.spark.source.admission import ReadAllAvailable, ReadMaxRows
from barnabas.spark.source.stream_reader import StreamReader
from barnabas.wire.errors import ErrorCode
from tests.client.brokers import topic_name
from tests.client.open_transactions import open_transaction
from tests.kafka_peer.peer import run_tool
from tests.spark.comparing import FORMATS, Stream, assert_same, produce

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def make_topic(client: Client, name: str, partitions: int = 1) -> None:
    assert create_topics(client, [NewTopic(name=name, partitions=partitions)]) == {}


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.kafka
def test_the_same_rows_while_topics_grow_and_are_made_anew(
    spark: SparkSession, servers: str, client: Client, tmp_path: Path
) -> None:
    word = topic_name("stream")
    first, second = f"{word}-a", f"{word}-b"
    make_topic(client, first)
    produce(servers, first, numbers(0, 50))
    options: dict[str, Any] = {
        "subscribePattern": f"{word}-.*",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 40,
    }
    streams = [Stream(spark, connector, servers, tmp_path, **options) for connector in FORMATS]
    for stream in streams:
        assert stream.run(kafka_isolation_level="read_committed") > 1
    # A partition more, another topic that the pattern matches, and a transaction that is open.
    assert create_partitions(client, {first: 2}) == {}
    produce(servers, first, numbers(50, 60), partition=1)
    make_topic(client, second, 2)
    produce(servers, second, numbers(0, 20), partition=1)
    producer = open_transaction(servers, f"id of {word}", second)
    produce(servers, second, numbers(0, 3))
    for stream in streams:
        stream.run()
    ours, theirs = (stream.rows() for stream in streams)
    assert_same(ours, theirs)
    assert {(row.topic, row.partition) for row in ours} == {(first, 0), (first, 1), (second, 1)}
    producer.abort_transaction()
    # A topic that is made anew: Spark's own connector can not know, and takes what is behind the old end.
    assert delete_topics(client, [first]) == {}
    make_topic(client, first, 2)
    produce(servers, first, numbers(0, 70))
    produce(servers, first, numbers(0, 10), partition=1)
    with pytest.raises(PySparkException) as raised:
        streams[0].run()
    assert f"topic '{first}' was deleted and created again since it was read" in (sentence_of(raised.value) or "")
    for stream in streams:
        stream.run(failOnDataLoss="false")
    ours, theirs = (stream.rows() for stream in streams)
    assert_same([row for row in ours if row.topic == second], [row for row in theirs if row.topic == second])
    # Ours has every record of both topics: the old 50 and 10, and the new 70 and 10.
    assert len([row for row in ours if row.topic == first]) == 60 + 80


@pytest.mark.kafka
def test_tools_show_the_lag_of_a_query(
    spark: SparkSession, servers: str, client: Client, tmp_path: Path, kafka_jars: Path
) -> None:
    topic, group = topic_name("lag"), topic_name("archive")
    make_topic(client, topic)
    produce(servers, topic, numbers(0, 30))
    stream = Stream(spark, "barnabas", servers, tmp_path, subscribe=topic, startingOffsets="earliest")
    stream.run(kafka_group_id=group)
    produce(servers, topic, numbers(30, 37))
    committed = fetch_group_offsets(client, group)
    assert {partition: each.offset for partition, each in committed.items()} == {TopicPartition(topic, 0): 30}
    shown = run_tool(GROUPS_TOOL, "--bootstrap-server", servers, "--describe", "--group", group)
    (line,) = [line for line in shown.splitlines() if line.startswith(group)]
    assert line.split()[:6] == [group, topic, "0", "30", "37", "7"]


def test_a_query_of_sparks_own_connector_goes_on_with_ours(
    spark: SparkSession, ours: str, topic: str, tmp_path: Path
) -> None:
    produce(ours, topic, numbers(0, 5))
    for number, connector in enumerate(("kafka", "barnabas"), 1):
        Stream(spark, connector, ours, tmp_path, name="both", subscribe=topic, startingOffsets="earliest").run()
        produce(ours, topic, numbers(5 * number, 5 * number + 5))
    stream = Stream(spark, "barnabas", ours, tmp_path, name="both", subscribe=topic)
    stream.run()
    assert [bytes(row.value) for row in stream.rows()] == numbers(0, 15)


# Without Spark: the driver's calls in the order that Spark makes them.


class Query:
    """A stream reader as Spark drives it, and the values it has read. `restart` is a driver that was killed."""

    def __init__(self, servers: str, **options: object) -> None:
        self._given = {"kafka.bootstrap.servers": servers, **{name: str(value) for name, value in options.items()}}
        self.values: list[bytes] = []
        self.place: dict[str, Any] | None = None
        self.restart()

    def restart(self, **options: object) -> None:
        self._given |= {name: str(value) for name, value in options.items()}
        self.reader = StreamReader(self._given)

    def start(self) -> dict[str, Any]:
        return self.reader.initialOffset() if self.place is None else self.place

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        batches: list[pa.RecordBatch] = [
            batch for task in self.reader.partitions(start, end) for batch in self.reader.read(task)
        ]
        return [value for batch in batches for value in batch.column("value").to_pylist()]

    def step(self) -> list[bytes]:
        """Run a batch, if there is one, and return what it had."""
        start = self.start()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if end == start:
            return []
        values = self.read(start, end)
        self.place = end
        self.reader.commit(end)
        return values


@pytest.fixture
def topic(our_client: Client) -> str:
    name = topic_name("followed")
    make_topic(our_client, name)
    return name


@pytest.fixture
def ours(barnabas_broker: Broker) -> str:
    return barnabas_broker.bootstrap_servers


def test_a_stream_begins_now_and_goes_on_from_where_it_was(ours: str, topic: str) -> None:
    produce(ours, topic, numbers(0, 5))
    query = Query(ours, subscribe=topic)
    assert query.step() == []
    assert query.place is not None  # An empty batch has put the beginning into the checkpoint.
    produce(ours, topic, numbers(5, 8))
    query.restart()
    assert query.step() == numbers(5, 8)
    assert query.step() == []
    assert query.reader.latestOffset(query.place, ReadAllAvailable()) is query.place
    assert query.reader.reportLatestOffset() == query.place


def test_a_first_batch_that_is_run_again_begins_where_it_did(ours: str, topic: str) -> None:
    query = Query(ours, subscribe=topic)
    start = query.start()
    produce(ours, topic, numbers(0, 5))
    end = query.reader.latestOffset(start, ReadAllAvailable())
    # The driver dies here: Spark has kept the end in its log, and asks for the beginning again.
    produce(ours, topic, numbers(5, 8))
    query.restart()
    again = query.reader.initialOffset()
    assert again != start
    assert query.read(again, end) == numbers(0, 5)


def test_batches_have_no_more_than_they_may(ours: str, our_client: Client) -> None:
    name = topic_name("limited")
    make_topic(our_client, name, 2)
    produce(ours, name, numbers(0, 90))
    produce(ours, name, numbers(90, 100), partition=1)
    query = Query(ours, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    assert query.step() == [*numbers(0, 18), *numbers(90, 92)]
    sizes = [len(query.step()) for _ in range(6)]
    assert sum(sizes) == 80
    assert max(sizes) <= 20
    # Trigger.Once asks for everything, whatever the options say.
    once = Query(ours, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    end = once.reader.latestOffset(once.start(), ReadAllAvailable())
    assert len(once.read(once.start(), end)) == 100


def test_a_batch_waits_for_enough_records_but_not_for_ever(ours: str, topic: str) -> None:
    query = Query(ours, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="5s")
    clock = ManualClock()
    query.reader._clock = clock  # type: ignore[assignment]
    produce(ours, topic, numbers(0, 1))
    assert query.step() == numbers(0, 1)  # The first batch waits for nothing.
    produce(ours, topic, numbers(1, 4))
    assert query.step() == []
    clock.advance(4_999)
    assert query.step() == []
    clock.advance(1)
    assert query.step() == numbers(1, 4)
    produce(ours, topic, numbers(4, 14))
    assert query.step() == numbers(4, 14)


def test_available_now_stops_at_what_there_was(ours: str, topic: str) -> None:
    produce(ours, topic, numbers(0, 10))
    query = Query(ours, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3)
    query.reader.prepareForTriggerAvailableNow()
    produce(ours, topic, numbers(10, 20))
    assert [query.step() for _ in range(4)] == [numbers(0, 4), numbers(4, 8), numbers(8, 10), []]
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == numbers(10, 14)


def test_a_spark_without_admission_control_asks_without_arguments(ours: str, topic: str) -> None:
    query = Query(ours, subscribe=topic)
    end = query.reader.latestOffset()  # Spark 4.1 asks for the end first.
    produce(ours, topic, numbers(0, 3))
    assert query.read(query.reader.initialOffset(), end) == []
    later = query.reader.latestOffset()
    assert query.read(end, later) == numbers(0, 3)
    assert query.reader.latestOffset() == later


def test_new_partitions_are_read_from_their_beginning(ours: str, our_client: Client, topic: str) -> None:
    produce(ours, topic, numbers(0, 2))
    query = Query(ours, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    assert query.step() == numbers(0, 2)
    assert create_partitions(our_client, {topic: 2}) == {}
    produce(ours, topic, numbers(2, 5), partition=1)
    assert query.step() == numbers(2, 5)


def loss_of(query: Query) -> str:
    with pytest.raises(DataLossError) as raised:
        query.step()
    return str(raised.value)


def test_losses_are_errors_unless_they_are_allowed(
    ours: str, our_client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(ours, topic, numbers(0, 5))
    query = Query(ours, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    assert query.step() == numbers(0, 5)
    # Records that fell off the log before they were read.
    produce(ours, topic, numbers(5, 10))
    delete_records(our_client, {TopicPartition(topic, 0): 7})
    assert "from offset 5 to 10 are gone: the first that is there has offset 7" in loss_of(query)
    query.restart(failOnDataLoss="false")
    assert query.step() == numbers(7, 10)
    # A topic that is gone, and one that is another.
    query.restart(failOnDataLoss="true")
    assert delete_topics(our_client, [topic]) == {}
    assert f"{topic}-0, which was read to offset 10, is gone, so that records may be missing" in loss_of(query)
    make_topic(our_client, topic)
    produce(ours, topic, numbers(100, 120))
    assert f"topic '{topic}' was deleted and created again" in loss_of(query)
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.step() == numbers(100, 120)
    assert "was deleted and created again" in caplog.text


def test_offsets_are_committed_after_each_batch_and_at_the_next_look(ours: str, our_client: Client, topic: str) -> None:
    group = topic_name("group")
    produce(ours, topic, numbers(0, 10))
    query = Query(
        ours, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, **{"kafka.group.id": group}
    )

    def committed() -> list[int]:
        return [each.offset for each in fetch_group_offsets(our_client, group).values()]

    query.step()
    assert committed() == [4]
    # AvailableNow does not say that its last batch is finished, but asks what comes behind it.
    start = query.start()
    end = query.reader.latestOffset(start, ReadMaxRows(4))
    query.read(start, end)
    assert committed() == [4]
    query.reader.latestOffset(end, ReadMaxRows(4))
    assert committed() == [8]


def test_a_commit_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(in_process=True) as broker, Client(broker.bootstrap_servers) as client:
        make_topic(client, "orders")
        produce(broker.bootstrap_servers, "orders", numbers(0, 3))
        query = Query(
            broker.bootstrap_servers, subscribe="orders", startingOffsets="earliest", **{"kafka.group.id": "archive"}
        )
        broker.faults.error("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with caplog.at_level(logging.WARNING):
            assert query.step() == numbers(0, 3)
        assert "1 offsets of group 'archive' were not committed: GROUP_AUTHORIZATION_FAILED" in caplog.text
        # The next one makes up for it.
        assert query.step() == []
        assert [each.offset for each in fetch_group_offsets(client, "archive").values()] == [3]


def test_a_stream_of_an_unknown_topic_is_refused(ours: str) -> None:
    with pytest.raises(OptionError, match="names topic 'nowhere', but there is no such topic"):
        Query(ours, subscribe="nowhere").start()
