"""The commands in README and docs are run as they stand there, by whoever reads them first: this file."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.storage.files import OsFiles
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from tests.storage.building import records

ROOT = Path(__file__).parent.parent
SHELL_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands(document: str, program: str) -> list[str]:
    """The lines of a document's shell blocks that call a program, without their comments."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [line for block in SHELL_BLOCK.findall(text) for line in block.splitlines()]
    return [line.split("#", 1)[0].strip() for line in lines if line.split()[:1] == [program]]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell whose PATH finds the `barnabas` of this environment."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def folder_with_data(tmp_path: Path) -> Path:
    """A folder in which `data` is a log directory with the topic `orders`."""
    manager = LogManager(
        LogManagerOptions(
            files=OsFiles(),
            clock=SystemClock(),
            config=LogManagerConfig(log_dirs=(str(tmp_path / "data"),)),
            topic_config=lambda _: LogConfig(),
        )
    )
    manager.start()
    manager.get_or_create_log(TopicPartition("orders", 0)).append_as_leader(records(3), 0)
    manager.shutdown()
    return tmp_path


def test_the_commands_of_the_readme_run(folder_with_data: Path) -> None:
    lines = commands("README.md", "barnabas")
    assert len(lines) == 4
    for line in lines:
        finished = run(line, folder_with_data)
        assert (finished.returncode, finished.stderr) == (0, ""), line
        assert finished.stdout, line


def test_the_demo_runs() -> None:
    assert commands("README.md", "make") == ["make demo", "make test"]
    finished = run("make demo", ROOT)
    assert finished.returncode == 0, finished.stderr
    assert "none lost: yes" in finished.stdout
    assert "no faults" in finished.stdout


def test_the_benchmark_measures_what_is_documented() -> None:
    assert commands("docs/BENCHMARKS.md", "make") == ["make bench", "make bench SECTION=log"]
    finished = run("make bench SECTION=log", ROOT)
    # Whether the floors hold is for a quiet machine to say, so the exit code is not looked at.
    report = json.loads((ROOT / "bench" / "results" / "log.json").read_text(encoding="utf-8"))
    names = [measurement["name"] for measurement in report["measurements"]]
    assert names, finished.stderr
    assert all(f"| {name} |" in finished.stdout for name in names)
    documented = (ROOT / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")
    floored = [measurement["name"] for measurement in report["measurements"] if measurement["floor"] is not None]
    assert len(re.findall(r"^\| .* \| .* \| .* \|$", documented, re.MULTILINE)) - 1 == len(floored)
