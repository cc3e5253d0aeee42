"""The job `ingest`: every row of every file once, and only what is new at the next run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.ingest import RecordExpressions, ingest
from barnabas.spark.jobs.job import Progress
from tests.spark.jobs.moving import kafka_servers, our_servers, servers
from tests.spark.sink.topics import make_topic, read_topic, values

__all__ = ["kafka_servers", "our_servers", "servers"]


def write_lines(file: Path, first: int, count: int) -> list[str]:
    lines = [
        json.dumps({"id": number, "name": f"name {number}", "none": None}) for number in range(first, first + count)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    return lines


def test_files_are_ingested_once(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    folder, topic = tmp_path / "incoming", f"ingested-{tmp_path.name}"
    write_lines(folder / "a.json", 0, 20)
    expressions = RecordExpressions(
        key="id",
        value="upper(name)",
        headers="array(named_struct('key', 'id', 'value', cast(cast(id as string) as binary)))",
        timestamp="timestamp_seconds(1700000000 + id)",
        partition="id % 2",
    )
    told: list[Progress] = []

    def run() -> Any:
        return ingest(
            spark,
            str(folder),
            topic,
            bootstrap_servers=servers,
            expressions=expressions,
            create_topic=True,
            partitions=2,
            reader_options={"password": f"hunter{len(told)}"},
            report=told.append,
        )

    assert run().records == 20
    write_lines(folder / "b.json", 20, 5)
    # What was copied with its time is older than what was seen, and new all the same; what was touched is not.
    long_ago = (folder / "a.json").stat().st_mtime - 20 * 86_400
    os.utime(folder / "b.json", (long_ago, long_ago))
    os.utime(folder / "a.json")
    result = run()
    assert (result.records, told[-1].done) == (5, 5)
    assert run().sentence().startswith("nothing new in")
    kept = [file.read_bytes() for file in (folder / "_barnabas").rglob("*") if file.is_file()]
    assert not any(b"hunter" in content for content in kept)
    found = read_topic(servers, topic)
    assert sorted(found, key=lambda each: int(each.key or b"")) == [
        (number % 2, b"%d" % number, b"NAME %d" % number, (("id", b"%d" % number),), (1_700_000_000 + number) * 1000)
        for number in range(25)
    ]
    with pytest.raises(PipelineError, match="is the checkpoint of another ingest: its headers is"):
        ingest(spark, str(folder), topic, bootstrap_servers=servers)


def test_a_dataframe_and_other_formats_are_ingested_once(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, checkpoint = make_topic(our_servers), str(tmp_path / "checkpoint")
    frame = spark.range(50).selectExpr("id", "cast(null as string) nothing")
    with pytest.raises(PipelineError, match="option 'checkpoint' is needed here"):
        ingest(spark, frame, topic, bootstrap_servers=our_servers)
    for _ in range(2):
        ingest(spark, frame, topic, bootstrap_servers=our_servers, checkpoint=checkpoint)
    assert values(read_topic(our_servers, topic)) == {b'{"id":%d,"nothing":null}' % n: 1 for n in range(50)}
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,x\n2,y\n")
    other = make_topic(our_servers)
    ingest(
        spark, str(table), other, bootstrap_servers=our_servers, source_format="csv", reader_options={"header": "true"}
    )
    assert values(read_topic(our_servers, other)) == {b'{"a":"1","b":"x"}': 1, b'{"a":"2","b":"y"}': 1}
    assert (tmp_path / f"_barnabas/ingest-{other}-table.csv/query").is_dir()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"source": "nowhere"}, "option 'source' is '.*nowhere', and Spark says to it"),
        ({"schema": "a NUMBER"}, "option 'schema' is 'a NUMBER'"),
        ({"topic": "nothing"}, "there is no topic 'nothing'"),
        (
            {"expressions": RecordExpressions(key="nme")},
            "option 'key' is 'nme', which is no expression over these rows",
        ),
        ({"expressions": RecordExpressions(value="upper(")}, "option 'value' is 'upper\\('"),
        ({"options": {"kafka.akcs": "1"}}, "kafka.akcs"),
        ({"source": "*.json"}, "option 'checkpoint' is needed here"),
    ],
)
def test_nonsense_is_refused(
    spark: SparkSession, our_servers: str, tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    write_lines(tmp_path / "here/a.json", 0, 2)
    topic = wrong.pop("topic", None) or make_topic(our_servers)
    source = str(tmp_path / wrong.pop("source", "here"))
    with pytest.raises(PipelineError, match=reason):
        ingest(spark, source, topic, bootstrap_servers=our_servers, **wrong)
    # Whoever mends it is not told of a checkpoint of another ingest.
    assert list(tmp_path.rglob("barnabas-ingest.json")) == []


def test_a_topic_that_was_made_again_is_refused(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic = make_topic(our_servers)
    write_lines(tmp_path / "a.json", 0, 2)
    ingest(spark, str(tmp_path), topic, bootstrap_servers=our_servers)
    with Client(our_servers) as client:
        delete_topics(client, [topic])
        create_topics(client, [NewTopic(name=topic, partitions=1)])
    with pytest.raises(PipelineError, match="deleted and created again since"):
        ingest(spark, str(tmp_path), topic, bootstrap_servers=our_servers)
