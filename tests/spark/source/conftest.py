"""Brokers for the tests of the source: one with everything that topics can have, and one that is empty."""

from collections.abc import Iterator

import pytest

from barnabas import Broker
from barnabas.client.client import Client
from barnabas.spark import connecting
from tests.client.brokers import running_broker
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.spark.comparing import BROKERS, populated_broker


@pytest.fixture(scope="package", params=BROKERS)
def populated(
    request: pytest.FixtureRequest, stopped_kafka: KafkaDirectory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The bootstrap servers of a broker that has the topics of `tests.kafka_peer.populate`."""
    with populated_broker(
        request.param, stopped_kafka, tmp_path_factory.mktemp("populated") / request.param
    ) as servers:
        yield servers


@pytest.fixture(scope="package", params=BROKERS)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a broker for topics of one's own."""
    with running_broker(request.param, tmp_path_factory.mktemp("source") / request.param, request) as address:
        yield address


@pytest.fixture(scope="package", autouse=True)
def closed_clients() -> Iterator[None]:
    """Tests without Spark do in this process what tasks do in theirs, which end with their clients."""
    yield
    connecting.close_clients()


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    """A client of that broker."""
    with Client(servers) as opened:
        yield opened


@pytest.fixture
def our_client(barnabas_broker: Broker) -> Iterator[Client]:
    """A client of a broker of ours, where one kind of broker is enough."""
    with Client(barnabas_broker.bootstrap_servers) as opened:
        yield opened
