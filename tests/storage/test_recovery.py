"""Recovery of a segment: what is good stays, indexes are those of a live segment, and a second time changes nothing."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.model import TimestampOffset
from barnabas.records.batch import BatchHeader, CorruptRecordError, read_header
from barnabas.records.codecs import Codec
from barnabas.storage.files import read_whole, write_whole
from barnabas.storage.producer_replay import apply_batch
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.recovery import BatchObserver, recover_segment
from barnabas.storage.segment import ActiveSegment, LogSegment, OpenSegments, SegmentOptions
from barnabas.storage.transaction_index import AbortedTransaction
from tests.records.message_sets import build_message, build_message_set
from tests.records.strategies import Mutation, mutated, mutations
from tests.storage.builders import NOW_MS, batch_of, marker_of, sent_by, with_fields
from tests.storage.memory_files import MemoryFiles

BASE_OFFSET = 100
STEM = "/data/00000000000000000100"
INTERVAL_BYTES = 300


def options(files: MemoryFiles, index_bytes_max: int = 1000) -> SegmentOptions:
    return SegmentOptions(files, "/data", OpenSegments(), index_bytes_max, 1 << 20)


def ignore(segment: LogSegment, batch: BatchHeader, view: memoryview) -> None:
    """An observer of segments without producers."""


def following(producers: ProducerStateManager) -> BatchObserver:
    """An observer that keeps the producers, as the loader has one."""
    return lambda segment, batch, view: apply_batch(producers, segment, batch, view)


def recover(files: MemoryFiles, observe: BatchObserver = ignore, index_bytes_max: int = 1000) -> tuple[LogSegment, int]:
    """Recover the segment that is on the disk; its object knows nothing of its files yet."""
    segment = LogSegment(options(files, index_bytes_max), BASE_OFFSET, NOW_MS)
    return segment, recover_segment(segment, options(files, index_bytes_max), INTERVAL_BYTES, observe)


def appended(files: MemoryFiles, *batches: bytearray) -> LogSegment:
    """A segment to which these batches were appended one by one, closed as a clean stop does."""
    active = ActiveSegment.create(options(files), BASE_OFFSET, NOW_MS, INTERVAL_BYTES)
    producers = ProducerStateManager()
    for batch in batches:
        header = read_header(batch)
        active.append(batch, [header])
        if header.producer_id >= 0:
            apply_batch(producers, active.segment, header, batch)
    active.close()
    return active.segment


def run_of(count: int, **fields: int) -> list[bytearray]:
    """Batches of three records each; every third is older than the one before."""
    return [
        batch_of(
            3,
            base_offset=BASE_OFFSET + 3 * number,
            size=20 + number,
            timestamp=NOW_MS + 10 * number - (25 if number % 3 == 2 else 0),
            **fields,
        )
        for number in range(count)
    ]


def on_disk(content: bytes | bytearray) -> MemoryFiles:
    """A disk with the segment's log and nothing else."""
    files = MemoryFiles()
    files.make_directory("/data")
    write_whole(files, f"{STEM}.log", content)
    return files


# A segment without damage.


@pytest.mark.parametrize("count", [1, 2, 10, 40])
def test_the_files_are_those_of_a_segment_that_was_closed(memory_files: MemoryFiles, count: int) -> None:
    live = appended(memory_files, *run_of(count))
    expected = memory_files.contents()
    assert len(expected[f"{STEM}.index"] or b"") >= (8 if count > 3 else 0)
    files = on_disk(read_whole(memory_files, live.path))
    segment, cut = recover(files)
    assert cut == 0
    assert files.contents() == expected
    assert (segment.size, segment.largest) == (live.size, live.largest)


def test_an_empty_segment_stays_empty() -> None:
    segment, cut = recover(on_disk(b""))
    assert (cut, segment.size, segment.largest) == (0, 0, TimestampOffset(-1, BASE_OFFSET))
    assert segment.next_offset() == BASE_OFFSET


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 7, b"\xff" * 240, bytes(240)])
def test_indexes_are_made_anew_whatever_they_held(memory_files: MemoryFiles, garbage: bytes) -> None:
    appended(memory_files, *run_of(20))
    expected = memory_files.contents()
    for suffix in (".index", ".timeindex", ".txnindex"):
        write_whole(memory_files, STEM + suffix, garbage)
    recover(memory_files)
    assert memory_files.contents() == expected


def test_recovering_twice_gives_the_same_files() -> None:
    files = on_disk(b"".join(run_of(20)) + b"torn")
    recover(files)
    expected = files.contents()
    for _ in range(2):
        _, cut = recover(files)
        assert cut == 0
        assert files.contents() == expected


def test_a_full_index_takes_no_more_entries_and_the_last_time_still_gets_in() -> None:
    files = on_disk(b"".join(run_of(40)))
    segment, cut = recover(files, index_bytes_max=48)
    assert cut == 0
    # The time index is full first, with one entry kept for the end; both get no more from there on.
    assert segment.offset_index.entry_count == 3
    assert segment.time_index.entry_count == 4
    assert segment.time_index.last == segment.largest
    assert segment.next_offset() == BASE_OFFSET + 120


def test_a_batch_of_a_producer_or_of_a_new_leader_is_told_of_with_its_bytes() -> None:
    batches = [
        batch_of(1, base_offset=BASE_OFFSET, leader_epoch=3),
        batch_of(1, base_offset=BASE_OFFSET + 1, leader_epoch=3),
        sent_by(7, 0, base_offset=BASE_OFFSET + 2, leader_epoch=3),
        batch_of(1, base_offset=BASE_OFFSET + 3, leader_epoch=4),
    ]
    seen: list[tuple[int, bytes]] = []
    recover(on_disk(b"".join(batches)), lambda _, batch, view: seen.append((batch.base_offset, bytes(view))))
    assert [(offset, data) for offset, data in seen if offset != BASE_OFFSET + 1] == [
        (BASE_OFFSET + number, bytes(batches[number])) for number in (0, 2, 3)
    ]


def test_old_messages_are_indexed_too() -> None:
    content = b"".join(build_message(1, BASE_OFFSET + n, NOW_MS + n, b"k", bytes(100)) for n in range(20))
    content += build_message_set(
        1, [(BASE_OFFSET + 20 + n, NOW_MS + 50, b"k", b"v") for n in range(4)], codec=Codec.GZIP
    )
    segment, cut = recover(on_disk(content))
    assert cut == 0
    assert segment.offset_index.entry_count > 3
    assert segment.next_offset() == BASE_OFFSET + 24
    assert segment.largest == TimestampOffset(NOW_MS + 50, BASE_OFFSET + 23)


# Transactions.


def transactions() -> list[bytearray]:
    """Two transactions that overlap, the first aborted; then one that commits."""
    return [
        sent_by(1, 0, 3, transactional=True, base_offset=100),
        sent_by(2, 0, 2, transactional=True, base_offset=103),
        marker_of(1, commit=False, base_offset=105),
        marker_of(2, commit=False, base_offset=106),
        sent_by(1, 3, 2, transactional=True, base_offset=107),
        marker_of(1, commit=True, base_offset=109),
    ]


def test_the_transaction_index_is_rebuilt(memory_files: MemoryFiles) -> None:
    live = appended(memory_files, *transactions())
    expected = memory_files.contents()
    assert live.transaction_index.entries() == [
        AbortedTransaction(1, 100, 105, 103),
        AbortedTransaction(2, 103, 106, 107),
    ]
    files = on_disk(read_whole(memory_files, live.path))
    for _ in range(2):
        segment, _ = recover(files, following(ProducerStateManager()))
        assert segment.transaction_index.entries() == live.transaction_index.entries()
        assert files.contents() == expected


def test_a_transaction_index_whose_markers_were_cut_off_is_shorter(memory_files: MemoryFiles) -> None:
    appended(memory_files, *transactions())
    log = read_whole(memory_files, f"{STEM}.log")
    kept = sum(len(batch) for batch in transactions()[:3])
    write_whole(memory_files, f"{STEM}.log", log[: kept + 5])
    segment, cut = recover(memory_files, following(ProducerStateManager()))
    assert cut == 5
    assert segment.transaction_index.entries() == [AbortedTransaction(1, 100, 105, 103)]
    assert len(read_whole(memory_files, f"{STEM}.txnindex")) == 34


# Damage.


def test_a_torn_tail_is_cut_off_wherever_it_is_torn(caplog: pytest.LogCaptureFixture) -> None:
    *good, last = run_of(6)
    kept = b"".join(good)
    for size in range(1, len(last)):
        caplog.clear()
        files = on_disk(kept + last[:size])
        segment, cut = recover(files)
        assert (cut, segment.size) == (size, len(kept))
        assert read_whole(files, segment.path) == kept
        assert segment.next_offset() == BASE_OFFSET + 15
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert f"{STEM}.log, position {len(kept)}: " in record.message
        assert f"the {size} bytes from there on are cut off" in record.message


@pytest.mark.parametrize("size", [1, 61, 5000])
@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_what_no_writer_wrote_is_cut_off(size: int, byte: bytes) -> None:
    kept = b"".join(run_of(5))
    files = on_disk(kept + byte * size)
    assert recover(files)[1] == size
    assert read_whole(files, f"{STEM}.log") == kept


@pytest.mark.parametrize("place", [9, 16, 17, 22, 40, 61, -1])
def test_damage_in_the_middle_ends_the_segment_before_it(place: int) -> None:
    batches = run_of(9)
    kept = b"".join(batches[:4])
    batches[4][place] ^= 0x41
    files = on_disk(b"".join(batches))
    segment, cut = recover(files)
    assert cut == sum(map(len, batches[4:]))
    assert read_whole(files, segment.path) == kept
    expected = on_disk(kept)
    recover(expected)
    assert files.contents() == expected.contents()


@pytest.mark.parametrize("base_offset", [0, BASE_OFFSET - 1, BASE_OFFSET + 11])
def test_offsets_that_go_backwards_are_damage(base_offset: int) -> None:
    good, bad = run_of(4), batch_of(3, base_offset=base_offset)
    segment, cut = recover(on_disk(b"".join(good) + bad))
    assert (cut, segment.next_offset()) == (len(bad), BASE_OFFSET + 12)


def test_a_first_batch_from_before_the_segment_is_damage() -> None:
    segment, _ = recover(on_disk(batch_of(3, base_offset=BASE_OFFSET - 1)))
    assert segment.size == 0


@pytest.mark.parametrize(("last_offset", "is_good"), [(BASE_OFFSET + 2**31 - 1, True), (BASE_OFFSET + 2**31, False)])
def test_an_offset_that_does_not_fit_into_the_index_is_damage(last_offset: int, is_good: bool) -> None:
    far = with_fields(batch_of(1), base_offset=last_offset)
    _, cut = recover(on_disk(b"".join(run_of(2)) + far))
    assert (cut == 0) is is_good


def test_a_hole_in_the_offsets_is_no_damage() -> None:
    content = batch_of(3, base_offset=BASE_OFFSET) + batch_of(3, base_offset=BASE_OFFSET + 50)
    segment, cut = recover(on_disk(content))
    assert (cut, segment.next_offset()) == (0, BASE_OFFSET + 53)


def test_a_batch_that_its_observer_can_not_read_is_damage(caplog: pytest.LogCaptureFixture) -> None:
    batches = run_of(4)
    batches[2] = marker_of(7, commit=True, base_offset=BASE_OFFSET + 6)

    def observe(segment: LogSegment, batch: BatchHeader, view: memoryview) -> None:
        if batch.base_offset == BASE_OFFSET + 6:
            raise CorruptRecordError("the marker is bad", 0)

    segment, cut = recover(on_disk(b"".join(batches)), observe)
    assert cut == len(batches[2]) + len(batches[3])
    assert segment.next_offset() == BASE_OFFSET + 6
    assert "the marker is bad" in caplog.text


def test_room_that_was_allocated_is_given_back() -> None:
    kept = b"".join(run_of(5))
    files = on_disk(kept + bytes(100_000))
    recover(files)
    assert read_whole(files, f"{STEM}.log") == kept


def test_room_that_was_reserved_is_given_back() -> None:
    kept = b"".join(run_of(5))
    files = on_disk(kept)
    file = files.open(f"{STEM}.log", writable=True)
    file.reserve_ahead(len(kept), 100_000)
    recover(files)
    assert not file.has_room_ahead()
    assert read_whole(files, f"{STEM}.log") == kept


@given(mutations, st.integers(0, 8))
def test_whatever_happened_to_the_bytes_what_lies_before_is_kept_and_the_second_time_changes_nothing(
    changes: list[Mutation], number: int
) -> None:
    batches = run_of(9)
    good, bad = b"".join(batches[:number]), mutated(b"".join(batches[number:]), changes)
    files = on_disk(good + bad)
    segment, _ = recover(files)
    content = read_whole(files, segment.path)
    assert content.startswith(good)
    assert (good + bad).startswith(content)
    expected = files.contents()
    again, cut = recover(files)
    assert (cut, again.size, again.largest) == (0, segment.size, segment.largest)
    assert files.contents() == expected


# The compiled walk, and the way without it.


def history(draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """A segment's bytes: small and large batches, of producers or not, with markers and new leaders between."""
    offset, parts, sequences = BASE_OFFSET, [], dict.fromkeys(range(4), 0)
    for _ in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(["plain", "plain", "sent", "sent", "transactional", "marker", "large", "old"]))
        producer, count = draw(st.integers(0, 3)), draw(st.integers(1, 3))
        common = {"base_offset": offset, "leader_epoch": draw(st.integers(0, 3))}
        timestamp = NOW_MS + draw(st.integers(-50, 50))
        match kind:
            case "marker":
                count = 1
                parts.append(marker_of(producer, commit=draw(st.booleans()), **common))
            case "sent" | "transactional":
                is_transactional = kind == "transactional"
                sequence, sequences[producer] = sequences[producer], sequences[producer] + count
                epoch = draw(st.integers(0, 1))
                parts.append(
                    sent_by(
                        producer,
                        sequence,
                        count,
                        epoch=epoch,
                        transactional=is_transactional,
                        timestamp=timestamp,
                        **common,
                    )
                )
            case "old":
                count = 1
                parts.append(bytearray(build_message(1, offset, timestamp, b"k", b"v")))
            case _:
                size = 40_000 if kind == "large" else 20
                parts.append(batch_of(count, timestamp=timestamp, size=size, **common))
        offset += count + draw(st.integers(0, 2))
    return b"".join(parts)


def state_of(producers: ProducerStateManager) -> list[tuple[object, ...]]:
    return [
        (one.producer_id, one.epoch, one.batches, one.last_timestamp, one.transaction_first_offset)
        for one in producers.producers.values()
    ]


@settings(deadline=None)
@given(st.data())
def test_the_walk_finds_what_looking_at_each_batch_finds(data: st.DataObject) -> None:
    content = mutated(history(data.draw), data.draw(st.just([]) | mutations))
    found = []
    for is_walked in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("barnabas.storage.recovery.batch_walk.COMPILED", is_walked)
            patch.setattr("barnabas.storage.recovery.WALK_BYTES", 1000)
            disk, producers = on_disk(content), ProducerStateManager()
            complaints: list[str] = []
            patch.setattr(
                "barnabas.storage.recovery.logger.warning",
                lambda text, *rest, seen=complaints: seen.append(text % rest),
            )
            segment, cut = recover(disk, observing(producers))
            found.append((disk.contents(), cut, segment.largest, state_of(producers), producers.snapshot(), complaints))
    assert found[0] == found[1]


def observing(producers: ProducerStateManager) -> BatchObserver:
    """An observer of batches with and without producers."""

    def observe(segment: LogSegment, batch: BatchHeader, view: memoryview) -> None:
        if batch.producer_id >= 0:
            apply_batch(producers, segment, batch, view)

    return observe


def test_a_large_batch_among_many_small_ones_is_walked_around() -> None:
    batches = [batch_of(1, base_offset=BASE_OFFSET + number) for number in range(300)]
    batches[150] = batch_of(1, base_offset=BASE_OFFSET + 150, size=200_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.storage.recovery.WALK_BYTES", 2000)
        seen: list[int] = []
        segment = LogSegment(options(files := on_disk(b"".join(batches)), 100_000), BASE_OFFSET, NOW_MS)
        cut = recover_segment(segment, options(files, 100_000), INTERVAL_BYTES, ignore, seen.append)
    assert (cut, segment.next_offset()) == (0, BASE_OFFSET + 300)
    assert sum(seen) == segment.size
    assert len(seen) > 3
