"""Exactly once under kills: the job `archive` as a process of its own, killed at steps of its commits; and the broker.

What is written by whom is tested with the job itself, in tests/spark/jobs/test_archive.py.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas import Broker
from barnabas.spark.archives.archive import open_archive
from barnabas.spark.archives.commit_writer import file_count
from barnabas.spark.archives.manifest import commit_name
from tests.spark.jobs.moving import produce, rows_of, topic_rows
from tests.spark.sink.topics import make_topic

RUN_SECONDS_MAX = 180
SEED = 7


@pytest.mark.parametrize(("size", "files"), [(0, 1), (100, 1), (149, 1), (151, 2), (1000, 10)])
def test_files_are_about_as_large_as_wanted(size: int, files: int) -> None:
    assert file_count(size, 100) == files


def run_job(output: Path, *arguments: object, expected: int) -> None:
    """Run a job until it is dead, or done."""
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.jobs.killed_job", *map(str, arguments)],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(RUN_SECONDS_MAX)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == expected, output.read_text()[-3000:]


def test_every_record_is_archived_once_whoever_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    generator = random.Random(SEED)
    lake, output = tmp_path / "lake", tmp_path / "output"
    points = generator.sample(["written", "committed"], 2)
    with Broker(data=tmp_path / "data", settings={"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        topic = make_topic(servers)
        produce(servers, topic, [b"%d" % number for number in range(3000)])
        job = ("pipeline", "archive", topic, lake, "--bootstrap-server", servers, "--records-per-commit", 500)
        number = 0
        for point in points:
            number += generator.randrange(1, 3)
            run_job(output, point, number, *job, expected=-signal.SIGKILL)
            assert (lake / commit_name(number)).exists() is (point == "committed")
            broker.kill()
            broker.start()
        produce(servers, topic, [b"%d" % number for number in range(3000, 3500)], first=3000)
        run_job(output, "never", 0, *job, "--json", expected=0)
        assert rows_of(open_archive(spark, str(lake)).records()) == topic_rows(spark, servers, topic)
        assert len(topic_rows(spark, servers, topic)) == 3500
        named = {name.split("/")[1] for commit in open_archive(spark, str(lake)).commits() for name in commit.files}
        assert {folder.name for folder in (lake / "data").iterdir()} == named, "what was left behind is gone"
