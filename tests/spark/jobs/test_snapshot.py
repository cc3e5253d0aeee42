"""Snapshots against a plain model of a topic's random past, from topic, archive and both."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from barnabas.client.client import Client
from barnabas.client.offsets import delete_records
from barnabas.model import TopicPartition
from barnabas.spark import connecting
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.job import Progress
from barnabas.spark.jobs.snapshot import snapshot
from tests.client.brokers import running_broker
from tests.spark.comparing import BROKERS
from tests.spark.jobs.histories import START_MS, Record, archived, random_history, write
from tests.spark.sink.topics import make_topic


class History(NamedTuple):
    """A topic on a broker, and what was written to it."""

    servers: str
    topic: str
    written: list[Record]


@pytest.fixture(scope="module", params=BROKERS)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with running_broker(request.param, tmp_path_factory.mktemp("snapshot") / request.param, request) as servers:
        yield History(servers, *random_history(servers, seed=6))
    connecting.close_clients()


def model(written: Sequence[Record]) -> dict[bytes, Record]:
    """The latest record of every key: of a partition the last one, and of several of these that with the last time."""
    last: dict[tuple[bytes, int], Record] = {}
    for record in written:
        if record.key is not None:
            last[record.key, record.partition] = record
    latest: dict[bytes, Record] = {}
    for (key, _), record in last.items():
        known = latest.get(key, record)
        latest[key] = max(known, record, key=lambda each: (each.timestamp_ms, each.offset, each.partition))
    return latest


def rows(spark: SparkSession, folder: Path) -> dict[bytes, Record]:
    found = {}
    for row in spark.read.parquet(str(folder)).collect():
        key = bytes(row.key)
        assert key not in found
        headers = tuple((name.encode(), None if value is None else bytes(value)) for name, value in row.headers or ())
        found[key] = Record(
            row.partition,
            row.offset,
            round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1000),
            key,
            None if row.value is None else bytes(row.value),
            headers,
        )
    return found


def alive(latest: dict[bytes, Record]) -> dict[bytes, Record]:
    return {key: record for key, record in latest.items() if record.value is not None}


def test_the_latest_value_of_every_key(spark: SparkSession, history: History, tmp_path: Path) -> None:
    servers, topic, written = history
    told: list[Progress] = []
    latest = model(written)
    result = snapshot(spark, topic, str(tmp_path / "out"), bootstrap_servers=servers, report=told.append)
    assert rows(spark, tmp_path / "out") == alive(latest)
    assert result.keys == len(alive(latest))
    assert result.tombstones == len(latest) - len(alive(latest)) > 0
    assert result.records_read == len(written)
    assert result.records_without_key == sum(record.key is None for record in written) > 0
    assert result.keys_in_several_partitions > 0
    assert {each.partition: (each.start, each.end) for each in result.partitions} == {
        partition: (0, sum(record.partition == partition for record in written)) for partition in range(3)
    }
    assert "have no key and are left out" in result.sentence()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["out"], "no draft is left"
    with pytest.raises(PipelineError, match=r"out is there already; with overwrite it would be replaced"):
        snapshot(spark, topic, str(tmp_path / "out"), bootstrap_servers=servers)
    again = snapshot(
        spark, topic, str(tmp_path / "out"), bootstrap_servers=servers, keep_tombstones=True, overwrite=True
    )
    assert rows(spark, tmp_path / "out") == latest
    assert again.keys == len(latest)


def test_a_snapshot_at_a_time_and_at_offsets_from_topic_and_archive(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    servers, topic, written = history
    archived(spark, servers, topic, tmp_path / "lake", written, cuts=(30, 60))
    moment = START_MS + 200_000
    ends = {
        partition: min(
            [each.offset for each in written if each.partition == partition and each.timestamp_ms > moment],
            default=sum(each.partition == partition for each in written),
        )
        for partition in range(3)
    }
    before = alive(model([each for each in written if each.offset < ends[each.partition]]))
    both = snapshot(
        spark, topic, str(tmp_path / "both"), bootstrap_servers=servers, archive=str(tmp_path / "lake"), at=moment
    )
    assert rows(spark, tmp_path / "both") == before
    assert {each.partition: each.end for each in both.partitions} == ends
    assert both.records_read == sum(ends.values())
    assert {each.from_archive_to for each in both.partitions} == {min(60, end) for end in ends.values()}
    alone = snapshot(
        spark, topic, str(tmp_path / "alone"), bootstrap_servers=servers, at=datetime.fromtimestamp(moment / 1000, UTC)
    )
    assert rows(spark, tmp_path / "alone") == before
    assert alone.records_read == both.records_read
    at_offsets = {0: 10, 1: 50, 2: 0}
    old = snapshot(spark, topic, str(tmp_path / "old"), archive=str(tmp_path / "lake"), at=at_offsets)
    assert rows(spark, tmp_path / "old") == alive(
        model([each for each in written if each.offset < at_offsets[each.partition]])
    )
    assert old.records_read == 60


def test_text_formats_have_text_or_base64(spark: SparkSession, barnabas_servers: str, tmp_path: Path) -> None:
    topic = make_topic(barnabas_servers, 1, {"retention.ms": "-1"})
    plain = Record(0, 0, START_MS, "Käse".encode(), b'gut, "sehr" gut', ((b"a", b"1"),))
    write(barnabas_servers, topic, [plain])
    snapshot(spark, topic, str(tmp_path / "json"), bootstrap_servers=barnabas_servers, format="json")
    (line,) = spark.read.text(str(tmp_path / "json")).collect()
    assert json.loads(line.value)["value"] == 'gut, "sehr" gut'
    snapshot(spark, topic, str(tmp_path / "csv"), bootstrap_servers=barnabas_servers, format="csv")
    (row,) = spark.read.option("header", "true").option("escape", '"').csv(str(tmp_path / "csv")).collect()
    assert row.key == "Käse"
    write(barnabas_servers, topic, [replace(plain, offset=1, key=b"\xff\x00")])
    with pytest.raises(PipelineError, match=r"^1 keys or values are not UTF-8 text: base64"):
        snapshot(spark, topic, str(tmp_path / "bad"), bootstrap_servers=barnabas_servers, format="json")
    assert not (tmp_path / "bad").exists()
    assert not list(tmp_path.glob("*.draft"))
    options = {"format": "csv", "encoding": "base64"}
    snapshot(spark, topic, str(tmp_path / "b64"), bootstrap_servers=barnabas_servers, **options)  # type: ignore[arg-type]
    found = spark.read.option("header", "true").csv(str(tmp_path / "b64")).collect()
    assert {row.key for row in found} == {"S8Okc2U=", "/wA="}


@pytest.fixture(scope="module")
def barnabas_servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    with running_broker("barnabas", tmp_path_factory.mktemp("snapshot") / "own", request) as servers:
        yield servers
    connecting.close_clients()


def test_what_can_not_be_done_is_said(spark: SparkSession, barnabas_servers: str, tmp_path: Path) -> None:
    servers = barnabas_servers
    topic, written = random_history(servers, seed=1, records=20, partitions=1)
    archived(spark, servers, topic, tmp_path / "lake", written, cuts=(5,))
    out = str(tmp_path / "out")
    for words, reason in (
        ({"topic": "nosuch", "bootstrap_servers": servers}, r"there is no topic 'nosuch'"),
        ({"bootstrap_servers": "127.0.0.1:1", "options": {"kafka.default.api.timeout.ms": "100"}}, "127.0.0.1:1"),
        ({}, "neither a broker nor one is given"),
        ({"archive": str(tmp_path)}, r"is not an archive: there is no _barnabas/archive\.json"),
        (
            {"topic": "other", "archive": str(tmp_path / "lake")},
            f"is the archive of topic {topic!r}, and not of 'other'",
        ),
        ({"bootstrap_servers": servers, "format": "xml"}, "option 'format' is parquet, json, csv, but 'xml'"),
        ({"bootstrap_servers": servers, "encoding": "hex"}, "option 'encoding' is text or base64, but 'hex'"),
        ({"bootstrap_servers": servers, "at": {0: 21}}, "can not end at offset 21 of partition 0, which has 0 to 20"),
        ({"bootstrap_servers": servers, "options": {"assign": "{}"}}, "option 'assign' is not for this job"),
        ({"bootstrap_servers": servers, "options": {"kafka.isolation.levle": "x"}}, "isolation.levle"),
    ):
        given = {"topic": topic, "output": out, **words}
        with pytest.raises(PipelineError, match=reason):
            snapshot(spark, **given)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    with Client(servers) as client:
        delete_records(client, {TopicPartition(topic, 0): 10})
    with pytest.raises(DataLossError, match="records of partition 0 from offset 5 to 10 are gone"):
        snapshot(spark, topic, out, bootstrap_servers=servers, archive=str(tmp_path / "lake"))
