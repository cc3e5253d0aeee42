"""The brokers that are written to: ours, and Apache Kafka; each is started once."""

from collections.abc import Iterator

import pytest

from barnabas import Broker
from tests.kafka_peer.peer import KEEP_FOR_EVER, KafkaPeer


@pytest.fixture(scope="session")
def our_servers() -> Iterator[str]:
    """The address of our broker."""
    with Broker(settings={"auto.create.topics.enable": "false", **KEEP_FOR_EVER}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_servers(kafka_jars: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Apache Kafka."""
    with KafkaPeer(tmp_path_factory.mktemp("sink-kafka"), KEEP_FOR_EVER) as peer:
        yield peer.bootstrap_servers


@pytest.fixture(params=["our_servers", pytest.param("kafka_servers", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    """The address of one and then the other."""
    address: str = request.getfixturevalue(request.param)
    return address
