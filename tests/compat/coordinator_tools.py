"""Kafka's own command line tools for groups and transactions, and its dump of their logs."""

import json
import re
from collections.abc import Iterator

from tests.compat.brokers import KIND
from tests.compat.model import CommittedOffset, ConsumerOptions, MemberOptions, ProducerOptions
from tests.compat.scenarios.scenario import eventually, numbered, numbers_of, read, wait_for_leaders
from tests.compat.tool import Tool, ToolContext
from tests.kafka_peer.peer import complaints_of, dump_log, run_tool

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def rows_of(said: str) -> Iterator[dict[str, str]]:
    """The lines of a table that a tool printed, by their titles."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line[0].isupper() or line[0] == "TransactionalId")
    titles = lines[start]
    for line in lines[start + 1 :]:
        if len(line) == len(titles):
            yield dict(zip(titles, line, strict=True))


def consume(context: ToolContext, group: str, topic: str, count: int) -> None:
    """Commits the first records of a topic for a group, which then is empty."""
    with context.driver.member(MemberOptions(group=group, topic=topic)) as member:
        taken = 0

        def enough() -> bool:
            nonlocal taken
            taken += len(member.poll(commit=True).records)
            return taken >= count

        eventually(enough, f"{count} records come")


def console_consumer_in_a_group(context: ToolContext) -> None:
    topic = context.new_topic(records=10)
    command = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    arguments = ("--topic", topic, "--group", f"{topic}-group", "--from-beginning")
    first = context.run(command, *arguments, "--max-messages", "4")
    assert first.split()[:4] == ["0", "1", "2", "3"]
    assert context.driver.committed(f"{topic}-group", topic) == {0: CommittedOffset(offset=4)}
    second = context.run(command, *arguments, "--max-messages", "6", "--command-property", "group.protocol=consumer")
    assert second.split()[:6] == ["4", "5", "6", "7", "8", "9"]


def consumer_performance(context: ToolContext) -> None:
    topic = context.new_topic(2, records=500)
    said = context.run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--topic", topic, "--num-records", "500", "--group", f"{topic}-group", "--timeout", "30000"),
    )
    values = said.splitlines()[1].split(", ")
    assert int(values[4]) == 500, said


def consumer_group_command(context: ToolContext) -> None:
    topic = context.new_topic(2, records=10)
    group = f"{topic}-group"
    consume(context, group, topic, 10)
    assert group in context.run(GROUPS, "--list").split()
    [row] = [row for row in rows_of(context.run(GROUPS, "--describe", "--group", group)) if row["PARTITION"] == "0"]
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("10", "10", "0")
    said = context.run(GROUPS, "--describe", "--group", group, "--state")
    assert "Empty" in said
    reset = ("--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "3")
    [row] = [row for row in rows_of(context.run(GROUPS, *reset, "--dry-run")) if row["PARTITION"] == "0"]
    assert row["NEW-OFFSET"] == "3"
    assert context.driver.committed(group, topic)[0].offset == 10
    context.run(GROUPS, *reset, "--execute")
    assert context.driver.committed(group, topic)[0].offset == 3
    context.run(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert 0 not in context.driver.committed(group, topic)
    context.run(GROUPS, "--delete", "--group", group)
    assert group not in context.driver.list_groups()


def describe_members(context: ToolContext) -> None:
    topic = context.new_topic(2, records=3)
    group = f"{topic}-group"
    with context.driver.member(MemberOptions(group=group, topic=topic)) as member:
        eventually(lambda: len(member.poll(commit=True).assignment) == 2, "the member owns both partitions")
        said = context.run(GROUPS, "--describe", "--group", group, "--members", "--verbose")
        assert re.search(rf"\b{re.escape(topic)}[:(]", said), said
        assert "Stable" in context.run(GROUPS, "--describe", "--group", group, "--state", "--verbose")


def groups_command(context: ToolContext) -> None:
    topic = context.new_topic(records=1)
    consume(context, f"{topic}-group", topic, 1)
    said = context.run("org.apache.kafka.tools.GroupsCommand", "--list")
    [row] = [row for row in rows_of(said) if row["GROUP"] == f"{topic}-group"]
    assert (row["TYPE"], row["PROTOCOL"]) == ("Classic", "consumer")


def verifiable_consumer(context: ToolContext) -> None:
    topic = context.new_topic(2, records=50)
    said = context.run(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--topic", topic, "--group-id", f"{topic}-group", "--max-messages", "50", "--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 50
    [*_, committed] = [event for event in events if event["name"] == "offsets_committed"]
    assert committed["success"]
    assert context.driver.committed(f"{topic}-group", topic)[0].offset == 50


def transactions_command(context: ToolContext) -> None:
    topic = context.new_topic()
    options = ProducerOptions(transactional_id=topic)
    with context.driver.producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, numbered(2))
        [row] = [row for row in rows_of(context.run(TRANSACTIONS, "list")) if row["TransactionalId"] == topic]
        assert row["TransactionState"] == "Ongoing"
        said = context.run(TRANSACTIONS, "describe", "--transactional-id", topic)
        assert "Ongoing" in said
        assert f"{topic}-0" in said
        said = context.run(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
        assert row["ProducerId"] in said
        broker = str(context.driver.describe_cluster().controller_id)
        said = context.run(TRANSACTIONS, "find-hanging", "--broker-id", broker, "--max-transaction-timeout", "0")
        assert topic not in said, "its coordinator knows of it"
        context.run(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        # While the producer is there: closing it would abort the transaction too.
        with context.driver.producer(ProducerOptions()) as plain:
            plain.send(topic, numbered(1, start=2))
        options_of_reader = ConsumerOptions(read_committed=True)
        assert numbers_of(read(context.driver, topic, 1, options=options_of_reader)) == [2]


def transactional_message_copier(context: ToolContext) -> None:
    topic = context.new_topic(records=20)
    target = f"{topic}-copy"
    context.driver.create_topic(target, 1, {})
    wait_for_leaders(context.driver, target, 1)
    said = run_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", context.broker.bootstrap_servers, "--transactional-id", topic),
        *("--consumer-group", f"{topic}-group", "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", "20", "--transaction-size", "5"),
    )
    assert '"remaining":0' in said.replace(" ", "")
    copied = read(context.driver, target, 20, options=ConsumerOptions(read_committed=True))
    assert numbers_of(copied) == list(range(20))
    assert context.driver.committed(f"{topic}-group", topic)[0].offset == 20


def dump_of_internal_topics(context: ToolContext) -> None:
    """Only Barnabas' own files are of interest; those of Kafka are read in tests/kafka_peer."""
    topic = context.new_topic(records=3)
    group = f"{topic}-group"
    consume(context, group, topic, 3)
    with context.driver.producer(ProducerOptions(transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, numbered(1))
        producer.commit_transaction()
    if KIND != "barnabas":
        return
    offsets = sorted(context.data.glob("**/__consumer_offsets-*/*.log"))
    said = dump_log("--offsets-decoder", "--files", ",".join(map(str, offsets)))
    assert complaints_of(said) == []
    assert f'"group":"{group}","topic":"{topic}","partition":0' in said
    states = sorted(context.data.glob("**/__transaction_state-*/*.log"))
    said = dump_log("--transaction-log-decoder", "--files", ",".join(map(str, states)))
    assert complaints_of(said) == []
    assert f'"transactionalId":"{topic}"' in said


COORDINATOR_TOOLS = [
    Tool(
        name="ConsoleConsumer in a group",
        sentence="Prints records as a member of a group, in both protocols, and goes on where it was.",
        run=console_consumer_in_a_group,
    ),
    Tool(name="ConsumerPerformance", sentence="Reads 500 records as a member of a group.", run=consumer_performance),
    Tool(
        name="VerifiableConsumer",
        sentence="Reads numbers as a member of a group and commits their offsets.",
        run=verifiable_consumer,
    ),
    Tool(
        name="ConsumerGroupCommand",
        sentence="Lists and describes a group, resets and deletes its offsets, and deletes it.",
        run=consumer_group_command,
    ),
    Tool(
        name="ConsumerGroupCommand --members",
        sentence="Describes the members of a group with their partitions, and its state.",
        run=describe_members,
    ),
    Tool(name="GroupsCommand", sentence="Lists groups with their types and protocols.", run=groups_command),
    Tool(
        name="TransactionsCommand of a coordinator",
        sentence="Lists and describes a transaction, looks for hanging ones, and aborts it.",
        run=transactions_command,
    ),
    Tool(
        name="TransactionalMessageCopier",
        sentence="Copies a topic in transactions with its offsets.",
        run=transactional_message_copier,
    ),
    Tool(
        name="DumpLogSegments of internal topics",
        sentence="Prints committed offsets and states of transactions from Barnabas' own files.",
        run=dump_of_internal_topics,
    ),
]
