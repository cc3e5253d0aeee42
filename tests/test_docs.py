"""The commands in README and docs are run as they stand there, by whoever reads them first: this file."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.broker_config import OWN, endpoint_text
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.groups import OffsetAndMetadata, commit_group_offsets
from barnabas.client.producer import Producer
from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig, settings_of
from barnabas.model import TopicPartition
from barnabas.storage.files import OsFiles
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from tests.client.open_transactions import open_transaction
from tests.storage.building import records

ROOT = Path(__file__).parent.parent
SHELL_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands(document: str, program: str) -> list[str]:
    """The lines of a document's shell blocks that call a program, without their comments."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [line for block in SHELL_BLOCK.findall(text) for line in block.splitlines()]
    return [line.split("#", 1)[0].strip() for line in lines if line.split()[:1] == [program]]


def run(command: str, folder: Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell whose PATH finds the `barnabas` of this environment."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
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
    lines = [line for line in commands("README.md", "barnabas") if line.split()[1] in ("verify", "dump")]
    assert len(lines) == 4
    for line in lines:
        finished = run(line, folder_with_data)
        assert (finished.returncode, finished.stderr) == (0, ""), line
        assert finished.stdout, line


@contextmanager
def served(command: str, folder: Path) -> Iterator[str]:
    """Run a line that serves, on a free port instead of its own; the block is given the line that says it is ready."""
    words = shlex.split(command.removesuffix("&"))
    if "--listen" in words:
        words[words.index("--listen") + 1] = "127.0.0.1:0"
    else:
        words += ["--listen", "127.0.0.1:0"]
    if "--data" in words:
        words[words.index("--data") + 1] = Path(words[words.index("--data") + 1]).name
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            yield broker.stdout.readline()
        finally:
            broker.terminate()
            assert broker.wait() == 0


def test_a_broker_is_started_written_to_and_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(block for block in SHELL_BLOCK.findall(text) if "barnabas serve" in block)
    serve, *others = [line.split("#", 1)[0].strip() for line in block.splitlines()]
    with served(serve, tmp_path) as ready:
        assert ready.startswith("barnabas ready on 127.0.0.1:")
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", ready.split()[3])
        said = [run(line, tmp_path) for line in others]
    assert [finished.returncode for finished in said] == [0] * 6, said
    assert len(said[2].stdout.splitlines()) == len(said[4].stdout.splitlines()) == 5
    assert said[3].stdout.startswith("orders")
    assert said[5].stdout.startswith("billing\torders")


def test_the_broker_starts_as_operations_says(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=2\n", encoding="utf-8")
    lines = [line for line in commands("docs/OPERATIONS.md", "barnabas") if line.split()[1] == "serve"]
    *starts, help_line = lines
    assert "examples:" in run(help_line, tmp_path).stdout
    for line in starts:
        with served(line, tmp_path) as ready:
            assert ready.startswith("barnabas ready on "), line


def test_groups_and_transactions_are_operated_as_operations_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        line for line in commands("docs/OPERATIONS.md", "barnabas") if line.split()[1] in ("groups", "transactions")
    ]
    assert [line.split()[2] for line in lines] == [
        *("list", "describe", "reset", "reset", "reset", "delete"),
        *("list", "describe", "abort", "abort"),
    ]
    with Broker(data=tmp_path / "data") as broker:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        with Client(broker.bootstrap_servers) as client:
            topics = [NewTopic(name="orders", partitions=3), NewTopic(name="payments", partitions=1)]
            assert create_topics(client, topics) == {}
            with Producer(client) as producer:
                for number in range(3 * 42):
                    producer.send("orders", b"v", partition=number % 3)
            offsets = {TopicPartition("orders", number): OffsetAndMetadata(offset=42) for number in range(3)}
            assert commit_group_offsets(client, "billing", offsets) == {}
        producers = [
            open_transaction(broker.bootstrap_servers, name, topic)
            for name, topic in (("billing-1", "payments"), ("billing-2", "orders"))
        ]
        said = [run(line, tmp_path) for line in lines]
        assert len(producers) == 2
    assert [finished.returncode for finished in said] == [0] * len(lines), said
    assert said[1].stdout.startswith("billing\torders\t0\t42\t43\t1\t")
    assert said[4].stdout.splitlines()[2] == "billing\torders\t2\t42\t0"
    assert said[7].stdout.startswith("billing-1\tOngoing\t")
    assert said[9].stdout.startswith("aborted orders-0 from offset 42 on")


def test_the_status_is_asked_for_as_operations_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in commands("docs/OPERATIONS.md", "barnabas") if line.split()[1] == "status"]
    with Broker(data=tmp_path / "data") as broker:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        people, program = (run(line, tmp_path) for line in lines)
    assert (people.returncode, program.returncode) == (0, 0), (people, program)
    assert "RUNNING" in people.stdout
    assert json.loads(program.stdout)["log_directories"][0]["state"] == "online"


def test_retention_is_explained_as_operations_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in commands("docs/OPERATIONS.md", "barnabas") if line.split()[1:3] == ["topics", "explain"]]
    assert len(lines) == 2
    with Broker(data=tmp_path / "data") as broker:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        with Client(broker.bootstrap_servers) as client, Producer(client) as producer:
            topic = NewTopic(name="orders", partitions=2, configs={"retention.ms": "604800000"})
            assert create_topics(client, [topic]) == {}
            producer.send("orders", b"v", partition=0)
        said = [run(line, tmp_path) for line in lines]
    assert [finished.returncode for finished in said] == [0, 0], said
    rows = [line.split("\t") for line in said[0].stdout.splitlines()]
    assert [row[:4] for row in rows] == [["orders", "0", "0", "1"], ["orders", "1", "0", "0"]]
    assert "retention.ms=604800000" in rows[0][-2]
    (partition,) = json.loads(said[1].stdout)["partitions"]
    assert [segment["reason"] for segment in partition["segments"]] == ["within-limits"]


def test_the_tables_of_settings_are_complete() -> None:
    documented = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    rows = []
    for row in [row for kind in OWN for row in settings_of(kind)]:
        default = endpoint_text(row.default)
        rows.append(f"| `{row.name}` | {f'`{default}` ' if default else ''}| {row.sentence} |")
    for row in settings_of(LogConfig):
        broker_name = f"`{row.broker_name}` " if row.broker_name else ""
        rows.append(f"| `{row.name}` | {broker_name}| `{endpoint_text(row.default)}` | {row.sentence} |")
    missing = [line for line in rows if line not in documented]
    assert missing == [], "docs/OPERATIONS.md lacks these rows:\n" + "\n".join(missing)
    assert len(re.findall(r"^\| `", documented, re.MULTILINE)) == len(rows)


def test_the_python_of_embedding_runs() -> None:
    text = (ROOT / "docs" / "EMBEDDING.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import Broker" in block]
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/EMBEDDING.md", "exec"), {})


@pytest.mark.parametrize("section", ["log", "groups"])
def test_the_benchmark_measures_what_is_documented(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = ["make bench SECTION=log", "make bench SECTION=groups"]
    assert commands("docs/BENCHMARKS.md", "make") == ["make bench", *sections]
    monkeypatch.setenv("BENCH_ROUNDS", "1")
    finished = run(f"make bench SECTION={section}", ROOT)
    # Whether the floors hold is for a quiet machine to say, so the exit code is not looked at.
    report = json.loads((ROOT / "bench" / "results" / f"{section}.json").read_text(encoding="utf-8"))
    names = [measurement["name"] for measurement in report["measurements"]]
    assert names, finished.stderr
    assert all(f"| {name} |" in finished.stdout for name in names), finished.stderr
    documented = (ROOT / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8").split(f"## {section}\n")[1]
    table = re.findall(r"^\| .* \| .* \| .* \|$", documented.split("\n## ")[0], re.MULTILINE)
    floored = [measurement["name"] for measurement in report["measurements"] if measurement["floor"] is not None]
    assert len(table) - 1 == len(floored)
