"""`barnabas pipeline verify DIR...`: checks log directories like `barnabas verify`, on all cores or a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Check every batch, record, index, snapshot and checkpoint of log directories, ours or Kafka's, a task a segment. Nothing
is changed. It finds what `barnabas verify` finds. All workers have to see the directories.
The exit code is 0 when there is no fault, and 1 when there is one; every fault is a row then."""
EXAMPLES = """\
examples:
  barnabas pipeline verify data
  barnabas pipeline verify data/orders-0 data/orders-1 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the job takes."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("directories", nargs="+", metavar="DIR", help="a log directory, or the folder of a partition")


def run(spark: SparkSession, arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.verify import verify  # It imports Spark.

    return verify(spark, arguments.directories, report=report)
