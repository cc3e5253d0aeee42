"""The pytest plugin: the fixture `barnabas_broker`, for every project that has Barnabas installed.

    def test_orders(barnabas_broker):
        producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})

One broker serves a whole test session: it starts in a fraction of a second, but a topic of one's own costs still less.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.embedded import Broker


@pytest.fixture(scope="session")
def barnabas_broker() -> "Iterator[Broker]":
    """A broker in a child process, with temporary data and a free port; `bootstrap_servers` is its address."""
    from barnabas.embedded import Broker  # Test runs that do not use it pay nothing.

    with Broker() as broker:
        yield broker
