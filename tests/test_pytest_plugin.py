"""The fixture `barnabas_broker` is there for every project that has Barnabas installed, and costs nothing unused."""

import subprocess
import sys
from pathlib import Path

TEST = """
import socket

def test_first(barnabas_broker):
    host, _, port = barnabas_broker.bootstrap_servers.partition(":")
    socket.create_connection((host, int(port)), 30).close()
    with open("pids", "a") as file:
        print(barnabas_broker.pid, barnabas_broker.data, file=file)

def test_second(barnabas_broker):
    test_first(barnabas_broker)
"""

UNUSED = """
import sys

def test_unused():
    assert "barnabas.embedded" not in sys.modules
"""


def run(folder: Path, test: str) -> None:
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


def test_one_broker_serves_a_whole_session_and_is_gone_afterwards(tmp_path: Path) -> None:
    run(tmp_path, TEST)
    first, second = (tmp_path / "pids").read_text().splitlines()
    assert first == second
    pid, data = first.split()
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(data).exists()


def test_a_session_that_does_not_use_it_does_not_import_it(tmp_path: Path) -> None:
    run(tmp_path, UNUSED)
