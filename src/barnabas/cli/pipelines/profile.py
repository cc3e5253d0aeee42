"""`barnabas pipeline profile TOPIC`: what is in a topic, as a page with charts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server
from barnabas.cli.pipelines.arguments import add_options
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Read a topic once, and write one HTML page about it: records and bytes over time, partitions, sizes, the most frequent
keys, and what stands out. The page needs nothing else, no network and no script. With --directory it is read from log
directories, ours or Kafka's, without a broker."""
EXAMPLES = """\
examples:
  barnabas pipeline profile orders
  barnabas pipeline profile orders --output orders.html --json
  barnabas pipeline profile orders --directory data
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the job takes."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument(
        "--output", metavar="FILE", help="the page, which is replaced if it is there (default: TOPIC.html)"
    )
    add_bootstrap_server(parser)
    parser.add_argument(
        "--directory", action="append", default=[], metavar="DIR", help="a log directory to read instead; repeatable"
    )
    add_options(parser, what="the format `barnabas`, such as kafka.security.protocol=SSL")


def run(spark: SparkSession, arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.profile import profile  # It imports Spark.

    return profile(
        spark,
        arguments.topic,
        arguments.output or f"{arguments.topic}.html",
        bootstrap_servers=None if arguments.directory else arguments.bootstrap_server,
        directories=arguments.directory,
        options=dict(arguments.option),
        report=report,
    )
