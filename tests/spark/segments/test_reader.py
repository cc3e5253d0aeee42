"""Reading log directories: the rows are those that consumers get, whatever the codec, the cuts and the files' state."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from barnabas.records.codecs import Codec
from barnabas.spark.errors import DataLossError, PipelineError, sentence_of
from barnabas.spark.segments.options import read_read_options
from barnabas.spark.segments.reader import plan
from tests.kafka_peer.fixtures import KafkaDirectory
from tests.kafka_peer.populate import PARTITIONS, ConsumedRecord
from tests.records.message_sets import build_message_set
from tests.spark.segments.writing import Directory, batches_of, offsets_of, rows_of
from tests.storage.builders import NOW_MS, batch_of, marker_of, sent_by


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data", segment_bytes=3000, index_interval_bytes=200)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of several segments with batches of different sizes, codecs and producers; it ends at 800."""
    directory = Directory(tmp_path_factory.mktemp("several") / "data", segment_bytes=6000, index_interval_bytes=300)
    for number in range(100):
        directory.append(batch_of(8, size=number % 40, codec=Codec(number % 5)))
    directory.close()
    return directory.path


def expected_of(record: ConsumedRecord) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
        "timestampType": record.timestamp_type.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


@pytest.mark.kafka
@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_the_rows_of_kafka_s_directories_are_what_its_consumers_got(
    state: str, stopped_kafka: KafkaDirectory, killed_kafka: KafkaDirectory
) -> None:
    """Every codec, transactions open and aborted, compaction, the broker's time; cut as often as the indexes allow."""
    directory = stopped_kafka if state == "stopped" else killed_kafka
    topics = ",".join(PARTITIONS)
    levels = {"read_committed": directory.data.read_committed, "read_uncommitted": directory.data.read_uncommitted}
    for level, consumed in levels.items():
        rows = rows_of(
            directory.data_dir,
            subscribe=topics,
            includeHeaders="true",
            kafka_isolation_level=level,
            maxBytesPerPartition="1000",
        )
        in_order = sorted(consumed, key=lambda record: (record.topic, record.partition, record.offset))
        assert [row["offset"] for row in rows] == [record.offset for record in in_order]
        assert rows == [expected_of(record) for record in in_order]


@settings(max_examples=40)
@given(
    bytes_max=st.integers(1, 20_000),
    least=st.integers(1, 30),
    offsets=st.tuples(*[st.integers(0, 800)] * 2).map(sorted),
)
def test_cuts_lose_nothing_and_double_nothing(several: Path, bytes_max: int, least: int, offsets: list[int]) -> None:
    found = offsets_of(
        several,
        maxBytesPerPartition=str(bytes_max),
        minPartitions=str(least),
        startingOffsets=f'{{"orders": {{"0": {offsets[0]}}}}}',
        endingOffsets=f'{{"orders": {{"0": {offsets[1]}}}}}',
    )
    assert found == list(range(*offsets))


def test_more_tasks_where_more_are_asked_for(several: Path) -> None:
    counts = [len(plan(read_read_options({"path": str(several), "minPartitions": str(least)}))) for least in (1, 5, 20)]
    assert counts[0] == 1
    assert counts[0] < counts[1] < counts[2]
    assert [batch.num_rows for batch in batches_of(several, {})] == [800], "rows of several batches come together"


def test_without_an_index_or_with_a_wrong_one_the_rows_are_the_same(several: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(several, copy)
    for number, path in enumerate(sorted(copy.glob("*/*.index"))):
        content = bytearray(path.read_bytes())
        for place in range(4, len(content), 8):
            content[place + 3] ^= 1 + number % 3
        path.write_bytes(content) if number % 2 else path.unlink()
    assert offsets_of(copy, maxBytesPerPartition="500") == list(range(800))


def test_the_directory_of_a_running_broker_is_read_up_to_its_last_whole_batch(directory: Directory) -> None:
    directory.append(*[batch_of(5) for _ in range(40)])
    last = max((directory.path / "orders-0").glob("*.log"))
    with last.open("ab") as file:
        file.write(bytes(batch_of(5))[:-7])
    assert offsets_of(directory.path, maxBytesPerPartition="300") == list(range(200))


def test_only_committed_records_are_read_where_that_is_asked_for(directory: Directory) -> None:
    directory.append(sent_by(7, 0, 3, transactional=True), sent_by(8, 0, 2, transactional=True))
    directory.append(sent_by(7, 3, 3, transactional=True))
    directory.mark(marker_of(7, commit=False))
    directory.mark(marker_of(8, commit=True))
    directory.append(*[batch_of(5) for _ in range(30)], sent_by(7, 6, 1, transactional=True), batch_of(4))
    committed = [3, 4, *range(10, 160)]
    assert offsets_of(directory.path, kafka_isolation_level="read_committed", maxBytesPerPartition="1") == committed
    assert offsets_of(directory.path) == [*range(8), *range(10, 165)]
    directory.log().abandon()


def test_messages_of_the_old_formats_are_read(directory: Directory) -> None:
    """As Kafka before 0.11 left them: wrappers of magic 0 and 1, whose offset is that of their last message."""
    directory.append(batch_of(1))
    directory.close()
    messages = [(offset, NOW_MS + offset, b"k%d" % offset, b"v") for offset in range(4)]
    path = directory.path / "orders-0" / f"{0:020d}.log"
    path.write_bytes(build_message_set(1, messages, codec=Codec.GZIP))
    for index in path.parent.glob("*index"):
        index.unlink()
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    rows = rows_of(directory.path)
    assert [(row["offset"], row["key"], row["timestampType"]) for row in rows] == [
        (offset, b"k%d" % offset, 0) for offset in range(4)
    ]
    assert offsets_of(directory.path, startingOffsets='{"orders": {"0": 2}}', endingOffsets='{"orders": {"0": 3}}') == [
        2
    ]


def test_records_that_were_deleted_are_not_read(directory: Directory) -> None:
    directory.append(*[batch_of(5) for _ in range(30)])
    directory.log().delete_records(72)
    directory.checkpoint()
    assert offsets_of(directory.path) == list(range(72, 150))
    with pytest.raises(DataLossError, match="orders-0 has offsets from 72 to 150, but 3 is asked for"):
        offsets_of(directory.path, startingOffsets='{"orders": {"0": 3}}')
    directory.close()


def test_a_damaged_batch_is_named_with_its_file(several: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(several, copy)
    path = min(copy.glob("*/*.log"))
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=rf"{path} is damaged at byte 0: The checksum"):
        offsets_of(copy)


def test_spark_reads_the_same_rows_in_parallel(spark: SparkSession, several: Path) -> None:
    frame = (
        spark.read.format("barnabas-segments")
        .option("includeHeaders", "true")
        .option("minPartitions", "8")
        .load(str(several))
    )
    assert frame.rdd.getNumPartitions() >= 8
    rows = sorted(frame.collect(), key=lambda row: row["offset"])
    expected = rows_of(several, includeHeaders="true")
    assert [(row["offset"], bytes(row["key"]), bytes(row["value"])) for row in rows] == [
        (row["offset"], row["key"], row["value"]) for row in expected
    ]
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE") as raised:
        spark.read.format("barnabas-segments").load(str(several / "missing")).collect()
    assert sentence_of(raised.value) == f"{several / 'missing'} does not exist"
