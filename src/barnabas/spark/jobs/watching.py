"""Says how far a batch job is, by asking Spark how many tasks of its stages are done."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.spark.jobs.job import Progress, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.25


@contextlib.contextmanager
def watched(spark: SparkSession, step: str, report: Report) -> Iterator[None]:
    """Report how many tasks are done of what Spark does inside, from a thread of its own."""
    context = spark.sparkContext
    group = f"barnabas-{uuid.uuid4()}"
    context.setJobGroup(group, step)
    is_over = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not is_over.wait(POLL_SECONDS):
            done = total = 0
            for job_id in tracker.getJobIdsForGroup(group):
                job = tracker.getJobInfo(job_id)
                for stage_id in job.stageIds if job is not None else ():
                    stage = tracker.getStageInfo(stage_id)
                    if stage is not None:
                        done, total = done + stage.numCompletedTasks, total + stage.numTasks
            report(Progress(step=step, done=done, total=total))

    watcher = threading.Thread(target=watch, name="barnabas-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
