"""`barnabas transactions`: transactions that a client of the field has opened, and their end."""

import json
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaException

from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.offsets import LATEST, IsolationLevel, offsets_at
from barnabas.model import TopicPartition
from tests.broker.turning import until
from tests.cli.conftest import Run
from tests.client.brokers import topic_name
from tests.client.open_transactions import DEADLINE_SECONDS, open_transaction

COMMAND = "transactions"


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic of one partition."""
    name = topic_name("orders")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=1)]) == {}
    return name


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def stable_offset(bootstrap_servers: str, topic: str) -> int:
    """Up to where consumers that wait for commits may read."""
    partition = TopicPartition(topic, 0)
    with Client(bootstrap_servers) as client:
        return offsets_at(client, [partition], LATEST, IsolationLevel.READ_COMMITTED)[partition]


def test_a_transaction_is_listed_described_and_aborted(run: Run, bootstrap_servers: str, topic: str) -> None:
    name = topic_name("billing")
    producer = open_transaction(bootstrap_servers, name, topic)
    (described,) = objects(run("describe", name, "--json")[1])
    assert (described["transactional_id"], described["state"], described["timeout_ms"]) == (name, "Ongoing", 60_000)
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert 0 <= described["age_ms"] < 60_000
    row = {key: described[key] for key in ("transactional_id", "producer_id", "state", "coordinator")}
    assert row in objects(run("list", "--json")[1])
    assert f"{name}\t{row['producer_id']}\tOngoing\t{row['coordinator']}\n" in run("list")[1]
    fields = run("describe", name)[1].rstrip("\n").split("\t")
    assert fields[:5] == [name, "Ongoing", str(row["producer_id"]), str(described["producer_epoch"]), "1m0s"]
    assert fields[5].startswith("20")
    assert fields[7:] == [str(row["coordinator"]), f"{topic}-0"]

    assert run("abort", name) == (0, f"aborted {name}\n", "")
    assert stable_offset(bootstrap_servers, topic) == 2
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_SECONDS)
    (described,) = objects(run("describe", name, "--json")[1])
    assert (described["start_timestamp"], described["age_ms"], described["partitions"]) == (None, None, [])
    complaint = f"transactional id '{name}' has no open transaction ({described['state']})"
    assert run("abort", name) == (1, "", f"barnabas transactions: {complaint}\n")


def test_transactions_are_listed_by_state_age_and_pattern(run: Run, bootstrap_servers: str, topic: str) -> None:
    name, quiet = topic_name("listed"), topic_name("quiet")
    producer = open_transaction(bootstrap_servers, name, topic)
    open_transaction(bootstrap_servers, quiet, topic).commit_transaction(DEADLINE_SECONDS)

    def listed(*words: str) -> set[str]:
        exit_code, out, err = run("list", *words)
        assert (exit_code, err) == (0, "")
        return {line.split("\t")[0] for line in out.splitlines()} & {name, quiet}

    assert listed() == {name, quiet}
    assert listed("--state", "ongoing") == {name}
    assert listed("--pattern", "quiet-.*") == {quiet}
    # What has no transaction is not old.
    assert listed("--older-than", "0s") == {name}
    assert listed("--older-than", "1h") == set()
    exit_code, out, err = run("list", "--pattern", "(")
    assert (exit_code, out) == (1, "")
    assert err.startswith("barnabas transactions: INVALID_REGULAR_EXPRESSION: ")
    producer.abort_transaction(DEADLINE_SECONDS)


def test_a_transaction_that_hangs_is_aborted_in_its_partition(run: Run, bootstrap_servers: str, topic: str) -> None:
    producer = open_transaction(bootstrap_servers, topic_name("hanging"), topic)
    place = ["--topic", topic, "--partition", "0", "--start-offset"]
    exit_code, out, err = run("abort", *place, "5")
    assert (exit_code, out) == (1, "")
    complaint = f"no open transaction of {topic}-0 begins at offset 5; the open ones begin at 0 (producer "
    assert err.startswith(f"barnabas transactions: {complaint}")
    exit_code, out, err = run("abort", *place, "0")
    assert (exit_code, err) == (0, "")
    assert out.startswith(f"aborted {topic}-0 from offset 0 on (producer ")
    assert stable_offset(bootstrap_servers, topic) == 2
    producer.abort_transaction(DEADLINE_SECONDS)


def test_aborting_is_told_as_json(run: Run, bootstrap_servers: str, topic: str) -> None:
    first, second = topic_name("json"), topic_name("json")
    producers = [open_transaction(bootstrap_servers, first, topic)]
    assert objects(run("abort", first, "--json")[1]) == [{"transactional_id": first, "aborted": True}]
    producers.append(open_transaction(bootstrap_servers, second, topic))
    (said,) = objects(run("abort", "--topic", topic, "--partition", "0", "--start-offset", "2", "--json")[1])
    assert (said["topic"], said["partition"], said["start_offset"], said["aborted"]) == (topic, 0, 2, True)


def test_what_fails_is_a_line_each_and_the_rest_is_done(run: Run, bootstrap_servers: str, topic: str) -> None:
    name, missing = topic_name("fine"), topic_name("missing")
    producer = open_transaction(bootstrap_servers, name, topic)
    complaint = f"barnabas transactions: TRANSACTIONAL_ID_NOT_FOUND: there is no transactional id '{missing}'\n"
    exit_code, out, err = run("describe", missing, name)
    assert (exit_code, out.split("\t")[0], err) == (1, name, complaint)
    assert run("describe", missing) == (1, "", complaint)
    assert run("abort", missing, name) == (1, f"aborted {name}\n", complaint)
    assert missing not in run("list")[1]
    del producer


def test_a_terminal_gets_tables(run: Run, bootstrap_servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic_name("shown")
    open_transaction(bootstrap_servers, name, topic).commit_transaction(DEADLINE_SECONDS)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    listed = run("list")[1].splitlines()
    assert listed[0].split() == ["TRANSACTIONAL_ID", "PRODUCER", "STATE", "COORDINATOR"]
    assert name in [line.split()[0] for line in listed]
    # It is committed for its client before its markers are written, and only then has it no time of its start.
    until(lambda: "CompleteCommit" in run("describe", name)[1])
    heading, row = run("describe", name)[1].splitlines()
    assert heading.split()[:6] == ["TRANSACTIONAL_ID", "STATE", "PRODUCER", "EPOCH", "TIME-OUT", "STARTED"]
    assert row.split()[5:7] == ["-", "-"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--topic", "t"],
        ["--topic", "t", "--partition", "0"],
        ["tx", "--topic", "t", "--partition", "0", "--start-offset", "0"],
    ],
)
def test_abort_needs_an_id_or_a_place(run: Run, words: list[str]) -> None:
    complaint = "abort needs either ids, or all of --topic, --partition and --start-offset"
    assert run("abort", *words) == (2, "", f"barnabas transactions: {complaint}\n")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["lsit"],
        ["list", "--state", "sleeping"],
        ["list", "--older-than", "10"],
        ["describe"],
        ["abort", "--topic", "t", "--partition", "-1", "--start-offset", "0"],
    ],
)
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["transactions", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas transactions")


@pytest.mark.parametrize("action", ["list", "describe", "abort"])
def test_help_of_each_action_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["transactions", action, "--help"])
    assert ended.value.code == 0
    assert f"example:\n  barnabas transactions {action} " in capsys.readouterr().out
