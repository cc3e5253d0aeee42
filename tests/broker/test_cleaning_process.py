"""CleaningProcess: answers come to the loop in order, and a process that is ended is gone."""

import os
import tempfile
from pathlib import Path

import pytest

from barnabas.broker.cleaning_process import Answer, CleaningProcess
from barnabas.clock import SystemClock
from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.job import CleanedGroup, CleaningError, CleaningResult
from barnabas.storage.cleaner.preparation import CleanerLimits, PreparedClean, log_view
from barnabas.storage.files import Files, OsFiles
from tests.broker.loops import HandLoop, hand_loop
from tests.storage.builders import NOW_MS, open_log
from tests.storage.building import fill
from tests.storage.memory_files import MemoryFiles

WAIT_SECONDS = 60.0
SLOW = CleanerLimits(bytes_per_second_max=1.0)


def a_clean(files: Files, directory: str, limits: CleanerLimits | None = None) -> PreparedClean:
    log = open_log(files, directory, cleanup_policy=("compact",))
    fill(log, 1_200)
    log.roll()
    log.flush()
    return PreparedClean(log, cleanable_part(log_view(log), NOW_MS), limits or CleanerLimits(), NOW_MS)


def wait_for(hand: HandLoop, heard: list[Answer | None]) -> None:
    clock = SystemClock()
    deadline = clock.monotonic_seconds() + WAIT_SECONDS
    while None not in heard:
        assert clock.monotonic_seconds() < deadline, "the process did not end"
        hand.turn()
        clock.sleep(0.002)


def kinds(heard: list[Answer | None]) -> list[type]:
    return [type(answer) for answer in heard]


def test_a_process_answers_in_order(tmp_path: Path) -> None:
    prepared = a_clean(OsFiles(), str(tmp_path / "t-0"))
    heard: list[Answer | None] = []
    with hand_loop() as hand:
        process = CleaningProcess(hand.loop, OsFiles(), prepared.job, heard.append)
        wait_for(hand, heard)
        process.end()
    assert kinds(heard) == [CleanedGroup, CleaningResult, type(None)]
    assert process.process_id is None


def test_a_disk_of_a_test_is_cleaned_by_a_thread() -> None:
    files = MemoryFiles()
    prepared = a_clean(files, "/data/t-0")
    heard: list[Answer | None] = []
    with hand_loop() as hand:
        process = CleaningProcess(hand.loop, files, prepared.job, heard.append)
        wait_for(hand, heard)
        process.end()
    assert kinds(heard) == [CleanedGroup, CleaningResult, type(None)]


def test_a_process_that_is_killed_is_an_error(tmp_path: Path) -> None:
    prepared = a_clean(OsFiles(), str(tmp_path / "t-0"), SLOW)
    heard: list[Answer | None] = []
    clock = SystemClock()
    with hand_loop() as hand:
        process = CleaningProcess(hand.loop, OsFiles(), prepared.job, heard.append)
        deadline = clock.monotonic_seconds() + WAIT_SECONDS
        while (process_id := process.process_id) is None:
            assert clock.monotonic_seconds() < deadline, "the process did not start"
            clock.sleep(0.002)
        os.kill(process_id, 9)
        wait_for(hand, heard)
        process.end()
    error = heard[0]
    assert isinstance(error, CleaningError)
    assert error.reason == "the cleaning process ended with status -9"


def test_a_process_that_is_ended_says_nothing_more(tmp_path: Path) -> None:
    prepared = a_clean(OsFiles(), str(tmp_path / "t-0"), SLOW)
    heard: list[Answer | None] = []
    with hand_loop() as hand:
        process = CleaningProcess(hand.loop, OsFiles(), prepared.job, heard.append)
        process.end()
        hand.turn()
    assert heard == []
    assert process.process_id is None


def test_a_process_that_can_not_be_started_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the cleaner would wait for its answer for ever, and clean nothing else."""
    prepared = a_clean(OsFiles(), str(tmp_path / "t-0"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    heard: list[Answer | None] = []
    with hand_loop() as hand:
        process = CleaningProcess(hand.loop, OsFiles(), prepared.job, heard.append)
        wait_for(hand, heard)
        process.end()
    assert kinds(heard) == [CleaningError, type(None)]
    assert "No such file" in str(heard[0])
