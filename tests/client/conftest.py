"""A broker for the tests of this folder, a client of it, and topics."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from tests.client.brokers import BROKERS, running_broker, topic_name


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker, the same for all tests here."""
    with running_broker(request.param, tmp_path_factory.mktemp("client") / request.param, request) as address:
        yield address


@pytest.fixture
def client(bootstrap_servers: str) -> Iterator[Client]:
    """A client of that broker."""
    with Client(bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def make_topic(client: Client) -> Callable[..., str]:
    """A function that creates a topic: make_topic(partitions=2, **{"cleanup.policy": "compact"})."""

    def make(partitions: int = 1, **configs: Any) -> str:
        name = topic_name("topic")
        assert create_topics(client, [NewTopic(name=name, partitions=partitions, configs=configs)]) == {}
        return name

    return make
