"""The brokers that the client is tried against; the same tests run against each.

A broker is started once for a folder of tests, so every test makes topics of its own: see `topic_name`.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas import Broker
from tests.kafka_peer.peer import KEEP_FOR_EVER, KafkaPeer

BROKERS = [pytest.param("kafka", marks=pytest.mark.kafka), "barnabas"]
SETTINGS: dict[str, str | int] = {"auto.create.topics.enable": "true", "num.partitions": 3}

_NUMBERS = itertools.count()


@contextmanager
def running_broker(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a broker, and give its bootstrap servers."""
    if kind == "barnabas":
        with Broker(data=folder, settings={**SETTINGS, **KEEP_FOR_EVER}) as broker:
            yield broker.bootstrap_servers
        return
    assert kind == "kafka"
    request.getfixturevalue("kafka_jars")  # Skips where Kafka can not run.
    with KafkaPeer(folder, SETTINGS | KEEP_FOR_EVER) as peer:
        yield peer.bootstrap_servers


def topic_name(word: str) -> str:
    """Return a name that no other test has."""
    return f"{word}-{next(_NUMBERS)}"
