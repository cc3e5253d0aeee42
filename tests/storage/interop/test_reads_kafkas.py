"""Directories that Kafka wrote open here and give what Kafka's consumers got, and the state that Kafka has."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import read_epochs
from barnabas.storage.files import OsFiles
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.producers import ProducerEntry
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.peer import copy_sparse
from tests.kafka_peer.populate import COMPACTED, PARTITIONS, SEGMENTS, PopulatedData, TimestampType
from tests.storage.interop.conftest import RevivedKafka
from tests.storage.interop.consuming import consume_all, read_uncommitted
from tests.storage.interop.kafka_dump import DumpedProducer, KafkaDump
from tests.storage.interop.written import open_manager

pytestmark = pytest.mark.kafka

ALL = [TopicPartition(topic, number) for topic, count in PARTITIONS.items() for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A copy of a directory of Kafka's, opened by us, and what Kafka's consumers got from it."""

    manager: LogManager
    data: PopulatedData

    def log(self, partition: TopicPartition) -> Log:
        log = self.manager.get_log(partition)
        assert log is not None
        return log


def _copy_without_marker(source: Path, target: Path) -> None:
    copy_sparse(source, target)
    (target / ".kafka_cleanshutdown").unlink()


def _copy_logs_only(source: Path, target: Path) -> None:
    """No index, snapshot, checkpoint or marker: what can be made again must be."""
    copy_sparse(source, target)
    for path in [*target.glob("*/*"), *target.iterdir()]:
        if path.is_file() and path.suffix != ".log" and path.parent.name != "__cluster_metadata-0":
            path.unlink()


@pytest.fixture(scope="session", params=["stopped", "stopped, without marker", "stopped, logs only", "killed"])
def opened(
    request: pytest.FixtureRequest,
    stopped_kafka: KafkaDirectory,
    killed_kafka: KafkaDirectory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Opened]:
    source = killed_kafka if request.param == "killed" else stopped_kafka
    copy = {"stopped, without marker": _copy_without_marker, "stopped, logs only": _copy_logs_only}.get(
        request.param, copy_sparse
    )
    target = tmp_path_factory.mktemp("opened") / "data"
    copy(source.data_dir, target)
    manager = open_manager(target)
    for managed in manager.current_logs.values():
        # As the leader does when all replicas, here the only one, have everything.
        managed.log.update_high_watermark(managed.log.log_end_offset)
    yield Opened(manager=manager, data=source.data)
    manager.shutdown()


def test_every_partition_is_loaded_and_kafkas_own_logs_are_left_alone(opened: Opened) -> None:
    assert set(ALL) <= set(opened.manager.current_logs)
    assert TopicPartition("__cluster_metadata", 0) not in opened.manager.current_logs


def test_a_consumer_of_everything_gets_the_same_records(opened: Opened) -> None:
    assert consume_all(opened.manager, PARTITIONS, "read_uncommitted") == opened.data.read_uncommitted


def test_a_consumer_of_committed_records_gets_the_same_records(opened: Opened) -> None:
    assert consume_all(opened.manager, PARTITIONS, "read_committed") == opened.data.read_committed


def test_what_is_read_has_holes_segments_and_both_kinds_of_time(opened: Opened) -> None:
    """The comparisons above would pass with too simple data."""
    assert len(opened.log(TopicPartition(SEGMENTS, 0)).segments) > 2
    compacted = read_uncommitted(TopicPartition(COMPACTED, 0), opened.log(TopicPartition(COMPACTED, 0)))
    offsets = [record.offset for record in compacted]
    assert offsets[-1] - offsets[0] >= len(offsets)
    assert {record.timestamp_type for record in opened.data.read_uncommitted} == set(TimestampType)


def test_any_offset_can_be_read_from(opened: Opened) -> None:
    for partition in ALL:
        log = opened.log(partition)
        offsets = [record.offset for record in read_uncommitted(partition, log)]
        for offset in [*offsets[:: max(1, len(offsets) // 50)], log.log_end_offset - 1]:
            found = log.read(offset, 0, log.high_watermark)
            assert found.records is None
            assert found.offset_metadata.message_offset == offset


def newest_snapshots(data_dir: Path) -> dict[TopicPartition, Path]:
    return {partition: max((data_dir / str(partition)).glob("*.snapshot")) for partition in ALL}


def as_dumped(entry: ProducerEntry) -> DumpedProducer:
    last = entry.batches[-1] if entry.batches else None
    return DumpedProducer(
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_first_offset=entry.transaction_first_offset,
        last_timestamp=entry.last_timestamp,
        last_sequence=last.last_sequence if last else -1,
        last_offset=last.last_offset if last else -1,
        offset_delta=last.offset_delta if last else 0,
    )


@pytest.fixture(scope="session")
def kafkas_producers(
    stopped_kafka: KafkaDirectory, revived_kafka: RevivedKafka
) -> dict[str, dict[TopicPartition, dict[int, DumpedProducer]]]:
    """The producers of every partition by Kafka's own snapshots, of the stopped Kafka and of the killed one."""
    producers = {}
    for name, data_dir in {"stopped": stopped_kafka.data_dir, "killed": revived_kafka.data_dir}.items():
        snapshots = newest_snapshots(data_dir)
        dump = KafkaDump(snapshots.values())
        producers[name] = {partition: dump.producers(path) for partition, path in snapshots.items()}
    return producers


def test_the_producers_are_those_of_kafkas_snapshots(
    request: pytest.FixtureRequest,
    opened: Opened,
    kafkas_producers: dict[str, dict[TopicPartition, dict[int, DumpedProducer]]],
) -> None:
    name = "killed" if "killed" in request.node.name else "stopped"
    for partition in ALL:
        producers = opened.log(partition).producers.producers
        assert {number: as_dumped(entry) for number, entry in producers.items()} == kafkas_producers[name][partition]


def test_lookups_by_time_agree_with_kafkas(
    killed_kafka: KafkaDirectory, revived_kafka: RevivedKafka, tmp_path: Path
) -> None:
    copy_sparse(killed_kafka.data_dir, tmp_path / "data")
    manager = open_manager(tmp_path / "data")
    different = []
    for (partition, timestamp), expected in revived_kafka.offsets_for_times.items():
        log = manager.get_log(partition)
        assert log is not None
        found = log.find_offset_by_timestamp(timestamp)
        if (found.offset if found else -1) != expected:
            different.append((partition, timestamp, expected, found))
    manager.shutdown()
    assert different == []
    assert len(revived_kafka.offsets_for_times) > 500


@pytest.fixture(scope="session")
def recovered_by_us(killed_kafka: KafkaDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The killed Kafka's data, recovered and shut down by us."""
    target = tmp_path_factory.mktemp("recovered") / "data"
    copy_sparse(killed_kafka.data_dir, target)
    open_manager(target).shutdown()
    return target


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
def test_recovery_makes_the_files_that_kafkas_recovery_makes(
    recovered_by_us: Path, revived_kafka: RevivedKafka, suffix: str
) -> None:
    def contents(data_dir: Path) -> dict[str, bytes]:
        files = {
            f"{partition}/{path.name}": path.read_bytes()
            for partition in ALL
            for path in sorted((data_dir / str(partition)).glob(f"*{suffix}"))
        }
        # Where recovery finds no aborted transaction any more, Kafka leaves an empty index and we leave none.
        return {name: content for name, content in files.items() if content or suffix != ".txnindex"}

    assert contents(recovered_by_us) == contents(revived_kafka.data_dir)


def test_recovery_finds_the_leader_epochs_that_kafkas_finds(recovered_by_us: Path, revived_kafka: RevivedKafka) -> None:
    for partition in ALL:
        ours = read_epochs(OsFiles(), str(recovered_by_us / str(partition) / "leader-epoch-checkpoint"))
        kafkas = read_epochs(OsFiles(), str(revived_kafka.data_dir / str(partition) / "leader-epoch-checkpoint"))
        # The revived Kafka became leader once more, and notes that at the end of the log.
        assert ours == kafkas[:-1]
