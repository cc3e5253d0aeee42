"""The job `archive`: every record once, whatever happens in between; decoded, or key by key; and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.groups import fetch_group_offsets
from barnabas.client.offsets import delete_records
from barnabas.model import TopicPartition
from barnabas.spark.archives.archive import open_archive
from barnabas.spark.archives.files import Files
from barnabas.spark.archives.manifest import CHECKPOINT
from barnabas.spark.archives.writer_lock import writer_lock
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs import archive as module
from barnabas.spark.jobs.archive import archive
from barnabas.spark.jobs.job import Progress
from barnabas.spark.unified_table import table
from tests.spark.jobs.moving import (
    filled_topic,
    kafka_servers,
    our_servers,
    produce,
    rows_of,
    servers,
    topic_rows,
)
from tests.spark.sink.topics import make_topic

__all__ = ["kafka_servers", "our_servers", "servers"]


def numbers(first: int, last: int) -> list[bytes | None]:
    return [f"value {number}".encode() for number in range(first, last)]


def test_every_record_is_archived_once_and_the_table_has_the_rest(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    topic, folder = filled_topic(servers, 200), str(tmp_path / "lake")
    told: list[Progress] = []
    first = archive(
        spark,
        topic,
        folder,
        bootstrap_servers=servers,
        records_per_commit=90,
        group_id=f"archive-{topic}",
        report=told.append,
    )
    assert (first.records, first.commits, len(first.partitions)) == (200, 3, 3)
    assert (told[0].done, told[0].total, told[-1].done) == (0, 200, 200)
    assert "archived 200 records" in first.sentence()
    expected = topic_rows(spark, servers, topic)
    kept = open_archive(spark, folder)
    assert rows_of(kept.records()) == expected
    ends = kept.end_offsets()
    assert sum(ends.values()) == 200
    with Client(servers) as client:
        group = fetch_group_offsets(client, f"archive-{topic}", [TopicPartition(topic, number) for number in ends])
    assert {each.partition: found.offset for each, found in group.items()} == ends
    places: dict[int, int] = {}
    for commit in kept.commits():
        for each in commit.ranges:
            assert places.get(each.partition, 0) == each.start
            assert each.records == each.end - each.start
            places[each.partition] = each.end
    again = archive(spark, topic, folder, bootstrap_servers=servers)
    assert (again.commits, again.records) == (0, 0)
    assert "has everything" in again.sentence()
    produce(servers, topic, numbers(200, 230), first=200, is_aborted=True)
    produce(servers, topic, numbers(200, 250), first=200, is_aborted=False)
    live = table(spark, topic, archive=folder, bootstrap_servers=servers)
    expected = topic_rows(spark, servers, topic)
    assert len(expected) == 250
    assert rows_of(live) == expected
    assert archive(spark, topic, folder, bootstrap_servers=servers).records == 50
    assert rows_of(open_archive(spark, folder).records()) == expected
    with pytest.raises(PipelineError, match=r"of topic .* and not of 'other'"):
        table(spark, "other", archive=folder, bootstrap_servers=servers)


def test_what_is_left_of_a_killed_run_is_passed_over(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    """Spark's note of a finished batch is lost, then its whole checkpoint; files without a commit lie about."""
    topic, folder = filled_topic(our_servers, 60), tmp_path / "lake"
    archive(spark, topic, str(folder), bootstrap_servers=our_servers)
    left = folder / "data" / "00000000000000000001-dead"
    left.mkdir()
    (left / "part.parquet").write_bytes(b"half of a file")
    for file in (folder / CHECKPOINT / "commits").glob("*0*"):
        file.unlink()
    for file in (folder / CHECKPOINT / "commits").glob(".*0*"):
        file.unlink()
    produce(our_servers, topic, numbers(60, 80), first=60)
    assert archive(spark, topic, str(folder), bootstrap_servers=our_servers).records == 20
    assert not left.exists()
    shutil.rmtree(folder / CHECKPOINT)
    produce(our_servers, topic, numbers(80, 100), first=80)
    with Client(our_servers) as client:
        assert create_partitions(client, {topic: 4}) == {}
    produce(our_servers, topic, numbers(100, 110), first=100, partitions=4)
    assert archive(spark, topic, str(folder), bootstrap_servers=our_servers).records == 30
    assert rows_of(open_archive(spark, str(folder)).records()) == topic_rows(spark, our_servers, topic)
    # A checkpoint that does not belong to the commits is noticed.
    (last, *_) = sorted((folder / "_barnabas/commits").glob("0*.json"), reverse=True)
    last.unlink()
    produce(our_servers, topic, numbers(110, 120), first=110)
    with pytest.raises(
        PipelineError, match=r"but its checkpoint goes on at \d+: delete the folder _barnabas/checkpoint"
    ):
        archive(spark, topic, str(folder), bootstrap_servers=our_servers)


SCHEMA = "id INT, name STRING"


def test_values_are_decoded_and_what_does_not_decode_is_kept_skipped_or_fatal(
    spark: SparkSession, our_servers: str, tmp_path: Path
) -> None:
    good = [b'{"id": 1, "name": "a"}', b'{"id": 2}', None, b"{}", '{"id": 3, "name": "ü"}'.encode()]
    bad = [b"nonsense", b"", b'{"id": "x"}', b"null", b"[]", b'{"id": 1, "name": "\xff"}']
    topic = make_topic(our_servers)
    produce(our_servers, topic, [*good, *bad])

    def run(folder: str, on_error: str) -> module.ArchiveResult:
        return archive(
            spark,
            topic,
            str(tmp_path / folder),
            bootstrap_servers=our_servers,
            decode="json",
            schema=SCHEMA,
            on_error=on_error,
        )

    result = run("letters", "dead-letter")
    assert (result.records, result.dead_letters, result.skipped) == (11, 6, 0)
    assert "6 could not be decoded and are in dead-letters" in result.sentence()
    kept = open_archive(spark, str(tmp_path / "letters"))
    decoded = [row.data and tuple(row.data) for row in kept.decoded().collect()]
    assert sorted(decoded, key=str) == sorted([(1, "a"), (2, None), None, (None, None), (3, "ü")], key=str)
    assert sorted(bytes(row.value) for row in kept.dead_letters().collect()) == sorted(bad)
    assert rows_of(kept.records()) == topic_rows(spark, our_servers, topic)
    skipped = run("skipped", "skip")
    assert (skipped.records, skipped.dead_letters, skipped.skipped) == (11, 0, 6)
    assert open_archive(spark, str(tmp_path / "skipped")).records().count() == 5
    with pytest.raises(PipelineError, match=r"the record at offset \d of topic-\w+-\d can not be decoded as json"):
        run("fatal", "fail")
    assert open_archive(spark, str(tmp_path / "fatal")).commits() == []


def test_an_upsert_keeps_the_last_record_of_every_key(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, folder = make_topic(our_servers), str(tmp_path / "lake")

    def latest() -> dict[tuple[int, bytes], tuple[object, ...]]:
        found: dict[tuple[int, bytes], tuple[object, ...]] = {}
        for (partition, _), row in sorted(topic_rows(spark, our_servers, topic).items()):
            found[partition, bytes(row[0])] = row
        return {key: row for key, row in found.items() if row[1] is not None}

    def kept(frame_rows: dict[tuple[int, int], tuple[object, ...]]) -> dict[tuple[int, bytes], tuple[object, ...]]:
        return {(place[0], bytes(row[0])): row for place, row in frame_rows.items()}  # type: ignore[call-overload]

    def run() -> module.ArchiveResult:
        return archive(
            spark, topic, folder, bootstrap_servers=our_servers, mode="upsert", buckets=4, records_per_commit=60
        )

    produce(our_servers, topic, numbers(0, 100))
    assert run().commits == 2
    assert kept(rows_of(open_archive(spark, folder).records())) == latest()
    produce(our_servers, topic, [None, None, b"new", None], first=100)
    assert kept(rows_of(table(spark, topic, archive=folder, bootstrap_servers=our_servers))) == latest()
    run()
    opened = open_archive(spark, folder)
    assert kept(rows_of(opened.records())) == latest()
    assert len(latest()) < 21
    assert opened.commits()[-1].removed
    assert kept(rows_of(opened.records(opened.commits()[:2]))) != latest(), "as it was before"
    assert opened.commits()[-1].records == 4


def test_a_new_archive_begins_where_it_is_told(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    """Once: it stays where the topic's end was at the first run. Other places are tested in test_places."""
    topic, folder = filled_topic(our_servers, 60), str(tmp_path / "lake")
    assert archive(spark, topic, folder, bootstrap_servers=our_servers, start="latest").commits == 0
    shutil.rmtree(tmp_path / "lake" / CHECKPOINT)
    produce(our_servers, topic, numbers(60, 66), first=60)
    result = archive(spark, topic, folder, bootstrap_servers=our_servers, start="latest")
    expected = {place: row for place, row in topic_rows(spark, our_servers, topic).items() if place[1] >= 20}
    assert rows_of(open_archive(spark, folder).records()) == expected
    assert json.loads(json.dumps(result.as_dict()))["records"] == 6
    assert result.rows() == [(number, 20, 22, 2) for number in range(3)]
    assert len(result.rows()[0]) == len(result.headings())


def test_losses_are_errors(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, folder = filled_topic(our_servers, 30), str(tmp_path / "lake")
    archive(spark, topic, folder, bootstrap_servers=our_servers)
    produce(our_servers, topic, numbers(30, 60), first=30)
    with Client(our_servers) as client:
        delete_records(client, {TopicPartition(topic, 0): 15})
    for run in (
        lambda: archive(spark, topic, folder, bootstrap_servers=our_servers),
        lambda: table(spark, topic, archive=folder, bootstrap_servers=our_servers),
    ):
        with pytest.raises(DataLossError, match="offset"):
            run()
    # On request it goes on, and the manifest shows what is missing.
    archive(spark, topic, folder, bootstrap_servers=our_servers, options={"failOnDataLoss": "false"})
    opened = open_archive(spark, folder)
    assert [(each.start, each.end) for each in opened.commits()[-1].ranges if each.partition == 0] == [(15, 20)]
    assert rows_of(opened.records()).keys() >= topic_rows(spark, our_servers, topic).keys()
    with Client(our_servers) as client:
        delete_topics(client, [topic])
    with pytest.raises(PipelineError, match=f"there is no topic '{topic}'"):
        archive(spark, topic, folder, bootstrap_servers=our_servers)
    with Client(our_servers) as client:
        create_topics(client, [NewTopic(name=topic, partitions=3)])
    for run in (
        lambda: archive(spark, topic, folder, bootstrap_servers=our_servers),
        lambda: table(spark, topic, archive=folder, bootstrap_servers=our_servers),
    ):
        with pytest.raises(DataLossError, match="deleted and created again"):
            run()


def test_a_topic_is_followed_until_somebody_interrupts(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, folder = filled_topic(our_servers, 30), str(tmp_path / "lake")
    seen: list[int] = []

    def report(progress: Progress) -> None:
        if progress.done == 30 and not seen:
            produce(our_servers, topic, numbers(30, 40), first=30)
        if progress.done:
            seen.append(progress.done)
        if progress.done == 40:
            raise KeyboardInterrupt

    result = archive(
        spark, topic, folder, bootstrap_servers=our_servers, follow=True, trigger="100 milliseconds", report=report
    )
    assert (result.records, seen[-1]) == (40, 40)
    assert rows_of(open_archive(spark, folder).records()) == topic_rows(spark, our_servers, topic)
    assert not any(query.isActive for query in spark.streams.active)
    with pytest.raises(PipelineError, match="option 'trigger' is 'soon', which is no time like '10 seconds'"):
        archive(spark, topic, folder, bootstrap_servers=our_servers, follow=True, trigger="soon")


def test_only_one_job_writes_to_an_archive(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic = make_topic(our_servers)
    with writer_lock(Files(spark, str(tmp_path))) as is_sure:
        assert is_sure
        with pytest.raises(PipelineError, match="another job is at work on"):
            archive(spark, topic, str(tmp_path), bootstrap_servers=our_servers)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"mode": "both"}, "option 'mode' is 'both'"),
        ({"on_error": "ignore"}, "option 'on_error' is 'ignore'"),
        ({"target_file_mb": 0}, "option 'target_file_mb' is a number from 1 on"),
        ({"start": "yesterday"}, "option 'start' has to be earliest, latest"),
        ({"decode": "xml", "schema": "a INT"}, "option 'decode' is 'xml'"),
        ({"decode": "json"}, "option 'schema' is needed to decode json"),
        ({"decode": "json", "schema": "a NUMBER"}, "option 'schema' is neither like"),
        ({"schema": "a INT"}, "nothing is decoded"),
        (
            {"decode": "avro", "schema": "{}"},
            r"needs Spark's Avro package: .*spark\.jars\.packages=org\.apache\.spark:",
        ),
        ({"table_format": "delta"}, r"option 'table_format' is delta, which this Spark does not have; start it with"),
        ({"table_format": "hudi"}, "option 'table_format' is 'hudi'"),
        ({"options": {"failOnDataLos": "true"}}, "failOnDataLos"),
    ],
)
def test_nonsense_is_refused(
    spark: SparkSession, our_servers: str, tmp_path: Path, wrong: dict[str, object], reason: str
) -> None:
    topic = make_topic(our_servers)
    with pytest.raises(PipelineError, match=reason):
        archive(spark, topic, str(tmp_path / "lake"), bootstrap_servers=our_servers, **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "lake/_barnabas/archive.json").exists()
