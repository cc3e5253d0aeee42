"""Services: which address a client is told to connect to."""

from typing import Any, cast

import pytest

from barnabas.broker.services import Services
from barnabas.broker_config import Endpoint, resolve
from barnabas.embedded import Broker


class Config:
    def __init__(self, given: dict[str, str]) -> None:
        self.broker = resolve(given).broker


def services(given: dict[str, str], **listening: Endpoint) -> Services:
    parts: dict[str, Any] = dict.fromkeys(
        (
            "scheduler",
            "pool",
            "cache",
            "controller",
            "log_manager",
            "replica_manager",
            "fetch_sessions",
            "producer_ids",
            "topic_changes",
            "clock",
            "groups",
            "transactions",
            "bulk_loads",
            "replica_moves",
            "log_retention",
        )
    )
    return Services(node_id=0, config=cast(Any, Config(given)), listening=listening, **parts)


TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,EXTERNAL://0.0.0.0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
}
LISTENING = {
    "PLAINTEXT": Endpoint("PLAINTEXT", "127.0.0.1", 9092),
    "EXTERNAL": Endpoint("EXTERNAL", "0.0.0.0", 9093),
}


def test_a_client_is_told_the_address_that_is_listened_on() -> None:
    broker = services({}, PLAINTEXT=Endpoint("PLAINTEXT", "127.0.0.1", 40001))
    assert broker.advertised("PLAINTEXT", "127.0.0.1") == Endpoint("PLAINTEXT", "127.0.0.1", 40001)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_of_a_listener_on_every_address_a_client_is_told_the_one_it_came_to(host: str) -> None:
    broker = services({}, PLAINTEXT=Endpoint("PLAINTEXT", host, 9092))
    assert broker.advertised("PLAINTEXT", "192.0.2.7") == Endpoint("PLAINTEXT", "192.0.2.7", 9092)


def test_an_advertised_address_is_told_instead() -> None:
    broker = services({**TWO, "advertised.listeners": "EXTERNAL://broker.example:19093"}, **LISTENING)
    assert broker.advertised("EXTERNAL", "192.0.2.7") == Endpoint("EXTERNAL", "broker.example", 19093)
    assert broker.advertised("PLAINTEXT", "127.0.0.1") == Endpoint("PLAINTEXT", "127.0.0.1", 9092)


def test_an_advertised_port_0_is_the_port_that_the_listener_got() -> None:
    broker = services({**TWO, "advertised.listeners": "EXTERNAL://broker.example:0"}, **LISTENING)
    assert broker.advertised("EXTERNAL", "192.0.2.7").port == 9093


def test_the_cluster_has_an_id_that_stays() -> None:
    with Broker(in_process=True) as broker:
        first = broker.server.services.cluster_id
        broker.stop()
        broker.start()
        assert broker.server.services.cluster_id == first
        assert len(first) == 22
