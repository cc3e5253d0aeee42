"""A log on a disk that stops at the k-th change, for every k, and then loses or tears what was not synced."""

import functools
from collections.abc import Callable

import pytest

from barnabas.config import LogConfig
from barnabas.storage.loader import LastKnown
from tests.storage.crash.history import DIRECTORY, History, check_log, open_log
from tests.storage.memory_files import (
    EVERYTHING,
    KEEPS,
    SYNCED_ONLY,
    DiskStoppedError,
    Keep,
    MemoryFiles,
    prefix,
)

CONFIG = LogConfig(segment_bytes=9_000, index_interval_bytes=150)


def everything_that_happens_to_a_log(history: History) -> None:
    """Appends of all kinds, rolls by hand and by size, flushes, deletion, truncation, and a clean end."""
    history.open()
    history.append(3)
    history.append(1, producer_id=7)
    history.append(2)
    history.flush()
    history.append(2, producer_id=9, is_transactional=True)
    history.append(1, producer_id=7)
    history.log.roll()
    history.end_transaction(9, commit=False)
    history.append(4, producer_id=11, is_transactional=True)
    history.append(1, producer_id=9, is_transactional=True)
    history.end_transaction(11, commit=True)
    for _ in range(4):
        history.append(1, size=3_000)
    history.end_transaction(9, commit=False)
    history.flush()
    history.leader_epoch = 1
    history.append(2, producer_id=7, size=100)
    history.delete_records(10)
    history.append(1, producer_id=9, is_transactional=True)
    history.log.roll()
    history.append(2, size=3_500)
    history.append(1, producer_id=7)
    history.truncate_to(history.batches[-4].base_offset)
    history.leader_epoch = 2
    history.append(3, producer_id=7, size=50)
    history.append(1, size=6_000)
    history.append(1, producer_id=9, is_transactional=True)
    history.flush()
    history.append(5, size=900)
    history.close()


def every_append_is_flushed(history: History) -> None:
    """The recovery point is always the log end, so that segments are sealed with nothing left to flush."""
    history.open()
    for _ in range(2):
        for _ in range(3):
            history.append(2, producer_id=9, is_transactional=True, size=200)
            history.flush()
        history.end_transaction(9, commit=False)
        history.flush()
        history.log.roll()
    history.append(1)
    history.flush()
    history.close()


def many_rolls_without_a_flush(history: History) -> None:
    """All that is known of three segments is in the page cache."""
    history.open()
    history.append(2)
    history.flush()
    for _ in range(3):
        history.append(2, producer_id=7)
        history.append(2, size=60)
        history.log.roll()
    history.append(1)
    history.flush()


def a_truncation_over_several_segments(history: History) -> None:
    """Whole segments go, and the one that is cut goes on with other records."""
    history.open()
    for _ in range(3):
        history.append(2, producer_id=7)
        history.append(2, size=60)
        history.append(2)
        history.flush()
        history.log.roll()
    history.append(1)
    history.flush()
    history.truncate_to(3)
    history.leader_epoch = 1
    history.append(1, size=30)
    history.flush()
    history.append(2)
    history.close()


def a_follower_that_starts_anew(history: History) -> None:
    """Everything goes, and the log goes on at a higher offset."""
    history.open()
    history.append(3, producer_id=7)
    history.log.roll()
    history.append(2)
    history.flush()
    history.start_anew_at(1_000)
    history.leader_epoch = 1
    history.append(2)
    history.flush()
    history.append(1)


Script = Callable[[History], None]

SCRIPTS: dict[str, tuple[Script, LogConfig]] = {
    "everything": (everything_that_happens_to_a_log, CONFIG),
    "preallocated": (everything_that_happens_to_a_log, LogConfig(segment_bytes=9_000, preallocate=True)),
    "always-flushed": (every_append_is_flushed, CONFIG),
    "rolls": (many_rolls_without_a_flush, CONFIG),
    "truncation": (a_truncation_over_several_segments, CONFIG),
    "anew": (a_follower_that_starts_anew, CONFIG),
}

each_script = pytest.mark.parametrize("script", SCRIPTS)
each_keep = pytest.mark.parametrize("keep", KEEPS, ids=str)


def run(script: str, stop_at_step: int | None = None, *, torn: bool = False) -> tuple[MemoryFiles, History]:
    """Run a script until it ends or the disk stops."""
    do, config = SCRIPTS[script]
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_everything()
    files.stop_at_step, files.stop_torn = stop_at_step, torn
    history = History(files=files, config=config)
    try:
        do(history)
    except DiskStoppedError:
        assert stop_at_step is not None
    return files, history


@functools.cache
def steps_of(script: str) -> list[str]:
    """Return what a script does to the disk, when nothing stops it."""
    return run(script)[0].performed


@functools.cache
def stops(script: str, *, torn: bool = False) -> list[tuple[int, MemoryFiles, History]]:
    """Return the disk as it is at every step, and at last the one of the run that was not stopped.

    Torn, it is only that of the steps that can be. A crash leaves a disk as it is, so all tests share these.
    """
    steps = steps_of(script)
    can_be_torn = [number for number, step in enumerate(steps, 1) if step.startswith(("write", "remove_tree"))]
    chosen = can_be_torn if torn else range(2, len(steps) + 2)
    return [(step, *run(script, step, torn=torn)) for step in chosen]


class Reopened:
    """Opens the logs that crashes left, and checks them. What was found like this before is not looked at again."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._seen: set[int] = set()

    def check(self, step: int, keep: Keep, files: MemoryFiles, history: History, last_known: LastKnown) -> None:
        """Check the log, and that opening it again changes nothing."""
        promises = (history.promised_end, history.leader_epoch, history.before_truncation is None)
        state = hash((*files.contents().items(), last_known, promises))
        if state in self._seen:
            return
        self._seen.add(state)
        try:
            check_log(open_log(files, history.config, last_known), files, history)
            content = comparable(files)
            check_log(open_log(files, history.config, last_known), files, history)
            assert comparable(files) == content
        except Exception as error:
            error.add_note(explained(step, self._script, keep))
            raise


def comparable(files: MemoryFiles) -> dict[str, bytes | None]:
    """Return what is on the disk, but for what a new segment has to begin with: room, and no indexes yet."""
    return {
        path: content and (content.rstrip(b"\0") if path.endswith(".log") else content)
        for path, content in files.contents().items()
        if content != b"" or not path.endswith("index")
    }


def explained(step: int, script: str, keep: Keep) -> str:
    steps = [*steps_of(script), "the end"]
    return f"stopped at step {step}, {steps[step - 1]}, keeping {keep}"


@each_keep
@each_script
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_after_a_crash_at_every_step_what_was_flushed_is_there(script: str, keep: Keep, torn: bool) -> None:
    reopened = Reopened(script)
    for step, files, history in stops(script, torn=torn):
        reopened.check(step, keep, files.crash(keep), history, history.last_known)


@each_keep
@each_script
def test_checkpoints_that_are_missing_only_make_recovery_longer(script: str, keep: Keep) -> None:
    reopened = Reopened(script)
    for step, files, history in stops(script):
        if not history.last_known.had_clean_shutdown:
            reopened.check(step, keep, files.crash(keep), history, LastKnown())


@each_script
def test_any_number_of_the_unsynced_changes_may_be_left(script: str) -> None:
    """Before a sync there are the most; a crash earlier leaves the beginning of the same ones."""
    reopened = Reopened(script)
    steps = [*steps_of(script), "sync"]
    for step, files, history in stops(script):
        if steps[step - 1].startswith("sync"):
            for count in range(len(files.pending) + 1):
                reopened.check(step, prefix(count), files.crash(prefix(count)), history, history.last_known)


@each_keep
@each_script
def test_a_crash_during_recovery_loses_nothing_either(script: str, keep: Keep) -> None:
    reopened = Reopened(script)
    step, files, history = stops(script)[len(steps_of(script)) * 2 // 3]
    recovery_step, is_finished = 0, False
    while not is_finished:
        recovery_step += 1
        found = files.crash(EVERYTHING)
        found.stop_at_step, found.stop_torn = recovery_step, True
        try:
            open_log(found, history.config, history.last_known)
            is_finished = True
        except DiskStoppedError:
            pass
        reopened.check(step, keep, found.crash(keep), history, history.last_known)


@each_script
def test_a_log_goes_on_after_a_crash_and_a_clean_end_leaves_nothing_to_do(script: str) -> None:
    for step, files, history in stops(script):
        found = files.crash(SYNCED_ONLY)
        log = open_log(found, history.config, history.last_known)
        end_offset = log.log_end_offset
        log.append_as_leader(history_batch(), 9)
        assert log.log_end_offset == end_offset + 1
        log.close()
        clean = LastKnown(
            log_start_offset=log.log_start_offset, recovery_point=log.log_end_offset, had_clean_shutdown=True
        )
        after_power_cut = found.crash(SYNCED_ONLY)
        again = open_log(after_power_cut, history.config, clean)
        assert after_power_cut.performed == [], explained(step, script, SYNCED_ONLY)
        assert again.log_end_offset == end_offset + 1
        assert again.recovery_point == end_offset + 1
        again.close()
        assert after_power_cut.performed == []


def history_batch() -> bytes:
    """Return a batch that any log takes."""
    files = MemoryFiles()
    files.make_directory("/data")
    history = History(files=files, config=CONFIG)
    history.open()
    history.append(1)
    return history.batches[0].data


def flushed_in_three_segments() -> tuple[MemoryFiles, History]:
    """Return a disk, after a power cut, with three segments of which everything was flushed."""
    files = MemoryFiles()
    files.make_directory("/data")
    history = History(files=files, config=CONFIG)
    history.open()
    for _ in range(3):
        if history.batches:
            history.log.roll()
        for _ in range(3):
            history.append(2, producer_id=7, size=100)
    history.flush()
    history.files = found = files.crash(SYNCED_ONLY)
    return found, history


@pytest.mark.parametrize("rest", [bytes(500), b"\xff" * 500], ids=["zeros", "garbage"])
def test_bytes_behind_the_last_batch_of_a_segment_do_not_cost_the_next_one(rest: bytes) -> None:
    """Room that was allocated and not given back before the crash; no record is missing between the two segments."""
    files, history = flushed_in_three_segments()
    first = files.open(f"{DIRECTORY}/{0:020d}.log", writable=True)
    size = first.size()
    first.write_at(rest, size)
    check_log(open_log(files, CONFIG, LastKnown()), files, history)
    assert first.size() == size


@each_keep
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_was_made_again_is_as_durable_as_its_segment(suffix: str, keep: Keep) -> None:
    files, history = flushed_in_three_segments()
    files.remove(f"{DIRECTORY}/{0:020d}.{suffix}")
    history.open()
    history.append(1)
    history.flush()
    found = files.crash(keep)
    check_log(open_log(found, CONFIG, history.last_known), found, history)
