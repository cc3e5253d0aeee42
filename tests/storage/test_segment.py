"""LogSegment and ActiveSegment: append, read, search, truncate, seal, and what is left when the disk says no."""

import errno
import struct

import pytest

from barnabas.model import LogOffsetMetadata, TimestampOffset
from barnabas.records.batch import BatchHeader, read_header
from barnabas.storage.batches import CorruptLogError
from barnabas.storage.segment import ActiveSegment, LogSegment, OpenSegments, SegmentOptions, segment_file
from barnabas.storage.transaction_index import AbortedTransaction
from tests.storage.builders import NOW_MS
from tests.storage.building import records
from tests.storage.conftest import Disk
from tests.storage.memory_files import MemoryFile, MemoryFiles

BASE = 50


def options_on(disk: Disk, open_segments: OpenSegments | None = None) -> SegmentOptions:
    return SegmentOptions(disk.files, disk.root, open_segments or OpenSegments(), 1 << 20, 1 << 20)


def an_active(disk: Disk, index_interval_bytes: int = 100, base_offset: int = BASE) -> ActiveSegment:
    return ActiveSegment.create(options_on(disk), base_offset, NOW_MS, index_interval_bytes)


def add(active: ActiveSegment, base_offset: int, count: int = 1, timestamp: int = NOW_MS) -> BatchHeader:
    """Append one batch at an offset, and return its header."""
    data = records(count, base_offset=base_offset, timestamp=timestamp)
    header = read_header(data)
    active.append(data, [header])
    return header


def read_bytes(segment: LogSegment, offset: int, max_size: int = 1 << 20, max_position: int | None = None) -> bytes:
    found = segment.read(offset, max_size, segment.size if max_position is None else max_position)
    assert found is not None
    return found.records.file.read_at(found.records.size, found.records.position) if found.records else b""


def ask_for_room(monkeypatch: pytest.MonkeyPatch, *, is_given: bool) -> list[tuple[int, int]]:
    """Let every wish for room be granted or not, and be noted as position and size."""
    asked: list[tuple[int, int]] = []

    def reserve(_file: MemoryFile, position: int, size: int) -> bool:
        asked.append((position, size))
        return is_given

    monkeypatch.setattr(MemoryFile, "reserve_ahead", reserve)
    return asked


@pytest.fixture
def memory_disk(memory_files: MemoryFiles) -> Disk:
    return Disk(memory_files, "/data")


def test_a_file_is_named_by_20_digits() -> None:
    assert segment_file("/data/t-0", 368769, ".log") == "/data/t-0/00000000000000368769.log"


def test_append_keeps_the_bytes_and_the_largest_timestamp(disk: Disk) -> None:
    active = an_active(disk)
    first = records(2, base_offset=50, timestamp=NOW_MS + 5)
    second = records(3, base_offset=52, timestamp=NOW_MS)
    active.append(bytes(first + second), [read_header(first), read_header(second)])
    assert read_bytes(active.segment, 50) == bytes(first + second)
    assert active.segment.largest == TimestampOffset(NOW_MS + 5, 51)
    assert active.rolling_based_timestamp() == NOW_MS + 5


def test_an_index_entry_comes_after_more_than_the_interval(disk: Disk) -> None:
    active = an_active(disk, index_interval_bytes=200)
    headers = [add(active, BASE + index, timestamp=NOW_MS + index) for index in range(10)]
    size = headers[0].size
    assert 61 < size < 100
    # The third batch finds less than 200 bytes before it, the fourth more, and then it starts anew.
    every = 200 // size + 1
    expected = [(BASE + index, index * size) for index in range(every, 10, every)]
    index = active.segment.offset_index
    assert [tuple(index.entry(slot)) for slot in range(index.entry_count)] == expected
    time_index = active.segment.time_index
    assert [tuple(time_index.entry(slot)) for slot in range(time_index.entry_count)] == [
        (NOW_MS + offset - BASE, offset) for offset, _ in expected
    ]


@pytest.mark.parametrize("offset", range(50, 60))
def test_a_read_starts_at_the_batch_that_holds_the_offset(disk: Disk, offset: int) -> None:
    active = an_active(disk)
    batches = [add(active, base, count=2) for base in range(50, 60, 2)]
    found = active.segment.read(offset, 1 << 20, active.segment.size)
    position = (offset - 50) // 2 * batches[0].size
    assert found is not None
    assert found.offset_metadata == LogOffsetMetadata(offset, BASE, position)
    assert found.records is not None
    assert (found.records.position, found.records.size) == (position, active.segment.size - position)


def test_a_read_in_a_gap_gives_the_next_batch(disk: Disk) -> None:
    active = an_active(disk)
    add(active, 50)
    header = add(active, 70)
    assert read_header(read_bytes(active.segment, 60)) == header


def test_a_read_past_the_last_offset_finds_nothing(disk: Disk) -> None:
    active = an_active(disk)
    add(active, 50)
    assert active.segment.read(51, 1 << 20, active.segment.size) is None


def test_a_read_is_limited_by_size_and_position(disk: Disk) -> None:
    active = an_active(disk)
    size = add(active, 50).size
    add(active, 51)
    assert len(read_bytes(active.segment, 50, max_size=10)) == 10
    assert len(read_bytes(active.segment, 50, max_position=size)) == size
    assert read_bytes(active.segment, 51, max_position=size) == b""


def test_one_message_comes_whole_even_when_it_is_too_large(disk: Disk) -> None:
    active = an_active(disk)
    size = add(active, 50, count=5).size
    add(active, 55)
    found = active.segment.read(50, 1, active.segment.size, min_one_message=True)
    assert found is not None
    assert found.records is not None
    assert found.records.size == size


def test_a_read_of_nothing_gives_the_place_and_a_negative_one_is_an_error(disk: Disk) -> None:
    active = an_active(disk)
    size = add(active, 50).size
    add(active, 51)
    found = active.segment.read(51, 0, active.segment.size)
    assert found is not None
    assert found.records is None
    assert found.offset_metadata == LogOffsetMetadata(51, BASE, size)
    with pytest.raises(ValueError, match="-1 bytes"):
        active.segment.read(51, -1, active.segment.size)


def test_a_reader_goes_on_after_its_segment_was_closed_and_deleted(disk: Disk) -> None:
    open_segments = OpenSegments(limit=1)
    options = options_on(disk, open_segments)
    active = ActiveSegment.create(options, BASE, NOW_MS, 100)
    data = records(2, base_offset=50)
    active.append(data, [read_header(data)])
    segment = active.seal()
    found = segment.read(50, 1 << 20, segment.size)
    assert found is not None
    assert found.records is not None
    other = ActiveSegment.create(options, 60, NOW_MS, 100)
    other.seal().file()
    segment.delete()
    assert found.records.file.read_at(found.records.size, 0) == bytes(data)


def test_lookup_by_timestamp(disk: Disk) -> None:
    active = an_active(disk)
    for index, timestamp in enumerate((10, 30, 20, 40)):
        add(active, BASE + index, timestamp=timestamp)
    find = active.segment.find_offset_by_timestamp
    assert find(0, BASE) == TimestampOffset(10, 50)
    assert find(11, BASE) == TimestampOffset(30, 51)
    assert find(30, 52) == TimestampOffset(40, 53)
    assert find(41, BASE) is None


def test_truncation_never_cuts_a_batch_in_two(disk: Disk) -> None:
    active = an_active(disk)
    kept = add(active, 50, count=1).size + add(active, 51, count=20, timestamp=NOW_MS + 3).size
    add(active, 71, count=70, timestamp=NOW_MS + 9)
    assert active.truncate_to(90) == 71
    assert active.segment.size == kept
    assert active.segment.next_offset() == 71
    assert active.segment.largest == TimestampOffset(NOW_MS + 3, 70)
    assert active.truncate_to(71) == 71
    assert active.truncate_to(60) == 51
    assert active.segment.next_offset() == 51


def test_truncation_to_a_gap_ends_at_the_offset_asked_for(disk: Disk) -> None:
    active = an_active(disk)
    add(active, 50)
    add(active, 60)
    assert active.truncate_to(55) == 55


def test_what_was_truncated_can_be_appended_anew(disk: Disk) -> None:
    active = an_active(disk)
    for base in range(50, 90):
        add(active, base)
    entries = active.segment.offset_index.entry_count
    active.truncate_to(60)
    assert active.segment.offset_index.entry_count < entries
    for base in range(60, 90):
        add(active, base, timestamp=NOW_MS + base)
    for base in range(50, 90):
        assert read_header(read_bytes(active.segment, base)).base_offset == base


def test_truncating_everything_forgets_the_time_it_counts_from(disk: Disk) -> None:
    active = an_active(disk)
    add(active, 50)
    active.truncate_to(50)
    assert active.segment.size == 0
    assert active.rolling_based_timestamp() == -1
    assert active.segment.largest.timestamp == -1


def test_sealing_closes_the_time_index_with_the_largest_timestamp(disk: Disk) -> None:
    active = an_active(disk, index_interval_bytes=1 << 20)
    add(active, 50, timestamp=NOW_MS + 7)
    add(active, 51, timestamp=NOW_MS)
    sealed = active.seal()
    reopened = LogSegment(options_on(disk), BASE, NOW_MS)
    reopened.open(sealed.size, 0, 12)
    assert reopened.largest == TimestampOffset(NOW_MS + 7, 50)
    assert reopened.next_offset() == 52
    assert reopened.first_timestamp() == NOW_MS + 7


def test_a_preallocated_file_is_trimmed_when_it_is_sealed(disk: Disk) -> None:
    active = an_active(disk)
    active.preallocate(100_000)
    assert disk.files.open(active.segment.path).size() == 100_000
    size = add(active, 50).size
    sealed = active.seal()
    assert disk.files.open(sealed.path).size() == size


def test_room_is_reserved_ahead_of_a_segment_that_grows_and_given_back(memory_disk: Disk) -> None:
    active = an_active(memory_disk)
    file = memory_disk.files.open(active.segment.path)
    add(active, 50, count=20)
    assert not file.has_room_ahead(), "most segments stay small"
    active.segment.room_end = active.segment.size
    add(active, 70)
    assert file.has_room_ahead()
    assert active.segment.room_end > active.segment.size
    assert file.size() == active.segment.size, "what a file has is what was written to it"
    sealed = active.seal()
    assert not file.has_room_ahead()
    assert file.size() == sealed.size


def test_room_is_given_back_when_the_disk_is_full(memory_disk: Disk) -> None:
    active = an_active(memory_disk)
    add(active, 50, count=20)
    active.reserve_ahead()
    file = memory_disk.files.open(active.segment.path)
    assert file.has_room_ahead()
    active.give_room_back()
    assert not file.has_room_ahead()
    add(active, 70, count=20)
    assert not file.has_room_ahead(), "nothing is asked for any more"
    assert active.seal().next_offset() == 90


def test_a_segment_asks_for_as_much_room_as_it_has_and_not_for_more_than_16_mb(
    memory_disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = an_active(memory_disk)
    asked = ask_for_room(monkeypatch, is_given=True)
    for size in (5 << 20, 20 << 20, 30 << 20, 100 << 20):
        active.segment.size = size
        if size > active.segment.room_end:
            active.reserve_ahead()
    assert asked == [(5 << 20, 5 << 20), (20 << 20, 16 << 20), (100 << 20, 16 << 20)]


def test_a_disk_that_reserves_nothing_is_not_asked_again(memory_disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    active = an_active(memory_disk)
    asked = ask_for_room(monkeypatch, is_given=False)
    active.segment.room_end = 0
    add(active, 50)
    add(active, 51)
    assert asked == [(0, 0)]


def test_renaming_takes_all_files_along(disk: Disk) -> None:
    active = an_active(disk)
    add(active, 50)
    active.segment.transaction_index.append(AbortedTransaction(1, 50, 50, 51))
    sealed = active.seal()
    sealed.change_suffix("", ".deleted")
    stem = f"{BASE:020d}"
    kinds = (".log", ".index", ".timeindex", ".txnindex")
    assert {entry.name for entry in disk.files.entries(disk.root)} == {stem + kind + ".deleted" for kind in kinds}
    assert read_header(read_bytes(sealed, 50)).base_offset == 50
    sealed.delete()
    assert list(disk.files.entries(disk.root)) == []


def test_an_append_that_fails_leaves_the_segment_as_it_was(memory_disk: Disk, memory_files: MemoryFiles) -> None:
    active = an_active(memory_disk)
    add(active, 50)
    before = (active.segment.size, active.segment.largest, active.segment.offset_index.entry_count)
    memory_files.fail_next_write(errno.ENOSPC, after_bytes=20)
    with pytest.raises(OSError, match="No space left"):
        add(active, 51, timestamp=NOW_MS + 50)
    assert (active.segment.size, active.segment.largest, active.segment.offset_index.entry_count) == before
    assert memory_files.open(active.segment.path).size() == active.segment.size
    add(active, 51)
    assert active.segment.next_offset() == 52


def test_damage_found_by_a_read_has_path_and_position(memory_disk: Disk, memory_files: MemoryFiles) -> None:
    active = an_active(memory_disk, index_interval_bytes=1 << 20)
    size = add(active, 50).size
    add(active, 51)
    memory_files.open(active.segment.path, writable=True).write_at(b"\xff" * 4, size + 8)
    with pytest.raises(CorruptLogError) as caught:
        active.segment.read(51, 100, active.segment.size)
    assert caught.value.path == active.segment.path
    assert caught.value.position == size


def test_the_least_recently_used_segments_are_closed(disk: Disk) -> None:
    open_segments = OpenSegments(limit=2)
    options = options_on(disk, open_segments)
    sealed = []
    for base in (0, 10, 20):
        active = ActiveSegment.create(options, base, NOW_MS, 100)
        add(active, base)
        sealed.append(active.seal())
    files = [segment.file() for segment in sealed]
    assert sealed[0].file() is not files[0]
    assert sealed[2].file() is files[2]
    assert sealed[1].file() is not files[1]


@pytest.mark.parametrize("entry", [(1, -5), (1, 10**6), (1, 1), (0, 300)])
def test_an_index_entry_that_is_wrong_is_found_out_by_a_read(disk: Disk, entry: tuple[int, int]) -> None:
    """An index must never hide a record: it is made again from the log, and the read finds what is there."""
    active = an_active(disk, index_interval_bytes=100)
    for base in range(50, 90):
        add(active, base)
    sealed = active.seal()
    disk.files.open(sealed.offset_index.path, writable=True).write_at(struct.pack(">ii", *entry), 0)
    sealed.release()
    for offset in range(50, 90):
        assert read_header(read_bytes(sealed, offset)).base_offset == offset


def test_lowering_the_size_of_indexes_lets_a_segment_be_closed(disk: Disk) -> None:
    active = an_active(disk, index_interval_bytes=0)
    for base in range(50, 90):
        add(active, base, timestamp=NOW_MS + base)
    active.index_writer.resize(0, 24)
    assert active.segment.is_index_full
    add(active, 90, timestamp=NOW_MS + 90)
    assert active.seal().largest == TimestampOffset(NOW_MS + 90, 90)
