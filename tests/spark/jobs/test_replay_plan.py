"""The steps of a replay, and that a restart takes the same."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.files import Files
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.replay_plan import PLAN, ReplayPlan, read_plan, wanted_text, write_plan


def plan(starts: dict[str, int], ends: dict[str, int], wanted: str = "") -> ReplayPlan:
    return ReplayPlan(
        source="a",
        source_topic="a",
        source_topic_id="1",
        target_topic="b",
        target_topic_id="2",
        starts=starts,
        ends=ends,
        step_offsets=10,
        keeps_partitions=True,
        commits=0,
        wanted=wanted,
    )


def test_steps_cover_everything_once() -> None:
    made = plan({"0": 5, "1": 0, "2": 7}, {"0": 30, "1": 10, "2": 7})
    assert (made.steps, made.offsets) == (3, 35)
    assert [made.step(number) for number in range(3)] == [{0: (5, 15), 1: (0, 10)}, {0: (15, 25)}, {0: (25, 30)}]
    assert plan({}, {}).steps == 0
    told = {made.step_text(number) for number in range(3)} | {plan({"0": 5}, {"0": 30}).step_text(0)}
    assert len(told) == 4, "each step has a text of its own"


def test_a_plan_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    wanted = wanted_text(source="a", target="b")
    assert read_plan(files, wanted) is None
    made = plan({"0": 5}, {"0": 30}, wanted)
    write_plan(files, made)
    assert read_plan(files, wanted) == made
    with pytest.raises(PipelineError, match="another job has begun"):
        write_plan(files, made)
    with pytest.raises(PipelineError, match="is the checkpoint of another replay, of a to topic 'b'"):
        read_plan(files, "other")
    for file in (tmp_path / PLAN, tmp_path / f".{PLAN}.crc"):
        file.unlink()
    (tmp_path / PLAN).write_text("[]")
    with pytest.raises(PipelineError, match="is not the plan of a replay"):
        read_plan(files, wanted)
