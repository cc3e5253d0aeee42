"""Directories of ours for Kafka to look at, one shut down in order and one killed, and Kafka's for us to look at."""

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from barnabas.model import TopicPartition
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.peer import KafkaPeer, copy_sparse
from tests.kafka_peer.populate import DEADLINE_S, ConsumedRecord
from tests.storage.interop.writing import SMALL_SEGMENTS, write_everything
from tests.storage.interop.written import WrittenDirectory, WrittenLog, open_manager

LEADER_ERRORS = (KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class OurDirectory:
    """A log directory of ours that nobody uses any more, and what was written into each log."""

    path: Path
    logs: dict[str, WrittenLog]

    def files(self, suffix: str) -> list[Path]:
        """All files of one kind."""
        return sorted(self.path.glob(f"*/*{suffix}"))

    def copy_to(self, target: Path) -> None:
        """Copy it, for whoever wants to open it."""
        shutil.copytree(self.path, target)

    def files_of(self, log: WrittenLog, suffix: str) -> list[Path]:
        """The files of one kind of one log."""
        return sorted((self.path / f"{log.topic}-0").glob(f"*{suffix}"))


@pytest.fixture(scope="session")
def clean_directory(tmp_path_factory: pytest.TempPathFactory) -> OurDirectory:
    """A directory that was shut down."""
    written = WrittenDirectory(tmp_path_factory.mktemp("ours") / "clean")
    write_everything(written)
    written.close()
    return OurDirectory(path=written.path, logs=written.logs)


@pytest.fixture(scope="session")
def recovered_directory(tmp_path_factory: pytest.TempPathFactory) -> OurDirectory:
    """A directory whose broker was killed, which was then opened again and shut down.

    What a killed process leaves is what its files hold at that moment, so they are copied away under a running one.
    """
    folder = tmp_path_factory.mktemp("ours")
    written = WrittenDirectory(folder / "running")
    write_everything(written)
    killed = folder / "killed"
    shutil.copytree(written.path, killed)
    written.close()
    for log in written.logs.values():
        # The process died in the middle of an append: a batch that announces more bytes than there are.
        with open(max((killed / f"{log.topic}-0").glob("*.log")), "ab") as file:
            file.write(log.end_offset.to_bytes(8, "big") + b"\0\0\1\0" + b"torn")
    manager = open_manager(killed, dict.fromkeys(written.logs, SMALL_SEGMENTS))
    for managed in manager.current_logs.values():
        managed.log.update_high_watermark(managed.log.log_end_offset)
    manager.shutdown()
    return OurDirectory(path=killed, logs=written.logs)


@pytest.fixture(scope="session", params=["clean", "recovered"])
def our_directory(
    request: pytest.FixtureRequest, clean_directory: OurDirectory, recovered_directory: OurDirectory
) -> OurDirectory:
    """Both, one after the other."""
    return clean_directory if request.param == "clean" else recovered_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class RevivedKafka:
    """What Kafka made of the directory of a killed Kafka: its files after recovery and a stop, and its answers."""

    data_dir: Path
    offsets_for_times: dict[tuple[TopicPartition, int], int]
    """The first offset at or past a timestamp, -1 where there is none."""


@pytest.fixture(scope="session")
def revived_kafka(killed_kafka: KafkaDirectory, tmp_path_factory: pytest.TempPathFactory) -> RevivedKafka:
    """The killed Kafka's data, recovered by Kafka."""
    folder = tmp_path_factory.mktemp("revived") / "kafka"
    folder.mkdir()
    copy_sparse(killed_kafka.data_dir, folder / "data")
    with KafkaPeer(folder) as peer:
        answers = ask_for_times(peer, killed_kafka.data.read_uncommitted)
        peer.stop()
    return RevivedKafka(data_dir=peer.data_dir, offsets_for_times=answers)


def answers_of(consumer: Consumer, asked: list[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
    """The offsets of some times; a Kafka that has just started may know its leaders a moment later than its clients."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answers: list[KafkaTopicPartition] = consumer.offsets_for_times(asked, DEADLINE_S)
        errors = [answer.error for answer in answers if answer.error is not None]
        if not errors:
            return answers
        assert time.monotonic() < deadline, errors
        assert all(error.retriable() or error.code() in LEADER_ERRORS for error in errors), errors
        time.sleep(0.1)


def ask_for_times(peer: KafkaPeer, records: Iterable[ConsumedRecord]) -> dict[tuple[TopicPartition, int], int]:
    """Kafka's answers about every so many timestamps of each partition, and about those next to them."""
    timestamps: dict[TopicPartition, set[int]] = {}
    for record in records:
        if record.offset % 7 == 0 or record.offset < 20:
            known = timestamps.setdefault(TopicPartition(record.topic, record.partition), set())
            known |= {record.timestamp_ms - 1, record.timestamp_ms, record.timestamp_ms + 1}
    answers = {}
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "group.id": "nobody",
            "log_level": 3,
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        waiting = {partition: sorted(known) for partition, known in timestamps.items()}
        while waiting:
            # One timestamp a partition fits into a request.
            asked = [KafkaTopicPartition(*partition, known.pop()) for partition, known in waiting.items()]
            for question, answer in zip(asked, answers_of(consumer, asked), strict=True):
                partition = TopicPartition(answer.topic, answer.partition)
                answers[partition, question.offset] = answer.offset
            waiting = {partition: known for partition, known in waiting.items() if known}
    finally:
        consumer.close()
    return answers
