"""What the tests of jobs that move data share: brokers, topics with records, and what is in them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from barnabas import Broker
from barnabas.spark import connecting
from barnabas.spark.schema import spark_schema
from tests.kafka_peer.peer import KEEP_FOR_EVER, KafkaPeer
from tests.spark.sink.topics import make_topic

BEGIN_MS = 1_700_000_000_000
COLUMNS = spark_schema(include_headers=True).names

Rows = dict[tuple[int, int], tuple[Any, ...]]
"""Records by partition and offset."""


@pytest.fixture(scope="module")
def our_servers() -> Iterator[str]:
    """The address of a broker of ours."""
    with Broker(settings={"auto.create.topics.enable": "false", **KEEP_FOR_EVER}) as broker:
        yield broker.bootstrap_servers
    connecting.close_clients()


@pytest.fixture(scope="module")
def kafka_servers(kafka_jars: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Apache Kafka."""
    with KafkaPeer(tmp_path_factory.mktemp("jobs-kafka"), KEEP_FOR_EVER) as peer:
        yield peer.bootstrap_servers


@pytest.fixture(params=["our_servers", pytest.param("kafka_servers", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    """The address of one and then the other."""
    address: str = request.getfixturevalue(request.param)
    return address


def produce(
    servers: str,
    topic: str,
    values: list[bytes | None],
    *,
    first: int = 0,
    partitions: int = 3,
    is_aborted: bool | None = None,
) -> None:
    """Write records with keys, headers and times to each partition in turn; in a transaction, if told how that ends."""
    settings = {"bootstrap.servers": servers, "linger.ms": 5}
    producer = Producer(settings if is_aborted is None else {**settings, "transactional.id": f"writer-{topic}"})
    if is_aborted is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number, value in enumerate(values, first):
        producer.produce(
            topic,
            value,
            f"key-{number % 7}".encode(),
            number % partitions,
            timestamp=BEGIN_MS + number * 1000,
            headers=[("number", str(number).encode()), ("empty", None)],
        )
    # A transaction that is aborted forgets what it has not sent yet.
    assert producer.flush(30) == 0
    if is_aborted:
        producer.abort_transaction(30)
    elif is_aborted is not None:
        producer.commit_transaction(30)


def filled_topic(servers: str, count: int, partitions: int = 3) -> str:
    """A new topic with so many records."""
    topic = make_topic(servers, partitions)
    produce(servers, topic, [f"value {number}".encode() for number in range(count)], partitions=partitions)
    return topic


def rows_of(frame: DataFrame) -> Rows:
    """What a DataFrame of records has; fails when a record is there twice."""
    rows: Rows = {}
    for row in frame.select(*COLUMNS).collect():
        place = (row.partition, row.offset)
        assert place not in rows, f"{place} is there twice"
        rows[place] = tuple(row)
    return rows


def topic_rows(spark: SparkSession, servers: str, topic: str) -> Rows:
    """What is committed in a topic."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    return rows_of(spark.read.format("barnabas").options(**options, includeHeaders="true").load())


def moment(number: int) -> str:
    """The time of a record that `produce` wrote, as people say it."""
    return datetime.fromtimestamp((BEGIN_MS + number * 1000) / 1000, UTC).isoformat()
