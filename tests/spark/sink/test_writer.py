"""Batch writes by both sinks, ours and Spark's own, to both brokers: the same records; and what is refused."""

from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.errors import PipelineError, sentence_of
from barnabas.spark.sink.writer import BatchWriter
from tests.spark.sink.topics import make_topic, read_topic, values

WHOLE = (
    "key string, value binary, topic string, partition int, headers array<struct<key: string, value: binary>>, n int"
)


def save(frame: DataFrame, servers: str, sink: str = "barnabas", mode: str = "append", **options: str) -> None:
    writer = frame.write.format(sink).option("kafka.bootstrap.servers", servers).mode(mode)
    writer.options(**{name.replace("_", "."): value for name, value in options.items()}).save()


def refusal(frame: DataFrame, servers: str, mode: str = "append", **options: str) -> str:
    with pytest.raises(PySparkException) as raised:
        save(frame, servers, mode=mode, **options)
    found = sentence_of(raised.value)
    assert found is not None, raised.value
    return found


def test_both_sinks_write_the_same(spark: SparkSession, servers: str) -> None:
    """Keys and partitions decide where rows go, several topics are written at once, nulls and headers stay."""
    topics = [make_topic(servers) for _ in range(4)]
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    rows = [
        (
            f"key {number}" if number % 3 else "",
            None if number % 7 == 0 else str(number).encode(),
            number % 2,
            number % 3 if number % 5 == 0 else None,
            headers[: number % 4] if number % 4 else None,
            number,
        )
        for number in range(1_000)
    ]
    for sink, pair in (("barnabas", topics[:2]), ("kafka", topics[2:])):
        named = [(key, value, pair[which], *rest) for key, value, which, *rest in rows]
        save(spark.createDataFrame(named, WHOLE).coalesce(1), servers, sink)
    for ours, theirs in zip(topics[:2], topics[2:], strict=True):
        written = [record[:4] for record in read_topic(servers, ours)]
        assert len(written) == 500
        assert written == [record[:4] for record in read_topic(servers, theirs)]


def test_the_option_topic_goes_first_and_times_are_kept(spark: SparkSession, servers: str) -> None:
    topic = make_topic(servers, partitions=4)
    moment = datetime(2020, 1, 2, 3, 4, 5, 678_000, UTC)
    frame = spark.createDataFrame(
        [("elsewhere", "a", moment, 1), ("elsewhere", "b", None, 2)],
        "topic string, VALUE string, timestamp timestamp, x int",
    )
    before = int(datetime.now(UTC).timestamp() * 1000) - 60_000
    save(frame, servers, topic=topic, kafka_compression_type="lz4")
    times = {record.value: record.timestamp for record in read_topic(servers, topic)}
    assert times[b"a"] == int(moment.timestamp() * 1000)
    assert times[b"b"] > before
    # Rows without a key are spread over the partitions, a batch at a time.
    many = spark.range(4_000, numPartitions=2).selectExpr("cast(id as string) value")
    save(many, servers, topic=topic, kafka_batch_size="2000", kafka_acks="1")
    records = read_topic(servers, topic)
    assert values(records) == {b"a": 1, b"b": 1} | {str(number).encode(): 1 for number in range(4_000)}
    assert {record.partition for record in records} == {0, 1, 2, 3}


def test_what_can_not_be_written_is_said_in_our_sentence(spark: SparkSession, our_servers: str) -> None:
    topic = make_topic(our_servers, configs={"max.message.bytes": "2000"})
    one = spark.createDataFrame([("v", 7)], "value string, partition int")
    assert refusal(one, our_servers, mode="overwrite", topic=topic).startswith("mode 'overwrite' would have to delete")
    assert refusal(one, our_servers).startswith("no topic is named")
    assert refusal(one, our_servers, topic=topic, toppic="x") == ("option 'toppic' is not known; is 'topic' meant?")
    assert refusal(one, our_servers, topic=topic).endswith(f"but topic '{topic}' has 3 partitions, from 0")
    large = spark.createDataFrame([("v" * 3_000,)], "value string")
    assert refusal(large, our_servers, topic=topic).endswith("by itself, but the topic's max.message.bytes is 2,000")
    # Rows that are small enough are put into batches that are, too.
    save(spark.range(1_000).selectExpr("cast(id as string) value"), our_servers, topic=topic)
    assert len(read_topic(our_servers, topic)) == 1_000
    nameless = spark.createDataFrame([("v", None)], "value string, topic string")
    assert refusal(nameless, our_servers).startswith("a row has null in column 'topic'")
    missing = refusal(one, our_servers, topic="no-such-topic")
    assert missing == "writing failed: there is no topic 'no-such-topic'"


def test_a_writer_is_refused_before_spark_is_asked(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], "value string").schema
    with pytest.raises(PipelineError, match=r"option 'kafka\.bootstrap\.servers' is needed"):
        BatchWriter({"topic": "t"}, schema, overwrite=False)
