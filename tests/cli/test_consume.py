"""`barnabas consume`: from where, how much, in which form, and when it ends."""

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.groups import OffsetAndMetadata, fetch_group_offsets
from barnabas.client.offsets import LATEST, delete_records
from barnabas.client.producer import Producer
from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
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
)
from tests.cli.test_main import BARNABAS
from tests.client.brokers import topic_name
from tests.client.fake_broker import FakeBroker
from tests.client.group_members import member_of
from tests.client.test_coordinators import here
from tests.client.test_fetched import batch

START_MS = 1_700_000_000_000
DEADLINE_SECONDS = 60

Consume = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """Two partitions: v0 to v9 in the first, a minute apart, and one record with everything in the second."""
    name = topic_name("consume")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=name, partitions=2)]) == {}
        with Producer(client) as producer:
            for number in range(10):
                timestamp = START_MS + number * 60_000
                producer.send(name, b"v%d" % number, key=b"k%d" % number, partition=0, timestamp=timestamp)
                producer.flush()
            producer.send(name, b"\xff", headers=[(b"h", None)], partition=1, timestamp=START_MS)
    return name


@pytest.fixture
def consume(bootstrap_servers: str, topic: str, capfd: pytest.CaptureFixture[str]) -> Consume:
    """Runs `barnabas consume`, and gives exit code, stdout and stderr."""

    def run(*words: str, of: str = topic) -> tuple[int, str, str]:
        exit_code = main(["consume", of, "--bootstrap-server", bootstrap_servers, *words])
        said = capfd.readouterr()
        return exit_code, said.out, said.err

    return run


def values(first: int, end: int = 10) -> str:
    return "".join(f"v{number}\n" for number in range(first, end))


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ([], values(0)),
        (["--from", "earliest"], values(0)),
        (["--from", "latest"], ""),
        (["--from", "7"], values(7)),
        (["--from", "10"], ""),
        (["--from", "2023-11-14T22:15:20Z"], values(2)),
        (["--from", "2023-11-14T22:15:20.001"], values(3)),
        (["--from", "2023-11-14T23:15:20+01:00"], values(2)),
        (["--from", "2023-11-14"], values(0)),
        (["--from", "@1700000120000"], values(2)),
        (["--from", "1d"], ""),
        (["--from", "10000w"], values(0)),
        (["--max", "3"], values(0, 3)),
        (["--from", "5", "--max", "2"], values(5, 7)),
        (["--format", "key-value", "--max", "1"], "k0\tv0\n"),
        (["--format", "{partition}:{offset} {time}", "--max", "1"], "0:0 2023-11-14T22:13:20.000Z\n"),
    ],
)
def test_one_partition(consume: Consume, words: list[str], out: str) -> None:
    assert consume("--partition", "0", *words) == (0, out, "")


def test_all_partitions_as_json(consume: Consume, topic: str) -> None:
    exit_code, out, err = consume("--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (exit_code, err, len(rows)) == (0, "", 11)
    assert [row["offset"] for row in rows if row["partition"] == 0] == list(range(10))
    assert [row for row in rows if row["partition"] == 1] == [
        {
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": START_MS,
            "key": None,
            "value": {"base64": "/w=="},
            "headers": [["h", None]],
        }
    ]
    assert consume("--format", "{key}", "--partition", "1", "--null", "(none)")[1] == "(none)\n"


def test_what_is_piped_is_the_very_bytes(bootstrap_servers: str, topic: str) -> None:
    command = [BARNABAS, "consume", topic, "--partition", "1", "--bootstrap-server", bootstrap_servers]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (b"\xff\n", b"")


def test_output_of_consume_is_input_of_produce(bootstrap_servers: str, topic: str, consume: Consume) -> None:
    copy = topic_name("copy")
    with Client(bootstrap_servers) as client:
        assert create_topics(client, [NewTopic(name=copy, partitions=2)]) == {}
    script = '"$0" consume "$1" --format json | "$0" produce "$2" --json'
    environment = {"BARNABAS_BOOTSTRAP_SERVERS": bootstrap_servers, "PATH": "/usr/bin:/bin"}
    command = ["bash", "-c", script, BARNABAS, topic, copy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert done.stderr == f"barnabas produce: 11 records written to {copy}\n"
    original, copied = consume("--format", "json")[1], consume("--format", "json", of=copy)[1]
    assert sorted(copied.replace(copy, topic).splitlines()) == sorted(original.splitlines())


def test_only_committed_records_where_asked_for(bootstrap_servers: str, topic: str, consume: Consume) -> None:
    producer = ConfluentProducer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(DEADLINE_SECONDS)
    for word, end in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, word.encode(), partition=0)
        producer.flush(DEADLINE_SECONDS)
        end(DEADLINE_SECONDS)
    assert consume("--partition", "0", "--from", "10") == (0, "committed\naborted\n", "")
    committed = consume("--partition", "0", "--from", "10", "--isolation", "read_committed", "--timeout", "20")
    assert committed == (0, "committed\n", "")


def test_following_goes_on_until_there_is_enough_or_silence(
    bootstrap_servers: str, topic: str, consume: Consume
) -> None:
    assert consume("--follow", "--from", "8", "--partition", "0", "--max", "2") == (0, values(8), "")
    assert consume("--follow", "--timeout", "1") == (0, "", "")


def test_following_shows_what_comes_and_ends_with_ctrl_c(bootstrap_servers: str, topic: str) -> None:
    words = ["--follow", "--from", "9", "--partition", "0", "--bootstrap-server", bootstrap_servers]
    with subprocess.Popen(
        [BARNABAS, "consume", topic, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"v9\n"
        with Client(bootstrap_servers) as client, Producer(client) as producer:
            producer.send(topic, b"new", partition=0)
        assert process.stdout.readline() == b"new\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_has_seen_enough_ends_it_quietly(bootstrap_servers: str, topic: str) -> None:
    with Client(bootstrap_servers) as client, Producer(client) as producer:
        for _ in range(20_000):
            producer.send(topic, b"x" * 100, partition=0)
    script = '"$0" consume "$1" --bootstrap-server "$2" | head -n 1; echo "codes ${PIPESTATUS[*]}"'
    command = ["bash", "-c", script, BARNABAS, topic, bootstrap_servers]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stdout.endswith(b"\ncodes 0 0\n")
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--partition", "2"], "topic '{topic}' has partitions 0 to 1, but no 2"),
        (["--from", "3"], "an offset is one of a partition, and '{topic}' has 2: say --partition"),
        (["--from", "11", "--partition", "0"], "{topic}-0 has offsets 0 to 10, but not 11"),
    ],
)
def test_what_can_not_be_is_one_line(consume: Consume, topic: str, words: list[str], complaint: str) -> None:
    assert consume(*words) == (1, "", f"barnabas consume: {complaint.format(topic=topic)}\n")


def test_a_topic_that_does_not_exist_is_one_line(consume: Consume) -> None:
    missing = topic_name("missing")
    assert consume(of=missing) == (1, "", f"barnabas consume: there is no topic '{missing}'\n")


def test_an_offset_that_was_deleted_is_one_line(consume: Consume, bootstrap_servers: str, topic: str) -> None:
    with Client(bootstrap_servers) as client:
        delete_records(client, {TopicPartition(topic, 0): 4})
    complaint = f"barnabas consume: {topic}-0 has offsets 4 to 10, but not 2\n"
    assert consume("--partition", "0", "--from", "2") == (1, "", complaint)
    assert consume("--partition", "0") == (0, values(4), "")


def test_records_that_never_come_are_said(capfd: pytest.CaptureFixture[str]) -> None:
    def list_offsets(message: Any, version: int) -> Any:
        end = 5 if message.topics[0].partitions[0].timestamp == LATEST else 0
        row = ListOffsetsPartitionResponse(partition_index=0, offset=end)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    def fetch(message: Any, version: int) -> Any:
        rows = [PartitionData(partition_index=0, records=b"", high_watermark=5)]
        topic_id = message.topics[0].topic_id
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=rows)])

    with FakeBroker({"ListOffsets": list_offsets, "Fetch": fetch}, topics={"t": 1}) as broker:
        assert main(["consume", "t", "--timeout", "1", "--bootstrap-server", broker.bootstrap_servers]) == 1
    complaint = "barnabas consume: t-0 ends at offset 5, but nothing came from 0 on for 1 s\n"
    assert capfd.readouterr().err == complaint


def test_a_group_goes_on_where_it_was(bootstrap_servers: str, topic: str, consume: Consume) -> None:
    group = ["--group", topic_name("group"), "--partition", "0"]
    assert consume(*group, "--max", "3") == (0, values(0, 3), "")
    assert consume(*group, "--max", "2", "--from", "latest") == (0, values(3, 5), "")
    assert consume(*group) == (0, values(5), "")
    assert consume(*group) == (0, "", "")
    with Client(bootstrap_servers) as client:
        assert fetch_group_offsets(client, group[1]) == {TopicPartition(topic, 0): OffsetAndMetadata(offset=10)}
        with Producer(client) as producer:
            producer.send(topic, b"new", partition=0)
    assert consume(*group, "--follow", "--max", "1") == (0, "new\n", "")
    assert consume(*group, "--follow", "--timeout", "1") == (0, "", "")


def test_a_group_has_come_to_an_offset_of_each_partition(bootstrap_servers: str, topic: str, consume: Consume) -> None:
    group = topic_name("group")
    assert len(consume("--group", group, "--format", "{offset}")[1].splitlines()) == 11
    with Client(bootstrap_servers) as client:
        offsets = fetch_group_offsets(client, group)
    assert {partition.partition: found.offset for partition, found in offsets.items()} == {0: 10, 1: 1}


def test_a_group_whose_offset_is_deleted_begins_as_a_new_one(
    bootstrap_servers: str, topic: str, consume: Consume
) -> None:
    group = ["--group", topic_name("group"), "--partition", "0"]
    assert consume(*group, "--max", "1") == (0, values(0, 1), "")
    with Client(bootstrap_servers) as client:
        delete_records(client, {TopicPartition(topic, 0): 4})
    assert consume(*group) == (0, values(4), "")


def test_a_group_with_members_is_not_read_for(bootstrap_servers: str, topic: str, consume: Consume) -> None:
    group = topic_name("group")
    with member_of(bootstrap_servers, group, topic):
        refused = f"barnabas consume: group '{group}' has 1 member (Stable), and only they commit offsets\n"
        assert consume("--group", group) == (1, "", refused)


def test_a_commit_that_is_refused_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    def list_offsets(message: Any, version: int) -> Any:
        end = 1 if message.topics[0].partitions[0].timestamp == LATEST else 0
        row = ListOffsetsPartitionResponse(partition_index=0, offset=end)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    def fetch(message: Any, version: int) -> Any:
        rows = [PartitionData(partition_index=0, records=batch(0, b"v"), high_watermark=1)]
        topic_id = message.topics[0].topic_id
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=rows)])

    def describe(message: Any, version: int) -> Any:
        row = DescribedConsumerGroup(group_id="g", group_state="Empty")
        return ConsumerGroupDescribeResponse(groups=[row])

    def committed(message: Any, version: int) -> Any:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")])

    def commit(message: Any, version: int) -> Any:
        rows = [OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])

    handlers = {"ListOffsets": list_offsets, "Fetch": fetch, "FindCoordinator": here}
    handlers |= {"ConsumerGroupDescribe": describe, "OffsetFetch": committed, "OffsetCommit": commit}
    with FakeBroker(handlers, topics={"t": 1}) as broker:
        assert main(["consume", "t", "--group", "g", "--bootstrap-server", broker.bootstrap_servers]) == 1
    said = capfd.readouterr()
    assert said.out == "v\n"
    assert said.err.startswith("barnabas consume: UNKNOWN_MEMBER_ID: group 'g' has members")


def test_an_age_is_counted_from_now(bootstrap_servers: str, topic: str, consume: Consume) -> None:
    with Client(bootstrap_servers) as client, Producer(client) as producer:
        producer.send(topic, b"recent", partition=0, timestamp=SystemClock().now_ms() - 60_000)
    assert consume("--from", "10m") == (0, "recent\n", "")
    assert consume("--from", "30s") == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["t", "--from", "yesterday"],
        ["t", "--from", "99999999999999999999w"],
        ["t", "--format", "{colour}"],
        ["t", "--format", "xml"],
        ["t", "--max", "0"],
        ["t", "--isolation", "serializable"],
    ],
)
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["consume", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas consume")
