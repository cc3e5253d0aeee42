"""`barnabas topics explain` against a real broker: for people, in a pipe, as JSON, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.producer import Producer

CONFIGS = {"segment.bytes": "200", "retention.ms": "3600000", "cleanup.policy": "delete"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with `orders`, whose partition 1 has several segments."""
    with Broker(data=tmp_path_factory.mktemp("explain")) as broker:
        with Client(broker.bootstrap_servers) as client:
            assert create_topics(client, [NewTopic(name="orders", partitions=2, configs=CONFIGS)]) == {}
            for _ in range(3):
                with Producer(client) as producer:
                    producer.send("orders", b"v" * 100, partition=1)
        yield broker.bootstrap_servers


def explain(servers: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as a process of its own."""
    command = [str(Path(sys.executable).parent / "barnabas"), "topics", "explain", *words]
    environment = os.environ | {"BARNABAS_BOOTSTRAP_SERVERS": servers}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_pipe_gets_a_line_a_segment(servers: str) -> None:
    finished = explain(servers, "orders")
    assert (finished.returncode, finished.stderr) == (0, "")
    rows = [line.split("\t") for line in finished.stdout.splitlines()]
    assert [row[:4] for row in rows] == [
        ["orders", "0", "0", "0"],
        ["orders", "1", "0", "1"],
        ["orders", "1", "1", "2"],
        ["orders", "1", "2", "3"],
    ]
    assert rows[0][4:7] == ["0", "-", "-"]
    assert rows[0][7].startswith("stays: it is empty")
    assert rows[1][5].endswith("Z")
    assert rows[1][6] > rows[1][5]  # It goes an hour after its newest record.
    assert rows[1][7] == "goes when its newest record is older than retention.ms=3600000"
    assert rows[3][7].startswith("is still written to")


def test_json_has_all_that_is_known(servers: str) -> None:
    finished = explain(servers, "orders", "--partition", "1", "--json")
    assert finished.returncode == 0
    told = json.loads(finished.stdout)
    assert told["topic"] == "orders"
    (partition,) = told["partitions"]
    assert (partition["partition"], partition["log_start_offset"], partition["log_end_offset"]) == (1, 0, 3)
    first, *_, last = partition["segments"]
    assert (first["reason"], first["goes"], last["is_active"]) == ("within-limits", False, True)
    assert first["due_ms"] == first["largest_timestamp"] + 3_600_001


def test_a_terminal_gets_a_table_a_partition_under_a_summary(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["topics", "explain", "orders", "--bootstrap-server", servers]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("orders-0  offsets 0 to 0, high watermark 0; 1 segments with 0 bytes, 0 of them")
    assert lines[1].split()[:2] == ["BASE", "END"]
    assert lines[3] == ""
    assert lines[4].startswith("orders-1  offsets 0 to 3")
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nobody",), 1, "there is no topic 'nobody'"),
        (("orders", "--partition", "7"), 1, "'orders' has no partition 7"),
        (("orders", "--partition", "x"), 2, "the number of a partition is needed"),
    ],
)
def test_what_can_not_be_explained_is_one_sentence(servers: str, words: tuple[str, ...], code: int, said: str) -> None:
    finished = explain(servers, *words)
    assert finished.returncode == code
    assert finished.stdout == ""
    assert said in finished.stderr.splitlines()[-1]


def test_help_has_an_example(servers: str) -> None:
    assert "barnabas topics explain orders --partition 0" in explain(servers, "--help").stdout
