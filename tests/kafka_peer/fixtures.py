"""Fixtures over a real Kafka; tests/conftest.py imports them, so every test can name them.

On a machine that cannot run Kafka, a test that uses them is skipped with the reason; on CI a skip fails the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kafka_peer.jars import PeerUnavailableError, fetch_kafka
from tests.kafka_peer.peer import KafkaPeer
from tests.kafka_peer.populate import PopulatedData, populate


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaDirectory:
    """A log directory that Kafka wrote, and what its consumers got from it. Copy what you open: others read it too."""

    data_dir: Path
    data: PopulatedData


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Kafka's jars; a test that runs Kafka's tools or its own `KafkaPeer` needs only this."""
    try:
        return fetch_kafka()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def kafka_peer(kafka_jars: Path, tmp_path: Path) -> Iterator[KafkaPeer]:
    """A fresh Kafka for one test."""
    with KafkaPeer(tmp_path / "kafka") as peer:
        yield peer


@pytest.fixture(scope="session")
def stopped_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> KafkaDirectory:
    """A populated Kafka that was stopped cleanly."""
    with KafkaPeer(tmp_path_factory.mktemp("stopped") / "kafka") as peer:
        data = populate(peer)
        peer.stop()
    return KafkaDirectory(data_dir=peer.data_dir, data=data)


@pytest.fixture(scope="session")
def killed_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> KafkaDirectory:
    """A populated Kafka that was killed (SIGKILL): no marker, indexes at their pre-allocated size, nothing flushed."""
    with KafkaPeer(tmp_path_factory.mktemp("killed") / "kafka") as peer:
        data = populate(peer)
        peer.kill()
    return KafkaDirectory(data_dir=peer.data_dir, data=data)
