"""Bulk load by Spark: rows get into the topic once, whatever tasks fail, with a running broker and a stopped one."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from barnabas.client.client import Client
from barnabas.client.fetched import whole_batches
from barnabas.client.partitioner import partition_of_key
from barnabas.embedded import Broker
from barnabas.spark.errors import PipelineError, sentence_of
from barnabas.spark.jobs import load as load_job
from barnabas.spark.jobs.load import load
from barnabas.spark.segments import writer
from barnabas.spark.segments.parquet_rows import FilesPlan, plan_files
from barnabas.spark.segments.writer import SegmentsWriter
from barnabas.storage.files import OsFiles
from barnabas.storage.verifier import Fault, verify_partition
from tests.broker.asking import connected, create_topic, produce
from tests.spark.segments.writing import rows_of
from tests.spark.session_settings import saying
from tests.storage.builders import batch_of

COUNT = 5000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True, settings={"log.retention.ms": -1}) as broker:
        yield broker


def numbered(spark: SparkSession, count: int = COUNT) -> DataFrame:
    """Rows whose keys and values are their numbers, in four tasks."""
    number = F.col("id").cast("string")
    return spark.range(0, count, 1, 4).select(number.alias("key"), F.concat(F.lit("v"), number).alias("value"))


def create(broker: Broker, topic: str, partitions: int, **config: object) -> None:
    with connected(broker) as connection:
        create_topic(connection, topic, partitions, {name.replace("_", "."): value for name, value in config.items()})


def write(rows: DataFrame, **options: str) -> None:
    named = {name.replace("_", "."): value for name, value in options.items()}
    rows.write.format("barnabas-segments").options(**named).mode("append").save()


def sentence(raised: pytest.ExceptionInfo[Exception]) -> str:
    found = sentence_of(raised.value)
    assert found is not None, raised.value
    return found


def check_files(data: Path, topic: str) -> None:
    """What `barnabas verify` says, which is nothing; and that nothing is left of the load's folders."""
    faults: list[Fault] = []
    for folder in data.glob(f"{topic}-*"):
        list(verify_partition(OsFiles(), str(folder), faults.append, is_clean=False))
        assert [path.name for path in folder.glob(".*")] == []
    assert faults == []


def test_rows_are_loaded_once_by_key_and_read_by_every_reader(spark: SparkSession, broker: Broker) -> None:
    create(broker, "orders", 3)
    with connected(broker) as connection:
        produce(connection, "orders", batch_of(2), 1)
    servers = broker.bootstrap_servers
    options = {"segmentBytes": "20000", "batchBytes": "3000", "kafka.compression.type": "lz4"}
    result = load(
        spark,
        numbered(spark),
        "orders",
        bootstrap_servers=servers,
        load_id="nightly-1",
        options=options,
    )
    assert (result.load_id, result.topic, result.records) == ("nightly-1", "orders", COUNT)
    assert [(one.partition, one.base_offset) for one in result.ranges] == [(0, 0), (1, 2), (2, 0)]
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "orders").load()
    served = sorted(map(tuple, kafka.select("partition", "offset", "key", "value").collect()))
    files = [
        (row["partition"], row["offset"], row["key"], row["value"]) for row in rows_of(broker.data, subscribe="orders")
    ]
    assert [(partition, offset, bytes(key), bytes(value)) for partition, offset, key, value in served] == files
    loaded = [row for row in files if row[3].startswith(b"v") and row[2].isdigit()]
    assert sorted(int(key) for _, _, key, _ in loaded) == list(range(COUNT))
    assert all(partition == partition_of_key(key, 3) for partition, _, key, _ in loaded)
    for partition in range(3):
        own = [row for row in files if row[0] == partition]
        assert [row[1] for row in own] == list(range(len(own)))
    check_files(broker.data, "orders")
    with pytest.raises(PipelineError, match="load nightly-1 was adopted before, into topic orders"):
        load(spark, numbered(spark), "orders", bootstrap_servers=servers, load_id="nightly-1")
    assert len(rows_of(broker.data, subscribe="orders")) == len(files)
    check_files(broker.data, "orders")


def test_tasks_that_fail_and_are_tried_again_leave_nothing_behind(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """A task fails after the others have written theirs. On a cluster it is tried again; a local session has no second
    attempt, but the load has.
    """
    create(broker, "retried", 2)
    flag = str(tmp_path / "failed")

    def fail_once(number: int) -> str:
        if number == COUNT - 1 and not os.path.exists(flag):
            Path(flag).touch()
            raise RuntimeError("the test wanted it")
        return str(number)

    rows = spark.range(0, COUNT, 1, 4).select(F.udf(lambda number: fail_once(number), "string")("id").alias("value"))
    options = {"topic": "retried", "kafka_bootstrap_servers": broker.bootstrap_servers, "loadId": "again"}
    if str(spark.sparkContext.master).startswith("local["):
        with pytest.raises(Exception, match="the test wanted it"):
            write(rows, **options)
        check_files(broker.data, "retried")
        assert rows_of(broker.data, subscribe="retried") == []
    write(rows, **options)
    assert os.path.exists(flag)
    loaded = rows_of(broker.data, subscribe="retried")
    assert sorted(int(row["value"]) for row in loaded) == list(range(COUNT))


def kinds_of_rows(spark: SparkSession) -> DataFrame:
    """Rows with everything that a record can have, or not have."""
    number = F.col("id").cast("string")
    header = F.array(F.struct(F.lit("n").alias("key"), number.cast("binary").alias("value")))
    return spark.range(0, COUNT, 1, 4).select(
        F.when(F.col("id") % 7 > 0, number).alias("KEY"),
        F.when(F.col("id") % 5 > 0, number.cast("binary")).alias("value"),
        F.when(F.col("id") % 3 > 0, header).alias("headers"),
        F.when(F.col("id") % 2 > 0, F.timestamp_millis(F.lit(1_700_000_000_000) + F.col("id"))).alias("timestamp"),
        F.when(F.col("id") % 11 > 0, (F.col("id") % 3).cast("int")).alias("partition"),
        F.rand().alias("other"),
    )


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS"])
def test_files_are_loaded_as_a_frame_of_them_is(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: str
) -> None:
    before = str(spark.conf.get("spark.sql.parquet.outputTimestampType"))
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    try:
        kinds_of_rows(spark).write.parquet(str(tmp_path / "rows"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", before)
    planned = []

    def plan(path: str, task_count: int) -> FilesPlan | None:
        planned.append(plan_files(path, task_count))
        return planned[-1]

    monkeypatch.setattr(load_job, "plan_files", plan)
    found = {}
    for name, rows in (
        (f"files-{times}", str(tmp_path / "rows")),
        (f"frame-{times}", spark.read.parquet(str(tmp_path / "rows"))),
    ):
        create(broker, name, 3)
        result = load(spark, rows, name, bootstrap_servers=broker.bootstrap_servers, options={"BATCHBYTES": "3000"})
        assert result.records == COUNT
        check_files(broker.data, name)
        columns = ("key", "value", "headers", "timestamp", "partition")
        read = rows_of(broker.data, subscribe=name, includeHeaders="true")
        # Rows without a key and a time get those of the load: a partition in turn, and now.
        now = 1_750_000_000
        found[name] = sorted(
            str(
                [
                    None if column == "timestamp" and row[column].timestamp() > now else row[column]
                    for column in columns
                    if row["key"] is not None or column != "partition"
                ]
            )
            for row in read
        )
        assert len(found[name]) == COUNT
    files, frame = found.values()
    assert files == frame
    (plan_used,) = planned
    assert plan_used is not None and len(plan_used.tasks) > 1, "no more than the path was planned, and read by tasks"


def test_a_file_that_breaks_a_load_leaves_nothing_behind(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    create(broker, "broken", 1)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"value": [str(number) for number in range(100_000)]}), path, row_group_size=20_000)
    content = path.read_bytes()
    path.write_bytes(content[:-20_000] + bytes(15_000) + content[-5_000:])
    assert plan_files(str(path), 2) is not None, "the plan sees nothing of it"
    with pytest.raises(PipelineError, match=rf"{path} can not be read"):
        load(spark, str(path), "broken", bootstrap_servers=broker.bootstrap_servers)
    check_files(broker.data, "broken")
    assert rows_of(broker.data, subscribe="broken") == []


def test_damage_that_spark_would_see_is_seen(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    create(broker, "damaged", 1)
    rows = numbered(spark, 1000).coalesce(1)
    rows.write.option("compression", "none").option("parquet.enable.dictionary", "false").parquet(
        str(tmp_path / "rows")
    )
    (path,) = (tmp_path / "rows").glob("part-*")
    content = path.read_bytes()
    assert content.count(b"v77") > 0
    path.write_bytes(content.replace(b"v77", b"vXX"))
    assert plan_files(str(tmp_path / "rows"), 1) is not None
    with pytest.raises(PipelineError, match=rf"{path} can not be read: it is not as it was written"):
        load(spark, str(tmp_path / "rows"), "damaged", bootstrap_servers=broker.bootstrap_servers)
    check_files(broker.data, "damaged")


def test_settings_by_which_spark_reads_differently_leave_files_to_it(spark: SparkSession, tmp_path: Path) -> None:
    numbered(spark, 10).write.parquet(str(tmp_path / "rows"))
    path = os.path.relpath(tmp_path / "rows", os.getcwd())
    assert load_job._plan(spark, path) is not None, "also below the folder of the JVM"
    assert load_job._plan(spark, "") is None
    for name in load_job._SETTINGS_OF_READING:
        with saying(spark, {name: "true"}):
            assert load_job._plan(spark, str(tmp_path / "rows")) is None


def test_a_task_that_goes_on_after_its_load_was_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 1))
    for number in range(2):
        (tmp_path / f"orders-{number}").mkdir()
        (tmp_path / f"orders-{number}" / f"{0:020d}.log").touch()
    schema = StructType([StructField("value", StringType()), StructField("partition", IntegerType())])
    options = {"topic": "orders", "path": str(tmp_path), "loadId": "one", "batchBytes": "1"}
    load_of_one = SegmentsWriter(options, schema, overwrite=False)

    def rows(partition: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"value": ["v"], "partition": pa.array([partition], pa.int32())})

    def given_up() -> Iterator[pa.RecordBatch]:
        yield rows(0)
        yield rows(0)
        load_of_one.abort([])
        yield rows(0)
        yield rows(1)

    with pytest.raises(PipelineError, match=r"orders-1/\.load-one can not be written to: No such file"):
        load_of_one.write(given_up())
    assert [path.name for path in tmp_path.glob("*/.*")] == []


def test_a_stopped_broker_has_the_rows_when_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(in_process=True, data=tmp_path / "data", settings={"log.retention.ms": -1}) as stopped:
        create(stopped, "orders", 2)
        data = str(stopped.data)
        with pytest.raises(PipelineError, match="is in use by") as raised:
            load(spark, numbered(spark, 10), "orders", log_dirs=data)
        assert data in str(raised.value)
        stopped.stop()
        rows = numbered(spark, 100).withColumn("partition", (F.col("key").cast("int") % 2).cast("int"))
        rows = rows.withColumn("timestamp", F.timestamp_millis(F.lit(1_700_000_000_000) + F.col("key").cast("long")))
        rows.write.parquet(str(tmp_path / "rows"))
        result = load(spark, str(tmp_path / "rows"), "orders", log_dirs=data)
        assert [(one.partition, one.base_offset, one.end_offset) for one in result.ranges] == [(0, 0, 50), (1, 0, 50)]
        stopped.start()
        with Client(stopped.bootstrap_servers) as client:
            assert len(client.topic("orders").partitions) == 2
        found = rows_of(data)
        assert {int(row["key"]) % 2 == row["partition"] for row in found} == {True}
        times: Any = {int(row["key"]): row["timestamp"].timestamp() for row in found}
        assert times[7] == 1_700_000_000.007
        check_files(stopped.data, "orders")


def test_what_can_not_be_loaded_is_refused_in_a_sentence(spark: SparkSession, broker: Broker) -> None:
    create(broker, "small", 1, max_message_bytes=200)
    servers = broker.bootstrap_servers
    rows = numbered(spark, 100)
    for options, words in (
        ({"topic": "small"}, "max.message.bytes of topic small is 200: option 'batchBytes' makes batches smaller"),
        ({"topic": "none"}, "topic 'none' can not be loaded: there is no topic 'none'"),
        ({"topic": "small", "loadId": "../x"}, "option 'loadId' can not be used"),
    ):
        with pytest.raises(Exception, match="Traceback") as raised:
            write(rows, kafka_bootstrap_servers=servers, **options)
        assert words in sentence(raised)
    with pytest.raises(Exception, match="overwrite") as raised:
        rows.write.format("barnabas-segments").options(topic="small", path="/x").mode("overwrite").save()
    assert "mode 'append' is needed" in sentence(raised)
    with pytest.raises(Exception, match="partition") as raised:
        write(rows.withColumn("partition", F.lit(5)), topic="small", kafka_bootstrap_servers=servers)
    assert "topic 'small' has 1 partitions" in sentence(raised)
    check_files(broker.data, "small")
    write(rows.limit(0), topic="small", kafka_bootstrap_servers=servers)
    assert rows_of(broker.data, subscribe="small") == []


@pytest.mark.parametrize("open_bytes_max", [2_000, 1 << 25])
def test_batches_stay_open_until_they_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_bytes_max: int
) -> None:
    """A task of its own, without Spark: rows come in small pieces, and go to ten partitions in turns."""
    monkeypatch.setattr(writer, "OPEN_BYTES_MAX", open_bytes_max)
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 7))
    folders = [tmp_path / f"orders-{number}" for number in range(10)]
    for folder in folders:
        folder.mkdir()
        (folder / f"{0:020d}.log").touch()
    schema = StructType([StructField("VALUE", StringType()), StructField("partition", IntegerType())])
    task = SegmentsWriter({"topic": "orders", "path": str(tmp_path), "loadId": "one"}, schema, overwrite=False)
    values = [str(number) for number in range(400)]
    pieces = [
        pa.RecordBatch.from_arrays(
            [pa.array(values[at : at + 20]), pa.array([int(value) % 10 for value in values[at : at + 20]], pa.int32())],
            ["VALUE", "partition"],
        )
        for at in range(0, 400, 20)
    ]
    written = task.write(iter([pieces[0].slice(0, 0), *pieces]))
    assert [partition for partition, _ in written.segments] == list(range(10))
    for partition, segment in written.segments:
        assert segment.name.startswith("000003-7-")
        data = (folders[partition] / ".load-one" / f"{segment.name}.log").read_bytes()
        batches = list(whole_batches(memoryview(data)))
        found = [int(record.value or b"") for batch in batches for record in batch.records()]
        assert found == list(range(partition, 400, 10))
        assert (len(batches) == 1) == (open_bytes_max > 2_000)
