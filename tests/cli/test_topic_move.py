"""`barnabas topics move` against a real broker with two log directories."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.cli import topic_move
from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.log_dirs import ReplicaPlace, replica_places
from barnabas.model import TopicPartition
from tests.broker.turning import until

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the log directories a and b are."""
    return tmp_path_factory.mktemp("move")


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[str]:
    """A broker with `orders`, which has a partition in each of its two log directories."""
    with Broker(data=f"{folder}/a,{folder}/b") as broker:
        with Client(broker.bootstrap_servers) as client:
            assert create_topics(client, [NewTopic(name="orders", partitions=2)]) == {}
        yield broker.bootstrap_servers


def move(servers: str, *words: str) -> int:
    return main(["topics", "move", *words, "--bootstrap-server", servers])


def test_all_logs_of_a_topic_are_moved_and_waited_for(
    servers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert move(servers, "orders", "--to", f"{folder}/b") == 0
    assert capsys.readouterr().out == f"moved orders-0 to {folder}/b\nmoved orders-1 to {folder}/b\n"
    with Client(servers) as client:
        assert [place.log_dir for place in replica_places(client, ORDERS)] == [f"{folder}/b"] * 2


def test_one_partition_can_be_moved_without_waiting(
    servers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert move(servers, "orders", "--to", f"{folder}/a", "--partition", "1", "--no-wait", "--json") == 0
    said = {"topic": "orders", "partition": 1, "log_dir": f"{folder}/a", "state": "moving"}
    assert json.loads(capsys.readouterr().out) == said
    with Client(servers) as client:
        until(lambda: [it.log_dir for it in replica_places(client, ORDERS[1:])] == [f"{folder}/a"])


def test_logs_are_moved_as_operations_says(servers: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("barnabas topics move ")]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command.replace("/disks", str(folder)), comments=True)
        assert move(servers, *words[3:]) == 0
        assert f"orders-0 to {folder}/b" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("orders", "--to", "/no/such"), "orders-0 can not be moved to /no/such"),
        (("orders", "--to", "/no/such", "--partition", "7"), "'orders' has no partition 7, but 2 partitions"),
        (("unknown", "--to", "/no/such"), "there is no topic 'unknown'"),
    ],
)
def test_what_can_not_be_done_is_said(
    servers: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert move(servers, *words) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert sentence in found.err


def test_a_log_that_stayed_where_it_was_is_named(
    servers: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a disk that filled up: at first there is a copy on its way, and then there is none."""
    place = ReplicaPlace(partition=ORDERS[0], log_dir=f"{folder}/b", size_bytes=100, offset_lag=0, is_future=False)
    copy = ReplicaPlace(partition=ORDERS[0], log_dir=f"{folder}/a", size_bytes=40, offset_lag=6, is_future=True)
    answers = iter([[place, copy], [place]])
    monkeypatch.setattr(topic_move, "move_replicas", lambda *_: {})
    monkeypatch.setattr(topic_move, "replica_places", lambda *_: next(answers))
    assert move(servers, "orders", "--to", f"{folder}/a", "--partition", "0") == 1
    assert f"orders-0 was not moved to {folder}/a; the log of the broker says why" in capsys.readouterr().err
