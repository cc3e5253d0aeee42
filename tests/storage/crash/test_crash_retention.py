"""Retention on a disk that stops at the k-th change, for every k: the log that is found has no hole, and verifies."""

from collections.abc import Callable

import pytest

from barnabas.config import LogConfig
from barnabas.storage.segment import LogSegment
from barnabas.storage.verifier import Fault, verify_partition
from tests.storage.crash.history import DIRECTORY, History, check_log, open_log
from tests.storage.memory_files import KEEPS, DiskStoppedError, Keep, MemoryFiles

CONFIG = LogConfig(segment_bytes=9_000, index_interval_bytes=150)


def written(history: History) -> None:
    """Four segments, with producers and transactions in them, of which the last two are not flushed."""
    history.open()
    for number in range(4):
        history.append(2, producer_id=7)
        history.append(1, producer_id=9, is_transactional=True)
        history.leader_epoch = number // 2
        history.append(2, size=60)
        history.end_transaction(9, commit=number % 2 == 0)
        if number == 1:
            history.flush()
        if number < 3:
            history.log.roll()
    history.log.update_high_watermark(history.log.log_end_offset)


def take(history: History, offset: int) -> list[LogSegment]:
    """Let the segments go that end at an offset or before."""
    history.deleted_to = offset
    return history.log.delete_old_segments(lambda _, end_offset: end_offset <= offset)


def sealed_segments_go(history: History) -> None:
    """Two segments, and then one more, whose files are removed later, between appends."""
    written(history)
    bases = [segment.base_offset for segment in history.log.segments]
    gone = take(history, bases[2])
    assert len(gone) == 2
    history.append(1, producer_id=7)
    gone += take(history, bases[3])
    for segment in gone:
        segment.delete()
    history.flush()
    history.append(3)
    history.close()


def everything_goes(history: History) -> None:
    """The active segment too, and the log goes on in a new one."""
    written(history)
    history.flush()
    gone = take(history, history.log.log_end_offset)
    assert len(gone) == 4
    history.append(1, producer_id=7)
    for segment in gone:
        segment.delete()
    history.flush()
    history.close()


SCRIPTS = {"sealed": sealed_segments_go, "everything": everything_goes}


def run(script: Callable[[History], None], stop_at_step: int | None = None) -> tuple[MemoryFiles, History]:
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_everything()
    files.stop_at_step = stop_at_step
    history = History(files=files, config=CONFIG)
    try:
        script(history)
    except DiskStoppedError:
        assert stop_at_step is not None
    return files, history


def faults_of(files: MemoryFiles) -> list[Fault]:
    faults: list[Fault] = []
    for _ in verify_partition(files, DIRECTORY, faults.append):
        pass
    return faults


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("keep", KEEPS, ids=str)
def test_a_crash_in_the_middle_of_a_deletion_leaves_a_log_without_a_hole(script: str, keep: Keep) -> None:
    performed = run(SCRIPTS[script])[0].performed
    first = next(number for number, step in enumerate(performed, 1) if ".deleted" in step)
    for step in range(first, len(performed) + 1):
        stopped, history = run(SCRIPTS[script], step)
        files = stopped.crash(keep)
        try:
            log = open_log(files, CONFIG, history.last_known)
            check_log(log, files, history)
            assert not [name for name in files.contents() if name.endswith(".deleted")]
            ends = [segment.base_offset for segment in log.segments][1:]
            assert all(it.next_offset() == end for it, end in zip(log.segments, ends, strict=False))
            log.close()
            assert faults_of(files) == []
        except Exception as error:
            error.add_note(f"stopped at step {step}, {performed[step - 1]}, keeping {keep}")
            raise


def test_what_a_crash_brought_back_goes_again() -> None:
    """Names that were not synced come back with a power cut; the next run finds the same segments as old as before."""
    files, history = run(sealed_segments_go, _first_deletion() + 3)
    found = files.crash(KEEPS[1])
    log = open_log(found, CONFIG, history.last_known)
    log.update_high_watermark(log.log_end_offset)
    before = [segment.base_offset for segment in log.segments]
    assert before[0] == 0
    assert [segment.base_offset for segment in log.delete_old_segments(lambda _, end: end <= before[1])] == [0]
    assert log.log_start_offset == before[1]


def _first_deletion() -> int:
    performed = run(sealed_segments_go)[0].performed
    return next(number for number, step in enumerate(performed, 1) if ".deleted" in step)
