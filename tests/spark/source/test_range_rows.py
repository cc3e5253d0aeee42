"""A task's range as Arrow: what is lost on the way is said, or passed over."""

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.fetched import FetchedPartition
from barnabas.client.offsets import delete_records
from barnabas.model import TopicPartition
from barnabas.records.batch import CorruptRecordError
from barnabas.spark.connecting import read_cluster
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.schema import arrow_schema
from barnabas.spark.source import range_rows
from barnabas.spark.source.options import SourceOptions, read_batch_options
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.range_partition import RangePartition
from barnabas.spark.source.range_rows import read_rows
from tests.client.brokers import topic_name
from tests.records.message_sets import build_message_set
from tests.spark.comparing import produce


class Task:
    """A range of a topic with ten records, as it was planned."""

    def __init__(self, client: Client, servers: str, **options: object) -> None:
        self.partition = TopicPartition(topic_name("task"), 0)
        assert create_topics(client, [NewTopic(name=self.partition.topic)]) == {}
        produce(servers, self.partition.topic, [b"%d" % number for number in range(10)])
        self.topic_id = client.topic(self.partition.topic).topic_id
        given = {"kafka.bootstrap.servers": servers, "subscribe": self.partition.topic}
        given |= {name: str(value) for name, value in options.items()}
        self._cluster = read_cluster(given)
        self._options: SourceOptions = read_batch_options(given)

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        wanted = OffsetRange(partition=self.partition, topic_id=self.topic_id, start_offset=start, end_offset=end)
        return read_rows(self._cluster, self._options, RangePartition(wanted))

    def offsets(self, start: int, end: int) -> list[int]:
        return [offset for batch in self.batches(start, end) for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def task(our_client: Client, barnabas_broker: Broker) -> Task:
    return Task(our_client, barnabas_broker.bootstrap_servers)


@pytest.fixture
def careless(our_client: Client, barnabas_broker: Broker) -> Task:
    return Task(
        our_client,
        barnabas_broker.bootstrap_servers,
        **{"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": 1, "kafka.fetch.max.wait.ms": 1},
    )


def test_rows_have_sparks_schema_and_the_offsets_of_the_range(task: Task) -> None:
    (batch,) = task.batches(3, 8)
    assert batch.schema == arrow_schema(include_headers=False)
    assert batch.column("offset").to_pylist() == [3, 4, 5, 6, 7]
    assert batch.column("value").to_pylist() == [b"3", b"4", b"5", b"6", b"7"]
    assert task.offsets(5, 5) == []


def test_a_query_of_nothing_has_a_task_without_a_partition(task: Task) -> None:
    assert list(read_rows(task._cluster, task._options, None)) == []


def test_many_rows_come_in_several_batches(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_rows, "ROWS_MAX", 1)
    produce(task._cluster.bootstrap_servers, task.partition.topic, [b"more"] * 5)
    assert len(list(task.batches(0, 15))) >= 2
    assert task.offsets(0, 15) == list(range(15))


def test_records_that_fell_off_the_log_are_an_error(task: Task, our_client: Client) -> None:
    delete_records(our_client, {task.partition: 4})
    with pytest.raises(DataLossError) as raised:
        task.offsets(2, 10)
    assert str(raised.value) == (
        f"records of {task.partition} from offset 2 to 10 are gone: the first that is there has offset 4; "
        "with option 'failOnDataLoss' set to false the query would go on with what is there"
    )


def test_records_that_fell_off_the_log_are_passed_over_where_that_is_allowed(
    careless: Task, our_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    delete_records(our_client, {careless.partition: 4})
    with caplog.at_level(logging.WARNING):
        assert careless.offsets(2, 8) == [4, 5, 6, 7]
    assert "are gone and are passed over" in caplog.text
    assert careless.offsets(1, 3) == []
    # A range that reaches behind the end, or lies there: what a broker has lost that was not flushed.
    assert careless.offsets(8, 12) == [8, 9]
    assert careless.offsets(20, 22) == []


def test_another_topic_of_the_same_name_is_an_error(task: Task, our_client: Client) -> None:
    assert delete_topics(our_client, [task.partition.topic]) == {}
    with pytest.raises(DataLossError, match="are gone: there is no topic"):
        task.offsets(0, 10)
    assert create_topics(our_client, [NewTopic(name=task.partition.topic)]) == {}
    produce(task._cluster.bootstrap_servers, task.partition.topic, [b"new"] * 10)
    with pytest.raises(DataLossError, match="was deleted and created again"):
        task.offsets(0, 10)


def test_another_topic_of_the_same_name_is_passed_over_where_that_is_allowed(
    careless: Task, our_client: Client
) -> None:
    assert delete_topics(our_client, [careless.partition.topic]) == {}
    assert create_topics(our_client, [NewTopic(name=careless.partition.topic)]) == {}
    produce(careless._cluster.bootstrap_servers, careless.partition.topic, [b"new"] * 10)
    assert careless.offsets(0, 10) == []


def test_messages_of_old_formats_are_rows_too(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [(offset, 1000 + offset, None, b"old %d" % offset) for offset in range(6)]
    data = build_message_set(1, messages)

    class OldSegment:
        position = 0

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __iter__(self) -> Iterator[FetchedPartition]:
            yield FetchedPartition(
                partition=task.partition,
                fetch_offset=2,
                high_watermark=6,
                last_stable_offset=6,
                log_start_offset=0,
                data=memoryview(data),
            )

    monkeypatch.setattr(range_rows, "RangeReader", OldSegment)
    (batch,) = task.batches(2, 5)
    assert batch.column("value").to_pylist() == [b"old 2", b"old 3", b"old 4"]
    assert [each.timestamp() for each in batch.column("timestamp").to_pylist()] == [1.002, 1.003, 1.004]


def test_a_damaged_batch_is_said(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(self: FetchedPartition) -> Iterator[object]:
        raise CorruptRecordError("The checksum is wrong.", 7)

    monkeypatch.setattr(FetchedPartition, "batches", damaged)
    with pytest.raises(PipelineError, match=r"reading .* failed, because a batch is damaged: The checksum is wrong\."):
        task.offsets(0, 10)
