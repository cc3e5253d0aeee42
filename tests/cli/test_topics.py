"""`barnabas topics` against a real broker."""

import json
import sys
from collections.abc import Callable

import pytest

from barnabas.cli.main import main
from barnabas.client.client import Client
from barnabas.client.producer import Producer
from tests.client.brokers import topic_name

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `barnabas topics WORDS`, and gives exit code, stdout and stderr."""

    def run_words(*words: str) -> tuple[int, str, str]:
        exit_code = main(["topics", words[0], "--bootstrap-server", bootstrap_servers, *words[1:]])
        said = capsys.readouterr()
        return exit_code, said.out, said.err

    return run_words


def test_a_topic_lives_from_create_to_delete(run: Run, bootstrap_servers: str) -> None:
    name = topic_name("life")
    assert run("create", name, "--partitions", "2", "--config", "retention.ms=60000") == (0, f"created {name}\n", "")
    assert f"{name}\t2\t1\n" in run("list")[1]
    with Client(bootstrap_servers) as client, Producer(client) as producer:
        for _ in range(5):
            producer.send(name, b"v", partition=1)
    exit_code, out, err = run("describe", name)
    assert (exit_code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    leader = rows[0][2]
    assert rows == [
        [name, "0", leader, leader, leader, "0", "0", "retention.ms=60000"],
        [name, "1", leader, leader, leader, "0", "5", "retention.ms=60000"],
    ]
    altered = run("alter", name, "--partitions", "3", "--config", "segment.ms=9999", "--delete-config", "retention.ms")
    assert altered == (0, f"altered {name}\n", "")
    described = json.loads(run("describe", name, "--json")[1])
    assert described["configs"] == {"segment.ms": "9999"}
    assert [partition["end_offset"] for partition in described["partitions"]] == [0, 5, 0]
    assert (described["topic"], described["internal"], len(described["topic_id"])) == (name, False, 22)
    assert run("delete", name) == (0, f"deleted {name}\n", "")
    assert name not in run("list")[1]


def test_a_terminal_gets_tables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic_name("terminal")
    run("create", name, "--partitions", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    listed = run("list")[1].splitlines()
    assert listed[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [name, "1", "1"] in [line.split() for line in listed]
    described = run("describe", name)[1].splitlines()
    assert described[0].startswith(f"{name}  id ")
    assert described[1].split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END"]
    assert len(described) == 3
    everything = run("describe")[1]
    assert name in everything


def test_json_is_one_object_a_line(run: Run) -> None:
    first, second = topic_name("json"), topic_name("json")
    created = run("create", first, second, "--json")[1]
    assert [json.loads(line) for line in created.splitlines()] == [
        {"topic": first, "created": True},
        {"topic": second, "created": True},
    ]
    rows = {row["topic"]: row for row in map(json.loads, run("list", "--json")[1].splitlines())}
    assert (rows[first]["partitions"], rows[first]["replication_factor"], rows[first]["internal"]) == (3, 1, False)
    assert [json.loads(line)["topic"] for line in run("describe", second, first, "--json")[1].splitlines()] == [
        second,
        first,
    ]
    assert json.loads(run("alter", first, "--config", "segment.ms=9999", "--json")[1]) == {
        "topic": first,
        "altered": True,
    }
    assert json.loads(run("delete", first, "--json")[1]) == {"topic": first, "deleted": True}


def test_what_fails_is_a_line_each_and_the_rest_is_done(run: Run) -> None:
    old, new = topic_name("old"), topic_name("new")
    run("create", old)
    exit_code, out, err = run("create", old, new, "not good")
    assert (exit_code, out) == (1, f"created {new}\n")
    assert [line.split("'")[0] for line in err.splitlines()] == [
        "barnabas topics: TOPIC_ALREADY_EXISTS: ",
        "barnabas topics: INVALID_TOPIC_EXCEPTION: ",
    ]
    missing = topic_name("missing")
    exit_code, out, err = run("delete", missing, new)
    assert (exit_code, out, err.count("\n")) == (1, f"deleted {new}\n", 1)
    assert err.startswith(f"barnabas topics: UNKNOWN_TOPIC_OR_PARTITION: '{missing}'")
    assert run("describe", missing) == (1, "", f"barnabas topics: there is no topic '{missing}'\n")


def test_what_is_as_it_should_be_may_be_no_error(run: Run) -> None:
    name = topic_name("twice")
    assert run("create", name, "--if-not-exists") == (0, f"created {name}\n", "")
    assert run("create", name, "--if-not-exists") == (0, "", "")
    assert json.loads(run("create", name, "--if-not-exists", "--json")[1]) == {"topic": name, "created": False}
    assert run("delete", name, "--if-exists") == (0, f"deleted {name}\n", "")
    assert run("delete", name, "--if-exists") == (0, "", "")


def test_a_wrong_setting_is_refused_before_partitions_are_added(run: Run) -> None:
    name = topic_name("careful")
    run("create", name, "--partitions", "1")
    exit_code, out, err = run("alter", name, "--partitions", "2", "--config", "retention.ms=soon")
    assert (exit_code, out, err.count("\n")) == (1, "", 1)
    assert "retention.ms" in err
    assert f"{name}\t1\t1\n" in run("list")[1]
    exit_code, _, err = run("alter", name, "--partitions", "1")
    assert exit_code == 1
    assert err.startswith("barnabas topics: INVALID_PARTITIONS: ")


def test_alter_needs_something_to_alter(run: Run) -> None:
    assert run("alter", "t") == (2, "", "barnabas topics: alter needs --partitions, --config or --delete-config\n")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["lits"],
        ["create"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--config", "retention.ms"],
        ["delete"],
        ["alter"],
    ],
)
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topics", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas topics")


@pytest.mark.parametrize("action", ["list", "create", "describe", "alter", "delete"])
def test_help_of_each_action_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topics", action, "--help"])
    assert ended.value.code == 0
    assert f"example:\n  barnabas topics {action} " in capsys.readouterr().out
