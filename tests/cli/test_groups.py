"""`barnabas groups`: groups that a client of the field holds, and what is left of them."""

import json
import sys
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.groups import OffsetAndMetadata, commit_group_offsets
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from tests.cli.conftest import Run
from tests.client.brokers import topic_name
from tests.client.group_members import CLIENT_ID, PROTOCOLS, commit_as, idle_member_of, member_of

COMMAND = "groups"


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """Ten records in partition 0, none in partition 1."""
    name = topic_name("orders")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=2)]) == {}
        with Producer(client) as producer:
            for _ in range(10):
                producer.send(name, b"v", partition=0)
    return name


@pytest.fixture
def group(bootstrap_servers: str, topic: str) -> str:
    """A group without members that has read four records."""
    name = topic_name("left")
    with Client(bootstrap_servers) as client:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset=4, metadata="a note")}
        assert commit_group_offsets(client, name, offsets) == {}
    return name


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member_is_described_and_protected(
    run: Run, bootstrap_servers: str, topic: str, protocol: str
) -> None:
    name = topic_name(protocol)
    with member_of(bootstrap_servers, name, topic, protocol) as consumer:
        commit_as(consumer, topic, 7)
        assert f"{name}\t{protocol}\tconsumer\tStable\n" in run("list")[1]
        exit_code, out, err = run("describe", name, "--json")
        assert (exit_code, err) == (0, "")
        (described,) = objects(out)
        (member,) = described["members"]
        assert (described["group"], described["type"], described["state"]) == (name, protocol, "Stable")
        assert (member["client"], member["host"], described["lag"]) == (CLIENT_ID, "/127.0.0.1", 3)
        assert member["partitions"] == [{"topic": topic, "partition": number} for number in range(2)]
        rows = [line.split("\t") for line in run("describe", name)[1].splitlines()]
        holder = [member["member"], CLIENT_ID, "/127.0.0.1"]
        assert rows == [
            [name, topic, "0", "7", "10", "3", *holder, rows[0][-1]],
            [name, topic, "1", "-", "0", "-", *holder, "-"],
        ]
        refused = f"barnabas groups: group '{name}' has 1 member (Stable), and only they commit offsets\n"
        assert run("reset", name, "--topic", topic, "--to", "earliest") == (1, "", refused)
        refused = f"barnabas groups: NON_EMPTY_GROUP: group '{name}' has members\n"
        assert run("delete", name) == (1, "", refused)
    assert run("delete", name) == (0, f"deleted {name}\n", "")


def test_a_group_without_members_is_described(run: Run, group: str, topic: str) -> None:
    assert run("describe", group) == (0, f"{group}\t{topic}\t0\t4\t10\t6\t-\t-\t-\ta note\n", "")
    (described,) = objects(run("describe", group, "--json")[1])
    assert described["members"] == []
    assert described["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed_offset": 4,
            "end_offset": 10,
            "lag": 6,
            "member": None,
            "metadata": "a note",
        }
    ]
    assert (described["type"], described["state"], described["epoch"], described["lag"]) == (
        "classic",
        "Empty",
        None,
        6,
    )
    assert group in [described["group"] for described in objects(run("describe", "--json")[1])]


def test_a_member_without_partitions_has_a_line(run: Run, bootstrap_servers: str) -> None:
    name, missing = topic_name("idle"), topic_name("missing")
    with idle_member_of(bootstrap_servers, name, missing, lambda: name in run("list", "--state", "stable")[1]):
        (described,) = objects(run("describe", name, "--json")[1])
        (member,) = described["members"]
        assert (described["partitions"], described["lag"], member["partitions"]) == ([], 0, [])
        row = ["-", "-", "-", "-", "-", member["member"], CLIENT_ID, "/127.0.0.1", "-"]
        assert run("describe", name) == (0, "\t".join([name, *row]) + "\n", "")


def test_a_terminal_gets_tables(run: Run, group: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    listed = run("list")[1].splitlines()
    assert listed[0].split() == ["GROUP", "TYPE", "PROTOCOL", "STATE"]
    assert [group, "classic", "-", "Empty"] in [line.split() for line in listed]
    heading, columns, row = run("describe", group)[1].splitlines()
    assert heading.startswith(f"{group}  classic  Empty  coordinator ")
    assert heading.endswith("  members 0  lag 6")
    assert columns.split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "METADATA"]
    assert row.split() == [topic, "0", "4", "10", "6", "-", "a", "note"]


def test_a_terminal_gets_members_and_epochs(
    run: Run, bootstrap_servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic_name("shown")
    with member_of(bootstrap_servers, name, topic, "consumer") as consumer:
        commit_as(consumer, topic, 7)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        lines = run("describe", name)[1].splitlines()
    assert "  assignor uniform  epoch " in lines[0]
    assert lines[0].endswith("  members 1  lag 3  (and that of 1 partition, which is not known)")
    assert lines[4].split() == ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"]
    assert lines[5].split()[1:] == ["-", CLIENT_ID, "/127.0.0.1", f"{topic}-0", f"{topic}-1"]


def test_the_offset_of_a_deleted_topic_does_no_harm(run: Run, bootstrap_servers: str) -> None:
    name, topic = topic_name("orphan"), topic_name("short-lived")
    kept = topic_name("kept")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=each, partitions=1) for each in (topic, kept)]) == {}
        offsets = {TopicPartition(each, 0): OffsetAndMetadata(offset=0) for each in (topic, kept)}
        assert commit_group_offsets(client, name, offsets) == {}
        assert delete_topics(client, [topic]) == {}
    exit_code, out, err = run("describe", name)
    assert (exit_code, err) == (0, "")
    assert f"{name}\t{kept}\t0\t0\t0\t0\t-\t-\t-\t-\n" in out


def test_groups_are_listed_by_state_and_type(run: Run, group: str) -> None:
    row = {"group": group, "type": "classic", "protocol": "", "state": "Empty"}
    assert row in objects(run("list", "--state", "empty", "--type", "Classic", "--json")[1])
    assert group not in run("list", "--state", "STABLE", "--state", "dead")[1]
    assert group not in run("list", "--type", "consumer")[1]


def test_what_fails_is_a_line_each_and_the_rest_is_done(run: Run, group: str) -> None:
    missing = topic_name("missing")
    complaint = f"barnabas groups: GROUP_ID_NOT_FOUND: there is no consumer group '{missing}'\n"
    exit_code, out, err = run("describe", missing, group)
    assert (exit_code, out.split("\t")[0], err) == (1, group, complaint)
    assert run("delete", missing, group) == (1, f"deleted {group}\n", complaint)
    assert run("delete", missing, "--if-exists") == (0, "", "")
    assert objects(run("delete", missing, "--if-exists", "--json")[1]) == [{"group": missing, "deleted": False}]


def test_deleting_is_told_as_json(run: Run, group: str) -> None:
    assert objects(run("delete", group, "--json")[1]) == [{"group": group, "deleted": True}]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["lsit"],
        ["list", "--state", "sleeping"],
        ["list", "--type", "share"],
        ["delete"],
        ["reset"],
        ["reset", "g"],
        ["reset", "g", "--topic", "t"],
        ["reset", "g", "--to", "earliest"],
    ],
)
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["groups", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas groups")


@pytest.mark.parametrize("action", ["list", "describe", "reset", "delete"])
def test_help_of_each_action_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["groups", action, "--help"])
    assert ended.value.code == 0
    assert f"example:\n  barnabas groups {action} " in capsys.readouterr().out
