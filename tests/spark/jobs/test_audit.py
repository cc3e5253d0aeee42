"""Audits of sound archives, and of archives with one fault planted in each, which must be found and named."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from barnabas.client.client import Client
from barnabas.client.offsets import delete_records
from barnabas.model import TopicPartition
from barnabas.spark import connecting
from barnabas.spark.archives.archive import open_archive
from barnabas.spark.archives.manifest import commit_name
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.archive import archive
from barnabas.spark.jobs.audit import AuditResult, audit
from barnabas.spark.unified_table import table
from tests.client.brokers import running_broker
from tests.spark.comparing import BROKERS
from tests.spark.jobs.histories import Record, archived, copied, random_history
from tests.spark.jobs.moving import produce
from tests.spark.sink.topics import make_topic


class Lake(NamedTuple):
    """A topic, and an archive of the first 80 offsets of each partition in two commits."""

    servers: str
    topic: str
    written: list[Record]
    folder: Path


@pytest.fixture(scope="module", params=BROKERS)
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("audit") / request.param
    with running_broker(request.param, folder / "broker", request) as servers:
        topic, written = random_history(servers, seed=7, records=300, partitions=2)
        archived(spark, servers, topic, folder / "lake", written, cuts=(50, 80))
        yield Lake(servers, topic, written, folder / "lake")
    connecting.close_clients()


def kinds(result: AuditResult) -> list[tuple[str, int, int]]:
    return [(each.kind.value, each.partition, each.count) for each in result.findings]


def test_a_sound_archive(spark: SparkSession, lake: Lake) -> None:
    result = audit(spark, lake.topic, str(lake.folder), bootstrap_servers=lake.servers)
    ends = [sum(record.partition == partition for record in lake.written) for partition in range(2)]
    assert (result.is_fine, result.findings) == (True, ())
    assert (result.commits, result.files) == (2, 2)
    for each in result.partitions:
        assert (each.topic_start, each.topic_end) == (0, ends[each.partition])
        assert (each.archive_start, each.archive_end, each.records_in_topic, each.records_in_archive) == (0, 80, 80, 80)
        assert each.checksum_of_topic == each.checksum_of_archive != "0"
        assert each.not_archived_yet == ends[each.partition] - 80
    assert result.verdict.startswith("Nothing is lost, nothing is doubled: 160 records are the same")
    assert f"{sum(ends) - 160} offsets are not archived yet" in result.verdict


def rewritten(spark: SparkSession, folder: Path, change: Callable[[list[dict[str, object]]], None]) -> None:
    """Change the rows of the first commit's file, so that the manifest still fits to the file."""
    schema = open_archive(spark, str(folder)).records().schema
    path = folder / commit_name(0)
    commit = json.loads(path.read_text())
    (name,) = commit["files"]
    rows = [row.asDict(recursive=True) for row in spark.read.parquet(str(folder / name)).collect()]
    change(rows)
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(folder / "data/again"))
    (file,) = (folder / "data/again").glob("*.parquet")
    commit["files"] = {str(file.relative_to(folder)): file.stat().st_size}
    path.write_text(json.dumps(commit))


def row_at(rows: Sequence[dict[str, object]], offset: int) -> dict[str, object]:
    return next(row for row in rows if (row["partition"], row["offset"]) == (1, offset))


def test_planted_faults_are_found_and_named(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    def damaged(change: Callable[[Path], object], name: str) -> AuditResult:
        folder = copied(lake.folder, tmp_path / name)
        change(folder)
        result = audit(spark, lake.topic, str(folder), bootstrap_servers=lake.servers)
        assert not result.is_fine
        assert result.verdict.startswith("The archive is NOT what the topic is")
        return result

    def drop_double_and_change(rows: list[dict[str, object]]) -> None:
        rows.remove(row_at(rows, 7))
        rows.remove(row_at(rows, 8))
        rows.append(row_at(rows, 20))
        # Key and value of the same bytes in each other's place.
        row = row_at(rows, 30)
        row["key"], row["value"] = row["value"], row["key"]

    rows = damaged(lambda folder: rewritten(spark, folder, drop_double_and_change), "rows")
    assert kinds(rows) == [("missing", 1, 2), ("doubled", 1, 1), ("changed", 1, 1)]
    assert [each.what for each in rows.findings] == [
        "partition 1, offsets 7 to 8: are in the topic, but not in the archive",
        "partition 1, offset 20: is in the archive more than once",
        "partition 1, offset 30: is not the same in the archive",
    ]
    assert rows.partitions[1].checksum_of_topic != rows.partitions[1].checksum_of_archive
    assert rows.partitions[0].checksum_of_topic == rows.partitions[0].checksum_of_archive

    file = next((lake.folder / "data/1").glob("*.parquet")).relative_to(lake.folder)
    removed = damaged(lambda folder: (folder / file).unlink(), "file")
    assert kinds(removed) == [("file", -1, 1), ("missing", 0, 30), ("missing", 1, 30)]
    assert removed.findings[0].what == f"file {file} is missing"
    assert "offsets 50 to 79" in removed.findings[1].what

    torn = damaged(lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-9]), "torn")
    assert kinds(torn)[0] == ("file", -1, 1)
    assert "bytes instead of" in torn.findings[0].what

    lost = damaged(lambda folder: (folder / commit_name(0)).unlink(), "commit")
    assert kinds(lost)[0] == ("commit", -1, 1)
    assert lost.findings[0].what.startswith("commit 0 of the manifest is missing")


def test_a_commit_twice_is_doubled(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, written = random_history(our_servers, seed=2, records=30, partitions=1)
    archived(spark, our_servers, topic, tmp_path / "lake", written, cuts=(10, 20))
    (tmp_path / "lake" / commit_name(2)).write_text((tmp_path / "lake" / commit_name(1)).read_text())
    result = audit(spark, topic, str(tmp_path / "lake"), bootstrap_servers=our_servers)
    assert ("doubled", 0, 10) in kinds(result)
    assert "offsets 10 to 19 of partition 0 are in more than one commit" in [each.what for each in result.findings]


@pytest.fixture(scope="module")
def our_servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker("barnabas", tmp_path_factory.mktemp("audit") / "own", request) as servers:
        yield servers
    connecting.close_clients()


def test_what_the_topic_has_let_go_is_fine_unless_the_archive_has_it_twice_or_not(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    topic, written = random_history(our_servers, seed=3, records=40, partitions=1)
    archived(spark, our_servers, topic, tmp_path / "lake", written, cuts=(20, 40))
    with Client(our_servers) as client:
        delete_records(client, {TopicPartition(topic, 0): 30})
    fine = audit(spark, topic, str(tmp_path / "lake"), bootstrap_servers=our_servers)
    assert fine.is_fine
    assert (fine.partitions[0].only_in_archive, fine.partitions[0].records_in_topic) == (30, 10)
    assert "30 records are only in the archive any more" in fine.verdict
    rewritten(spark, copied(tmp_path / "lake", tmp_path / "less"), lambda rows: rows.pop())  # type: ignore[arg-type]
    less = audit(spark, topic, str(tmp_path / "less"), bootstrap_servers=our_servers)
    assert [each.what for each in less.findings] == ["partition 0: the manifest says 40 records, but the files have 39"]
    rewritten(spark, copied(tmp_path / "lake", tmp_path / "more"), lambda rows: rows.append(rows[4]))
    more = audit(spark, topic, str(tmp_path / "more"), bootstrap_servers=our_servers)
    assert [each.what for each in more.findings] == ["partition 0, offset 4: is in the archive more than once"]


def test_archives_of_the_job_with_holes_of_transactions_and_of_last_records(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    """Offsets of markers and of aborted records are no gaps; what was compacted since is said, and is fine."""
    topic = make_topic(our_servers, 2, {"cleanup.policy": "compact"})
    values: list[bytes | None] = [b"%d" % number for number in range(20)]
    produce(our_servers, topic, values, partitions=2, is_aborted=False)
    producer = Producer({"bootstrap.servers": our_servers, "transactional.id": f"aborting-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, b"aborted", b"key-1", number % 2)
    # Without this an abort would drop what was not sent yet, and there would be no aborted record at all.
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    produce(our_servers, topic, values, first=100, partitions=2, is_aborted=False)
    for mode, count in (("append", 40), ("upsert", 14)):
        folder = str(tmp_path / mode)
        archive(spark, topic, folder, bootstrap_servers=our_servers, mode=mode)
        result = audit(spark, topic, folder, bootstrap_servers=our_servers)
        assert result.findings == ()
        assert (result.mode, result.isolation_level) == (mode, "read_committed")
        assert sum(each.records_in_archive for each in result.partitions) == count
    uncommitted = audit(
        spark,
        topic,
        str(tmp_path / "append"),
        bootstrap_servers=our_servers,
        options={"kafka.isolation.level": "read_uncommitted"},
    )
    assert {each.kind.value for each in uncommitted.findings} == {"missing"}
    assert sum(each.missing for each in uncommitted.partitions) == 20


def test_records_without_a_key_are_all_in_an_archive_of_the_last_ones(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    topic, folder = make_topic(our_servers, 1), str(tmp_path / "lake")
    producer = Producer({"bootstrap.servers": our_servers})

    def send(*records: tuple[bytes | None, bytes | None]) -> None:
        for key, value in records:
            producer.produce(topic, value, key, 0)
        assert producer.flush(30) == 0

    send((b"a", b"1"), (None, b"2"), (b"a", b"3"), (None, b"4"), (None, None), (b"b", b"5"))
    archive(spark, topic, folder, bootstrap_servers=our_servers, mode="upsert")
    result = audit(spark, topic, folder, bootstrap_servers=our_servers)
    assert (result.findings, result.partitions[0].records_in_archive) == ((), 5)
    send((None, b"6"), (b"b", None))
    both = table(spark, topic, archive=folder, bootstrap_servers=our_servers)
    assert sorted(row.offset for row in both.collect()) == [1, 2, 3, 4, 6]


def test_what_can_not_be_decoded_is_there_beside_the_last_record_of_its_key(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    topic, folder = make_topic(our_servers, 1), str(tmp_path / "lake")
    producer = Producer({"bootstrap.servers": our_servers})
    for key, value in ((b"a", b'{"n": 1}'), (b"a", b"bad"), (b"b", b"bad"), (b"b", None), (b"c", b'{"n": 2}')):
        producer.produce(topic, value, key, 0)
    assert producer.flush(30) == 0
    archive(spark, topic, folder, bootstrap_servers=our_servers, mode="upsert", decode="json", schema="n INT")
    result = audit(spark, topic, folder, bootstrap_servers=our_servers)
    assert (result.findings, result.partitions[0].records_in_archive) == ((), 4)


def test_what_can_not_be_compared_is_refused(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, written = random_history(our_servers, seed=4, records=10, partitions=1)
    archived(spark, our_servers, topic, tmp_path / "lake", written, cuts=(10,))
    with pytest.raises(PipelineError, match="there is no topic 'nosuch'"):
        audit(spark, "nosuch", str(tmp_path / "lake"), bootstrap_servers=our_servers)
    with pytest.raises(PipelineError, match="is not an archive"):
        audit(spark, topic, str(tmp_path), bootstrap_servers=our_servers)
    text = (tmp_path / "lake/_barnabas/archive.json").read_text()
    path = copied(tmp_path / "lake", tmp_path / "older") / "_barnabas/archive.json"
    fields = json.loads(text) | {"topic_id": "00000000-0000-0000-0000-00000000002a"}
    path.unlink()
    path.write_text(json.dumps(fields))
    with pytest.raises(PipelineError, match="which was deleted and created again since"):
        audit(spark, topic, str(tmp_path / "older"), bootstrap_servers=our_servers)
