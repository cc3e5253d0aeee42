"""The verifier's own words: what it sees of a sound log, how it tells of progress, and which folders it looks at.

Every kind of fault, with path, position and reason, is in tests/cli/test_verify.py, where people meet them.
"""

import pytest

from barnabas.storage.loader import LastKnown
from barnabas.storage.verifier import Fault, partition_folders, segment_base_offsets, verify_partition
from tests.storage.builders import marker_of
from tests.storage.building import a_log, fill, records
from tests.storage.memory_files import MemoryFiles

FOLDER = "/data/orders-0"


def checked(files: MemoryFiles, *, expect_indexes: bool = True) -> tuple[list[Fault], list[tuple[int, int, int]]]:
    faults: list[Fault] = []
    seen = list(verify_partition(files, FOLDER, faults.append, expect_indexes=expect_indexes))
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
    assert checked(memory_files, expect_indexes=False) == ([], [(2, 6, 6)])
    faults, _ = checked(memory_files)
    assert [fault.reason for fault in faults] == ["the index is missing"] * 2


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
    assert partition_folders(memory_files, "/data", faults.append) == [FOLDER, f"/data/orders-3.{suffix}-future"]
    assert [(fault.path, fault.reason) for fault in faults] == [
        ("/data/x", "the folder's name is not that of a partition")
    ]
    assert partition_folders(memory_files, FOLDER, faults.append) == [FOLDER]
