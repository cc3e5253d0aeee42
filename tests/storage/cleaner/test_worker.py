"""The cleaning process: a job in, lines out; errors are answers; it is slowed down, and goes with its parent."""

import errno
import os
import subprocess
import sys
from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.job import CleanedGroup, CleaningError, CleaningResult, decode_answer, encode_job
from barnabas.storage.cleaner.preparation import PreparedClean, log_view
from barnabas.storage.cleaner.worker import Throttle, work
from barnabas.storage.files import Files, OsFiles
from tests.storage.builders import NOW_MS, open_log
from tests.storage.building import consume, fill
from tests.storage.cleaner.cleaning_words import SMALL
from tests.storage.memory_files import MemoryFiles


def a_clean(files: Files, directory: str) -> PreparedClean:
    log = open_log(files, directory, cleanup_policy=("compact",), segment_bytes=500)
    fill(log, 12)
    log.roll()
    log.flush()
    return PreparedClean(log, cleanable_part(log_view(log), NOW_MS), SMALL, NOW_MS)


def run_worker(job: str, parent: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "barnabas.storage.cleaner.worker", str(parent)]
    return subprocess.run(command, input=job + "\n", capture_output=True, text=True, timeout=60, check=False)


def test_a_process_cleans(tmp_path: Path) -> None:
    prepared = a_clean(OsFiles(), str(tmp_path / "t-0"))
    done = run_worker(encode_job(prepared.job), os.getpid())
    assert (done.returncode, done.stderr) == (0, "")
    *groups, result = [decode_answer(line) for line in done.stdout.splitlines()]
    assert isinstance(result, CleaningResult)
    for group in groups:
        assert isinstance(group, CleanedGroup)
        prepared.swap(group)
    assert [record.offset for record in consume(prepared.log, 0)] == [33, 34, 35]


def test_without_its_parent_it_does_nothing(tmp_path: Path) -> None:
    prepared = a_clean(OsFiles(), str(tmp_path / "t-0"))
    done = run_worker(encode_job(prepared.job), 1)
    assert (done.returncode, done.stdout) == (1, "")
    assert not list(tmp_path.rglob("*.cleaned"))


def test_a_full_disk_is_an_answer(memory_files: MemoryFiles) -> None:
    prepared = a_clean(memory_files, "/data/t-0")
    memory_files.fail_next_write(errno.ENOSPC)
    lines: list[str] = []
    work(memory_files, prepared.job, lines.append)
    error = decode_answer(lines[-1])
    assert isinstance(error, CleaningError)
    assert error.errno == errno.ENOSPC
    ready = [decode_answer(line) for line in lines[:-1]]
    told = {base for group in ready if isinstance(group, CleanedGroup) for base in group.base_offsets}
    left = {int(name[:20]) for name in memory_files.names("/data/t-0") if ".cleaned" in name}
    assert left == told, "what was not finished is removed"


def test_damage_is_an_answer(memory_files: MemoryFiles) -> None:
    prepared = a_clean(memory_files, "/data/t-0")
    path = prepared.log.segments.first.path
    memory_files.open(path, writable=True).write_at(b"\xff", 65)
    lines: list[str] = []
    work(memory_files, prepared.job, lines.append)
    error = decode_answer(lines[-1])
    assert isinstance(error, CleaningError)
    assert f"{path}, position 0" in error.reason
    assert error.errno is None


def test_a_throttle_lets_time_pass() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 1_000)
    throttle(500)
    assert clock.monotonic_seconds() == 0.5
    throttle(1_500)
    assert clock.monotonic_seconds() == 2.0
    clock.advance(10_000)
    throttle(1_000)
    assert clock.monotonic_seconds() == 12.0
