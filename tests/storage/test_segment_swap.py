"""The renames that put a cleaned segment in place; crashes between them are in `cleaner/test_model`."""

import errno

import pytest

from barnabas.storage.segment import LogSegment
from barnabas.storage.segment_swap import are_current, remove_cleaned
from tests.storage.builders import NOW_MS, open_log
from tests.storage.building import bases, consume, fill
from tests.storage.cleaner.cleaning_words import clean
from tests.storage.memory_files import MemoryFiles

FOLDER = "/data/orders-0"


def test_the_order_of_the_renames(memory_files: MemoryFiles) -> None:
    """The data is the last to become `.swap`, which decides, and the first to get its name."""
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",))
    fill(log, 3)
    log.roll()
    log.flush()
    clean(log, memory_files, NOW_MS)
    stem = f"{FOLDER}/00000000000000000000"
    renames = [step.split()[1:] for step in memory_files.performed if step.startswith("rename ") and stem in step]
    expected = [
        (".timeindex.cleaned", ".timeindex.swap"),
        (".index.cleaned", ".index.swap"),
        (".log.cleaned", ".log.swap"),
        (".log", ".log.deleted"),
        (".index", ".index.deleted"),
        (".timeindex", ".timeindex.deleted"),
        (".log.swap", ".log"),
        (".index.swap", ".index"),
        (".timeindex.swap", ".timeindex"),
    ]
    assert [tuple(names) for names in renames] == [(stem + old, stem + new) for old, new in expected]


@pytest.mark.parametrize("before_it", range(9))
def test_a_rename_that_fails(memory_files: MemoryFiles, before_it: int) -> None:
    """Before the first step is done everything is as it was; after it only a start can finish the swap."""
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",))
    fill(log, 3)
    log.roll()
    log.flush()
    renames = 0

    def count() -> None:
        nonlocal renames
        if memory_files.performed and memory_files.performed[-1].startswith(f"rename {FOLDER}/{0:020d}"):
            renames += 1
            if renames == before_it:
                memory_files.fail("rename", code=errno.ENOSPC)

    if before_it == 0:
        memory_files.fail("rename", code=errno.ENOSPC)
    memory_files.before_step = count
    with pytest.raises(OSError) as caught:
        clean(log, memory_files, NOW_MS)
    memory_files.before_step = lambda: None
    is_undone = before_it < 3
    assert caught.value.errno == (errno.ENOSPC if is_undone else errno.EIO)
    if is_undone:
        assert [record.offset for record in consume(log, 0)] == [*range(9)]
        assert not [name for name in memory_files.names(FOLDER) if name.endswith((".swap", ".cleaned"))]
        assert clean(log, memory_files, NOW_MS) is not None
        assert [record.offset for record in consume(log, 0)] == [6, 7, 8]
    log.abandon()
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",))
    log.high_watermark_to_end()
    assert [record.offset for record in consume(log, 0)] == [6, 7, 8]


def test_a_reader_in_the_middle_reads_on(memory_files: MemoryFiles) -> None:
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",))
    fill(log, 5)
    log.roll()
    log.flush()
    info = log.read(3, 1, log.high_watermark, min_one_message=True)
    assert info.records is not None
    before = info.records.file.read_at(info.records.size, info.records.position)
    clean(log, memory_files, NOW_MS)
    assert info.records.file.read_at(info.records.size, info.records.position) == before
    for offset in range(16):
        assert [record.offset for record in consume(log, offset)] == [it for it in (12, 13, 14) if it >= offset]


def test_the_high_watermark_and_the_next_flush_know_the_new_segment(memory_files: MemoryFiles) -> None:
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",), segment_bytes=300)
    fill(log, 8)
    log.roll()
    log.flush()
    clean(log, memory_files, NOW_MS)
    assert log.high_watermark == log.log_end
    fill(log, 2)
    log.flush()
    assert log.recovery_point == log.log_end_offset == 30
    assert [record.offset for record in consume(log, 0)] == [*range(21, 30)]


def test_only_segments_that_are_still_there_and_closed_are_current(memory_files: MemoryFiles) -> None:
    log = open_log(memory_files, FOLDER, segment_bytes=300)
    fill(log, 8)
    first, second, third, *_, last = log.segments
    sizes = [first.size, second.size]
    assert are_current(log, [first, second], sizes)
    assert not are_current(log, [first, third], [first.size, third.size])
    assert not are_current(log, [first, second], [first.size, second.size + 1])
    assert not are_current(log, [last], [last.size])
    copy = LogSegment(log._segment_options, 0, NOW_MS)
    copy.size = first.size
    assert not are_current(log, [copy], [first.size])
    log.abandon()
    assert not are_current(log, [first, second], sizes)


def test_what_is_not_wanted_is_removed(memory_files: MemoryFiles) -> None:
    log = open_log(memory_files, FOLDER)
    for kind in (".log", ".index", ".txnindex"):
        memory_files.open(f"{FOLDER}/00000000000000000007{kind}.cleaned", writable=True).close()
    remove_cleaned(memory_files, FOLDER, [0, 7])
    assert not [name for name in memory_files.names(FOLDER) if ".cleaned" in name]
    assert bases(log) == [0]


def test_snapshots_of_segments_that_are_joined_go(memory_files: MemoryFiles) -> None:
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",), segment_bytes=300)
    fill(log, 6)
    log.roll()
    log.flush()
    for _ in range(2):
        clean(log, memory_files, NOW_MS)
        fill(log, 1)
        log.roll()
        log.flush()
    snapshots = {int(name[:20]) for name in memory_files.names(FOLDER) if name.endswith(".snapshot")}
    assert len(log.segments) < 5
    assert snapshots <= set(bases(log))


@pytest.mark.parametrize("suffix", [".swap", ".cleaned"])
def test_an_empty_segment_that_was_swapped_takes_its_place_at_the_next_start(
    memory_files: MemoryFiles, suffix: str
) -> None:
    """Nothing was left of the segment, so that only its name says what it replaces."""
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",), segment_bytes=300)
    fill(log, 6)
    log.flush()
    log.abandon()
    for kind in (".log", ".index", ".timeindex"):
        memory_files.open(f"{FOLDER}/{0:020d}{kind}{suffix}", writable=True).close()
    memory_files.open(f"{FOLDER}/{0:020d}.txnindex", writable=True).close()
    log = open_log(memory_files, FOLDER, cleanup_policy=("compact",), segment_bytes=300)
    log.high_watermark_to_end()
    second = log.segments.higher(0)
    assert second is not None
    assert consume(log, 0)[0].offset == (0 if suffix == ".cleaned" else second.base_offset)
