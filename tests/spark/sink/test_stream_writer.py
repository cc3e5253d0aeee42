"""Streaming writes: exactly once over batches and restarts, at least once on request, and Spark's own sink beside."""

import shutil
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from barnabas.client.client import Client
from barnabas.client.transactions import list_transactions
from barnabas.spark.errors import sentence_of
from barnabas.spark.sink.decisions import FINISHED, FOLDER, Decisions
from tests.spark.sink.topics import make_topic, read_topic, values


def files(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the lines of text files, one file a batch: what a batch has stays the same when it is replayed."""
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder)).repartition(2)


def add_file(folder: Path, number: int, rows: int = 50) -> dict[bytes | None, int]:
    folder.mkdir(exist_ok=True)
    lines = [f"{number}-{row}" for row in range(rows)]
    (folder / f"{number}.txt").write_text("\n".join(lines))
    return {line.encode(): 1 for line in lines}


def run(frame: DataFrame, servers: str, checkpoint: Path, sink: str = "barnabas", **options: str) -> None:
    """Write everything there is, and end."""
    query = (
        frame.writeStream.format(sink)
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_every_row_is_written_once_by_both_sinks_and_guarantees(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    expected = add_file(source, 0) | add_file(source, 1)
    ways = {
        "exactly": {},
        "at-least": {"deliveryGuarantee": "at-least-once"},
        "kafka": {"sink": "kafka"},
    }
    topics = {way: make_topic(servers) for way in ways}
    for way, options in ways.items():
        run(files(spark, source), servers, tmp_path / way, topic=topics[way], **options)
    expected |= add_file(source, 2)
    for way, options in ways.items():
        run(files(spark, source), servers, tmp_path / way, topic=topics[way], **options)
        assert values(read_topic(servers, topics[way])) == expected, way
    decisions = Decisions(str(tmp_path / "exactly"))
    assert decisions.batch_ids() == {0: FINISHED, 1: FINISHED, 2: FINISHED}
    assert not (tmp_path / "at-least" / FOLDER).exists()
    prefix = f"barnabas-spark-{decisions.query_id()}-"
    with Client(servers) as client:
        used = {each.transactional_id: each.state for each in list_transactions(client)}
    assert {name for name in used if name.startswith(prefix)} == {f"{prefix}0-0", f"{prefix}1-0"}
    assert "Ongoing" not in used.values()


def test_a_replayed_batch_is_not_written_again(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    """Spark forgot that the batch was done: the driver died after our commit and before Spark's."""
    source, checkpoint, topic = tmp_path / "source", tmp_path / "checkpoint", make_topic(our_servers)
    expected = add_file(source, 0)
    run(files(spark, source), our_servers, checkpoint, topic=topic)
    commits = checkpoint / "commits"
    for file in (*commits.glob("0"), *commits.glob(".0.crc")):
        file.unlink()
    expected |= add_file(source, 1)
    run(files(spark, source), our_servers, checkpoint, topic=topic)
    assert values(read_topic(our_servers, topic)) == expected


def test_a_batch_that_was_planned_anew_is_not_passed_over(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    """Spark's files of a batch were deleted, as some repair it, and then all of them: ours are of no use after that."""
    source, checkpoint, topic = tmp_path / "source", tmp_path / "checkpoint", make_topic(our_servers)
    first = add_file(source, 0)
    run(files(spark, source), our_servers, checkpoint, topic=topic)
    for kind in ("offsets", "commits", "sources/0"):
        (checkpoint / kind / "0").unlink()
        (checkpoint / kind / ".0.crc").unlink(missing_ok=True)
    add_file(source, 0, rows=60)
    with pytest.raises(StreamingQueryException) as raised:
        run(files(spark, source), our_servers, checkpoint, topic=topic)
    decision = Path(Decisions(str(checkpoint)).path(0, FINISHED))
    assert (sentence_of(raised.value) or "").startswith(f"{decision} is about batch 0 as it was planned before, but")
    for kind in ("offsets", "commits", "sources"):
        shutil.rmtree(checkpoint / kind, ignore_errors=True)
    for name in ("metadata", ".metadata.crc"):
        (checkpoint / name).unlink()
    with pytest.raises(StreamingQueryException) as raised:
        run(files(spark, source), our_servers, checkpoint, topic=topic)
    assert (sentence_of(raised.value) or "").startswith(f"{decision} is about batch 0 of another query (")
    assert values(read_topic(our_servers, topic)) == first
    # What the sentence says to do is a way out.
    shutil.rmtree(checkpoint / FOLDER)
    run(files(spark, source), our_servers, checkpoint, topic=topic)
    assert values(read_topic(our_servers, topic)) == {f"0-{row}".encode(): 2 if row < 50 else 1 for row in range(60)}


def test_a_batch_that_can_not_be_written_is_aborted_and_said(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    source, topic = tmp_path / "source", make_topic(our_servers)
    add_file(source, 0)
    frame = files(spark, source)

    def partition_of(value: str) -> int:
        """Name a partition that is not there, once the other task has begun; an abort before that would miss it."""
        if value != "0-7":
            return 0
        with Client(our_servers) as client:
            deadline = time.monotonic() + 60
            while not list_transactions(client, states=["Ongoing"]) and time.monotonic() < deadline:
                time.sleep(0.05)
        return 9

    bad = frame.withColumn("partition", sql.udf(partition_of, "int", useArrow=False)("value"))
    with pytest.raises(StreamingQueryException) as raised:
        run(bad, our_servers, tmp_path / "checkpoint", topic=topic)
    assert (
        sentence_of(raised.value) == f"a row has 9 in column 'partition', but topic '{topic}' has 3 partitions, from 0"
    )
    assert read_topic(our_servers, topic) == []
    with Client(our_servers) as client:
        assert list_transactions(client, states=["Ongoing"]) == []
    with pytest.raises(StreamingQueryException) as raised:
        run(frame, our_servers, tmp_path / "other", topic=topic, **{"kafka.transaction.timeout.ms": "2000000000"})
    assert "transaction.max.timeout.ms is less than the option" in (sentence_of(raised.value) or "")
