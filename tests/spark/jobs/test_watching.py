"""How far a batch job is, as Spark counts its tasks."""

import threading

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.jobs import watching
from barnabas.spark.jobs.job import Progress
from barnabas.spark.jobs.watching import watched


def test_tasks_are_counted_while_they_run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tasks wait for a file that is made once one of them was reported as done: the count is seen in between."""
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    gate = tmp_path_factory.mktemp("gate") / "open"
    seen: list[Progress] = []
    was_between = threading.Event()

    def report(progress: Progress) -> None:
        seen.append(progress)
        if 0 < progress.done < progress.total:
            was_between.set()
            gate.touch()

    def wait(index: int) -> int:
        import os
        import time

        deadline = time.monotonic() + 60
        while index and not os.path.exists(gate) and time.monotonic() < deadline:
            time.sleep(0.01)
        return index

    with watched(spark, "counting", report):
        assert spark.sparkContext.parallelize(range(4), 4).map(wait).sum() == 6
    assert was_between.is_set()
    assert {progress.step for progress in seen} == {"counting"}
    assert not any(thread.name == "barnabas-progress" for thread in threading.enumerate())
