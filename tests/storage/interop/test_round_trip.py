"""Kafka writes, we go on, Kafka goes on, we go on: at every change the files are complete and nothing is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as KafkaProducer

from barnabas.cli.main import main
from barnabas.config import LogConfig
from barnabas.records.codecs import Codec
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.peer import KafkaPeer, copy_sparse
from tests.kafka_peer.populate import (
    APPEND_TIME,
    BASE_TIMESTAMP_MS,
    CODEC_TOPICS,
    COMPACTED,
    DEADLINE_S,
    IDEMPOTENT,
    OPEN_TRANSACTION,
    PARTITIONS,
    SEGMENT_BYTES_MIN,
    SEGMENTS,
    TRANSACTIONS,
    ConsumedRecord,
    PopulatedData,
    read_back,
)
from tests.storage.interop.consuming import consume_all
from tests.storage.interop.writing import labelled, varied_records
from tests.storage.interop.written import Producer, WrittenDirectory, open_manager

pytestmark = pytest.mark.kafka

CONFIGS = {
    SEGMENTS: LogConfig(segment_bytes=SEGMENT_BYTES_MIN),
    APPEND_TIME: LogConfig(message_timestamp_type="LogAppendTime"),
    COMPACTED: LogConfig(cleanup_policy=("compact",)),
}


def append_ours(directory: WrittenDirectory) -> None:
    """Go on in every topic that Kafka filled, as a broker would that took over its disks."""
    for codec in Codec:
        directory.open(CODEC_TOPICS[codec.name.lower()]).append(varied_records(1), codec=codec)
    directory.open(APPEND_TIME).append(varied_records(2))
    directory.open(COMPACTED).append(labelled("ours", 3))
    directory.open(OPEN_TRANSACTION).append(labelled("ours, behind the open transaction", 3))
    segments = directory.open(SEGMENTS)
    for number in range(300):
        segments.append([(BASE_TIMESTAMP_MS + number, b"large", bytes(10_000), ())])
    idempotent = directory.open(IDEMPOTENT)
    # The producers that Kafka knew go on where they were, with the sequence number that comes next.
    for entry in list(idempotent.log.producers.producers.values()):
        known = Producer(entry.producer_id, entry.epoch, entry.last_sequence + 1)
        idempotent.append(varied_records(3), producer=known)
    transactions = directory.open(TRANSACTIONS)
    for number, producer_id in enumerate((9_000, 9_001, 9_002)):
        producer = Producer(producer_id)
        transactions.append(labelled(f"ours, {number}", 4), producer=producer, transactional=True)
        transactions.end(producer, commit=number != 1)


def merged(before: list[ConsumedRecord], added: Iterator[ConsumedRecord]) -> list[ConsumedRecord]:
    return sorted([*before, *added], key=lambda record: (record.topic, record.partition, record.offset))


def with_ours(data: PopulatedData, directory: WrittenDirectory) -> PopulatedData:
    """What consumers must get after `append_ours`."""
    logs = directory.logs.values()
    return PopulatedData(
        read_committed=merged(
            data.read_committed,
            # Kafka's open transaction lies before what was added to its topic.
            (record for log in logs if log.topic != OPEN_TRANSACTION for record in log.read_committed()),
        ),
        read_uncommitted=merged(data.read_uncommitted, (record for log in logs for record in log.read_uncommitted())),
    )


def produce_with_kafka(peer: KafkaPeer) -> None:
    producer = KafkaProducer({"bootstrap.servers": peer.bootstrap_servers, "log_level": 3})
    for topic in PARTITIONS:
        producer.produce(topic, key=b"key", value=b"Kafka again", partition=0, timestamp=BASE_TIMESTAMP_MS)
    assert producer.flush(DEADLINE_S) == 0


def test_kafka_and_we_take_turns_on_the_same_files(stopped_kafka: KafkaDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    folder.mkdir()
    copy_sparse(stopped_kafka.data_dir, folder / "data")
    directory = WrittenDirectory(folder / "data", CONFIGS)
    append_ours(directory)
    directory.close()
    expected = with_ours(stopped_kafka.data, directory)
    assert main(["verify", str(folder / "data")]) == 0

    with KafkaPeer(folder) as peer:
        assert read_back(peer) == expected
        produce_with_kafka(peer)
        after = read_back(peer)
        peer.stop()
    assert len(after.read_uncommitted) == len(expected.read_uncommitted) + len(PARTITIONS)

    manager = open_manager(folder / "data", CONFIGS)
    assert consume_all(manager, PARTITIONS, "read_uncommitted") == after.read_uncommitted
    assert consume_all(manager, PARTITIONS, "read_committed") == after.read_committed
    manager.shutdown()
    assert main(["verify", str(folder / "data")]) == 0
