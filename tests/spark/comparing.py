"""The same query through both connectors, `barnabas` and Spark's own `kafka`, and brokers with the same data to ask.

    rows = rows_of_both(spark, servers, subscribe="orders")         # equal, or the test fails
    stream = Stream(spark, "barnabas", servers, tmp_path, subscribe="orders")
    stream.run()                                                    # up to now, from where it was; any number of times
    stream.rows()                                                   # all that it has written so far

Rule 1: rows are compared as sorted lists of all columns, so that one that is missing, doubled or changed is seen.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession

from barnabas import Broker
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.peer import KEEP_FOR_EVER, NODE_ID, KafkaPeer, copy_sparse

BROKERS = [pytest.param("kafka", marks=pytest.mark.kafka), "barnabas"]
FORMATS = ("barnabas", "kafka")
DEADLINE_SECONDS = 60

# What only a Kafka with its own controller can make use of.
_KAFKAS_OWN = ("__cluster_metadata-*", "__consumer_offsets-*", "__transaction_state-*", "bootstrap.checkpoint")


def dotted(options: dict[str, object]) -> dict[str, object]:
    """Options as keywords: `kafka_isolation_level` is `kafka.isolation.level`."""
    return {name.replace("_", ".") if name.startswith("kafka_") else name: value for name, value in options.items()}


def read(spark: SparkSession, connector: str, servers: str, **options: object) -> DataFrame:
    """A batch query."""
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", servers)
    for name, value in dotted(options).items():
        reader = reader.option(name, str(value))
    return reader.load()


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows by place, whatever order they came in."""
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def rows_of_both(spark: SparkSession, servers: str, **options: object) -> list[Row]:
    """The rows of a batch query, which must be the same through both connectors."""
    ours, theirs = (rows_of(read(spark, connector, servers, **options)) for connector in FORMATS)
    assert_same(ours, theirs)
    return ours


def assert_same(ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    """Compare rows, and name the first that differ."""
    for our_row, their_row in zip(ours, theirs, strict=False):
        assert our_row == their_row
    assert len(ours) == len(theirs)


class Stream:
    """A streaming query into Parquet files, which runs up to the present whenever it is told to."""

    def __init__(
        self, spark: SparkSession, connector: str, servers: str, folder: Path, *, name: str = "", **options: object
    ) -> None:
        """Args:
        spark: The session.
        connector: Which of the two.
        servers: Where the broker is.
        folder: Where the rows and the checkpoint are kept, in a folder of the connector's name.
        name: Another name for it, for queries that share a checkpoint.
        options: Those of the source.
        """
        self._spark = spark
        self._folder = folder / (name or connector)
        self._reader = spark.readStream.format(connector).option("kafka.bootstrap.servers", servers)
        for name, value in dotted(options).items():
            self._reader = self._reader.option(name, str(value))

    def run(self, **options: object) -> int:
        """Read up to the present, and return how many batches that took; `options` are set from now on."""
        for name, value in dotted(options).items():
            self._reader = self._reader.option(name, str(value))
        query = (
            self._reader.load()
            .writeStream.format("parquet")
            .option("path", str(self._folder / "rows"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(DEADLINE_SECONDS)
        finally:
            query.stop()
        return len(query.recentProgress)

    def rows(self) -> list[Row]:
        """All that was written so far."""
        return rows_of(self._spark.read.parquet(str(self._folder / "rows")))


@contextmanager
def populated_broker(kind: str, source: KafkaDirectory, folder: Path) -> Iterator[str]:
    """A broker on a copy of what a Kafka wrote, with everything that topics can have; gives its bootstrap servers."""
    folder.mkdir(parents=True)
    copy_sparse(source.data_dir, folder / "data")
    if kind == "kafka":
        with KafkaPeer(folder, KEEP_FOR_EVER) as peer:
            yield peer.bootstrap_servers
        return
    for pattern in _KAFKAS_OWN:
        for path in (folder / "data").glob(pattern):
            for file in path.iterdir() if path.is_dir() else ():
                file.unlink()
            path.rmdir() if path.is_dir() else path.unlink()
    with Broker(data=folder / "data", settings={"node.id": NODE_ID}) as broker:
        yield broker.bootstrap_servers


def produce(servers: str, topic: str, values: Sequence[bytes], *, partition: int = 0) -> None:
    """Write values to one partition, and wait until they are there."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0
