"""Kafka's own dump tool reads every file of ours, without a complaint, and sees in them what was written."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.storage.transaction_index import AbortedTransaction
from tests.storage.interop.conftest import OurDirectory
from tests.storage.interop.kafka_dump import DumpedBatch, DumpedProducer, DumpedRecord, KafkaDump
from tests.storage.interop.written import COORDINATOR_EPOCH, WrittenBatch, WrittenLog

pytestmark = pytest.mark.kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumped:
    """A directory of ours, all files of it as Kafka dumps them, and its indexes as Kafka checks them."""

    directory: OurDirectory
    everything: KafkaDump
    indexes: KafkaDump

    def logs(self) -> list[WrittenLog]:
        return list(self.directory.logs.values())

    def batches(self, log: WrittenLog) -> list[DumpedBatch]:
        return [batch for path in self.directory.files_of(log, ".log") for batch in self.everything.batches(path)]


@pytest.fixture(scope="session")
def dumped(kafka_jars: Path, our_directory: OurDirectory) -> Dumped:
    indexes = [*our_directory.files(".index"), *our_directory.files(".timeindex")]
    others = [*our_directory.files(".log"), *our_directory.files(".txnindex"), *our_directory.files(".snapshot")]
    return Dumped(
        directory=our_directory,
        everything=KafkaDump([*others, *indexes], "--deep-iteration"),
        indexes=KafkaDump(indexes, "--index-sanity-check"),
    )


def test_kafka_has_no_complaint(dumped: Dumped) -> None:
    kinds = {path.suffix for path in dumped.everything.files}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert dumped.everything.complaints == []


def test_indexes_pass_kafkas_sanity_check(dumped: Dumped) -> None:
    assert len(dumped.indexes.files) == 2 * len(dumped.directory.files(".log"))
    # Of an offset index without entries the tool only says that it is empty.
    empty = dumped.directory.files_of(dumped.directory.logs["ours-empty"], ".index")
    assert [path for path in dumped.indexes.files if not dumped.indexes.passed_sanity_check(path)] == empty


def test_every_log_but_the_empty_one_has_several_segments_and_index_entries(dumped: Dumped) -> None:
    for log in dumped.logs():
        if log.batches:
            indexes = dumped.directory.files_of(log, ".index")
            assert len(indexes) > 1
            assert any(dumped.everything.entries(path) for path in indexes)


def test_time_indexes_end_with_the_largest_timestamp_of_their_segment(dumped: Dumped) -> None:
    for path in dumped.directory.files(".timeindex"):
        batches = dumped.everything.batches(path.with_suffix(".log"))
        timestamps = [record.timestamp_ms for batch in batches for record in batch.records]
        entries = dumped.everything.entries(path)
        assert (entries[-1][0] if entries else -1) == max(timestamps, default=-1)


def as_dumped(batch: WrittenBatch) -> DumpedBatch:
    """What the tool must show of a batch; the time of a marker is the coordinator's affair."""
    return DumpedBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.last_offset - batch.base_offset + 1,
        base_sequence=batch.base_sequence,
        last_sequence=batch.last_sequence,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        leader_epoch=batch.leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=bool(batch.marker),
        codec=batch.codec.name.lower(),
        records=[
            DumpedRecord(
                offset=record.offset,
                timestamp_ms=record.timestamp_ms,
                timestamp_type=record.timestamp_type,
                key_size=-1 if record.key is None else len(record.key),
                value_size=-1 if record.value is None else len(record.value),
                sequence=(batch.base_sequence + number) % 2**31 if batch.base_sequence >= 0 else -1,
                header_keys=tuple(name for name, _ in record.headers),
                marker="",
                coordinator_epoch=-1,
            )
            for number, record in enumerate(batch.records)
        ],
    )


def test_kafka_sees_every_batch_and_record(dumped: Dumped) -> None:
    for log in dumped.logs():
        found = [batch for batch in dumped.batches(log) if not batch.is_control]
        assert found == [as_dumped(batch) for batch in log.batches if not batch.marker]


def test_kafka_sees_every_marker(dumped: Dumped) -> None:
    for log in dumped.logs():
        found = [batch for batch in dumped.batches(log) if batch.is_control]
        markers = [
            (record.offset, record.marker, record.coordinator_epoch) for batch in found for record in batch.records
        ]
        written = [batch for batch in log.batches if batch.marker]
        assert markers == [(batch.base_offset, batch.marker, COORDINATOR_EPOCH) for batch in written]
        assert [(batch.producer_id, batch.producer_epoch) for batch in found] == [
            (batch.producer_id, batch.producer_epoch) for batch in written
        ]


def test_kafka_sees_every_aborted_transaction(dumped: Dumped) -> None:
    seen = 0
    for log in dumped.logs():
        found: list[AbortedTransaction] = []
        for path in dumped.directory.files_of(log, ".txnindex"):
            found += dumped.everything.aborted(path)
        assert found == log.aborted
        seen += len(found)
    assert seen > 10


def test_the_newest_snapshot_has_the_state_of_every_producer(dumped: Dumped) -> None:
    for log in dumped.logs():
        snapshot = dumped.directory.files_of(log, ".snapshot")[-1]
        assert int(snapshot.stem) == log.end_offset
        producers = dumped.everything.producers(snapshot)
        assert set(producers) == set(log.producers)
        for producer_id, found in producers.items():
            assert_producer(found, log, producer_id)


def assert_producer(found: DumpedProducer, log: WrittenLog, producer_id: int) -> None:
    producer = log.producers[producer_id]
    mine = [batch for batch in log.batches if batch.producer_id == producer_id]
    of_epoch = [batch for batch in mine if batch.producer_epoch == producer.epoch and not batch.marker]
    assert found.epoch == producer.epoch
    assert found.last_timestamp == mine[-1].max_timestamp
    assert found.coordinator_epoch == (COORDINATOR_EPOCH if any(batch.marker for batch in mine) else -1)
    assert found.transaction_first_offset == (producer.transaction[0].base_offset if producer.transaction else -1)
    if of_epoch:
        last = of_epoch[-1]
        assert found.last_sequence == last.last_sequence
        assert found.last_offset == last.last_offset
        assert found.offset_delta == last.last_offset - last.base_offset
    else:
        assert found.last_sequence == -1


def test_snapshots_at_the_start_of_segments_tell_of_the_batches_before(dumped: Dumped) -> None:
    for log in dumped.logs():
        for path in dumped.directory.files_of(log, ".snapshot")[:-1]:
            before = [batch for batch in log.batches if batch.last_offset < int(path.stem)]
            for producer_id, found in dumped.everything.producers(path).items():
                mine = [batch for batch in before if batch.producer_id == producer_id]
                assert found.epoch == mine[-1].producer_epoch
                last = next((batch for batch in reversed(mine) if not batch.marker), None)
                assert last is not None
                if last.producer_epoch == found.epoch:
                    assert (found.last_offset, found.last_sequence) == (last.last_offset, last.last_sequence)


def test_leader_epochs_are_written_down_as_they_began(dumped: Dumped) -> None:
    for log in dumped.logs():
        [*checkpoint] = dumped.directory.files_of(log, "leader-epoch-checkpoint")
        lines = checkpoint[0].read_text(encoding="utf-8").splitlines() if checkpoint else ["0", "0"]
        assert lines[:2] == ["0", str(len(log.epoch_starts))]
        assert [tuple(map(int, line.split())) for line in lines[2:]] == log.epoch_starts


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
def test_recovery_makes_the_files_that_were_there(
    clean_directory: OurDirectory, recovered_directory: OurDirectory, suffix: str
) -> None:
    def contents(directory: OurDirectory) -> dict[str, bytes]:
        return {str(path.relative_to(directory.path)): path.read_bytes() for path in directory.files(suffix)}

    assert contents(recovered_directory) == contents(clean_directory)
