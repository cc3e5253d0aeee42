"""The job `replay`: what was in a source partition is in the target, in order, once, whenever the job was killed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.client.admin import NewTopic, create_topics, delete_topics
from barnabas.client.client import Client
from barnabas.client.sender import TransactionHandle
from barnabas.client.transactional import end_transactions
from barnabas.client.transactions import list_transactions
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs import replay as replay_job
from barnabas.spark.jobs.archive import archive
from barnabas.spark.jobs.job import Progress
from barnabas.spark.jobs.replay import replay
from barnabas.spark.sink import exactly_once
from tests.spark.jobs.moving import (
    filled_topic,
    kafka_servers,
    moment,
    our_servers,
    produce,
    servers,
)
from tests.spark.sink.topics import Read, make_topic, read_topic

__all__ = ["kafka_servers", "our_servers", "servers"]


def by_partition(records: Sequence[Read]) -> Mapping[int, list[Read]]:
    found: dict[int, list[Read]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record)
    return found


def test_an_archive_and_a_topic_are_replayed_as_they_were(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    source = filled_topic(servers, 90)
    produce(servers, source, [b"aborted"] * 6, is_aborted=True)
    produce(servers, source, [None, b"", b"last"], first=90)
    lake = str(tmp_path / "lake")
    archive(spark, source, lake, bootstrap_servers=servers, records_per_commit=50)
    expected = read_topic(servers, source)
    assert len(expected) == 93
    wide, copy = make_topic(servers, 5), make_topic(servers, 3)
    told: list[Progress] = []
    result = replay(spark, lake, wide, bootstrap_servers=servers, records_per_step=60, report=told.append)
    assert (result.records, result.keeps_partitions) == (93, True)
    assert told[-1].done == told[-1].total > 0
    assert by_partition(read_topic(servers, wide)) == by_partition(expected)
    checkpoint = str(tmp_path / "checkpoint")
    replay(spark, source, copy, bootstrap_servers=servers, checkpoint=checkpoint, records_per_step=60)
    assert by_partition(read_topic(servers, copy)) == by_partition(expected)
    again = replay(spark, source, copy, bootstrap_servers=servers, checkpoint=checkpoint, records_per_step=60)
    assert again.records == 0
    assert "was replayed to topic" in again.sentence()
    with pytest.raises(PipelineError, match="is the checkpoint of another replay"):
        replay(spark, source, wide, bootstrap_servers=servers, checkpoint=checkpoint)


class Killed(BaseException):
    """The driver is gone: nothing of ours catches this."""


@pytest.mark.parametrize("is_archive", [True, False])
def test_a_replay_that_was_killed_goes_on(
    spark: SparkSession, our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_archive: bool
) -> None:
    """Once with everything written and nothing decided, once decided, once with half of it committed."""
    topic, target = filled_topic(our_servers, 60), make_topic(our_servers, 2)
    source = topic
    if is_archive:
        source = str(tmp_path / "lake")
        archive(spark, topic, source, bootstrap_servers=our_servers)
    points = iter(["written", "decided", "half", "never", "never", "never"])

    def check_and_die(*arguments: Any) -> None:
        if (point := next(points)) == "written":
            raise Killed
        ends = end_transactions

        def die(client: Client, handles: Sequence[TransactionHandle], *, committed: bool) -> Any:
            if point == "half":
                ends(client, handles[:1], committed=committed)
            if point != "never":
                monkeypatch.setattr(exactly_once, "end_transactions", ends)
                raise Killed
            return ends(client, handles, committed=committed)

        monkeypatch.setattr(exactly_once, "end_transactions", die)

    monkeypatch.setattr(exactly_once, "_check_open", check_and_die)

    def run() -> Any:
        checkpoint = str(tmp_path / "checkpoint")
        return replay(spark, source, target, bootstrap_servers=our_servers, checkpoint=checkpoint, records_per_step=21)

    for _ in range(3):
        with pytest.raises(Killed):
            run()
    result = run()
    assert not result.keeps_partitions
    assert (result.steps, result.steps_done_before) == (3, 2)
    written, expected = read_topic(our_servers, target), read_topic(our_servers, topic)
    assert sorted(str(each[1:]) for each in written) == sorted(str(each[1:]) for each in expected)
    for partition in range(3):
        for key in {record.key for record in expected}:
            of_key = [each.value for each in expected if (each.partition, each.key) == (partition, key)]
            assert [each.value for each in written if each.value in of_key] == of_key, "in order"
    with Client(our_servers) as client:
        assert list_transactions(client, states=["Ongoing"]) == []


@pytest.mark.parametrize("is_target", [False, True])
def test_a_topic_that_is_made_again_on_the_way_is_not_mixed_with_the_old_one(
    spark: SparkSession, our_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_target: bool
) -> None:
    source, target = filled_topic(our_servers, 12), make_topic(our_servers)
    remade = target if is_target else source
    take = replay_job._Run._take

    def remake_and_take(run: Any, number: int) -> int:
        if number == 1:
            with Client(our_servers) as client:
                assert delete_topics(client, [remade]) == {}
                assert create_topics(client, [NewTopic(name=remade, partitions=3)]) == {}
            if not is_target:
                produce(our_servers, source, [b"new"] * 12)
        return take(run, number)

    monkeypatch.setattr(replay_job._Run, "_take", remake_and_take)
    with pytest.raises(DataLossError, match=f"topic '{remade}' was deleted and created again since this replay began"):
        replay(
            spark,
            source,
            target,
            bootstrap_servers=our_servers,
            checkpoint=str(tmp_path / "checkpoint"),
            records_per_step=6,
        )
    assert {each.value for each in read_topic(our_servers, target)} == (
        set() if is_target else {b"value %d" % number for number in range(6)}
    )
    with Client(our_servers) as client:
        assert list_transactions(client, states=["Ongoing"]) == []


def test_steps_of_another_plan_do_not_count(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    source, target, checkpoint = filled_topic(our_servers, 12), make_topic(our_servers), tmp_path / "checkpoint"
    given: dict[str, Any] = {"bootstrap_servers": our_servers, "checkpoint": str(checkpoint)}
    replay(spark, source, target, **given, to='{"0": 1, "1": 1, "2": 1}')
    for name in ("replay.json", ".replay.json.crc"):
        (checkpoint / name).unlink()
    with pytest.raises(PipelineError, match=r"/0\.finished is about batch 0 as it was planned before"):
        replay(spark, source, target, **given)


def test_a_range_is_replayed_and_nonsense_is_refused(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    topic, target = filled_topic(our_servers, 60), make_topic(our_servers)
    lake = str(tmp_path / "lake")
    archive(spark, topic, lake, bootstrap_servers=our_servers)
    replay(spark, lake, target, bootstrap_servers=our_servers, start=moment(30), to=moment(45))
    assert {each.value for each in read_topic(our_servers, target)} == {b"value %d" % n for n in range(30, 45)}
    checkpoint = str(tmp_path / "checkpoint")
    replay(
        spark,
        topic,
        target,
        bootstrap_servers=our_servers,
        checkpoint=checkpoint,
        start='{"0": 1, "1": 2, "2": 3}',
        to='{"0": 2, "1": 3, "2": 4}',
    )
    values = {each.value for each in read_topic(our_servers, target)}
    assert values == {b"value %d" % n for n in (3, 7, 11, *range(30, 45))}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"source": topic}, "option 'checkpoint' is needed to replay a topic"),
        ({"source": "nothing", "checkpoint": checkpoint + "1"}, "'nothing' is no archive, and there is no topic"),
        ({"source": lake, "target_topic": "nowhere"}, "there is no topic 'nowhere'"),
        ({"source": lake, "start": "50", "to": "5", "checkpoint": checkpoint + "2"}, "which is behind 'to'"),
        ({"source": lake, "start": "soon", "checkpoint": checkpoint + "3"}, "option 'start' has to be"),
        ({"source": lake, "records_per_step": 0}, "option 'records_per_step'"),
        ({"source": lake, "options": {"kafka.akcs": "1"}}, "kafka.akcs"),
    ]
    for wrong, reason in refused:
        with pytest.raises(PipelineError, match=reason):
            replay(spark, **{"target_topic": target, "bootstrap_servers": our_servers, **wrong})
