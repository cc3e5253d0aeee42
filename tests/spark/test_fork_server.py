"""Processes that are forked are what Spark asked for, and go with those who asked. The parent plays Spark's JVM."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark import fork_client
from tests.broker.turning import is_alive, until

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has what is needed")

# Each line is the arguments, the environment and the input of a process; what it has done is told in a line.
PARENT = """
import json, subprocess, sys
for line in sys.stdin:
    command, environment, given = json.loads(line)
    if given is None:
        print(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr).pid, flush=True)
        continue
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""
CLIENT = """
import sys
from barnabas.spark.fork_client import run_forked
status = run_forked(sys.argv[1:])
sys.exit("nobody" if status is None else status % 256)
"""
PROBE = """
import json, os, sys
told = sys.stdin.read()
print(json.dumps({
    "name": __name__, "arguments": sys.argv[1:], "told": told, "folder": os.getcwd(), "path": sys.path[0],
    "secret": os.environ.get("SPARK_SECRET"), "server": os.getppid(), "imported": "pyarrow" in sys.modules,
    "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),
}))
print("an error", file=sys.stderr)
if "signal" in sys.argv:
    os.kill(os.getpid(), 9)
sys.exit(7)
"""
ENDLESS = """
import os, signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("process.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("process.new", "process")
time.sleep(600)
"""


class Parent:
    """A process that starts others, and waits for them where it is told what they read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("probe", PROBE), ("endless", ENDLESS)):
            (folder / f"{name}.py").write_text(text)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PARENT], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *arguments: str, given: str | None = "", **environment: str) -> Any:
        """Have a process ask for a module to be run."""
        line = [[sys.executable, "-c", CLIENT, "-m", *arguments], os.environ | environment, given]
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End it, and those it has started with it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    found = Parent(tmp_path)
    yield found
    found.end()


def is_let_go(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True  # It has not read everything.


def test_what_is_forked_is_what_was_asked_for(parent: Parent) -> None:
    code, output, errors = parent.ask("probe", "a", "-b", given="told\n", SPARK_SECRET="one")
    found = json.loads(output)
    server = found.pop("server")
    assert found == {
        "name": "__main__",
        "arguments": ["a", "-b"],
        "told": "told\n",
        "folder": str(parent.folder),
        "path": str(parent.folder),
        "secret": "one",
        "imported": True,
        # The last one is the listing itself: nothing of the server is left open.
        "descriptors": ["0", "1", "2", "3"],
    }
    assert (code, errors) == (7, "an error\n")
    code, output, errors = parent.ask("probe", SPARK_SECRET="two")
    found = json.loads(output)
    assert (found["server"], found["secret"], found["told"], code) == (server, "two", "", 7), "one server serves all"


def test_a_large_environment_comes_whole(parent: Parent) -> None:
    large = {f"SPARK_{number}": "x" * 100_000 for number in range(8)}
    code, output, _ = parent.ask("probe", SPARK_SECRET="y" * 100_000, **large)
    assert (code, json.loads(output)["secret"]) == (7, "y" * 100_000)


def test_a_signal_is_told(parent: Parent) -> None:
    code, _, _ = parent.ask("probe", "signal")
    assert code == -signal.SIGKILL % 256


def test_an_error_is_as_python_has_it(parent: Parent) -> None:
    code, _, errors = parent.ask("no_such_module")
    assert code == 1
    assert "No module named no_such_module" in errors


def test_another_environment_is_not_served(parent: Parent) -> None:
    assert parent.ask("probe")[0] == 7
    code, output, errors = parent.ask("probe", PYTHONDEVMODE="1")
    assert (code, output, errors) == (1, "", "nobody\n")
    doubled = os.pathsep.join(["/nowhere", os.environ.get("PYTHONPATH", ""), "/nowhere"])
    assert parent.ask("probe", PYTHONPATH=doubled)[0] == 1, "another path"


def test_who_asked_is_gone_and_so_is_what_was_started(parent: Parent) -> None:
    asking = parent.ask("endless", given=None)
    process = parent.folder / "process"
    until(process.exists)
    started = int(process.read_text())
    assert is_alive(started)
    os.kill(asking, signal.SIGKILL)
    until(lambda: not is_alive(started))
    assert parent.ask("probe")[0] == 7, "the server serves others"


def test_a_server_that_is_killed_does_not_make_anything_run_twice(parent: Parent) -> None:
    server = json.loads(parent.ask("probe")[1])["server"]
    asking = parent.ask("endless", given=None)
    process = parent.folder / "process"
    until(process.exists)
    started = int(process.read_text())
    process.unlink()
    os.kill(server, signal.SIGKILL)
    until(lambda: not is_alive(asking))
    assert is_alive(started)
    assert not process.exists(), "it was run again"
    os.kill(started, signal.SIGKILL)
    assert json.loads(parent.ask("probe")[1])["server"] != server, "the next one starts another"


def test_one_that_does_not_go_keeps_nobody_waiting(parent: Parent) -> None:
    asking = parent.ask("endless", "stubborn", given=None)
    process = parent.folder / "process"
    until(process.exists)
    started = int(process.read_text())
    os.kill(asking, signal.SIGKILL)
    assert parent.ask("probe")[0] == 7
    assert is_alive(started)
    os.kill(started, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{started}").exists())
    assert parent.ask("probe")[0] == 7


def test_the_server_ends_with_its_parent(parent: Parent) -> None:
    server = json.loads(parent.ask("probe")[1])["server"]
    parent.ask("endless", given=None)
    process = parent.folder / "process"
    until(process.exists)
    started = int(process.read_text())
    assert is_alive(server) and is_alive(started)
    parent.end()
    until(lambda: not is_alive(server) and not is_alive(started))


def test_who_sends_nonsense_is_let_go(parent: Parent) -> None:
    found = json.loads(parent.ask("probe")[1])
    holder = parent._process.pid
    for nonsense in (b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2{}", b"\0\0\0\2[]", b"\0\0\0\4/\0x\0"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(fork_client._address(holder))
            connection.sendall(nonsense)
            connection.shutdown(socket.SHUT_WR)
            assert is_let_go(connection)
    assert json.loads(parent.ask("probe")[1])["server"] == found["server"]


def test_who_goes_in_the_middle_of_asking_gets_nothing_started(parent: Parent) -> None:
    assert parent.ask("probe")[0] == 7
    variables = [os.fsencode(f"{name}={value}") for name, value in os.environ.items()]
    request = b"\0".join([os.fsencode(parent.folder), b"2", b"-m", b"probe", *variables, b"SPARK_LAST=whole"])
    answers = []
    for sent in (request, request[:-2]):
        with socket.socket(socket.AF_UNIX) as connection, open(os.devnull, "r+b") as nothing:
            connection.connect(fork_client._address(parent._process.pid))
            socket.send_fds(connection, [fork_client.LENGTH.pack(len(request))], [nothing.fileno()] * 3)
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answers.append(connection.recv(1))
    assert answers == [fork_client.STARTED, b""]
