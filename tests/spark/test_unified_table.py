"""Archive and live tail as one table: where the broker's part begins, and what is refused.

Rows over both are compared with the topic in tests/spark/jobs/test_archive.py.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.client import Client
from barnabas.client.offsets import delete_records
from barnabas.model import TopicPartition
from barnabas.spark.archives.archive import Archive, open_or_create_archive
from barnabas.spark.archives.manifest import ArchiveDescription, Commit, OffsetRange
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.topics import find_topic
from barnabas.spark.unified_table import live_start, table
from tests.spark.jobs.moving import filled_topic, our_servers

__all__ = ["our_servers"]


def archived(spark: SparkSession, folder: Path, servers: str, topic: str, *ends: int) -> Archive:
    with Client(servers) as client:
        topic_id = str(find_topic(client, topic).topic_ids[topic])
    made = open_or_create_archive(spark, str(folder), ArchiveDescription(topic=topic, topic_id=topic_id))
    ranges = tuple(OffsetRange(partition=number, start=0, end=end, records=end) for number, end in enumerate(ends))
    made.add(Commit(number=0, timestamp_ms=0, ranges=ranges))
    return made


def test_the_broker_is_asked_for_the_rest(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic = filled_topic(our_servers, 60)

    def start(archive: Archive) -> dict[int, int]:
        return live_start(archive, archive.commits(), {"kafka.bootstrap.servers": our_servers})

    assert start(archived(spark, tmp_path / "some", our_servers, topic, 20, 7)) == {0: 20, 1: 7, 2: 0}
    rows = table(spark, topic, archive=str(tmp_path / "some"), bootstrap_servers=our_servers)
    assert rows.count() == 13 + 20
    with pytest.raises(DataLossError, match=r"-0 ends at offset 20, but the archive .* has it up to 21"):
        start(archived(spark, tmp_path / "more", our_servers, topic, 21))
    with pytest.raises(DataLossError, match=r"-3 is in the archive .*, but the topic has no such partition"):
        start(archived(spark, tmp_path / "wide", our_servers, topic, 0, 0, 0, 1))
    with Client(our_servers) as client:
        delete_records(client, {TopicPartition(topic, 2): 1})
    with pytest.raises(DataLossError, match=r"-2 begins at offset 1, but the archive .* ends at 0"):
        table(spark, topic, archive=str(tmp_path / "some"), bootstrap_servers=our_servers)
    with pytest.raises(PipelineError, match="is not an archive"):
        table(spark, topic, archive=str(tmp_path / "none"), bootstrap_servers=our_servers)
