"""A Kafka broker that is started on partition directories of ours serves every record in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka_peer.peer import KafkaPeer
from tests.kafka_peer.populate import ConsumedRecord, consume, create_topics
from tests.storage.interop.conftest import OurDirectory
from tests.storage.interop.consuming import consume_all
from tests.storage.interop.written import open_manager

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="session")
def peer_with_our_topics(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory, clean_directory: OurDirectory
) -> Iterator[KafkaPeer]:
    """A stopped Kafka that knows topics of the same names, without records."""
    with KafkaPeer(tmp_path_factory.mktemp("serving") / "kafka") as peer:
        create_topics(peer, dict.fromkeys(clean_directory.logs, 1))
        peer.stop()
        yield peer


def expected(directory: OurDirectory, isolation_level: str) -> list[ConsumedRecord]:
    consumed: list[ConsumedRecord] = []
    for _, log in sorted(directory.logs.items()):
        consumed += log.read_committed() if isolation_level == "read_committed" else log.read_uncommitted()
    return consumed


def assert_served(peer: KafkaPeer, directory: OurDirectory, *, recover: bool) -> None:
    for log in directory.logs.values():
        peer.replace_partition(log.topic, 0, directory.path / f"{log.topic}-0", recover=recover)
    peer.start()
    topics = dict.fromkeys(directory.logs, 1)
    try:
        for isolation_level in ("read_committed", "read_uncommitted"):
            assert consume(peer, topics, isolation_level) == expected(directory, isolation_level)
    finally:
        peer.stop()


def test_kafka_serves_every_record(peer_with_our_topics: KafkaPeer, our_directory: OurDirectory) -> None:
    assert_served(peer_with_our_topics, our_directory, recover=False)


def test_kafka_recovers_our_files_and_serves_every_record(
    peer_with_our_topics: KafkaPeer, clean_directory: OurDirectory
) -> None:
    assert_served(peer_with_our_topics, clean_directory, recover=True)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_we_serve_every_record_as_well(our_directory: OurDirectory, tmp_path: Path, isolation_level: str) -> None:
    copy = tmp_path / "copy"
    our_directory.copy_to(copy)
    manager = open_manager(copy)
    topics = dict.fromkeys(our_directory.logs, 1)
    assert consume_all(manager, topics, isolation_level) == expected(our_directory, isolation_level)
    manager.shutdown()
