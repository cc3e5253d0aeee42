"""IndexFile: entries in memory, in the file and in a map give one answer, whatever lies where."""

import errno
from struct import Struct

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.storage.files import read_whole
from barnabas.storage.index_file import WARM_SECTION_BYTES, IndexFile, IndexFullError
from tests.storage.conftest import Disk
from tests.storage.memory_files import MemoryFiles

ENTRY = Struct(">ii")
KEY = Struct(">i")
LARGE = 1 << 20

# Where an entry moves from one place to the next: the warm section, and the memory that is written out at twice that.
WARM = WARM_SECTION_BYTES // ENTRY.size
TRIMMED_AT = 2 * WARM


def new_index(disk: Disk, size_bytes_max: int = LARGE) -> IndexFile:
    index = IndexFile(disk.files, disk.path("index"), ENTRY, KEY)
    index.open(0, size_bytes_max)
    return index


def reopened(disk: Disk, index: IndexFile, size_bytes_max: int = LARGE) -> IndexFile:
    index.close()
    found = IndexFile(disk.files, index.path, ENTRY, KEY)
    found.open(disk.files.open(index.path).size(), size_bytes_max)
    return found


def fill(index: IndexFile, count: int) -> None:
    """Append entries with the even keys 0, 2, 4 and so on."""
    for number in range(index.count, index.count + count):
        index.append(ENTRY.pack(2 * number, number))


def check_all(index: IndexFile, count: int) -> None:
    """Check an index made by `fill`: every slot, and every search, between the keys as well."""
    assert index.count == count
    assert [index.at(slot) for slot in range(count)] == [(2 * number, number) for number in range(count)]
    for target in range(-2, 2 * count + 2):
        assert index.last_at_most(target) == min(target // 2, count - 1) if target >= 0 else -1
    assert index.last_at_most(2**40) == count - 1


def file_content(disk: Disk) -> bytes:
    return read_whole(disk.files, disk.path("index"))


def content_of(count: int) -> bytes:
    return b"".join(ENTRY.pack(2 * number, number) for number in range(count))


SIZES = [0, 1, 2, WARM - 1, WARM, WARM + 1, TRIMMED_AT - 1, TRIMMED_AT, TRIMMED_AT + 1, TRIMMED_AT + WARM, 4 * WARM + 3]


@pytest.mark.parametrize("count", SIZES)
def test_every_entry_is_found_wherever_it_lies(disk: Disk, count: int) -> None:
    index = new_index(disk)
    fill(index, count)
    check_all(index, count)
    index = reopened(disk, index)
    check_all(index, count)
    fill(index, 3)
    check_all(index, count + 3)


@pytest.mark.parametrize("count", SIZES)
def test_the_file_is_as_long_as_the_entries(disk: Disk, count: int) -> None:
    index = new_index(disk)
    fill(index, count)
    index.close()
    assert file_content(disk) == content_of(count)
    index.close()
    assert file_content(disk) == content_of(count)


@pytest.mark.parametrize("left", [0, 1, WARM - 1, WARM, WARM + 1, TRIMMED_AT - 1, TRIMMED_AT + 5])
@pytest.mark.parametrize("count", [TRIMMED_AT + 10, 4 * WARM])
def test_truncate_keeps_the_first_entries(disk: Disk, count: int, left: int) -> None:
    index = new_index(disk)
    fill(index, count)
    index.last_at_most(0)
    index.truncate(left)
    check_all(index, left)
    fill(index, 5)
    check_all(index, left + 5)
    check_all(reopened(disk, index), left + 5)
    assert file_content(disk) == content_of(left + 5)


def test_truncating_to_more_than_there_is_changes_nothing(disk: Disk) -> None:
    index = new_index(disk)
    fill(index, 5)
    index.truncate(5)
    index.truncate(99)
    check_all(index, 5)


def test_a_map_does_not_hide_what_was_written_since(disk: Disk) -> None:
    index = new_index(disk)
    fill(index, TRIMMED_AT)
    assert index.last_at_most(0) == 0, "this maps the file"
    fill(index, 4 * WARM)
    check_all(index, TRIMMED_AT + 4 * WARM)


def test_release_only_costs_the_next_search_a_new_map(disk: Disk) -> None:
    index = new_index(disk)
    fill(index, TRIMMED_AT)
    index.last_at_most(0)
    index.release()
    check_all(index, TRIMMED_AT)


def test_a_full_index_refuses_an_entry_and_stays_as_it_is(disk: Disk) -> None:
    index = new_index(disk, 3 * ENTRY.size + 7)
    fill(index, 3)
    with pytest.raises(IndexFullError, match="is full with 3 entries"):
        fill(index, 1)
    check_all(index, 3)
    index.resize(4 * ENTRY.size)
    fill(index, 1)
    check_all(reopened(disk, index), 4)


def test_an_index_that_has_more_than_now_fits_is_full_and_readable(disk: Disk) -> None:
    index = new_index(disk)
    fill(index, 5)
    index = reopened(disk, index, 2 * ENTRY.size)
    check_all(index, 5)
    with pytest.raises(IndexFullError):
        fill(index, 1)


def test_rename_takes_along_what_waits_in_memory(disk: Disk) -> None:
    index = new_index(disk)
    fill(index, 3)
    index.rename(disk.path("other"))
    assert index.path == disk.path("other")
    assert not disk.files.exists(disk.path("index"))
    fill(index, TRIMMED_AT)
    check_all(reopened(disk, index), TRIMMED_AT + 3)


def test_an_empty_index_is_a_file_once_it_is_closed_or_renamed(disk: Disk) -> None:
    index = new_index(disk)
    index.rename(disk.path("other"))
    assert disk.files.exists(disk.path("other"))
    new_index(disk).close()
    assert file_content(disk) == b""


def test_delete_removes_the_file_also_when_there_is_none(disk: Disk) -> None:
    index = new_index(disk)
    index.delete()
    fill(index, 3)
    index.close()
    index.delete()
    assert not disk.files.exists(disk.path("index"))


def test_entries_wait_in_memory_until_they_are_many(memory_files: MemoryFiles) -> None:
    index = new_index(Disk(memory_files, "/data"))
    before = memory_files.steps
    fill(index, TRIMMED_AT - 1)
    assert memory_files.steps == before
    fill(index, 1)
    assert memory_files.performed[before:] == ["create /data/index", f"write /data/index 0+{2 * WARM_SECTION_BYTES}"]


def test_near_the_end_no_search_looks_at_the_file(memory_files: MemoryFiles) -> None:
    index = new_index(Disk(memory_files, "/data"))
    fill(index, TRIMMED_AT)
    memory_files.fail_directory("/data")
    for slot in range(TRIMMED_AT - WARM, TRIMMED_AT):
        assert index.last_at_most(2 * slot) == slot
        assert index.at(slot) == (2 * slot, slot)


def test_flushed_entries_are_durable(memory_files: MemoryFiles) -> None:
    index = new_index(Disk(memory_files, "/data"))
    fill(index, 3)
    index.write_out(sync=True)
    assert memory_files.performed[-1] == "sync /data/index"


# Zeros at the end.


@pytest.mark.parametrize("zeros", [0, 1, 2, 700])
@pytest.mark.parametrize("count", [0, 1, 2, WARM, TRIMMED_AT + 1])
def test_a_tail_of_zeros_is_cut(disk: Disk, count: int, zeros: int) -> None:
    entries = b"".join(ENTRY.pack(2 * number + 1, number) for number in range(count))
    file = disk.files.open(disk.path("index"), writable=True)
    file.write_at(entries + bytes(zeros * ENTRY.size), 0)
    index = IndexFile(disk.files, disk.path("index"), ENTRY, KEY)
    index.open(file.size(), LARGE)
    index.cut_zero_tail()
    if (count, zeros) == (0, 1):
        # A single entry may be a true one: the first offset, at the beginning of time.
        entries = bytes(ENTRY.size)
    assert index.count * ENTRY.size == len(entries)
    assert file_content(disk) == entries


def test_a_first_entry_of_zeros_is_kept_when_others_follow(disk: Disk) -> None:
    index = new_index(disk)
    fill(index, 3)
    index = reopened(disk, index)
    index.cut_zero_tail()
    check_all(index, 3)


# A disk that is full.


def test_a_failed_write_leaves_the_entries_in_memory(memory_files: MemoryFiles) -> None:
    disk = Disk(memory_files, "/data")
    index = new_index(disk)
    fill(index, 10)
    memory_files.fail_next_write(after_bytes=13)
    with pytest.raises(OSError) as caught:
        index.write_out()
    assert caught.value.errno == errno.ENOSPC
    check_all(index, 10)
    check_all(reopened(disk, index), 10)


@pytest.mark.parametrize("after_bytes", [0, 13, 8 * ENTRY.size])
def test_what_a_failed_write_left_does_not_come_back_after_a_truncation(
    memory_files: MemoryFiles, after_bytes: int
) -> None:
    disk = Disk(memory_files, "/data")
    index = new_index(disk)
    fill(index, 10)
    memory_files.fail_next_write(after_bytes=after_bytes)
    with pytest.raises(OSError):
        index.write_out()
    index.truncate(1)
    index.close()
    assert file_content(disk) == content_of(1)


def test_an_entry_that_could_not_be_written_can_be_taken_back(memory_files: MemoryFiles) -> None:
    """So does a segment whose append failed: it truncates its index to what it was."""
    disk = Disk(memory_files, "/data")
    index = new_index(disk)
    fill(index, TRIMMED_AT - 1)
    memory_files.fail_next_write(after_bytes=2 * WARM_SECTION_BYTES - 1)
    with pytest.raises(OSError):
        fill(index, 1)
    index.truncate(TRIMMED_AT - 1)
    check_all(index, TRIMMED_AT - 1)
    index.close()
    assert file_content(disk) == content_of(TRIMMED_AT - 1)


class IndexFileMachine(RuleBasedStateMachine):
    """An index against a list of entries, on a disk that may be full for a moment, closed and opened in between."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.entries: list[tuple[int, int]] = []

    @initialize()
    def create(self) -> None:
        self.index = IndexFile(self.files, "/index", ENTRY, KEY)
        self.index.open(0, LARGE)

    @rule(count=st.sampled_from([1, 3, 100, WARM - 1, WARM, TRIMMED_AT]), gap=st.integers(1, 3))
    def append(self, count: int, gap: int) -> None:
        for _ in range(count):
            key = (self.entries[-1][0] if self.entries else 0) + gap
            self.entries.append((key, len(self.entries)))
            self.index.append(ENTRY.pack(*self.entries[-1]))

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        count = len(self.entries)
        left = data.draw(st.integers(0, count) | st.integers(max(0, count - 10), count))
        self.index.truncate(left)
        del self.entries[left:]

    @rule()
    def write_out(self) -> None:
        self.index.write_out(sync=True)

    @rule(count=st.integers(1, 30), after_bytes=st.integers(0, 200), left=st.integers(0, 30))
    def append_to_a_full_disk(self, count: int, after_bytes: int, left: int) -> None:
        """What is written is written in part; then some of it is truncated."""
        self.append(count, 1)
        self.files.fail_next_write(after_bytes=after_bytes)
        try:
            self.index.write_out()
        except OSError as error:
            assert error.errno == errno.ENOSPC
        self.files.heal()
        self.index.truncate(max(0, len(self.entries) - left))
        del self.entries[max(0, len(self.entries) - left) :]

    @rule()
    def release(self) -> None:
        self.index.release()

    @rule(name=st.sampled_from(["/index", "/other"]))
    def rename(self, name: str) -> None:
        self.index.rename(name)

    @rule()
    def reopen(self) -> None:
        self.index.close()
        content = read_whole(self.files, self.index.path)
        assert content == b"".join(ENTRY.pack(*entry) for entry in self.entries)
        self.index = IndexFile(self.files, self.index.path, ENTRY, KEY)
        self.index.open(len(content), LARGE)
        self.index.cut_zero_tail()

    @invariant()
    def same_entries(self) -> None:
        index, entries = self.index, self.entries
        assert index.count == len(entries)
        slots = {0, 1, len(entries) // 3, len(entries) // 2, len(entries) - WARM, len(entries) - 1}
        for slot in slots & set(range(len(entries))):
            assert index.at(slot) == entries[slot]
            assert index.last_at_most(entries[slot][0]) == slot
            assert index.last_at_most(entries[slot][0] - 1) == slot - 1
        assert index.last_at_most(2**31 - 1) == len(entries) - 1


IndexFileMachine.TestCase.settings = settings(settings.get_profile("ci"), max_examples=60, stateful_step_count=20)
TestIndexFileMachine = IndexFileMachine.TestCase


# Recovery.


def test_many_entries_at_once_are_as_good_as_one_by_one(disk: Disk) -> None:
    index = new_index(disk)
    for start in range(0, 10 * (TRIMMED_AT // 3), TRIMMED_AT // 3):
        index.extend(b"".join(ENTRY.pack(2 * number, number) for number in range(start, start + TRIMMED_AT // 3)))
    for found in (index, reopened(disk, index)):
        assert found.count == 10 * (TRIMMED_AT // 3)
        assert [found.at(slot)[0] for slot in (0, 1, found.count - 1)] == [0, 2, 2 * (found.count - 1)]


def test_entries_that_find_no_room_stay_in_memory_while_that_is_allowed() -> None:
    files = MemoryFiles()
    index = IndexFile(files, "/index", ENTRY, KEY)
    index.open(0, LARGE)
    index.is_lenient = True
    files.fail("open", code=errno.ENOSPC, once=False)
    fill(index, 3 * TRIMMED_AT)
    index.close()
    assert index.last_at_most(2 * TRIMMED_AT) == TRIMMED_AT
    index.is_lenient = False
    with pytest.raises(OSError, match="No space left"):
        index.write_out(sync=True)  # A flush does not vouch for them.
    files.heal()
    index.close()
    assert len(read_whole(files, "/index")) == 3 * TRIMMED_AT * ENTRY.size


def test_another_error_is_no_reason_to_keep_entries_in_memory() -> None:
    files = MemoryFiles()
    index = IndexFile(files, "/index", ENTRY, KEY)
    index.open(0, LARGE)
    index.is_lenient = True
    files.fail("open", code=errno.EIO, once=False)
    with pytest.raises(OSError, match="Input/output"):
        fill(index, 3 * TRIMMED_AT)
    with pytest.raises(OSError, match="Input/output"):
        index.close()
