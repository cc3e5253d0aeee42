"""ProducerStateManager: duplicates, gaps and fencing; transactions and what readers may see; snapshots."""

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import BatchHeader
from barnabas.storage.producers import (
    BATCHES_KEPT,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    BatchMetadata,
    CompletedTransaction,
    CorruptSnapshotError,
    Marker,
    ProducerStateManager,
    decode_snapshot,
)
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import COORDINATOR_EPOCH, NOW_MS, marker_header, producer_header, refused

SEQUENCE_MAX = 2**31 - 1
COMMIT = Marker(True, COORDINATOR_EPOCH)
ABORT = Marker(False, COORDINATOR_EPOCH)


def knowing(*batches: BatchHeader) -> ProducerStateManager:
    """The state after these batches were appended."""
    producers = ProducerStateManager()
    for batch in batches:
        producers.update(batch)
    return producers


def check(producers: ProducerStateManager, batch: BatchHeader) -> BatchMetadata | None:
    return producers.check(batch, is_client=True)


# Sequence numbers.


@pytest.mark.parametrize("sequence", [0, 1, 77, SEQUENCE_MAX])
@pytest.mark.parametrize("epoch", [0, 9])
def test_an_unknown_producer_may_start_anywhere(sequence: int, epoch: int) -> None:
    assert check(ProducerStateManager(), producer_header(1, sequence, epoch=epoch)) is None


def test_the_next_sequence_number_is_taken_and_checking_changes_nothing() -> None:
    producers = knowing(producer_header(1, 0, 3))
    before = producers.snapshot()
    assert check(producers, producer_header(1, 3, 2)) is None
    assert producers.snapshot() == before


@pytest.mark.parametrize("sequence", [4, 100, 2, SEQUENCE_MAX])
def test_a_gap_is_out_of_order(sequence: int) -> None:
    producers = knowing(producer_header(1, 0, 3))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "3 comes next"):
        check(producers, producer_header(1, sequence))


def test_producers_do_not_mind_each_other() -> None:
    producers = knowing(producer_header(1, 0, 3), producer_header(2, 10, 5))
    assert check(producers, producer_header(1, 3)) is None
    assert check(producers, producer_header(2, 15)) is None
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        check(producers, producer_header(2, 3))


def test_a_batch_that_was_sent_before_is_known_by_its_first_offsets() -> None:
    producers = knowing(*(producer_header(1, 3 * n, 3, offset=100 + 10 * n) for n in range(7)))
    for n in range(7 - BATCHES_KEPT, 7):
        duplicate = check(producers, producer_header(1, 3 * n, 3, offset=999))
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (100 + 10 * n, 102 + 10 * n)
        assert (duplicate.first_sequence, duplicate.last_sequence) == (3 * n, 3 * n + 2)


def test_a_duplicate_from_before_the_last_five_is_out_of_order() -> None:
    producers = knowing(*(producer_header(1, n) for n in range(BATCHES_KEPT + 1)))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        check(producers, producer_header(1, 0))


def test_a_batch_that_only_overlaps_a_known_one_is_out_of_order() -> None:
    producers = knowing(producer_header(1, 0, 3), producer_header(1, 3, 3))
    for sequence, count in ((4, 2), (3, 2), (2, 4), (0, 6)):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            check(producers, producer_header(1, sequence, count))


def test_sequence_numbers_go_on_at_0_after_the_largest() -> None:
    producers = knowing(producer_header(1, SEQUENCE_MAX))
    assert check(producers, producer_header(1, 0)) is None


def test_sequence_numbers_wrap_within_a_batch() -> None:
    producers = knowing(producer_header(1, SEQUENCE_MAX - 1, 4, offset=50))
    entry = producers.producers[1]
    assert entry.last_sequence == 1
    assert entry.batches[-1].first_sequence == SEQUENCE_MAX - 1
    assert check(producers, producer_header(1, 2)) is None
    duplicate = check(producers, producer_header(1, SEQUENCE_MAX - 1, 4))
    assert duplicate is not None
    assert duplicate.first_offset == 50


# Epochs.


def test_a_new_epoch_starts_at_0() -> None:
    producers = knowing(producer_header(1, 0, 3, epoch=4))
    assert check(producers, producer_header(1, 0, epoch=5)) is None
    for sequence in (1, 3):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "0 comes next"):
            check(producers, producer_header(1, sequence, epoch=5))


def test_an_old_epoch_is_fenced() -> None:
    producers = knowing(producer_header(1, 0, 3, epoch=4))
    for sequence in (0, 3):
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH, "the current one is 4"):
            check(producers, producer_header(1, sequence, epoch=3))


def test_the_same_sequence_numbers_in_a_new_epoch_are_no_duplicate() -> None:
    producers = knowing(producer_header(1, 0, 3, epoch=4))
    assert check(producers, producer_header(1, 0, 3, epoch=5)) is None
    producers.update(producer_header(1, 0, 3, epoch=5))
    assert len(producers.producers[1].batches) == 1


def test_a_coordinator_is_not_asked_for_sequence_numbers_but_fenced_by_its_producer_s_epoch() -> None:
    producers = knowing(producer_header(1, 0, 3, epoch=4))
    assert producers.check(producer_header(1, -1, epoch=4), is_client=False) is None
    assert producers.check(producer_header(1, -1, epoch=5), is_client=False) is None
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        producers.check(producer_header(1, -1, epoch=3), is_client=False)


# Transactions.


def test_a_transaction_opens_with_its_first_batch_only() -> None:
    producers = knowing(producer_header(1, 0, 3, offset=10, transactional=True))
    producers.update(producer_header(1, 3, 3, offset=13, transactional=True))
    assert producers.producers[1].transaction_first_offset == 10
    assert producers.first_unstable_offset == 10


def test_a_write_outside_of_an_open_transaction_is_refused() -> None:
    producers = knowing(producer_header(1, 0, 3, transactional=True))
    with refused(ErrorCode.INVALID_TXN_STATE):
        check(producers, producer_header(1, 3))
    producers.complete(marker_header(1, offset=3), COMMIT)
    assert check(producers, producer_header(1, 3)) is None


def test_a_duplicate_in_an_open_transaction_is_still_a_duplicate() -> None:
    producers = knowing(producer_header(1, 0, 3), producer_header(1, 3, transactional=True, offset=3))
    assert check(producers, producer_header(1, 0, 3)) is not None


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_a_marker_ends_a_transaction(marker: Marker) -> None:
    producers = knowing(producer_header(1, 0, 3, offset=10, transactional=True))
    completed = producers.complete(marker_header(1, offset=13, timestamp=NOW_MS + 9), marker)
    assert completed == CompletedTransaction(1, 10, 13, not marker.is_commit)
    entry = producers.producers[1]
    assert (entry.transaction_first_offset, entry.coordinator_epoch) == (-1, COORDINATOR_EPOCH)
    assert (entry.last_timestamp, entry.last_sequence) == (NOW_MS + 9, 2)


def test_a_marker_without_a_transaction_ends_nothing_but_is_remembered() -> None:
    producers = ProducerStateManager()
    assert producers.complete(marker_header(1, offset=0, epoch=6), ABORT) is None
    entry = producers.producers[1]
    assert (entry.epoch, entry.coordinator_epoch, entry.batches) == (6, COORDINATOR_EPOCH, [])
    assert producers.first_unstable_offset is None


def test_a_marker_with_a_new_epoch_lets_sequence_numbers_start_anew() -> None:
    producers = knowing(producer_header(1, 0, 3, epoch=4, transactional=True))
    producers.complete(marker_header(1, offset=3, epoch=5), ABORT)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        check(producers, producer_header(1, 3, epoch=4))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        check(producers, producer_header(1, 3, epoch=5))
    assert check(producers, producer_header(1, 0, epoch=5)) is None


def test_a_coordinator_that_was_replaced_is_fenced() -> None:
    producers = knowing(producer_header(1, 0, 3, transactional=True))
    producers.complete(marker_header(1, offset=3), COMMIT)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "the current one is 5"):
        producers.check_marker(marker_header(1, offset=4), Marker(True, COORDINATOR_EPOCH - 1))
    for epoch in (COORDINATOR_EPOCH, COORDINATOR_EPOCH + 1):
        producers.check_marker(marker_header(1, offset=4), Marker(True, epoch))


def test_a_marker_with_an_old_producer_epoch_is_fenced() -> None:
    producers = knowing(producer_header(1, 0, 3, epoch=4, transactional=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        producers.check_marker(marker_header(1, offset=3, epoch=3), COMMIT)


def test_a_marker_of_an_unknown_producer_is_taken() -> None:
    ProducerStateManager().check_marker(marker_header(1, offset=0), COMMIT)


# What readers may see.


def interleaved() -> ProducerStateManager:
    """Three transactions: 1 at 10, 2 at 20, 3 at 30."""
    return knowing(*(producer_header(n, 0, offset=10 * n, transactional=True) for n in (1, 2, 3)))


def test_the_first_open_transaction_is_the_first_unstable_offset() -> None:
    producers = interleaved()
    assert producers.first_unstable_offset == 10
    producers.complete(marker_header(2, offset=40), COMMIT)
    assert producers.first_unstable_offset == 10


def test_a_decided_transaction_stays_unstable_until_its_marker_is_replicated() -> None:
    producers = interleaved()
    producers.complete(marker_header(1, offset=40), COMMIT)
    producers.on_high_watermark(40)
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(41)
    assert producers.first_unstable_offset == 20
    producers.complete(marker_header(3, offset=50), ABORT)
    producers.complete(marker_header(2, offset=60), ABORT)
    producers.on_high_watermark(51)
    assert producers.first_unstable_offset == 20
    producers.on_high_watermark(61)
    assert producers.first_unstable_offset is None


def test_a_producer_may_begin_again_while_its_last_transaction_is_not_replicated() -> None:
    producers = interleaved()
    producers.complete(marker_header(1, offset=40), COMMIT)
    producers.update(producer_header(1, 1, offset=41, transactional=True))
    producers.on_high_watermark(41)
    assert producers.first_unstable_offset == 20
    assert producers.producers[1].transaction_first_offset == 41


def test_an_aborted_transaction_knows_the_last_stable_offset() -> None:
    producers = interleaved()
    completed = producers.complete(marker_header(2, offset=40), ABORT)
    assert completed is not None
    assert producers.aborted(completed) == AbortedTransaction(2, 20, 40, 10)
    completed = producers.complete(marker_header(1, offset=50), ABORT)
    assert completed is not None
    assert producers.aborted(completed) == AbortedTransaction(1, 10, 50, 30)
    completed = producers.complete(marker_header(3, offset=60), ABORT)
    assert completed is not None
    assert producers.aborted(completed) == AbortedTransaction(3, 30, 60, 61)


# Expiry.


def test_producers_that_went_quiet_are_forgotten_unless_they_have_an_open_transaction() -> None:
    producers = knowing(
        producer_header(1, 0, timestamp=1000),
        producer_header(2, 0, timestamp=2000),
        producer_header(3, 0, timestamp=1000, transactional=True),
    )
    producers.remove_expired(2000)
    assert set(producers.producers) == {2, 3}
    assert producers.first_unstable_offset == 0
    assert check(producers, producer_header(1, 50)) is None


# Snapshots.


def full_state() -> ProducerStateManager:
    """Producers of every kind: several batches, an open transaction, only markers, a coordinator's batch."""
    producers = knowing(
        producer_header(1, 0, 3, offset=0, epoch=2),
        producer_header(1, 3, 2, offset=3, epoch=2, timestamp=NOW_MS + 5),
        producer_header(2, SEQUENCE_MAX, 4, offset=5, transactional=True),
        producer_header(4, -1, offset=9, transactional=True),
    )
    producers.complete(marker_header(3, offset=10, epoch=7, timestamp=NOW_MS + 6), ABORT)
    producers.complete(marker_header(4, offset=11), COMMIT)
    return producers


def test_a_snapshot_restores_the_state() -> None:
    restored = ProducerStateManager()
    restored.restore(full_state().snapshot())
    assert restored.snapshot() == full_state().snapshot()
    assert restored.first_unstable_offset == 5
    assert check(restored, producer_header(1, 5, epoch=2)) is None
    assert check(restored, producer_header(1, 3, 2, epoch=2)) == BatchMetadata(4, 4, 1, NOW_MS + 5)
    assert check(restored, producer_header(2, 3, transactional=True)) is None
    assert check(restored, producer_header(3, 0, epoch=7)) is None
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        check(restored, producer_header(1, 0, 3, epoch=2))
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        restored.check_marker(marker_header(3, offset=12, epoch=7), Marker(True, 0))


def test_a_snapshot_has_kafka_s_bytes() -> None:
    producers = knowing(producer_header(7, 2, 3, offset=40, epoch=1, timestamp=1234, transactional=True))
    rows = struct.pack(">iqhiqiqiq", 1, 7, 1, 4, 42, 2, 1234, -1, 40)
    assert producers.snapshot() == struct.pack(">hI", 1, crc32c.crc32c(rows)) + rows


def test_a_producer_that_only_has_markers_has_kafka_s_bytes() -> None:
    producers = ProducerStateManager()
    producers.complete(marker_header(7, offset=3, epoch=1, timestamp=1234), ABORT)
    assert producers.snapshot()[10:] == struct.pack(">qhiqiqiq", 7, 1, -1, -1, 0, 1234, 5, -1)


def test_restoring_forgets_what_was_there_before() -> None:
    producers = interleaved()
    producers.complete(marker_header(1, offset=40), ABORT)
    producers.restore(ProducerStateManager().snapshot())
    assert producers.producers == {}
    assert producers.first_unstable_offset is None


def signed(content: bytes) -> bytes:
    """A snapshot with a right checksum over whatever it holds."""
    return content[:2] + struct.pack(">I", crc32c.crc32c(content[6:])) + content[6:]


GOOD = full_state().snapshot()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (GOOD[:9], "9 bytes"),
        (signed(struct.pack(">hIi", 0, 0, 0)), "version 0"),
        (signed(struct.pack(">hIi", 2, 0, 0)), "version 2"),
        (GOOD[:-1], "checksum"),
        (GOOD + b"\x00", "checksum"),
        (GOOD[:20] + bytes([GOOD[20] ^ 1]) + GOOD[21:], "checksum"),
        (GOOD[:3] + bytes([GOOD[3] ^ 1]) + GOOD[4:], "checksum"),
        (signed(GOOD[:-1]), "announced"),
        (signed(GOOD[: -SNAPSHOT_ENTRY.size]), "announced"),
        (signed(GOOD + bytes(SNAPSHOT_ENTRY.size)), "announced"),
        (signed(struct.pack(">hIi", 1, 0, -1)), "-1 entries"),
        (signed(struct.pack(">hIi", 1, 0, 2**31 - 1)), "2147483647 entries"),
        (bytes(100), "version 0"),
    ],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(data: bytes, words: str) -> None:
    producers = interleaved()
    before = producers.snapshot()
    with pytest.raises(CorruptSnapshotError, match=words):
        producers.restore(data)
    assert producers.snapshot() == before
    assert producers.first_unstable_offset == 10


@given(st.binary(max_size=200), st.integers(0, len(GOOD)))
def test_no_bytes_break_the_decoder(tail: bytes, size: int) -> None:
    for data in (tail, GOOD[:size] + tail, signed(GOOD[:size].ljust(SNAPSHOT_HEADER.size, b"\x00") + tail)):
        try:
            entries = list(decode_snapshot(data))
        except CorruptSnapshotError:
            continue
        assert len(data) == SNAPSHOT_HEADER.size + len(entries) * SNAPSHOT_ENTRY.size
