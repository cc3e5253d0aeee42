"""The section `spark` of the benchmark, with few rows: every query runs, and every row is counted."""

import os

import pytest
from pyspark.sql import SparkSession

from bench.peers import start_barnabas
from bench.sections.spark import Plan, measure
from bench.spark.memory import MemoryWatch, descendants, resident_mb


def test_every_query_runs(spark: SparkSession) -> None:
    """Another Barnabas is in the place of Kafka, which takes longer to start than all this."""
    plan = Plan(warm_ups=1, rounds=1, rows=2_000, sessions=1)
    found = {each.name: each for each in measure(spark, plan, start_barnabas)}
    compared = [name for name in found if "against" in name]
    assert len(compared) == 9
    assert all(each.value > 0 for name, each in found.items() if "CPU" not in name)


def test_memory_is_that_of_a_process_and_of_those_below_it() -> None:
    with MemoryWatch(os.getpid()) as watch:
        pass
    assert watch.peak.driver_mb == pytest.approx(resident_mb(os.getpid()), rel=0.5)
    assert os.getpid() in descendants(os.getppid())
    assert resident_mb(2**22 + 1) == 0.0
