"""Producer state from snapshots and batches: after any restart or truncation it is what it was before."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.storage.batches import CorruptLogError
from barnabas.storage.files import OsFiles, read_whole, write_whole
from barnabas.storage.loader import LastKnown
from barnabas.storage.log import Log
from barnabas.storage.producer_replay import (
    apply_batch,
    rebuild_producers,
    remove_snapshots_after,
    replay,
    restore_snapshot,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import (
    NOW_MS,
    after_clean_stop,
    marker_of,
    open_log,
    producer_header,
    refused,
    sent_by,
    with_body,
)
from tests.storage.memory_files import EVERYTHING, MemoryFiles

DIRECTORY = "/data"


def state_of(producers: ProducerStateManager) -> tuple[list[bytes], int | None]:
    """Everything a snapshot tells of the producers, in one order, and the first unstable offset."""
    rows = producers.snapshot()[10:]
    return sorted(rows[start : start + 46] for start in range(0, len(rows), 46)), producers.first_unstable_offset


def with_snapshots(files: MemoryFiles, *offsets: int) -> None:
    """Put snapshots into the folder, each with one producer whose id is the offset."""
    for offset in offsets:
        producers = ProducerStateManager()
        producers.update(producer_header(offset, 0))
        write_snapshot(files, DIRECTORY, offset, producers, durable=False)


# The files.


def test_snapshots_are_named_by_their_offset() -> None:
    assert snapshot_path("/data/orders-0", 4711) == "/data/orders-0/00000000000000004711.snapshot"


def test_snapshots_are_found_newest_first_and_other_files_are_not_snapshots(memory_files: MemoryFiles) -> None:
    with_snapshots(memory_files, 5, 100, 20)
    for name in (
        "00000000000000000007.log",
        "7.snapshot",
        "x0000000000000000007.snapshot",
        "00000000000000000008.snapshot.tmp",
    ):
        write_whole(memory_files, f"{DIRECTORY}/{name}", b"")
    assert snapshot_offsets(memory_files, DIRECTORY) == [100, 20, 5]


@pytest.mark.parametrize(("offset", "expected"), [(4, 3), (5, 5), (19, 5), (20, 20), (99, 20), (1000, 100)])
def test_the_newest_snapshot_at_or_below_an_offset_is_used(
    memory_files: MemoryFiles, offset: int, expected: int
) -> None:
    with_snapshots(memory_files, 5, 100, 20)
    producers, start_offset = restore_snapshot(memory_files, DIRECTORY, offset, 3)
    assert start_offset == expected
    assert list(producers.producers) == ([expected] if expected != 3 else [])


def test_a_damaged_snapshot_is_dropped_and_the_one_before_it_is_used(memory_files: MemoryFiles) -> None:
    with_snapshots(memory_files, 5, 20, 100)
    for offset, damage in ((100, b""), (20, bytes(56))):
        write_whole(memory_files, snapshot_path(DIRECTORY, offset), damage)
    producers, start_offset = restore_snapshot(memory_files, DIRECTORY, 1000, 0)
    assert (start_offset, list(producers.producers)) == (5, [5])
    assert snapshot_offsets(memory_files, DIRECTORY) == [5]


def test_without_a_good_snapshot_the_log_is_read_from_its_start(memory_files: MemoryFiles) -> None:
    with_snapshots(memory_files, 5)
    write_whole(memory_files, snapshot_path(DIRECTORY, 5), b"garbage")
    producers, start_offset = restore_snapshot(memory_files, DIRECTORY, 1000, 3)
    assert (start_offset, producers.producers) == (3, {})


def test_snapshots_of_records_that_are_gone_are_removed(memory_files: MemoryFiles) -> None:
    with_snapshots(memory_files, 5, 20, 100)
    remove_snapshots_after(memory_files, DIRECTORY, 20)
    assert snapshot_offsets(memory_files, DIRECTORY) == [20, 5]


# Batches.


def log_with(files: MemoryFiles, *batches: bytearray) -> Log:
    """A log to which these batches were appended, as a coordinator may."""
    log = open_log(files)
    for batch in batches:
        log.append_as_leader(batch, 0, is_client=False)
    return log


def test_an_aborted_transaction_goes_into_the_index_of_its_segment(memory_files: MemoryFiles) -> None:
    log = log_with(
        memory_files,
        sent_by(1, 0, 3, transactional=True),
        sent_by(2, 0, transactional=True),
        marker_of(1, commit=False),
        marker_of(2, commit=True),
    )
    assert log.segments.last.transaction_index.entries() == [AbortedTransaction(1, 0, 4, 3)]


def test_what_compaction_left_of_a_marker_ends_nothing(memory_files: MemoryFiles) -> None:
    log = log_with(memory_files, sent_by(1, 0, 3, transactional=True))
    empty = with_body(marker_of(1, commit=False), b"", count=0)
    apply_batch(log.producers, log.segments.last, read_header(empty), empty)
    assert log.producers.producers[1].transaction_first_offset == 0


def test_a_control_batch_that_is_no_marker_is_ignored(memory_files: MemoryFiles) -> None:
    log = log_with(memory_files, sent_by(1, 0, 3, transactional=True))
    before = state_of(log.producers)
    other = build_batch([(NOW_MS, b"\x00\x00\x00\x02", b"", ())], producer_id=1, producer_epoch=0, control=True)
    apply_batch(log.producers, log.segments.last, read_header(other), other)
    assert state_of(log.producers) == before


def test_replay_reads_only_its_range(memory_files: MemoryFiles) -> None:
    log = log_with(memory_files, *(sent_by(n, 0, 2) for n in range(5)))
    producers = ProducerStateManager()
    replay(producers, log.segments, 3, 8)
    assert list(producers.producers) == [2, 3]


def test_a_marker_that_can_not_be_read_is_damage_with_path_and_position(memory_files: MemoryFiles) -> None:
    log = log_with(memory_files, sent_by(1, 0, 3, transactional=True))
    segment = log.segments.last
    position = segment.size
    bad = build_batch(
        [(NOW_MS, b"\x00\x00\x00\x09", b"\x00\x00\x00\x00\x00\x05", ())],
        base_offset=3,
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    memory_files.open(segment.path, writable=True).write_at(bad, position)
    segment.size += len(bad)
    with pytest.raises(CorruptLogError, match="type of a marker") as caught:
        replay(ProducerStateManager(), log.segments, 0, 4)
    assert (caught.value.path, caught.value.position) == (segment.path, position)


def test_a_follower_that_gets_a_marker_it_can_not_read_stays_as_it_was(memory_files: MemoryFiles) -> None:
    """The leader's bytes are on the disk by then; they must not stay there without an offset."""
    log = log_with(memory_files, sent_by(1, 0, 3, transactional=True))
    before = (log.log_end, state_of(log.producers), read_whole(memory_files, log.segments.last.path))
    bad = build_batch(
        [(NOW_MS, b"", b"", ())], base_offset=3, producer_id=1, producer_epoch=0, transactional=True, control=True
    )
    with refused(ErrorCode.CORRUPT_MESSAGE, "marker"):
        log.append_as_follower(bad)
    assert (log.log_end, state_of(log.producers), read_whole(memory_files, log.segments.last.path)) == before
    assert log.segments.last.size == log.log_end.position_in_segment
    log.append_as_follower(marker_of(1, commit=True, base_offset=3))
    assert log.log_end_offset == 4


# Random histories.

EPOCH_BUMP = "bump"
STEPS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from(["data", "transaction", "commit", "abort", EPOCH_BUMP, "roll"]),
        st.integers(1, 4),
    ),
    max_size=40,
)


@dataclass(slots=True)
class Producers:
    """What some producers and their coordinator have done to a log, and the state at each offset since."""

    log: Log
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    states: dict[int, tuple[list[bytes], int | None]] = field(default_factory=dict)

    def step(self, producer_id: int, kind: str, count: int) -> None:
        """Do one thing, if it can be done now."""
        epoch = self.epochs.get(producer_id, 0)
        sequence = self.sequences.get(producer_id, 2**31 - 3)
        timestamp = NOW_MS + 7 * self.log.log_end_offset
        if kind == "roll":
            self.log.roll()
        elif kind in ("commit", "abort", EPOCH_BUMP):
            # A marker that bumps the epoch aborts whatever is open, as the coordinator does with a lost producer.
            if kind == EPOCH_BUMP:
                self.epochs[producer_id] = epoch = epoch + 1
                self.sequences[producer_id] = 0
            # An epoch that has a marker but no batch yet begins at 0.
            self.sequences.setdefault(producer_id, 0)
            marker = marker_of(producer_id, commit=kind == "commit", epoch=epoch, timestamp=timestamp)
            self.log.append_as_leader(marker, 0, is_client=False)
            self.open.discard(producer_id)
        else:
            transactional = kind == "transaction" or producer_id in self.open
            batch = sent_by(producer_id, sequence, count, epoch=epoch, transactional=transactional, timestamp=timestamp)
            self.log.append_as_leader(batch, 0)
            self.sequences[producer_id] = (sequence + count) % 2**31
            if transactional:
                self.open.add(producer_id)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.states[self.log.log_end_offset] = state_of(self.log.producers)


def play(files: MemoryFiles, steps: list[tuple[int, str, int]]) -> Producers:
    played = Producers(open_log(files, message_timestamp_after_max_ms=2**62))
    played.states[0] = state_of(played.log.producers)
    for step in steps:
        played.step(*step)
    return played


def aborts_of(log: Log) -> list[AbortedTransaction]:
    return [aborted for segment in log.segments for aborted in segment.transaction_index.entries()]


@given(STEPS)
def test_the_state_at_every_batch_can_be_rebuilt(steps: list[tuple[int, str, int]]) -> None:
    files = MemoryFiles()
    played = play(files, steps)
    for offset, state in played.states.items():
        rebuilt = rebuild_producers(files, played.log.directory, played.log.segments, offset, 0)
        rebuilt.on_high_watermark(offset)
        assert state_of(rebuilt) == state


@given(STEPS, st.booleans())
def test_a_restart_changes_nothing(steps: list[tuple[int, str, int]], is_clean: bool) -> None:
    files = MemoryFiles()
    played = play(files, steps)
    if is_clean:
        played.log.close()
        reopened = open_log(files, last_known=after_clean_stop(played.log))
    else:
        reopened = open_log(files.crash(EVERYTHING), last_known=LastKnown())
    reopened.update_high_watermark(reopened.log_end_offset)
    assert reopened.log_end_offset == played.log.log_end_offset
    assert state_of(reopened.producers) == played.states[played.log.log_end_offset]
    assert aborts_of(reopened) == aborts_of(played.log)


@given(STEPS, st.integers(0, 100))
def test_truncation_goes_back_to_the_state_there(steps: list[tuple[int, str, int]], place: int) -> None:
    played = play(MemoryFiles(), steps)
    log = played.log
    log.truncate_to(place % (log.log_end_offset + 1))
    assert state_of(log.producers) == played.states[log.log_end_offset]
    assert all(aborted.last_offset < log.log_end_offset for aborted in aborts_of(log))


@given(STEPS, STEPS, st.integers(0, 100))
def test_what_is_appended_after_a_truncation_is_rebuilt_too(
    steps: list[tuple[int, str, int]], more: list[tuple[int, str, int]], place: int
) -> None:
    files = MemoryFiles()
    log = play(files, steps).log
    log.truncate_to(place % (log.log_end_offset + 1))
    again = Producers(log)
    for producer_id, entry in log.producers.producers.items():
        again.epochs[producer_id] = entry.epoch
        again.sequences[producer_id] = (entry.last_sequence + 1) % 2**31
        if entry.transaction_first_offset >= 0:
            again.open.add(producer_id)
    for step in more:
        again.step(*step)
    log.update_high_watermark(log.log_end_offset)
    rebuilt = rebuild_producers(files, log.directory, log.segments, log.log_end_offset, 0)
    rebuilt.on_high_watermark(log.log_end_offset)
    assert state_of(rebuilt) == state_of(log.producers)


def test_a_snapshot_that_is_too_large_is_dropped_and_an_older_one_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, directory = OsFiles(), str(tmp_path)
    producers = ProducerStateManager()
    producers.update(producer_header(7, 0))
    write_snapshot(files, directory, 5, producers, durable=False)
    files.open(snapshot_path(directory, 9), writable=True).truncate(3 * 2**30)
    restored, offset = restore_snapshot(files, directory, 10, 0)
    assert (set(restored.producers), offset) == ({7}, 5)
    assert snapshot_offsets(files, directory) == [5]
    assert "is dropped: " in caplog.text
