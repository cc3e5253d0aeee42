"""Who asks to be forked: whom it trusts, when it asks nobody, and how little it is. Else: test_fork_server.py."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark import fork_client
from barnabas.spark.fork_client import run_forked


def test_what_asks_to_be_forked_imports_next_to_nothing() -> None:
    program = (
        "import importlib, os, socket, struct, sys; known = set(sys.modules); "
        "import barnabas.spark.worker_python, barnabas.spark.fork_client; print(*sorted(set(sys.modules) - known))"
    )
    done = subprocess.run([sys.executable, "-E", "-P", "-c", program], capture_output=True, text=True, check=True)
    ours = ["__future__", "barnabas", "barnabas.spark", "barnabas.spark.fork_client", "barnabas.spark.worker_python"]
    assert done.stdout.split() == ours


def test_another_user_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    assert fork_client.is_own(one)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not fork_client.is_own(other)
    one.close()
    other.close()


def test_process_1_is_no_parent_to_serve() -> None:
    assert fork_client._is_spark(os.getpid())
    assert not fork_client._is_spark(1) or Path("/proc/1/comm").read_text().strip() == "java"


def test_a_system_that_lacks_what_is_needed_has_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert run_forked(["-m", "platform"]) is None
