"""One broker on a thread for all tests of handlers, and a connection a test; every test has topics of its own."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from tests.broker.asking import connected, create_topic
from tests.broker.coordinating import GROUP, TRANSACTION, find

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker with the settings it comes with, but for the automatic creation of topics."""
    with Broker(in_process=True, settings={"auto.create.topics.enable": False}) as broker:
        yield broker


@pytest.fixture(scope="session")
def coordinators(broker: Broker) -> None:
    """The internal topics, so that groups and transactions are coordinated."""
    with connected(broker) as connection:
        find(connection, "any", GROUP)
        find(connection, "any", TRANSACTION)


@pytest.fixture
def name(coordinators: None) -> str:
    """A name that no other test has, for a group, a transactional id or a topic."""
    return f"name-{next(_numbers)}"


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """A connection to that broker."""
    with connected(broker) as connection:
        yield connection


@pytest.fixture
def topic(connection: Connection) -> Callable[..., str]:
    """A function that creates a topic: topic(partitions=2, **{"cleanup.policy": "compact"}) returns its name."""

    def make(partitions: int = 1, **config: object) -> str:
        name = f"topic-{next(_numbers)}"
        create_topic(connection, name, partitions, config)
        return name

    return make
