"""Kafka's own command line tools, each run as people run it, and its work checked with another client."""

import json

from tests.compat.coordinator_tools import COORDINATOR_TOOLS
from tests.compat.scenarios.scenario import eventually, numbers_of, read_all, wait_for_leaders
from tests.compat.tool import Tool, ToolContext
from tests.kafka_peer.peer import run_tool


def producer_performance(context: ToolContext) -> None:
    topic = context.new_topic()
    count = 5_000
    said = context.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
    )
    assert f"{count} records sent" in said
    assert context.driver.list_offset(topic, 0, "latest").offset == count


def verifiable_producer(context: ToolContext) -> None:
    topic = context.new_topic()
    count = 200
    said = context.run(
        "org.apache.kafka.tools.VerifiableProducer",
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--throughput",
        "-1",
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    [summary] = [event for event in events if event["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (count, count)
    offsets = [event["offset"] for event in events if event["name"] == "producer_send_success"]
    assert offsets == list(range(count))
    assert numbers_of(read_all(context.driver, topic)) == list(range(count))


def console_producer(context: ToolContext) -> None:
    topic = context.new_topic()
    context.run(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        *("--compression-codec", "zstd"),
        stdin="first:1\nsecond:2\n",
    )
    # Looked at by offset alone: the records are read by clients that may lack the codec.
    assert context.driver.list_offset(topic, 0, "latest").offset == 2


def console_consumer(context: ToolContext) -> None:
    topic = context.new_topic(records=10)
    said = context.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic, "--partition", "0", "--offset", "4", "--max-messages", "3"),
        *("--formatter-property", "print.offset=true"),
        log_level="info",
    )
    printed = [line for line in said.splitlines() if line.startswith("Offset:")]
    assert printed == ["Offset:4\t4", "Offset:5\t5", "Offset:6\t6"]
    # With --partition it is assigned, not a member of a group.
    assert "Discovered group coordinator" not in said


def topic_command(context: ToolContext) -> None:
    command = "org.apache.kafka.tools.TopicCommand"
    topic = context.topic
    said = context.run(command, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000")
    assert f"Created topic {topic}." in said
    wait_for_leaders(context.driver, topic, 2)
    assert topic in context.run(command, "--list").split()
    context.run(command, "--alter", "--topic", topic, "--partitions", "3")
    wait_for_leaders(context.driver, topic, 3)
    described = context.run(command, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=3600000" in described
    context.run(command, "--delete", "--topic", topic)
    eventually(lambda: topic not in context.driver.list_topics(), f"{topic} is gone")


def config_command(context: ToolContext) -> None:
    command = "kafka.admin.ConfigCommand"
    topic = context.new_topic()
    context.run(
        command, "--alter", "--topic", topic, "--add-config", "segment.ms=3600000,cleanup.policy=[compact,delete]"
    )
    settings = context.driver.topic_settings
    eventually(lambda: settings(topic)["segment.ms"].value == "3600000", "the new value is shown")
    assert settings(topic)["cleanup.policy"].value == "compact,delete"
    described = context.run(command, "--describe", "--topic", topic)
    assert "segment.ms=3600000" in described
    context.run(command, "--alter", "--topic", topic, "--delete-config", "segment.ms")
    eventually(lambda: settings(topic)["segment.ms"].is_default, "the default is back")
    described = context.run(command, "--describe", "--all", "--topic", topic)
    assert "max.message.bytes=1048588" in described
    [broker_id] = context.driver.describe_cluster().brokers
    described = context.run(command, "--describe", "--all", "--broker", str(broker_id))
    assert "num.partitions=2" in described
    assert "message.max.bytes=1048588" in described


def get_offset_shell(context: ToolContext) -> None:
    topic = context.new_topic(2, records=7)
    tool = "org.apache.kafka.tools.GetOffsetShell"
    assert context.run(tool, "--topic", topic).split() == [f"{topic}:0:7", f"{topic}:1:0"]
    context.driver.delete_records(topic, 0, 3)
    assert context.run(tool, "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:3", f"{topic}:1:0"]


def delete_records_command(context: ToolContext) -> None:
    topic = context.new_topic(records=10)
    asked = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 6}]}
    file = context.folder / "offsets.json"
    file.write_text(json.dumps(asked), encoding="utf-8")
    said = context.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(file))
    assert "low_watermark: 6" in said
    assert context.driver.list_offset(topic, 0, "earliest").offset == 6


def log_dirs_command(context: ToolContext) -> None:
    topic = context.new_topic(2, records=10)
    said = context.run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    [answer] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    [broker] = answer["brokers"]
    [directory] = broker["logDirs"]
    assert directory["error"] is None
    sizes = {partition["partition"]: partition["size"] for partition in directory["partitions"]}
    assert sorted(sizes) == [f"{topic}-0", f"{topic}-1"]
    assert sizes[f"{topic}-0"] > 0


def broker_api_versions_command(context: ToolContext) -> None:
    said = context.run("org.apache.kafka.tools.BrokerApiVersionsCommand")
    assert context.broker.bootstrap_servers in said
    assert "Produce(0): " in said
    # The tool says this of an API that the broker has and the client has not, with the numbers that both know.
    assert "ERROR" not in said


def cluster_tool(context: ToolContext) -> None:
    servers = context.broker.bootstrap_servers
    said = run_tool("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", servers)
    assert f"Cluster ID: {context.driver.describe_cluster().cluster_id}" in said


def transactions_command(context: ToolContext) -> None:
    topic = context.new_topic(records=5)
    said = context.run(
        "org.apache.kafka.tools.TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"
    )
    [header, row] = [line.split() for line in said.splitlines() if line.strip()]
    state = dict(zip(header, row, strict=True))
    assert (state["ProducerEpoch"], state["LastSequence"]) == ("0", "4")


TOOLS = [
    Tool(
        name="ProducerPerformance",
        sentence="Sends 5,000 records as fast as it can.",
        run=producer_performance,
    ),
    Tool(
        name="VerifiableProducer",
        sentence="Sends numbers and gets each acknowledged with its offset.",
        run=verifiable_producer,
    ),
    Tool(name="ConsoleProducer", sentence="Sends lines with keys, compressed.", run=console_producer),
    Tool(
        name="ConsoleConsumer",
        sentence="Prints records of one partition from an offset on, without joining a group.",
        run=console_consumer,
    ),
    Tool(name="TopicCommand", sentence="Creates, lists, describes, alters and deletes a topic.", run=topic_command),
    Tool(
        name="ConfigCommand",
        sentence="Adds, removes and describes settings of a topic, and describes those of a broker.",
        run=config_command,
    ),
    Tool(name="GetOffsetShell", sentence="Prints the latest and the earliest offsets.", run=get_offset_shell),
    Tool(
        name="DeleteRecordsCommand",
        sentence="Deletes records and prints the low watermark.",
        run=delete_records_command,
    ),
    Tool(name="LogDirsCommand", sentence="Prints the bytes on disk of each partition.", run=log_dirs_command),
    Tool(
        name="BrokerApiVersionsCommand",
        sentence="Prints the versions of all APIs that the broker offers.",
        run=broker_api_versions_command,
    ),
    Tool(name="ClusterTool", sentence="Prints the cluster's id.", run=cluster_tool),
    Tool(
        name="TransactionsCommand",
        sentence="Describes the producers that a partition knows.",
        run=transactions_command,
    ),
    *COORDINATOR_TOOLS,
]
