"""OffsetIndex and TimeIndex: every sentence that is said of them, then both against a sorted dict."""

from bisect import bisect_left, bisect_right
from struct import pack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.model import NO_TIMESTAMP, TimestampOffset
from barnabas.storage.files import read_whole
from barnabas.storage.index import (
    CorruptIndexError,
    InvalidOffsetError,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
)
from barnabas.storage.index_file import WARM_SECTION_BYTES, IndexFullError
from tests.storage.conftest import Disk
from tests.storage.memory_files import MemoryFiles

BASE = 50
LARGE = 10 << 20


def offset_index(disk: Disk, size_bytes_max: int = LARGE, *, base_offset: int = BASE) -> OffsetIndex:
    """Open the offset index `index`, with what is in the file."""
    path = disk.path("index")
    index = OffsetIndex(disk.files, path, base_offset)
    index.open(disk.files.open(path).size() if disk.files.exists(path) else 0, size_bytes_max)
    return index


def time_index(disk: Disk, size_bytes_max: int = LARGE, *, base_offset: int = BASE) -> TimeIndex:
    """Open the time index `timeindex`, with what is in the file."""
    path = disk.path("timeindex")
    index = TimeIndex(disk.files, path, base_offset)
    index.open(disk.files.open(path).size() if disk.files.exists(path) else 0, size_bytes_max)
    return index


def put(disk: Disk, name: str, data: bytes) -> None:
    disk.files.open(disk.path(name), writable=True).write_at(data, 0)


def is_full(index: OffsetIndex | TimeIndex) -> bool:
    """Asked by a function, because the type checker takes a property for something that stays."""
    return index.is_full


def content(disk: Disk, name: str) -> bytes:
    return read_whole(disk.files, disk.path(name))


def with_1_4_6_8(disk: Disk) -> OffsetIndex:
    """The entries of the examples: offsets 1, 4, 6, 8 after the base, each batch at its offset times ten."""
    index = offset_index(disk)
    for relative in (1, 4, 6, 8):
        index.append(BASE + relative, relative * 10)
    return index


def relative_offsets(index: OffsetIndex) -> list[int]:
    return [index.entry(slot).offset - BASE for slot in range(index.entry_count)]


# OffsetIndex.


def test_an_offset_entry_is_the_relative_offset_and_the_position(disk: Disk) -> None:
    index = offset_index(disk)
    index.append(55, 4301)
    index.close()
    assert content(disk, "index") == bytes.fromhex("00000005 000010cd")
    assert offset_index(disk).entry(0) == OffsetPosition(55, 4301)


@pytest.mark.parametrize(
    ("target", "found"), [(5, 4), (4, 4), (1, 1), (2, 1), (6, 6), (7, 6), (8, 8), (9, 8), (9000, 8)]
)
def test_lookup_gives_the_largest_entry_at_or_below(disk: Disk, target: int, found: int) -> None:
    assert with_1_4_6_8(disk).lookup(BASE + target) == OffsetPosition(BASE + found, found * 10)


def test_lookup_before_the_first_entry_gives_the_start_of_the_segment(disk: Disk) -> None:
    assert with_1_4_6_8(disk).lookup(BASE) == OffsetPosition(BASE, 0)
    assert with_1_4_6_8(disk).lookup(BASE - 10) == OffsetPosition(BASE, 0)


def test_lookup_takes_offsets_far_beyond_four_bytes(disk: Disk) -> None:
    assert with_1_4_6_8(disk).lookup(2**63 - 1) == OffsetPosition(BASE + 8, 80)
    assert with_1_4_6_8(disk).lookup(0) == OffsetPosition(BASE, 0)


def test_an_empty_index_answers_with_the_start_of_the_segment(disk: Disk) -> None:
    index = offset_index(disk)
    assert index.lookup(BASE + 99) == OffsetPosition(BASE, 0)
    assert index.last_offset == BASE
    assert index.entry_count == 0
    assert index.fetch_upper_bound(OffsetPosition(BASE, 0), 100) is None


@pytest.mark.parametrize(
    ("position", "size", "found"),
    [
        (0, 5, 1),
        (0, 10, 1),
        (0, 11, 4),
        (10, 30, 4),
        (10, 31, 6),
        (40, 0, 4),
        (40, 1, 6),
        (60, 20, 8),
        (60, 21, None),
        (80, 1, None),
    ],
)
def test_fetch_upper_bound_gives_the_first_entry_at_or_past_the_end(
    disk: Disk, position: int, size: int, found: int | None
) -> None:
    fetched = OffsetPosition(BASE + position // 10, position)
    expected = None if found is None else OffsetPosition(BASE + found, found * 10)
    assert with_1_4_6_8(disk).fetch_upper_bound(fetched, size) == expected


@pytest.mark.parametrize("offset", [BASE + 8, BASE + 7, BASE, BASE - 1])
def test_an_offset_that_does_not_increase_is_refused(disk: Disk, offset: int) -> None:
    index = with_1_4_6_8(disk)
    with pytest.raises(InvalidOffsetError, match=f"offset {offset} does not lie after the last one, {BASE + 8}"):
        index.append(offset, 90)
    assert relative_offsets(index) == [1, 4, 6, 8]
    index.append(BASE + 9, 90)
    assert index.last_offset == BASE + 9


def test_the_base_offset_itself_can_be_the_first_entry(disk: Disk) -> None:
    index = offset_index(disk)
    index.append(BASE, 0)
    index.sanity_check(1 << 30)
    with pytest.raises(InvalidOffsetError):
        index.append(BASE, 10)
    index.append(BASE + 1, 10)
    assert relative_offsets(index) == [0, 1]


def test_a_full_offset_index_refuses_an_entry(disk: Disk) -> None:
    index = offset_index(disk, 4 * 8 + 7)
    for relative in (1, 4, 6):
        index.append(BASE + relative, relative)
    assert not is_full(index)
    index.append(BASE + 8, 8)
    assert is_full(index)
    with pytest.raises(IndexFullError):
        index.append(BASE + 9, 9)
    assert relative_offsets(index) == [1, 4, 6, 8]
    assert index.last_offset == BASE + 8


def test_the_largest_relative_offset_and_position_fit(disk: Disk) -> None:
    index = offset_index(disk)
    index.append(BASE + 2**31 - 1, 2**31 - 1)
    index.close()
    assert offset_index(disk).lookup(2**62) == OffsetPosition(BASE + 2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(
    ("offset", "left"),
    [(4, [1]), (5, [1, 4]), (1, []), (0, []), (-5, []), (8, [1, 4, 6]), (9, [1, 4, 6, 8]), (99, [1, 4, 6, 8])],
)
@pytest.mark.parametrize("written", [True, False])
def test_truncate_to_keeps_the_entries_below(disk: Disk, offset: int, left: list[int], written: bool) -> None:
    index = with_1_4_6_8(disk)
    if written:
        index.flush()
    index.truncate_to(BASE + offset)
    assert relative_offsets(index) == left
    assert index.last_offset == BASE + (left[-1] if left else 0)
    index.close()
    assert content(disk, "index") == b"".join(pack(">ii", relative, relative * 10) for relative in left)
    index.append(BASE + 100, 1000)
    assert relative_offsets(index) == [*left, 100]


def test_truncate_and_reset_drop_all(disk: Disk) -> None:
    index = with_1_4_6_8(disk)
    index.truncate()
    assert index.entry_count == 0
    assert index.last_offset == BASE
    index.append(BASE + 1, 10)
    index.reset(2 * 8)
    assert index.entry_count == 0
    index.append(BASE + 1, 10)
    index.append(BASE + 2, 20)
    assert is_full(index)


def test_resize_keeps_the_entries(disk: Disk) -> None:
    index = with_1_4_6_8(disk)
    index.resize(4 * 8)
    assert is_full(index)
    index.resize(5 * 8)
    assert not is_full(index)
    assert relative_offsets(index) == [1, 4, 6, 8]


def test_an_offset_index_is_the_same_when_it_is_opened_again(disk: Disk) -> None:
    index = with_1_4_6_8(disk)
    index.close()
    again = offset_index(disk)
    again.sanity_check(1 << 30)
    assert relative_offsets(again) == [1, 4, 6, 8]
    assert again.last_offset == BASE + 8


def test_rename_and_delete(disk: Disk) -> None:
    index = with_1_4_6_8(disk)
    index.rename(disk.path("index.deleted"))
    assert index.path == disk.path("index.deleted")
    assert {entry.name for entry in disk.files.entries(disk.root)} == {"index.deleted"}
    assert relative_offsets(index) == [1, 4, 6, 8]
    index.release()
    index.delete()
    assert list(disk.files.entries(disk.root)) == []


@pytest.mark.parametrize("rest", range(1, 8))
def test_an_offset_index_of_odd_length_is_corrupt(disk: Disk, rest: int) -> None:
    put(disk, "index", pack(">iiii", 1, 10, 2, 20) + bytes(rest))
    with pytest.raises(CorruptIndexError, match=f"the file has {16 + rest} bytes") as caught:
        offset_index(disk)
    assert caught.value.path == disk.path("index")
    assert caught.value.position == 16


def test_a_last_offset_below_the_base_is_corrupt(disk: Disk) -> None:
    put(disk, "index", pack(">iiii", 1, 10, -1, 20))
    index = offset_index(disk)
    with pytest.raises(CorruptIndexError, match="offset 49, below the segment's base offset 50") as caught:
        index.sanity_check(1 << 30)
    assert caught.value.position == 8


@pytest.mark.parametrize("entries", [[], [(0, 0)], [(0, 10)], [(0, 0), (1, 10)]])
def test_small_indexes_are_sane(disk: Disk, entries: list[tuple[int, int]]) -> None:
    put(disk, "index", b"".join(pack(">ii", *entry) for entry in entries))
    offset_index(disk).sanity_check(1 << 30)
    offset_index(disk, base_offset=0).sanity_check(1 << 30)


def test_the_zeros_that_kafka_leaves_after_a_crash_are_cut_from_the_offset_index(disk: Disk) -> None:
    with_1_4_6_8(disk).close()
    put(disk, "index", content(disk, "index") + bytes(10_000 * 8))
    index = offset_index(disk)
    assert relative_offsets(index) == [1, 4, 6, 8]
    assert index.last_offset == BASE + 8
    assert len(content(disk, "index")) == 4 * 8


def test_an_index_of_zeros_only_is_empty(disk: Disk) -> None:
    put(disk, "index", bytes(8 * 8))
    put(disk, "timeindex", bytes(8 * 12))
    assert offset_index(disk).entry_count == 0
    assert time_index(disk).entry_count == 0
    assert time_index(disk).last == TimestampOffset(NO_TIMESTAMP, BASE)


@pytest.mark.parametrize("after_bytes", [0, 100, 2 * WARM_SECTION_BYTES - 1])
def test_an_offset_that_a_full_disk_did_not_take_can_be_appended_later(
    memory_files: MemoryFiles, after_bytes: int
) -> None:
    """The segment truncates to the offset and tries again when there is room; the index is then as if all went well."""
    disk = Disk(memory_files, "/data")
    index = offset_index(disk)
    count = 2 * WARM_SECTION_BYTES // 8
    for relative in range(1, count):
        index.append(BASE + relative, relative)
    memory_files.fail_next_write(after_bytes=after_bytes)
    with pytest.raises(OSError):
        index.append(BASE + count, count)
    index.truncate_to(BASE + count)
    assert index.last_offset == BASE + count - 1
    assert index.entry_count == count - 1
    index.append(BASE + count, count)
    index.close()
    assert relative_offsets(offset_index(disk)) == list(range(1, count + 1))


# TimeIndex.


def with_times(disk: Disk, size_bytes_max: int = LARGE) -> TimeIndex:
    """Timestamps 100, 200, 300, 400 up to the offsets 1, 4, 6, 8 after the base."""
    index = time_index(disk, size_bytes_max)
    for timestamp, relative in ((100, 1), (200, 4), (300, 6), (400, 8)):
        index.maybe_append(timestamp, BASE + relative)
    return index


def times(index: TimeIndex) -> list[tuple[int, int]]:
    entries = [index.entry(slot) for slot in range(index.entry_count)]
    return [(entry.timestamp, entry.offset - BASE) for entry in entries]


def test_a_time_entry_is_the_timestamp_and_the_relative_offset(disk: Disk) -> None:
    index = time_index(disk)
    index.maybe_append(1_700_000_000_000, 55)
    index.close()
    assert content(disk, "timeindex") == bytes.fromhex("0000018bcfe56800 00000005")
    assert time_index(disk).last == TimestampOffset(1_700_000_000_000, 55)


@pytest.mark.parametrize(
    ("timestamp", "found"), [(100, 0), (150, 0), (200, 1), (299, 1), (300, 2), (400, 3), (2**62, 3)]
)
def test_lookup_gives_the_last_entry_at_or_before_a_time(disk: Disk, timestamp: int, found: int) -> None:
    index = with_times(disk)
    assert index.lookup(timestamp) == index.entry(found)


def test_lookup_before_the_first_time_gives_the_base_offset(disk: Disk) -> None:
    assert with_times(disk).lookup(99) == TimestampOffset(NO_TIMESTAMP, BASE)
    assert with_times(disk).lookup(-1) == TimestampOffset(NO_TIMESTAMP, BASE)
    assert time_index(Disk(disk.files, disk.root)).lookup(-1) == TimestampOffset(NO_TIMESTAMP, BASE)


def test_an_empty_time_index_answers_with_the_base_offset(disk: Disk) -> None:
    assert time_index(disk).lookup(2**62) == TimestampOffset(NO_TIMESTAMP, BASE)
    assert time_index(disk).last == TimestampOffset(NO_TIMESTAMP, BASE)


def test_an_equal_last_timestamp_is_ignored(disk: Disk) -> None:
    index = with_times(disk)
    index.maybe_append(400, BASE + 8, skip_full_check=True)
    index.maybe_append(400, BASE + 9)
    assert times(index) == [(100, 1), (200, 4), (300, 6), (400, 8)]


@pytest.mark.parametrize(("timestamp", "offset"), [(399, BASE + 9), (500, BASE + 7), (399, BASE + 7), (400, BASE + 7)])
def test_a_smaller_timestamp_or_offset_is_refused(disk: Disk, timestamp: int, offset: int) -> None:
    index = with_times(disk)
    with pytest.raises(InvalidOffsetError, match="lies before the last one"):
        index.maybe_append(timestamp, offset)
    assert index.entry_count == 4


def test_batches_without_timestamps_add_no_entry(disk: Disk) -> None:
    index = time_index(disk)
    index.maybe_append(NO_TIMESTAMP, BASE + 3)
    index.maybe_append(NO_TIMESTAMP, BASE + 3, skip_full_check=True)
    assert index.entry_count == 0
    index.maybe_append(0, BASE + 3)
    assert index.entry_count == 1


def test_a_time_index_is_full_one_entry_early(disk: Disk) -> None:
    index = time_index(disk, 3 * 12 + 11)
    index.maybe_append(100, BASE + 1)
    assert not is_full(index)
    index.maybe_append(200, BASE + 4)
    assert is_full(index)
    index.maybe_append(300, BASE + 6, skip_full_check=True)
    assert times(index) == [(100, 1), (200, 4), (300, 6)]
    index.maybe_append(300, BASE + 6, skip_full_check=True)
    with pytest.raises(IndexFullError):
        index.maybe_append(400, BASE + 8, skip_full_check=True)
    assert times(index) == [(100, 1), (200, 4), (300, 6)]
    assert index.last == TimestampOffset(300, BASE + 6)


def test_the_room_for_the_last_entry_is_not_taken_by_another(disk: Disk) -> None:
    index = time_index(disk, 3 * 12)
    for timestamp, relative in ((100, 1), (200, 4)):
        index.maybe_append(timestamp, BASE + relative)
    with pytest.raises(IndexFullError):
        index.maybe_append(300, BASE + 6)
    assert times(index) == [(100, 1), (200, 4)]


@pytest.mark.parametrize(("offset", "left"), [(4, 1), (5, 2), (1, 0), (0, 0), (8, 3), (9, 4), (99, 4)])
@pytest.mark.parametrize("written", [True, False])
def test_the_time_index_is_truncated_by_offset_too(disk: Disk, offset: int, left: int, written: bool) -> None:
    index = with_times(disk)
    expected = times(index)[:left]
    if written:
        index.flush()
    index.truncate_to(BASE + offset)
    assert times(index) == expected
    last = expected[-1] if expected else (NO_TIMESTAMP, 0)
    assert index.last == TimestampOffset(last[0], BASE + last[1])
    index.close()
    assert content(disk, "timeindex") == b"".join(pack(">qi", *entry) for entry in expected)


def test_truncate_and_reset_drop_all_times(disk: Disk) -> None:
    index = with_times(disk)
    index.truncate()
    assert index.last == TimestampOffset(NO_TIMESTAMP, BASE)
    index.maybe_append(50, BASE + 1)
    index.reset(2 * 12)
    assert index.entry_count == 0
    index.maybe_append(10, BASE + 1)
    assert is_full(index)
    index.resize(3 * 12)
    assert not is_full(index)


def test_a_time_index_is_the_same_when_it_is_opened_again(disk: Disk) -> None:
    index = with_times(disk)
    entries = times(index)
    index.rename(disk.path("other"))
    index.rename(disk.path("timeindex"))
    index.close()
    again = time_index(disk)
    again.sanity_check()
    assert times(again) == entries
    assert again.path == disk.path("timeindex")
    again.release()
    again.delete()
    assert list(disk.files.entries(disk.root)) == []


@pytest.mark.parametrize("rest", range(1, 12))
def test_a_time_index_of_odd_length_is_corrupt(disk: Disk, rest: int) -> None:
    put(disk, "timeindex", pack(">qi", 100, 1) + bytes(rest))
    with pytest.raises(CorruptIndexError, match="not a multiple of the 12 bytes") as caught:
        time_index(disk)
    assert caught.value.position == 12


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(200, 1), (300, 2), (100, 3)], "the last timestamp 100 is smaller than the first, 200"),
        ([(100, 1), (200, -3)], "offset 47, below the segment's base offset 50"),
    ],
)
def test_a_time_index_that_disagrees_with_itself_is_corrupt(
    disk: Disk, entries: list[tuple[int, int]], reason: str
) -> None:
    put(disk, "timeindex", b"".join(pack(">qi", *entry) for entry in entries))
    index = time_index(disk)
    with pytest.raises(CorruptIndexError, match=reason) as caught:
        index.sanity_check()
    assert caught.value.position == (len(entries) - 1) * 12


@pytest.mark.parametrize("entries", [[], [(100, 0)], [(0, 0), (1, 1)], [(100, 0), (100, 1)]])
def test_small_time_indexes_are_sane(disk: Disk, entries: list[tuple[int, int]]) -> None:
    put(disk, "timeindex", b"".join(pack(">qi", *entry) for entry in entries))
    time_index(disk).sanity_check()


def test_the_zeros_that_kafka_leaves_after_a_crash_are_cut_from_the_time_index(disk: Disk) -> None:
    with_times(disk).close()
    put(disk, "timeindex", content(disk, "timeindex") + bytes(7000 * 12))
    index = time_index(disk)
    assert times(index) == [(100, 1), (200, 4), (300, 6), (400, 8)]
    assert index.last == TimestampOffset(400, BASE + 8)


# Both against a sorted dict.

OFFSETS_A_SECTION = WARM_SECTION_BYTES // 8
TIMES_A_SECTION = WARM_SECTION_BYTES // 12
BURSTS = st.sampled_from([1, 2, 50, TIMES_A_SECTION, OFFSETS_A_SECTION, 2 * OFFSETS_A_SECTION])


class IndexMachine(RuleBasedStateMachine):
    """Both indexes of a segment against a dict each, with truncations, and closed and opened in between."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk(MemoryFiles(), "")
        self.positions: dict[int, int] = {}
        self.offsets: dict[int, int] = {}
        # Where the log ends: offsets, timestamps and positions never go back below it.
        self.offset, self.timestamp, self.position = BASE - 1, 1000, 0

    @initialize()
    def create(self) -> None:
        self.open()

    def open(self) -> None:
        self.offset_index = offset_index(self.disk)
        self.time_index = time_index(self.disk)
        self.offset_index.sanity_check(1 << 30)
        self.time_index.sanity_check()

    @rule(count=BURSTS, records=st.integers(1, 5), milliseconds=st.integers(0, 3))
    def append(self, count: int, records: int, milliseconds: int) -> None:
        for _ in range(count):
            self.offset += records
            self.timestamp += milliseconds
            self.position += 100
            self.offset_index.append(self.offset, self.position)
            self.positions[self.offset] = self.position
            self.time_index.maybe_append(self.timestamp, self.offset)
            self.offsets.setdefault(self.timestamp, self.offset)

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def truncate_to(self, data: st.DataObject) -> None:
        near_the_end = st.integers(max(BASE, self.offset - 30), self.offset + 3)
        offset = data.draw(near_the_end | st.integers(BASE - 2, self.offset + 3))
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.positions = {key: value for key, value in self.positions.items() if key < offset}
        self.offsets = {key: value for key, value in self.offsets.items() if value < offset}

    @rule()
    def flush(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()

    @rule()
    def release(self) -> None:
        self.offset_index.release()
        self.time_index.release()

    @rule()
    def reopen(self) -> None:
        self.offset_index.close()
        self.time_index.close()
        assert content(self.disk, "index") == b"".join(
            pack(">ii", offset - BASE, position) for offset, position in self.positions.items()
        )
        assert content(self.disk, "timeindex") == b"".join(
            pack(">qi", timestamp, offset - BASE) for timestamp, offset in self.offsets.items()
        )
        self.open()

    @rule(share=st.floats(-0.1, 1.1), size=st.sampled_from([0, 1, 99, 100, 101]) | st.integers(0, 100_000))
    def search(self, share: float, size: int) -> None:
        keys = list(self.positions)
        target = BASE + int(share * (self.offset - BASE))
        slot = bisect_right(keys, target) - 1
        expected = OffsetPosition(keys[slot], self.positions[keys[slot]]) if slot >= 0 else OffsetPosition(BASE, 0)
        found = self.offset_index.lookup(target)
        assert found == expected
        self.check_upper_bound(found, size, keys)
        timestamps = list(self.offsets)
        moment = 1000 + int(share * (self.timestamp - 1000))
        slot = bisect_right(timestamps, moment) - 1
        assert self.time_index.lookup(moment) == (
            (timestamps[slot], self.offsets[timestamps[slot]]) if slot >= 0 else (NO_TIMESTAMP, BASE)
        )

    def check_upper_bound(self, found: OffsetPosition, size: int, keys: list[int]) -> None:
        slot = bisect_left(list(self.positions.values()), found.position + size)
        expected = OffsetPosition(keys[slot], self.positions[keys[slot]]) if slot < len(keys) else None
        assert self.offset_index.fetch_upper_bound(found, size) == expected

    @invariant()
    def same_ends(self) -> None:
        assert self.offset_index.entry_count == len(self.positions)
        assert self.offset_index.last_offset == max(self.positions, default=BASE)
        assert self.time_index.entry_count == len(self.offsets)
        last = max(self.offsets, default=NO_TIMESTAMP)
        assert self.time_index.last == (last, self.offsets.get(last, BASE))


IndexMachine.TestCase.settings = settings(settings.get_profile("ci"), max_examples=50, stateful_step_count=20)
TestIndexMachine = IndexMachine.TestCase
