"""Log: the append sequence, the five ways to roll, reads up to a limit, truncation, deletion, lookups, flushing."""

import errno
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.clock import ManualClock
from barnabas.config import LogConfig
from barnabas.model import LogOffsetMetadata, TimestampOffset
from barnabas.records.batch import read_header
from barnabas.records.builder import OwnBatch, own_marker
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from barnabas.storage.loader import LastKnown
from barnabas.storage.log import Log
from barnabas.storage.log_types import LogOptions
from barnabas.storage.segment import RELATIVE_OFFSET_MAX
from barnabas.storage.validator import OffsetsOutOfOrderError
from barnabas.storage.verifier import verify_partition
from barnabas.wire.errors import ApiError, ErrorCode
from tests.records.message_sets import build_message_set
from tests.storage.builders import NOW_MS, batch_of, marker_of, sent_by
from tests.storage.building import a_log, all_records, bases, consume, fill, records
from tests.storage.conftest import Disk
from tests.storage.memory_files import SYNCED_ONLY, MemoryFiles

EMPTY = (-1, -1)


def log_on(disk: Disk, known: LastKnown | None = None, **settings: Any) -> Log:
    return a_log(disk.files, disk.path("orders-0"), known, **settings)


def refused(log: Log, data: bytes | bytearray, **how: Any) -> ErrorCode:
    """Append what must be refused, and return the error; the log must not move."""
    before = (log.log_end, all_records(log))
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(data, 0, **how)
    assert (log.log_end, all_records(log)) == before
    return caught.value.code


# Append.


def test_a_leader_gives_dense_offsets_and_its_epoch(disk: Disk) -> None:
    log = log_on(disk)
    first = log.append_as_leader(records(3), 4)
    second = log.append_as_leader(records(2, timestamp=NOW_MS + 9), 4)
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 2, 3)
    assert (second.first_offset, second.last_offset, second.max_timestamp) == (3, 4, NOW_MS + 9)
    assert second.log_append_time == -1
    assert [record.offset for record in all_records(log)] == [0, 1, 2, 3, 4]
    assert log.log_end == LogOffsetMetadata(5, 0, log.segments.last.size)
    assert log.leader_epochs.entries == [(4, 0)]


@pytest.mark.parametrize("settings", [{}, {"message_timestamp_type": "LogAppendTime"}, {"compression_type": "gzip"}])
def test_what_a_coordinator_appends_is_stored_as_the_topic_stores_batches(disk: Disk, settings: dict[str, Any]) -> None:
    log = log_on(disk, **settings)
    log.append_as_leader(records(2), 4)
    before = log.size_bytes
    assert log.append_own(OwnBatch([(b"a", b"1"), (b"b", None)], NOW_MS), 4) == log.size_bytes - before
    assert log.log_end_offset == 4
    assert [(one.key, one.value) for one in all_records(log)[2:]] == [(b"a", b"1"), (b"b", None)]
    marker = own_marker(commit=True, timestamp=NOW_MS, producer=(7, 1), coordinator_epoch=3)
    log.append_own(marker, 4)
    assert log.log_end_offset == 5
    assert log.producers.producers[7].coordinator_epoch == 3
    old = own_marker(commit=True, timestamp=NOW_MS, producer=(7, 0), coordinator_epoch=3)
    with pytest.raises(ApiError) as caught:
        log.append_own(old, 4)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 5


def test_a_batch_of_a_coordinator_may_be_larger_than_a_clients(disk: Disk) -> None:
    for number, kind in enumerate(("CreateTime", "LogAppendTime")):
        path = disk.path(f"orders-{number}")
        log = a_log(disk.files, path, None, max_message_bytes=500, message_timestamp_type=kind)
        log.append_own(OwnBatch([(b"a", b"1" * 1000)], NOW_MS), 0)
        assert log.log_end_offset == 1


def test_several_batches_in_one_append_follow_each_other(disk: Disk) -> None:
    log = log_on(disk)
    info = log.append_as_leader(records(3) + records(2, timestamp=NOW_MS + 5), 0)
    assert (info.first_offset, info.last_offset, info.record_count, info.max_timestamp) == (0, 4, 5, NOW_MS + 5)
    assert [record.offset for record in all_records(log)] == [0, 1, 2, 3, 4]


def test_nothing_is_appended_of_a_set_without_a_whole_batch(disk: Disk) -> None:
    log = log_on(disk)
    for data in (b"", bytes(records(1))[:-1], bytes(records(1))[:20]):
        info = log.append_as_leader(data, 0)
        assert (info.first_offset, info.last_offset) == EMPTY
    assert log.log_end_offset == 0


def test_one_bad_batch_refuses_all_of_an_append(disk: Disk) -> None:
    log = log_on(disk)
    fill(log, 1)
    bad = records(1)
    bad[-1] ^= 1
    assert refused(log, records(2) + bad) is ErrorCode.CORRUPT_MESSAGE


def test_log_append_time_is_in_the_answer(disk: Disk) -> None:
    log = log_on(disk, clock=ManualClock(NOW_MS + 77), message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(records(2), 0)
    assert info.log_append_time == NOW_MS + 77
    assert {record.timestamp for record in all_records(log)} == {NOW_MS + 77}


def test_sizes_are_limited_by_message_and_by_segment(disk: Disk) -> None:
    log = log_on(disk, max_message_bytes=200, segment_bytes=300)
    assert refused(log, records(10)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, records(2) * 4) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_follower_keeps_offsets_and_epochs(disk: Disk) -> None:
    log = log_on(disk)
    log.append_as_follower(records(3, base_offset=0, leader_epoch=2) + records(1, base_offset=10, leader_epoch=3))
    assert [record.offset for record in all_records(log)] == [0, 1, 2, 10]
    assert log.log_end_offset == 11
    assert log.leader_epochs.entries == [(2, 0), (3, 10)]
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(records(1, base_offset=9, leader_epoch=3))
    assert log.log_end_offset == 11


# Idempotence.


def sent(sequence: int, count: int = 2, epoch: int = 0, producer_id: int = 7, **fields: Any) -> bytearray:
    return records(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def test_a_batch_sent_twice_is_answered_with_its_first_offsets(disk: Disk) -> None:
    log = log_on(disk)
    infos = [log.append_as_leader(sent(2 * index), 0) for index in range(5)]
    again = [log.append_as_leader(sent(2 * index), 0) for index in range(5)]
    assert [info.is_duplicate for info in again] == [True] * 5
    assert [(info.first_offset, info.last_offset) for info in again] == [
        (info.first_offset, info.last_offset) for info in infos
    ]
    assert log.log_end_offset == 10


def test_gaps_and_old_epochs_are_refused(disk: Disk) -> None:
    log = log_on(disk)
    log.append_as_leader(sent(0, epoch=1), 0)
    assert refused(log, sent(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, sent(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, sent(1, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(sent(0, epoch=2), 0)


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(disk: Disk, clean: bool) -> None:
    log = log_on(disk, segment_bytes=250)
    for index in range(6):
        log.append_as_leader(sent(2 * index), 0)
    known = LastKnown(had_clean_shutdown=clean)
    log.close() if clean else log.abandon()
    log = log_on(disk, known, segment_bytes=250)
    assert log.append_as_leader(sent(10), 0).is_duplicate
    assert not log.append_as_leader(sent(12), 0).is_duplicate


# Transactions.


def test_the_last_stable_offset_waits_for_the_marker(disk: Disk) -> None:
    log = log_on(disk)
    fill(log, 1)
    log.append_as_leader(sent(0, transactional=True), 0)
    log.append_as_leader(sent(0, producer_id=8, transactional=True), 0)
    fill(log, 1)
    assert log.last_stable.message_offset == 3
    assert log.read(3, 100, log.last_stable).records is None
    log.append_as_leader(marker_of(7, commit=False), 0, is_client=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable.message_offset == 5
    log.append_as_leader(marker_of(8, commit=True), 0, is_client=False)
    assert log.last_stable.message_offset == 5, "the marker is not below the high watermark yet"
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable == log.high_watermark
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert [(it.producer_id, it.first_offset, it.last_offset) for it in aborted] == [(7, 3, 10)]
    assert log.aborted_transactions(0, 3) == []
    assert log.aborted_transactions(11, 20) == []


def test_a_marker_whose_abort_can_not_be_indexed_is_not_appended(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0")
    log.append_as_leader(sent(0, transactional=True), 0)
    before = (log.log_end, all_records(log))
    memory_files.fail("write", code=errno.ENOSPC, under="/data/orders-0/00000000000000000000.txnindex")
    with pytest.raises(OSError, match="No space left"):
        log.append_as_leader(marker_of(7, commit=False), 0, is_client=False)
    memory_files.heal()
    assert (log.log_end, all_records(log)) == before
    log.append_as_leader(marker_of(7, commit=False), 0, is_client=False)
    assert len(log.aborted_transactions(0, 100)) == 1


# Roll.


def test_a_batch_that_does_not_fit_rolls(disk: Disk) -> None:
    size = len(records(3))
    log = log_on(disk, segment_bytes=2 * size)
    fill(log, 5)
    assert bases(log) == [0, 6, 12]
    assert [record.offset for record in consume(log, 0)] == list(range(15))


def test_rolls_when_the_records_span_too_much_time(disk: Disk) -> None:
    log = log_on(disk, segment_ms=1000, message_timestamp_after_max_ms=1 << 40)
    fill(log, 1, timestamp=NOW_MS)
    fill(log, 1, timestamp=NOW_MS + 1000)
    assert bases(log) == [0]
    fill(log, 1, timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 6]
    log.close()
    log = log_on(disk, LastKnown(had_clean_shutdown=True), segment_ms=1000, message_timestamp_after_max_ms=1 << 40)
    fill(log, 1, timestamp=NOW_MS + 2002)
    assert bases(log) == [0, 6, 9]


def test_rolls_by_the_clock_where_records_have_no_time(disk: Disk) -> None:
    clock = ManualClock(NOW_MS)
    log = log_on(disk, clock=clock, segment_ms=1000)
    fill(log, 1, timestamp=-1)
    clock.advance(1000)
    fill(log, 1, timestamp=-1)
    assert bases(log) == [0]
    clock.advance(1)
    fill(log, 1, timestamp=-1)
    assert bases(log) == [0, 6]


def test_jitter_takes_a_part_off_the_time(disk: Disk) -> None:
    log = log_on(disk, segment_ms=1000, segment_jitter_ms=1000, message_timestamp_after_max_ms=1 << 40)
    fill(log, 1, timestamp=NOW_MS)
    spans = [span for span in range(1001) if log._should_roll(1, NOW_MS + span, 5)]
    assert spans
    assert spans == list(range(spans[0], 1001))


def test_rolls_when_an_index_is_full(disk: Disk) -> None:
    log = log_on(disk, index_interval_bytes=0, segment_index_bytes=3 * 8)
    fill(log, 3)
    # The first batch of a segment gets no entry, so the index of 3 entries (and 2 of time) is full after some batches.
    fill(log, 9)
    assert len(log.segments) > 1
    assert all(segment.offset_index.entry_count <= 3 for segment in log.segments)
    assert [record.offset for record in consume(log, 0)] == list(range(36))


def test_rolls_when_the_time_index_is_full(disk: Disk) -> None:
    log = log_on(disk, index_interval_bytes=0, segment_index_bytes=3 * 12)
    for index in range(12):
        fill(log, 1, timestamp=NOW_MS + index)
    assert len(log.segments) > 1
    assert all(segment.time_index.entry_count <= 3 for segment in log.segments)
    assert log.find_offset_by_timestamp(NOW_MS + 7) == TimestampOffset(NOW_MS + 7, 21)


def test_an_offset_that_does_not_fit_into_four_bytes_rolls(disk: Disk) -> None:
    log = log_on(disk)
    log.append_as_follower(records(1, base_offset=0))
    log.append_as_follower(records(1, base_offset=RELATIVE_OFFSET_MAX))
    assert bases(log) == [0]
    log.append_as_follower(records(1, base_offset=RELATIVE_OFFSET_MAX + 1))
    assert bases(log) == [0, RELATIVE_OFFSET_MAX + 1]
    log.append_as_follower(records(2, base_offset=4 * RELATIVE_OFFSET_MAX))
    # The new base is the batch's last offset less what four bytes hold, because the log end is too far from it.
    assert bases(log)[-1] == 4 * RELATIVE_OFFSET_MAX + 1 - RELATIVE_OFFSET_MAX
    assert len(all_records(log)) == 5


def test_leftover_files_in_the_place_of_a_new_segment_are_removed(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log = log_on(disk)
    fill(log, 1)
    leftover = disk.path("orders-0/00000000000000000003.log")
    disk.files.open(leftover, writable=True).write_at(b"rubbish", 0)
    log.roll()
    fill(log, 1)
    assert bases(log) == [0, 3]
    assert "00000000000000000003.log is in the place of a new segment" in caplog.text
    assert [record.offset for record in consume(log, 0)] == list(range(6))


def test_rolling_an_empty_segment_changes_nothing(disk: Disk) -> None:
    log = log_on(disk)
    log.roll()
    fill(log, 1)
    log.roll()
    log.roll()
    assert bases(log) == [0, 3]


def test_a_roll_that_fails_leaves_the_old_segment_in_use(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0", index_interval_bytes=0)
    fill(log, 3)
    memory_files.fail("write", code=errno.ENOSPC, under="/data/orders-0/00000000000000000000.index")
    with pytest.raises(OSError, match="No space left"):
        log.roll()
    memory_files.heal()
    assert bases(log) == [0]
    fill(log, 2)
    log.roll()
    fill(log, 1)
    assert bases(log) == [0, 15]
    log.close()
    log = a_log(memory_files, "/data/orders-0", LastKnown(had_clean_shutdown=True))
    assert len(all_records(log)) == 18


# Read.


def test_reads_are_limited_to_the_log(disk: Disk) -> None:
    log = log_on(disk, segment_bytes=300)
    fill(log, 4)
    assert log.read(12, 100, log.high_watermark).records is None
    for offset in (13, -1):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 100, log.high_watermark)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("high_watermark", range(13))
def test_no_reader_passes_its_limit(disk: Disk, high_watermark: int) -> None:
    log = log_on(disk, segment_bytes=300)
    fill(log, 4)
    log.update_high_watermark(high_watermark)
    assert log.high_watermark.message_offset == high_watermark
    whole_batches_below = high_watermark // 3 * 3
    assert [record.offset for record in consume(log, 0, max_size=1 << 20)] == list(range(whole_batches_below))
    if high_watermark < 12:
        assert log.read(high_watermark + 1, 100, log.high_watermark).records is None


def test_a_read_goes_on_in_the_next_segment_where_one_has_nothing_left(disk: Disk) -> None:
    log = log_on(disk)
    log.append_as_follower(records(1, base_offset=0))
    log.roll()
    log.append_as_follower(records(1, base_offset=20))
    log.update_high_watermark(21)
    found = log.read(5, 1 << 20, log.high_watermark)
    assert found.records is not None
    assert found.offset_metadata == LogOffsetMetadata(5, 1, 0)


def test_lookups_by_timestamp_span_segments(disk: Disk) -> None:
    log = log_on(disk, segment_bytes=300)
    for index in range(6):
        fill(log, 1, timestamp=NOW_MS + 10 * index)
    for index in range(6):
        for earlier in (0, 1, 9):
            found = log.find_offset_by_timestamp(NOW_MS + 10 * index - earlier)
            assert found == TimestampOffset(NOW_MS + 10 * index, 3 * index)
    assert log.find_offset_by_timestamp(NOW_MS + 51) is None
    assert log.find_offset_of_max_timestamp() == TimestampOffset(NOW_MS + 50, 15)


def test_the_newest_record_is_found_when_the_one_that_was_newer_is_deleted(disk: Disk) -> None:
    log = log_on(disk, segment_bytes=300)
    for timestamp in (NOW_MS, NOW_MS + 9, NOW_MS + 2, NOW_MS + 5, NOW_MS + 5, NOW_MS + 1):
        log.append_as_leader(batch_of(1, timestamp=timestamp), 0)
    log.high_watermark_to_end()
    assert log.find_offset_of_max_timestamp() == TimestampOffset(NOW_MS + 9, 1)
    log.delete_records(2)
    assert log.find_offset_of_max_timestamp() == TimestampOffset(NOW_MS + 5, 3)
    log.delete_records(5)
    assert log.find_offset_of_max_timestamp() == TimestampOffset(NOW_MS + 1, 5)
    log.delete_records(6)
    assert log.find_offset_of_max_timestamp() is None


def test_an_empty_log_has_no_timestamps(disk: Disk) -> None:
    log = log_on(disk)
    assert log.find_offset_of_max_timestamp() is None
    assert log.find_offset_by_timestamp(0) is None


# Deletion and truncation.


def test_deleted_records_can_not_be_read_and_their_segments_go(disk: Disk) -> None:
    log = log_on(disk, segment_bytes=300)
    fill(log, 6)
    assert bases(log) == [0, 6, 12]
    assert log.delete_records(7) == 7
    assert log.delete_records(3) == 7
    with pytest.raises(ApiError):
        log.read(6, 1, log.high_watermark)
    gone = log.delete_old_segments(lambda _, end_offset: end_offset <= log.log_start_offset)
    assert [segment.base_offset for segment in gone] == [0]
    assert bases(log) == [6, 12]
    assert disk.files.exists(disk.path("orders-0/00000000000000000000.log.deleted"))
    gone[0].delete()
    assert not disk.files.exists(disk.path("orders-0/00000000000000000000.log.deleted"))
    assert [record.offset for record in consume(log, 7)] == list(range(7, 18))


@pytest.mark.parametrize("offset", [-1, 10])
def test_records_are_deleted_up_to_the_high_watermark_only(disk: Disk, offset: int) -> None:
    log = log_on(disk)
    fill(log, 4)
    log.update_high_watermark(9)
    with pytest.raises(ApiError) as caught:
        log.delete_records(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_is_never_without_a_segment(disk: Disk) -> None:
    log = log_on(disk, segment_bytes=300)
    fill(log, 6)
    assert len(log.delete_old_segments(lambda *_: True)) == 3
    assert bases(log) == [18]
    assert log.log_start_offset == log.log_end_offset == 18
    assert log.delete_old_segments(lambda *_: True) == []
    fill(log, 1)
    assert [record.offset for record in consume(log, 18)] == [18, 19, 20]


def test_a_full_disk_keeps_the_active_segment_and_no_other(memory_files: MemoryFiles) -> None:
    """There is no room for the new segment that would take its place."""
    log = a_log(memory_files, "/data/orders-0", segment_bytes=300)
    fill(log, 6)
    memory_files.fail("write", "create", code=errno.ENOSPC, once=False)
    assert [segment.base_offset for segment in log.delete_old_segments(lambda *_: True)] == [0, 6]
    assert bases(log) == [12]
    assert log.log_start_offset == 12
    with pytest.raises(OSError, match="No space left"):
        log.delete_old_segments(lambda *_: True)
    memory_files.heal()
    assert len(log.delete_old_segments(lambda *_: True)) == 1
    fill(log, 1)
    assert [record.offset for record in consume(log, 18)] == [18, 19, 20]


def test_a_rename_that_finds_no_room_leaves_a_log_without_a_hole(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0", segment_bytes=300)
    fill(log, 6)
    memory_files.fail("rename", code=errno.ENOSPC, under=f"/data/orders-0/{6:020d}.log")
    gone = log.delete_old_segments(lambda _, end_offset: end_offset <= 12)
    assert [segment.base_offset for segment in gone] == [0]
    assert log.log_start_offset == log.segments.first.base_offset == 6
    assert [record.offset for record in consume(log, 6)] == list(range(6, 18))
    for segment in gone:
        log.remove_files(segment)
    left = [name for name in memory_files.names("/data/orders-0") if name.startswith(f"{0:020d}")]
    assert left == []
    memory_files.heal()
    log.delete_old_segments(lambda _, end_offset: end_offset <= 12)
    assert bases(log) == [12]


def test_a_segment_that_begins_where_a_deleted_one_did_has_its_own_indexes(memory_files: MemoryFiles) -> None:
    """Indexes keep their names until the files are removed, which may be after a follower began again before them."""
    log = a_log(memory_files, "/data/orders-0", segment_bytes=300)
    fill(log, 6)
    gone = log.delete_old_segments(lambda _, end_offset: end_offset <= 12)
    log.truncate_fully_and_start_at(0)
    assert [name for name in memory_files.names("/data/orders-0") if name.endswith(".deleted")] == []
    fill(log, 6)
    for segment in gone:
        log.remove_files(segment)
    log.close()
    names = memory_files.names("/data/orders-0")
    assert [name for name in names if name.endswith(".index")] == [f"{base:020d}.index" for base in (0, 6, 12)]
    assert list(verify_partition(memory_files, "/data/orders-0", lambda fault: pytest.fail(str(fault))))


def test_a_start_and_a_check_take_the_indexes_of_deleted_data_for_deleted(
    memory_files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_log(memory_files, "/data/orders-0", segment_bytes=300)
    fill(log, 6)
    log.delete_old_segments(lambda _, end_offset: end_offset <= 12)
    log.close()
    names = memory_files.names("/data/orders-0")
    assert {f"{0:020d}.log.deleted", f"{0:020d}.index", f"{6:020d}.timeindex"} <= set(names)
    assert len(list(verify_partition(memory_files, "/data/orders-0", lambda fault: pytest.fail(str(fault))))) == 1
    a_log(memory_files, "/data/orders-0", segment_bytes=300)
    assert {name[:20] for name in memory_files.names("/data/orders-0") if name[0] == "0"} == {
        f"{12:020d}",
        f"{18:020d}",
    }
    assert caplog.records == []


def test_a_rename_that_fails_is_an_error(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0", segment_bytes=300)
    fill(log, 6)
    memory_files.fail("rename", code=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        log.delete_old_segments(lambda _, end_offset: end_offset <= 12)


@pytest.mark.parametrize(("offset", "end"), [(18, 18), (17, 15), (15, 15), (12, 12), (7, 6), (1, 0), (0, 0)])
def test_truncation_cuts_whole_batches_and_goes_on(disk: Disk, offset: int, end: int) -> None:
    log = log_on(disk, segment_bytes=300)
    for index in range(6):
        log.append_as_leader(sent(3 * index, count=3), index)
    log.update_high_watermark(18)
    log.flush()
    log.truncate_to(offset)
    assert log.log_end_offset == end
    assert log.recovery_point == min(18, end)
    assert log.high_watermark.message_offset == end
    assert [record.offset for record in all_records(log)] == list(range(end))
    assert log.leader_epochs.entries == [(index, 3 * index) for index in range(end // 3)]
    log.append_as_leader(sent(end, count=3), 9)
    log.close()
    log = log_on(disk, LastKnown(had_clean_shutdown=True), segment_bytes=300)
    assert [record.offset for record in all_records(log)] == list(range(end + 3))


def test_a_log_can_start_anew_anywhere(disk: Disk) -> None:
    log = log_on(disk, segment_bytes=300)
    fill(log, 6)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (100, 100, [100])
    assert log.leader_epochs.entries == []
    fill(log, 2)
    assert [record.offset for record in consume(log, 100)] == list(range(100, 106))
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


# Flush, settings, close.


def test_flush_messages_moves_the_recovery_point(disk: Disk) -> None:
    log = log_on(disk, flush_messages=7)
    fill(log, 2)
    assert log.recovery_point == 0
    fill(log, 1)
    assert log.recovery_point == 9


def test_with_flush_messages_1_everything_answered_survives_a_power_cut(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0", flush_messages=1, segment_bytes=300)
    memory_files.sync_directory("/data")
    fill(log, 8)
    found = memory_files.crash(SYNCED_ONLY)
    assert len(all_records(a_log(found, "/data/orders-0", segment_bytes=300))) == 24


def test_a_batch_that_is_sent_again_is_flushed_as_the_settings_ask_for_by_now(disk: Disk) -> None:
    log = log_on(disk)
    log.append_as_leader(sent_by(7, 0, 3), 0)
    assert log.recovery_point == 0
    log.update_config(LogConfig(flush_messages=1))
    assert log.append_as_leader(sent_by(7, 0, 3), 0).is_duplicate
    assert (log.recovery_point, log.log_end_offset) == (3, 3)


def test_a_flush_can_be_left_to_somebody_else(disk: Disk) -> None:
    due: list[Log] = []
    rolled: list[Log] = []
    log = log_on(disk, flush_messages=4)
    log._options = LogOptions(
        files=disk.files,
        clock=ManualClock(NOW_MS),
        directory=log.directory,
        config=log.config,
        open_segments=log._options.open_segments,
        on_flush_due=due.append,
        on_roll=rolled.append,
    )
    fill(log, 2)
    assert due == [log]
    assert log.recovery_point == 0
    pending = log.prepare_flush()
    assert pending is not None
    fill(log, 1)
    pending.run()
    log.finish_flush(pending)
    assert log.recovery_point == 6
    log.roll()
    assert rolled == [log]


def test_changed_settings_apply_from_the_next_append_on(disk: Disk) -> None:
    log = log_on(disk)
    fill(log, 3)
    log.update_config(LogConfig(segment_bytes=300, max_message_bytes=250, index_interval_bytes=0))
    fill(log, 3)
    assert len(log.segments) > 1
    assert refused(log, records(10)) is ErrorCode.MESSAGE_TOO_LARGE


def test_closing_an_untouched_log_writes_nothing(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0")
    fill(log, 2)
    log.close()
    steps = memory_files.steps
    a_log(memory_files, "/data/orders-0", LastKnown(had_clean_shutdown=True)).close()
    assert memory_files.steps == steps


# What other threads and later layers do.


def test_a_log_that_was_let_go_refuses_in_a_sentence(disk: Disk) -> None:
    log = log_on(disk)
    fill(log, 1)
    log.close()
    log.close()
    log.abandon()
    for action in (
        lambda: log.append_as_leader(records(1), 0),
        lambda: log.read(0, 1, log.log_end),
        lambda: log.roll(),
        lambda: log.truncate_to(0),
        lambda: log.delete_old_segments(lambda *_: True),
    ):
        with pytest.raises(ApiError) as caught:
            action()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_lowering_the_size_of_indexes_at_run_time_rolls(disk: Disk) -> None:
    log = log_on(disk, index_interval_bytes=0)
    for index in range(10):
        fill(log, 1, timestamp=NOW_MS + index)
    log.update_config(LogConfig(index_interval_bytes=0, segment_index_bytes=24))
    fill(log, 5, timestamp=NOW_MS + 20)
    assert [record.offset for record in consume(log, 0)] == list(range(45))
    log.close()


def test_an_append_that_fails_leaves_no_epoch(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, "/data/orders-0")
    log.append_as_follower(records(3, base_offset=0, leader_epoch=1))
    memory_files.fail_next_write(errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        log.append_as_follower(records(3, base_offset=3, leader_epoch=9))
    log.append_as_follower(records(3, base_offset=3, leader_epoch=5))
    assert log.leader_epochs.entries == [(1, 0), (5, 3)]


def test_truncating_to_the_end_forgets_an_epoch_without_records(disk: Disk) -> None:
    log = log_on(disk)
    fill(log, 1)
    log.leader_epochs.assign(7, 3)
    log.truncate_to(3)
    assert log.leader_epochs.entries == [(0, 0)]
    with pytest.raises(ValueError, match="offset -1"):
        log.truncate_to(-1)


def test_an_idempotent_producer_sends_one_batch_at_a_time(disk: Disk) -> None:
    log = log_on(disk)
    assert refused(log, sent(0) + sent(50)) is ErrorCode.INVALID_RECORD
    assert refused(log, records(1) + sent(0)) is ErrorCode.INVALID_RECORD


def test_there_is_no_offset_after_the_last(disk: Disk) -> None:
    log = log_on(disk)
    log.append_as_follower(records(1, base_offset=2**63 - 3))
    assert log.append_as_leader(records(1), 0).last_offset == 2**63 - 2
    assert refused(log, records(1)) is ErrorCode.INVALID_RECORD
    with pytest.raises(ApiError):
        log.append_as_follower(records(1, base_offset=2**63 - 1))


@pytest.mark.parametrize("offset", [10, 12, 13])
def test_an_old_wrapper_is_cut_off_whole(disk: Disk, offset: int) -> None:
    log = log_on(disk)
    log.append_as_follower(records(10, base_offset=0))
    wrapper = build_message_set(1, [(10 + index, NOW_MS, b"k", b"v") for index in range(4)], codec=Codec.GZIP)
    log.append_as_follower(wrapper)
    log.append_as_follower(records(1, base_offset=14))
    log.truncate_to(offset)
    assert log.log_end_offset == 10
    assert log_on(disk).log_end_offset == 10


# Against a model.


class LogAgainstList(RuleBasedStateMachine):
    """A log does what a list of records would, whatever is done to it in whatever order."""

    @initialize(segment_bytes=st.sampled_from([200, 400, 1000]), interval=st.sampled_from([0, 100, 4096]))
    def open_new(self, segment_bytes: int, interval: int) -> None:
        self.files = MemoryFiles()
        self.files.make_directory("/data")
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, message_timestamp_after_max_ms=1 << 40
        )
        self.log = a_log(self.files, "/data/orders-0", config=self.config)
        self.batches: list[list[Record]] = []
        self.start = self.end = 0
        self.recovery_point = 0

    @rule(count=st.integers(1, 3), size=st.integers(0, 30), timestamp=st.integers(0, 50))
    def append(self, count: int, size: int, timestamp: int) -> None:
        data = records(count, timestamp=NOW_MS + timestamp, value_bytes=size)
        info = self.log.append_as_leader(data, 0)
        assert info.first_offset == self.end
        header = read_header(data)
        self.batches.append(
            [
                Record(self.end + index, NOW_MS + timestamp, b"k%d" % index, bytes([97 + index]) * size)
                for index in range(header.count)
            ]
        )
        self.end += count
        self.log.update_high_watermark(self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + round(share * (self.end - self.start))
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch[-1].offset < offset]
        self.end = self.batches[-1][-1].offset + 1 if self.batches else min(offset, self.log.log_end_offset)
        self.start = min(self.start, self.end)

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        self.start = self.log.delete_records(self.start + round(share * (self.end - self.start)))
        for segment in self.log.delete_old_segments(lambda _, end_offset: end_offset <= self.start):
            segment.delete()
        first = self.log.segments.first.base_offset
        self.batches = [batch for batch in self.batches if batch[0].offset >= first]

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        known = LastKnown(log_start_offset=self.start, recovery_point=self.log.recovery_point, had_clean_shutdown=clean)
        self.log.close() if clean else self.log.abandon()
        self.log = a_log(self.files, "/data/orders-0", known, config=self.config)
        self.log.update_high_watermark(self.end)

    @invariant()
    def has_the_same_ends(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 1), max_size=st.sampled_from([1, 100, 10_000]))
    def read(self, share: float, max_size: int) -> None:
        offset = self.start + round(share * (self.end - self.start))
        expected = [record for batch in self.batches for record in batch if record.offset >= offset]
        assert consume(self.log, offset, max_size=max_size) == expected

    @rule(timestamp=st.integers(-1, 51))
    def look_up(self, timestamp: int) -> None:
        expected = [
            (record.timestamp, record.offset)
            for batch in self.batches
            for record in batch
            if record.timestamp >= NOW_MS + timestamp and record.offset >= self.start
        ]
        assert self.log.find_offset_by_timestamp(NOW_MS + timestamp) == (expected[0] if expected else None)


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=60, stateful_step_count=30)
