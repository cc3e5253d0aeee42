"""`barnabas groups reset`: from where to where, and what is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.groups import OffsetAndMetadata, commit_group_offsets, fetch_group_offsets
from barnabas.client.offsets import delete_records
from barnabas.client.producer import Producer
from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.group_admin import ConsumerGroupDescribeResponse, DescribedConsumerGroup
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.cli.conftest import Run
from tests.cli.test_consume import START_MS
from tests.client.brokers import topic_name
from tests.client.fake_broker import FakeBroker
from tests.client.test_coordinators import here

COMMAND = "groups"
Committed = Callable[[], dict[int, int]]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """Offsets 2 to 10 in partition 0, a minute apart, 0 to 1 in partition 1, none in partition 2."""
    name = topic_name("reset")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=3)]) == {}
        with Producer(client) as producer:
            for number in range(10):
                producer.send(name, b"v", partition=0, timestamp=START_MS + number * 60_000)
                producer.flush()
            producer.send(name, b"v", partition=1, timestamp=SystemClock().now_ms() - 60_000)
        delete_records(client, {TopicPartition(name, 0): 2})
    return name


@pytest.fixture
def group(bootstrap_servers: str, topic: str) -> str:
    """A group that has read up to 5 in partition 0, and up to 1 in partition 1."""
    name = topic_name("group")
    with Client(bootstrap_servers) as client:
        offsets = {TopicPartition(topic, number): OffsetAndMetadata(offset=at) for number, at in ((0, 5), (1, 1))}
        assert commit_group_offsets(client, name, offsets) == {}
    return name


@pytest.fixture
def committed(bootstrap_servers: str, group: str) -> Committed:
    """A function that gives the offsets of the group by partition."""

    def ask() -> dict[int, int]:
        with Client(bootstrap_servers) as client:
            offsets = fetch_group_offsets(client, group)
        return {partition.partition: found.offset for partition, found in sorted(offsets.items())}

    return ask


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["--topic", "{topic}", "--to", "earliest"], {0: 2, 1: 0, 2: 0}),
        (["--topic", "{topic}", "--to", "latest"], {0: 10, 1: 1, 2: 0}),
        (["--topic", "{topic}:0", "--to", "7"], {0: 7, 1: 1}),
        (["--topic", "{topic}:2,0", "--topic", "{topic}:1", "--to", "latest"], {0: 10, 1: 1, 2: 0}),
        (["--all-topics", "--to", "latest"], {0: 10, 1: 1}),
        (["--all-topics", "--to", "2023-11-14T22:16:20Z"], {0: 3, 1: 0}),
        (["--all-topics", "--to", f"@{START_MS + 240_001}"], {0: 5, 1: 0}),
        (["--all-topics", "--to", "1h"], {0: 10, 1: 0}),
        (["--topic", "{topic}:0", "--shift", "3"], {0: 8, 1: 1}),
        (["--topic", "{topic}:0", "--shift", "-2"], {0: 3, 1: 1}),
        (["--all-topics", "--shift", "+0"], {0: 5, 1: 1}),
    ],
)
def test_offsets_are_reset(
    run: Run,
    topic: str,
    group: str,
    committed: Committed,
    words: list[str],
    after: dict[int, int],
) -> None:
    before = committed()
    exit_code, out, err = run("reset", group, *(word.format(topic=topic) for word in words))
    assert (exit_code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:2] for row in rows] == [[group, topic]] * len(rows)
    for _, _, partition, old, new in rows:
        assert (old, new) == (str(before.get(int(partition), "-")), str(after[int(partition)]))
    assert committed() == after


def test_a_dry_run_shows_and_changes_nothing(run: Run, topic: str, group: str, committed: Committed) -> None:
    said = run("reset", group, "--topic", topic, "--to", "earliest", "--dry-run")
    assert said == (
        0,
        f"{group}\t{topic}\t0\t5\t2\n{group}\t{topic}\t1\t1\t0\n{group}\t{topic}\t2\t-\t0\n",
        "barnabas groups: nothing was changed, because of --dry-run\n",
    )
    assert committed() == {0: 5, 1: 1}


def test_what_lies_outside_of_the_log_is_moved_and_said(
    run: Run,
    topic: str,
    group: str,
    committed: Committed,
) -> None:
    exit_code, out, err = run("reset", group, "--all-topics", "--shift", "-4", "--json")
    assert exit_code == 0
    assert err.splitlines() == [
        f"barnabas groups: {topic}-0 begins at offset 2, which is used instead of 1",
        f"barnabas groups: {topic}-1 begins at offset 0, which is used instead of -3",
    ]
    assert json.loads(out.splitlines()[0]) == {
        "group": group,
        "topic": topic,
        "partition": 0,
        "old_offset": 5,
        "new_offset": 2,
        "wanted_offset": 1,
        "reset": True,
    }
    assert committed() == {0: 2, 1: 0}
    exit_code, out, err = run("reset", group, "--topic", f"{topic}:0", "--to", "99", "--dry-run", "--json")
    assert (exit_code, json.loads(out)["new_offset"], json.loads(out)["reset"]) == (0, 10, False)
    assert err.startswith(f"barnabas groups: {topic}-0 ends at offset 10, which is used instead of 99\n")


def test_a_group_is_made_by_resetting_it(run: Run, topic: str) -> None:
    name = topic_name("new")
    assert run("reset", name, "--topic", f"{topic}:1", "--to", "latest") == (0, f"{name}\t{topic}\t1\t-\t1\n", "")
    assert run("describe", name)[0] == 0


def test_what_belongs_to_a_deleted_topic_is_no_obstacle(run: Run, bootstrap_servers: str, topic: str) -> None:
    name, gone = topic_name("group"), topic_name("gone")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=gone, partitions=1)]) == {}
        offsets = {TopicPartition(each, 0): OffsetAndMetadata(offset=0) for each in (gone, topic)}
        assert commit_group_offsets(client, name, offsets) == {}
        assert delete_topics(client, [gone]) == {}
    exit_code, out, _ = run("reset", name, "--all-topics", "--to", "latest")
    assert (exit_code, out) == (0, f"{name}\t{topic}\t0\t0\t10\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["{group}", "--topic", "{topic}:3", "--to", "0"], "topic '{topic}' has partitions 0 to 2, but no 3"),
        (["{group}", "--topic", "missing", "--to", "0"], "there is no topic 'missing'"),
        (
            ["{group}", "--topic", "{topic}", "--shift", "1"],
            "group '{group}' has no committed offset to shift in {topic}-2",
        ),
        (
            ["nobody", "--all-topics", "--to", "earliest"],
            "group 'nobody' has no committed offsets: name what to reset by --topic",
        ),
    ],
)
def test_what_can_not_be_is_one_line_and_changes_nothing(
    run: Run,
    topic: str,
    group: str,
    committed: Committed,
    words: list[str],
    complaint: str,
) -> None:
    said = run("reset", *(word.format(topic=topic, group=group) for word in words))
    assert said == (1, "", f"barnabas groups: {complaint.format(topic=topic, group=group)}\n")
    assert committed() == {0: 5, 1: 1}


def describe(message: Any, version: int) -> Any:
    row = DescribedConsumerGroup(group_id="g", group_state="Empty")
    return ConsumerGroupDescribeResponse(groups=[row])


def list_offsets(message: Any, version: int) -> Any:
    row = ListOffsetsPartitionResponse(partition_index=0, offset=0)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


def fetch(message: Any, version: int) -> Any:
    rows = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)]
    topics = [OffsetFetchResponseTopics(name=name, partitions=rows) for name in ("gone", "t")]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def commit(code: ErrorCode) -> OffsetCommitResponse:
    rows = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])


@pytest.mark.parametrize(
    ("words", "code", "exit_code", "complaint"),
    [
        # The group has no member when it is described, and one when the offsets are committed.
        (
            ["--topic", "t"],
            ErrorCode.UNKNOWN_MEMBER_ID,
            1,
            "UNKNOWN_MEMBER_ID: group 'g' has members: the offset of t-0 is not committed",
        ),
        (
            ["--all-topics"],
            ErrorCode.NONE,
            0,
            "gone-0 is left as it is, because there is no such partition any more",
        ),
    ],
)
def test_what_is_not_reset_is_told(
    capsys: pytest.CaptureFixture[str], words: list[str], code: ErrorCode, exit_code: int, complaint: str
) -> None:
    handlers = {"ConsumerGroupDescribe": describe, "ListOffsets": list_offsets, "FindCoordinator": here}
    handlers |= {"OffsetFetch": fetch, "OffsetCommit": lambda message, version: commit(code)}
    with FakeBroker(handlers, topics={"t": 1}) as broker:
        words = ["g", *words, "--to", "earliest", "--bootstrap-server", broker.bootstrap_servers]
        assert main(["groups", "reset", *words]) == exit_code
    said = capsys.readouterr()
    assert (said.out, said.err) == ("" if exit_code else "g\tt\t0\t5\t0\n", f"barnabas groups: {complaint}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["g", "--topic", "t:", "--to", "0"],
        ["g", "--topic", ":0", "--to", "0"],
        ["g", "--topic", "t:a", "--to", "0"],
        ["g", "--topic", "t", "--all-topics", "--to", "0"],
        ["g", "--topic", "t", "--to", "yesterday"],
        ["g", "--topic", "t", "--to", "0", "--shift", "1"],
        ["g", "--topic", "t", "--shift", "some"],
        ["g", "--topic", "t", "--shift", "--"],
    ],
)
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["groups", "reset", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas groups reset")
