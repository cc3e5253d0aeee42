"""The commands of jobs that move data, one after the other, as somebody types them; on the session of all tests."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.cli import pipeline
from barnabas.cli.main import main
from tests.spark.jobs.moving import our_servers
from tests.spark.sink.topics import make_topic, read_topic

__all__ = ["our_servers"]


class Shared:
    """A session that a command can not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def stop(self) -> None:
        """Leave it to the next test."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


def test_ingest_archive_and_replay(
    spark: SparkSession,
    our_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pipeline, "start_session", lambda *_, **__: Shared(spark))
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", our_servers)

    def run(*words: str, code: int = 0) -> str:
        assert main(["pipeline", *words]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    incoming, lake, target = tmp_path / "incoming", str(tmp_path / "lake"), make_topic(our_servers, 2)
    incoming.mkdir()
    (incoming / "a.json").write_text('{"id": 1, "customer": "x"}\n{"id": 2, "customer": "y"}\n')
    ingest = ("ingest", str(incoming), "orders", "--key", "customer", "--create-topic", "--partitions", "2")
    assert run(*ingest) == (f"{incoming}\torders\t1\t2\ningested 2 records from {incoming} to topic 'orders'\n")
    assert run(*ingest).splitlines()[-1].startswith(f"nothing new in {incoming} for topic 'orders'")
    assert json.loads(run("archive", "orders", lake, "--json"))["records"] == 2
    assert run("archive", "orders", lake).endswith("has everything of topic 'orders' already\n")
    assert f"replayed 2 records of {lake} to topic '{target}', in the same partitions\n" in run("replay", lake, target)
    assert {record.key for record in read_topic(our_servers, target)} == {b"x", b"y"}
    nothing = run("archive", "nothing", str(tmp_path / "nothing"), code=2)
    assert nothing == "barnabas pipeline archive: there is no topic 'nothing'\n"
    nowhere = str(tmp_path / "nowhere")
    assert run("ingest", nowhere, "orders", code=2).startswith("barnabas pipeline ingest: option 'source' is")
    state = ("--checkpoint", str(tmp_path / "state"))
    assert "is no archive, and there is no topic 'missing'" in run("replay", "missing", target, *state, code=2)
