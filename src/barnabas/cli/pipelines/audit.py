"""`barnabas pipeline audit TOPIC ARCHIVE`: a topic against its archive."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server
from barnabas.cli.pipelines.arguments import add_options
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Compare every record of a topic with its archive: offsets, counts and checksums of each partition, and the files and
commits of the archive. What the archive does not have yet is fine, and so is what the topic does not have any more.
The exit code is 0 when nothing is lost, doubled or different, and 1 otherwise; every finding is a line then."""
EXAMPLES = """\
examples:
  barnabas pipeline audit orders lake/orders
  barnabas pipeline audit orders s3a://lake/orders --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the job takes."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument("archive", metavar="ARCHIVE", help="the folder of its archive")
    add_bootstrap_server(parser)
    add_options(parser, what="the format `barnabas`, such as kafka.security.protocol=SSL")


def run(spark: SparkSession, arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.audit import audit  # It imports Spark.

    return audit(
        spark,
        arguments.topic,
        arguments.archive,
        bootstrap_servers=arguments.bootstrap_server,
        options=dict(arguments.option),
        report=report,
    )
