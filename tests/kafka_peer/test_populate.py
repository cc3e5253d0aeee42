"""What `populate` promises of the data that other tests rely on."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.peer import KafkaPeer, complaints_of, copy_sparse, dump_log
from tests.kafka_peer.populate import (
    APPEND_TIME,
    CODEC_TOPICS,
    CODECS,
    COMPACTED,
    IDEMPOTENT,
    OPEN_TRANSACTION,
    PARTITIONS,
    SEGMENTS,
    TRANSACTIONS,
    ConsumedRecord,
    TimestampType,
    cleaned_offset,
    consume,
    create_topics,
)

pytestmark = pytest.mark.kafka


def of(records: list[ConsumedRecord], topic: str) -> list[ConsumedRecord]:
    return [record for record in records if record.topic == topic]


def logs(directory: KafkaDirectory, topic: str, partition: int = 0) -> list[Path]:
    return sorted((directory.data_dir / f"{topic}-{partition}").glob("*.log"))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_really_compressed_with_each_codec(stopped_kafka: KafkaDirectory, codec: str) -> None:
    [log] = logs(stopped_kafka, CODEC_TOPICS[codec])
    # The codec is in the last three bits of the attributes, at position 21 of the first batch.
    [attributes] = struct.unpack_from(">h", log.read_bytes(), 21)
    assert attributes & 7 == CODECS.index(codec)


def test_all_codecs_give_the_same_records_with_nulls_and_headers(stopped_kafka: KafkaDirectory) -> None:
    contents = {
        codec: [
            (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            for record in of(stopped_kafka.data.read_committed, topic)
        ]
        for codec, topic in CODEC_TOPICS.items()
    }
    assert all(content == contents["none"] for content in contents.values())
    assert len(contents["none"]) == 4 * 7 + 1
    keys_and_values = {(key is None, value is None) for _, _, key, value, _ in contents["none"]}
    assert keys_and_values == {(False, False), (False, True), (True, False), (True, True)}
    headers = [header for *_, headers in contents["none"] for header in headers]
    assert ("null", None) in headers
    assert ("empty", b"") in headers


def test_append_time_is_the_brokers(stopped_kafka: KafkaDirectory) -> None:
    by_type = {
        record.topic: record.timestamp_type
        for record in stopped_kafka.data.read_committed
        if record.topic in (APPEND_TIME, CODEC_TOPICS["lz4"])
    }
    assert by_type == {
        APPEND_TIME: TimestampType.LOG_APPEND_TIME,
        CODEC_TOPICS["lz4"]: TimestampType.CREATE_TIME,
    }


def test_there_are_several_segments(stopped_kafka: KafkaDirectory) -> None:
    for partition in range(PARTITIONS[SEGMENTS]):
        assert len(logs(stopped_kafka, SEGMENTS, partition)) >= 4


def test_aborted_and_open_transactions_show_only_uncommitted(stopped_kafka: KafkaDirectory) -> None:
    data = stopped_kafka.data
    committed = {record.value for record in of(data.read_committed, TRANSACTIONS)}
    aborted = {record.value for record in of(data.read_uncommitted, TRANSACTIONS)} - committed
    assert b"first, aborted late 0" in aborted
    assert all(b"abort" not in value for value in committed if value is not None)
    assert [record.value for record in of(data.read_committed, OPEN_TRANSACTION)] == [
        b"committed 0",
        b"committed 1",
        b"committed 2",
    ]
    assert len(of(data.read_uncommitted, OPEN_TRANSACTION)) == 9
    assert list((stopped_kafka.data_dir / f"{TRANSACTIONS}-0").glob("*.txnindex"))


def test_kafka_has_cleaned_the_compacted_topic(stopped_kafka: KafkaDirectory) -> None:
    active = int(logs(stopped_kafka, COMPACTED)[-1].stem)
    assert cleaned_offset(stopped_kafka.data_dir, COMPACTED, 0) == active
    keys = Counter(
        record.key for record in of(stopped_kafka.data.read_uncommitted, COMPACTED) if record.offset < active
    )
    assert set(keys.values()) == {1}


def test_the_two_runs_have_the_same_records(stopped_kafka: KafkaDirectory, killed_kafka: KafkaDirectory) -> None:
    """Except for the broker's own time."""

    def comparable(records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        return [record for record in records if record.topic != APPEND_TIME]

    assert comparable(stopped_kafka.data.read_committed) == comparable(killed_kafka.data.read_committed)
    assert comparable(stopped_kafka.data.read_uncommitted) == comparable(killed_kafka.data.read_uncommitted)


def test_a_killed_kafka_leaves_no_marker_and_long_indexes(killed_kafka: KafkaDirectory) -> None:
    assert not (killed_kafka.data_dir / ".kafka_cleanshutdown").exists()
    [log] = logs(killed_kafka, IDEMPOTENT)
    assert log.with_suffix(".index").stat().st_size == 10 * 1024 * 1024


def test_a_copy_keeps_the_holes(killed_kafka: KafkaDirectory, tmp_path: Path) -> None:
    copy_sparse(killed_kafka.data_dir / f"{IDEMPOTENT}-0", tmp_path / "copy")
    [index] = (tmp_path / "copy").glob("*.index")
    assert index.stat().st_size == 10 * 1024 * 1024
    assert index.stat().st_blocks * 512 < 1024 * 1024


def test_kafkas_own_tool_likes_all_of_it(stopped_kafka: KafkaDirectory) -> None:
    """So a complaint about our files is about ours. (A cleaned log has gaps, and the tool names every gap.)"""
    files = [
        str(file)
        for topic, partitions in PARTITIONS.items()
        if topic != COMPACTED
        for partition in range(partitions)
        for pattern in ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot")
        for file in sorted((stopped_kafka.data_dir / f"{topic}-{partition}").glob(pattern))
    ]
    assert complaints_of(dump_log("--deep-iteration", "--files", ",".join(files))) == []


@pytest.mark.parametrize("recover", [False, True])
def test_a_partition_of_another_broker_is_served(
    stopped_kafka: KafkaDirectory, kafka_peer: KafkaPeer, recover: bool
) -> None:
    topics = {TRANSACTIONS: 1, SEGMENTS: 2}
    create_topics(kafka_peer, topics)
    kafka_peer.stop()
    for topic, partitions in topics.items():
        for partition in range(partitions):
            source = stopped_kafka.data_dir / f"{topic}-{partition}"
            kafka_peer.replace_partition(topic, partition, source, recover=recover)
    kafka_peer.start()
    expected = [record for record in stopped_kafka.data.read_committed if record.topic in topics]
    assert consume(kafka_peer, topics, "read_committed") == expected
