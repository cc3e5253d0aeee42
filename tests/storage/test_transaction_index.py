"""TransactionIndex: which aborted transactions touch a range, what truncation leaves, and damage with its position."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.files import OsFiles, read_whole, write_whole
from barnabas.storage.index import CorruptIndexError
from barnabas.storage.transaction_index import ABORTED_ENTRY, AbortedTransaction, TransactionIndex, decode_aborted
from tests.storage.conftest import Disk
from tests.storage.memory_files import SYNCED_ONLY, MemoryFiles

PATH = "/data/00000000000000000100.txnindex"
BASE_OFFSET = 100

#         producer, first, last, last stable offset when it ended
FIRST = AbortedTransaction(1, 110, 130, 120)
SECOND = AbortedTransaction(2, 120, 140, 141)
THIRD = AbortedTransaction(1, 150, 160, 161)


def index_of(files: MemoryFiles, *aborted: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(files, PATH, BASE_OFFSET)
    for entry in aborted:
        index.append(entry)
    return index


def reopened(files: MemoryFiles) -> TransactionIndex:
    return TransactionIndex(files, PATH, BASE_OFFSET)


def test_there_is_no_file_before_a_transaction_aborts(memory_files: MemoryFiles) -> None:
    index = index_of(memory_files)
    assert index.entries() == []
    assert index.collect(0, 1000) == ([], False)
    index.truncate_to(0)
    index.flush()
    index.delete()
    assert not memory_files.exists(PATH)


def test_entries_have_kafka_s_bytes_and_are_found_again(disk: Disk) -> None:
    path = disk.path("00000000000000000100.txnindex")
    index = TransactionIndex(disk.files, path, BASE_OFFSET)
    index.append(FIRST)
    index.append(SECOND)
    expected = struct.pack(">hqqqq", 0, 1, 110, 130, 120) + struct.pack(">hqqqq", 0, 2, 120, 140, 141)
    assert read_whole(disk.files, path) == expected
    assert TransactionIndex(disk.files, path, BASE_OFFSET).entries() == [FIRST, SECOND]


def test_entries_that_were_reopened_are_appended_to(memory_files: MemoryFiles) -> None:
    index_of(memory_files, FIRST)
    reopened(memory_files).append(SECOND)
    assert reopened(memory_files).entries() == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "found", "is_complete"),
    [
        (100, 105, [], True),
        (100, 110, [], True),
        (100, 111, [FIRST], True),
        (100, 121, [FIRST, SECOND], True),
        (131, 141, [SECOND], True),
        (130, 131, [FIRST, SECOND], True),
        (141, 150, [], True),
        (141, 151, [THIRD], True),
        (161, 200, [], False),
        (0, 1000, [FIRST, SECOND, THIRD], False),
    ],
)
def test_the_transactions_that_touch_a_range_are_collected(
    memory_files: MemoryFiles, start_offset: int, end_offset: int, found: list[AbortedTransaction], is_complete: bool
) -> None:
    index = index_of(memory_files, FIRST, SECOND, THIRD)
    assert index.collect(start_offset, end_offset) == (found, is_complete)


@pytest.mark.parametrize(
    ("offset", "kept"), [(0, 0), (130, 0), (131, 1), (140, 1), (141, 2), (160, 2), (161, 3), (1000, 3)]
)
def test_truncation_keeps_the_transactions_that_ended_before(memory_files: MemoryFiles, offset: int, kept: int) -> None:
    index = index_of(memory_files, FIRST, SECOND, THIRD)
    index.truncate_to(offset)
    assert index.entries() == [FIRST, SECOND, THIRD][:kept]
    assert len(read_whole(memory_files, PATH)) == kept * ABORTED_ENTRY.size
    index.append(AbortedTransaction(9, 200, 210, 211))
    assert len(reopened(memory_files).entries()) == kept + 1


def test_a_reset_index_starts_anew(memory_files: MemoryFiles) -> None:
    index = index_of(memory_files, FIRST, SECOND)
    index.reset()
    assert not memory_files.exists(PATH)
    index.append(FIRST)
    assert reopened(memory_files).entries() == [FIRST]


def test_a_renamed_index_goes_on_under_its_new_name(memory_files: MemoryFiles) -> None:
    index = index_of(memory_files, FIRST)
    index.rename(PATH + ".deleted")
    assert not memory_files.exists(PATH)
    assert index.entries() == [FIRST]
    index.delete()
    assert not memory_files.exists(PATH + ".deleted")


def test_renaming_an_index_without_a_file_makes_none(memory_files: MemoryFiles) -> None:
    index = index_of(memory_files)
    index.rename(PATH + ".deleted")
    assert index.path == PATH + ".deleted"
    assert not memory_files.exists(PATH + ".deleted")


def test_what_was_flushed_outlives_a_power_cut(memory_files: MemoryFiles) -> None:
    index = index_of(memory_files, FIRST)
    index.flush()
    memory_files.sync_directory("/data")
    index.append(SECOND)
    assert reopened(memory_files.crash(SYNCED_ONLY)).entries() == [FIRST]


def test_a_write_that_failed_is_written_over(memory_files: MemoryFiles) -> None:
    index = index_of(memory_files, FIRST)
    memory_files.fail_next_write(after_bytes=10)
    with pytest.raises(OSError, match="No space"):
        index.append(SECOND)
    assert index.entries() == [FIRST]
    index.append(SECOND)
    assert reopened(memory_files).entries() == [FIRST, SECOND]


# Damage.


def packed(*aborted: AbortedTransaction) -> bytes:
    return b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in aborted)


@pytest.mark.parametrize(
    ("data", "position", "words"),
    [
        (packed(FIRST)[:-1], 0, "33 bytes"),
        (packed(FIRST) + b"\x00", 34, "35 bytes"),
        (packed(FIRST) + ABORTED_ENTRY.pack(1, *SECOND), 34, "version 1"),
        (packed(FIRST, FIRST), 34, "130 does not lie after 130"),
        (packed(SECOND, FIRST), 34, "130 does not lie after 140"),
        (packed(FIRST, SECOND) + bytes(34), 68, "0 does not lie after 140"),
        (packed(AbortedTransaction(1, 0, 99, 100)), 0, "99 does not lie after 99"),
        (b"\xff" * 34, 0, "version -1"),
    ],
)
def test_damage_has_path_and_position(memory_files: MemoryFiles, data: bytes, position: int, words: str) -> None:
    write_whole(memory_files, PATH, data)
    with pytest.raises(CorruptIndexError, match=words) as caught:
        reopened(memory_files).entries()
    assert (caught.value.path, caught.value.position) == (PATH, position)


def test_what_lies_before_the_damage_is_yielded() -> None:
    found = []
    with pytest.raises(CorruptIndexError):
        for aborted in decode_aborted(packed(FIRST, SECOND) + b"rest", PATH, BASE_OFFSET):
            found.append(aborted)
    assert found == [FIRST, SECOND]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(1, 10)), max_size=12), st.data())
def test_the_index_agrees_with_a_list(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    files = MemoryFiles()
    files.make_directory("/data")
    index = TransactionIndex(files, PATH, BASE_OFFSET)
    model: list[AbortedTransaction] = []
    last_offset = BASE_OFFSET
    for producer_id, length, distance in rows:
        last_offset += distance
        aborted = AbortedTransaction(producer_id, last_offset - length, last_offset, last_offset + 1)
        index.append(aborted)
        model.append(aborted)
    cut = data.draw(st.integers(BASE_OFFSET, last_offset + 2))
    index.truncate_to(cut)
    model = [aborted for aborted in model if aborted.last_offset < cut]
    assert index.entries() == TransactionIndex(files, PATH, BASE_OFFSET).entries() == model
    start, end = sorted((data.draw(st.integers(90, 240)), data.draw(st.integers(90, 240))))
    found, _ = index.collect(start, end)
    # Whatever was left out ended after a transaction that had started behind the range.
    assert found == [aborted for aborted in model if aborted in found]
    before_end = [aborted for aborted in model if aborted.last_offset < end]
    assert [it for it in before_end if it.last_offset >= start and it.first_offset < end] == [
        it for it in found if it.last_offset < end
    ]


def test_a_file_that_is_too_large_is_damaged_and_not_read(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000100.txnindex")
    OsFiles().open(path, writable=True).truncate(3 * 2**30)
    with pytest.raises(CorruptIndexError, match="position 0: the file has 3221225472 bytes"):
        TransactionIndex(OsFiles(), path, BASE_OFFSET).entries()
