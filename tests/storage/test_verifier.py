"""The verifier's own words: what it sees of a sound log, how it tells of progress, and which folders it looks at.

Every kind of fault, with path, position and reason, is in tests/cli/test_verify.py, where people meet them.
"""

import struct

import pytest

from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from barnabas.storage.files import write_whole
from barnabas.storage.loader import LastKnown
from barnabas.storage.verifier import Fault, partition_folders, segment_base_offsets, verify_partition
from tests.records.message_sets import build_message_set
from tests.storage.builders import NOW_MS, batch_of, marker_of, with_fields
from tests.storage.building import a_log, fill, records
from tests.storage.memory_files import MemoryFiles

FOLDER = "/data/orders-0"


def checked(files: MemoryFiles, *, is_clean: bool = True) -> tuple[list[Fault], list[tuple[int, int, int]]]:
    faults: list[Fault] = []
    seen = list(verify_partition(files, FOLDER, faults.append, is_clean=is_clean))
    return faults, [(one.batches, one.records, one.next_offset) for one in seen]


def test_a_sound_log_is_counted_segment_by_segment(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER, segment_bytes=300, index_interval_bytes=0)
    fill(log, 5)
    log.close()
    assert segment_base_offsets(memory_files, FOLDER) == [0, 6, 12]
    assert checked(memory_files) == ([], [(2, 6, 6), (2, 6, 12), (1, 3, 15)])


def test_aborted_transactions_and_leader_epochs_are_held_against_the_log(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER)
    for sequence, epoch in ((0, 1), (2, 4)):
        batch = records(2, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_as_leader(batch, epoch)
        log.append_as_leader(marker_of(7, commit=False), epoch, is_client=False)
    log.close()
    assert checked(memory_files) == ([], [(4, 6, 6)])


def test_after_a_kill_indexes_may_be_missing(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER)
    fill(log, 2)
    log.abandon()
    assert checked(memory_files, is_clean=False) == ([], [(2, 6, 6)])
    faults, _ = checked(memory_files)
    assert [fault.reason for fault in faults if "index" in fault.path] == ["the index is missing"] * 2


def index_faults(files: MemoryFiles, *batches: bytes | bytearray, entries: list[tuple[int, int]]) -> list[Fault]:
    """What is said of an offset index beside some batches."""
    files.make_directory(FOLDER)
    write_whole(files, f"{FOLDER}/{0:020d}.log", b"".join(batches))
    write_whole(files, f"{FOLDER}/{0:020d}.index", b"".join(struct.pack(">ii", *entry) for entry in entries))
    return checked(files, is_clean=False)[0]


# Five batches: offsets 0-2, 3-5, 6-8, 9-11 and 12-14.
BATCHES = [batch_of(3, base_offset=base_offset) for base_offset in range(0, 15, 3)]
SIZE = len(BATCHES[0])


@pytest.mark.parametrize(
    "entries",
    [
        [(5, SIZE), (11, 3 * SIZE)],
        [(11, SIZE), (14, 4 * SIZE)],
        [(8, SIZE), (11, 3 * SIZE)],
        [(14, SIZE)],
        [(3, SIZE), (9, 3 * SIZE)],
    ],
    ids=["a batch", "an append of three", "appends side by side", "up to the end", "first offsets"],
)
def test_an_index_entry_may_tell_of_an_append_of_several_batches(
    memory_files: MemoryFiles, entries: list[tuple[int, int]]
) -> None:
    """Kafka before 4.0 noted the position of its first batch and the last offset of its last."""
    assert index_faults(memory_files, *BATCHES, entries=entries) == []


@pytest.mark.parametrize(
    ("entries", "slot", "reason"),
    [
        ([(10, SIZE), (14, 4 * SIZE)], 0, "the entry says offset 10, but no batch ends there"),
        ([(4, SIZE)], 0, "the entry says offset 4, but no batch ends there"),
        ([(6, SIZE)], 0, "the entry says offset 6, but no batch ends there"),
        ([(2, SIZE)], 0, "the entry says offset 2, but its batch has 3 to 5"),
        ([(11, SIZE), (14, 2 * SIZE)], 0, "the entry says offset 11, but the batches before the next entry's end at 5"),
        ([(5, SIZE), (17, 2 * SIZE)], 1, "the entry says offset 17, but the log ends at 14"),
        ([(8, SIZE + 1), (14, 4 * SIZE)], 0, f"no batch starts at position {SIZE + 1}"),
    ],
)
def test_an_index_entry_that_no_append_explains(
    memory_files: MemoryFiles, entries: list[tuple[int, int]], slot: int, reason: str
) -> None:
    [fault] = index_faults(memory_files, *BATCHES, entries=entries)
    assert (fault.path, fault.position, fault.reason) == (f"{FOLDER}/{0:020d}.index", slot * 8, reason)


def test_an_index_entry_may_name_the_last_record_that_compaction_left(memory_files: MemoryFiles) -> None:
    """Kafka before 4.0 noted that, while the batch keeps its last offset."""
    left = build_batch([Record(offset, NOW_MS, b"k", b"v", ()) for offset in (3, 5)], base_offset=3)
    batches = [BATCHES[0], with_fields(left, last_offset_delta=5), BATCHES[3]]
    assert index_faults(memory_files, *batches, entries=[(5, SIZE)]) == []
    assert index_faults(memory_files, *batches, entries=[(8, SIZE)]) == []
    [fault] = index_faults(memory_files, *batches, entries=[(7, SIZE)])
    assert fault.reason == "the entry says offset 7, but no batch ends there"


def test_an_index_entry_may_name_the_first_offset_of_a_compressed_set(memory_files: MemoryFiles) -> None:
    """So did Kafka before 0.10.1; the set itself says only its last offset."""
    rows = [(offset, NOW_MS, None, b"a") for offset in range(6)]
    sets = [build_message_set(0, rows[:3], codec=Codec.GZIP), build_message_set(0, rows[3:], codec=Codec.GZIP)]
    assert index_faults(memory_files, *sets, entries=[(3, len(sets[0]))]) == []
    assert index_faults(memory_files, *sets, entries=[(5, len(sets[0]))]) == []
    [fault] = index_faults(memory_files, *sets, entries=[(4, len(sets[0]))])
    assert fault.reason == "the entry says offset 4, but no batch ends there"


def test_a_time_entry_may_name_an_offset_some_batches_after_the_largest_time(memory_files: MemoryFiles) -> None:
    times = [NOW_MS, NOW_MS + 90, NOW_MS + 10, NOW_MS + 20, NOW_MS + 99]
    batches = [batch_of(3, base_offset=3 * slot, timestamp=time) for slot, time in enumerate(times)]
    for offset, timestamp, is_right in ((11, NOW_MS + 92, True), (5, NOW_MS + 92, True), (14, NOW_MS + 92, False)):
        entry = struct.pack(">qi", timestamp, offset)
        memory_files.make_directory(FOLDER)
        write_whole(memory_files, f"{FOLDER}/{0:020d}.timeindex", entry)
        faults = index_faults(memory_files, *batches, entries=[])
        assert [fault.path.rpartition(".")[2] for fault in faults] == ([] if is_right else ["timeindex"])


def test_every_kind_of_index_misses_its_log(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER)
    fill(log, 2)
    log.close()
    for suffix in ("index", "timeindex", "txnindex"):
        write_whole(memory_files, f"{FOLDER}/{99:020d}.{suffix}", b"")
        write_whole(memory_files, f"{FOLDER}/{98:020d}.{suffix}.deleted", b"")
    faults, _ = checked(memory_files)
    assert [str(fault) for fault in faults] == [
        f"{FOLDER}/{99:020d}.{suffix}, position 0: the index has no log file"
        for suffix in ("index", "timeindex", "txnindex")
    ]


def test_leader_epochs_are_missed_only_after_a_clean_shutdown(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER)
    fill(log, 2)
    log.close()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    memory_files.remove(path)
    assert checked(memory_files, is_clean=False)[0] == []
    assert checked(memory_files)[0] == [Fault(path, 0, "the file is missing, but batches have leader epochs up to 0")]


def test_a_log_without_leader_epochs_needs_no_file_of_them(memory_files: MemoryFiles) -> None:
    assert index_faults(memory_files, *BATCHES, entries=[(5, SIZE)]) == []
    write_whole(memory_files, f"{FOLDER}/{0:020d}.timeindex", b"")
    assert checked(memory_files)[0] == []


def test_nothing_is_written(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER)
    fill(log, 2)
    log.abandon()
    memory_files.open(log.segments.last.path, writable=True).write_at(b"torn", log.segments.last.size)
    steps = memory_files.steps
    [fault] = [fault for fault in checked(memory_files)[0] if fault.path.endswith(".log")]
    assert (fault.position, fault.reason) == (
        log.segments.last.size,
        "only 4 bytes are left, which is too few for a batch",
    )
    assert memory_files.steps == steps
    assert a_log(memory_files, FOLDER, LastKnown()).log_end_offset == 6


def test_progress_adds_up_to_the_bytes(memory_files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.storage.verifier.ADVANCE_BYTES", 100)
    log = a_log(memory_files, FOLDER, segment_bytes=500)
    fill(log, 9)
    log.close()
    told: list[tuple[str, int]] = []
    list(verify_partition(memory_files, FOLDER, lambda _: None, advance=lambda path, size: told.append((path, size))))
    assert sum(size for _, size in told) == log.size_bytes
    assert len(told) > len(log.segments)


def test_only_folders_of_partitions_are_looked_at(memory_files: MemoryFiles) -> None:
    a_log(memory_files, FOLDER).close()
    suffix = "0123456789abcdef" * 2
    for name in (
        f"orders-1.{suffix}-delete",
        f"orders-2.{suffix}-stray",
        f"orders-3.{suffix}-future",
        "lost+found",
        "x",
    ):
        memory_files.make_directory(f"/data/{name}")
    faults: list[Fault] = []
    assert partition_folders(memory_files, "/data", faults.append) == [FOLDER]
    assert [(fault.path, fault.reason) for fault in faults] == [
        ("/data/x", "the folder's name is not that of a partition")
    ]
    assert partition_folders(memory_files, FOLDER, faults.append) == [FOLDER]
