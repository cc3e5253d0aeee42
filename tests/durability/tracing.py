"""Traces the system calls of a running broker with strace, and can slow them down or let them fail on the way.

    with traced(broker, tmp_path) as trace:
        ...
    for call in trace.calls(): ...

strace stops a thread when it enters a call and when it returns from it, and writes both down before the thread goes on.
So when one thread waits for another, the lines are in the order of cause and effect, whichever threads they are of.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.embedded import Broker
from tests.broker.turning import until

WRITES = ("pwrite64", "pwritev", "pwritev2")
SYNCS = ("fdatasync", "fsync", "sync_file_range", "msync")
SENDS = ("write", "writev", "sendto", "sendmsg", "sendfile")
CALLS = (*WRITES, *SYNCS, *SENDS)

# 1234  1700000000.123456 fdatasync(15</data/t-0/0.log>) = 0
_WHOLE = re.compile(r"^(\d+) +[\d.]+ (\w+)\((.*)\) += (-?\d+)")
_BEGUN = re.compile(r"^(\d+) +[\d.]+ (\w+)\((.*) <unfinished \.\.\.>$")
_ENDED = re.compile(r"^(\d+) +[\d.]+ <\.\.\. (\w+) resumed>.*\) += (-?\d+)")
_TARGET = re.compile(r"^\d+<(.*?)>(?:,|$)")


class Call(NamedTuple):
    """A moment of a system call: its beginning or its return."""

    name: str
    target: str
    """The path or the connection of its file descriptor."""
    is_return: bool
    result: int


class Trace:
    """What strace has written so far."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def calls(self) -> list[Call]:
        """Return the beginning and the return of every call, in the order in which they happened."""
        found: list[Call] = []
        open_calls: dict[tuple[str, str], str] = {}
        for line in self._path.read_text(errors="replace").splitlines():
            if whole := _WHOLE.match(line):
                target = _target(whole[3])
                found.append(Call(whole[2], target, False, 0))
                found.append(Call(whole[2], target, True, int(whole[4])))
            elif begun := _BEGUN.match(line):
                open_calls[begun[1], begun[2]] = _target(begun[3])
                found.append(Call(begun[2], _target(begun[3]), False, 0))
            elif ended := _ENDED.match(line):
                found.append(Call(ended[2], open_calls.pop((ended[1], ended[2]), ""), True, int(ended[3])))
        return found


def _target(arguments: str) -> str:
    found = _TARGET.match(arguments)
    return found[1] if found else ""


@contextmanager
def traced(broker: Broker, folder: Path, *options: str) -> Iterator[Trace]:
    """Trace all threads of a broker that runs in a process of its own; `options` are more options for strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    output, said = folder / "strace.txt", folder / "strace-said.txt"
    calls = f"trace={','.join(CALLS)}"
    command = [
        "strace",
        "-f",
        "-ttt",
        "-yy",
        "-s",
        "0",
        "-e",
        calls,
        *options,
        "-o",
        str(output),
        "-p",
        str(broker.pid),
    ]
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)
        try:
            until(lambda: b"attached" in said.read_bytes() or process.poll() is not None)
            if process.poll() is not None:
                pytest.skip(f"strace can not attach here: {said.read_text().strip()}")
            yield Trace(output)
        finally:
            process.terminate()  # It lets go of the broker, which runs on.
            process.wait()
