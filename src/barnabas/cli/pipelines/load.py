"""`barnabas pipeline load FILES TOPIC`: rows of files as sealed segments, which a broker of ours adopts at once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server
from barnabas.cli.pipelines.arguments import add_options
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Write the rows of files as segments beside the logs of a topic, in parallel, and have the broker adopt all of them in
one step. The files have a column value, and may have key, headers, partition and timestamp. It works with brokers of
ours only, and the workers have to see the broker's disk.
A load that was killed is started again with the same --load-id: it is adopted once, and refused afterwards."""
EXAMPLES = """\
examples:
  barnabas pipeline load orders.parquet orders
  barnabas pipeline load orders.parquet orders --load-id orders-of-may --option kafka.compression.type=zstd
  barnabas pipeline load rows.json orders --format json --data data      into a broker that is stopped
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the job takes."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("files", metavar="FILES", help="a file or a folder of files that Spark reads")
    parser.add_argument("topic", metavar="TOPIC", help="the topic, which exists")
    add_bootstrap_server(parser)
    parser.add_argument("--data", metavar="DIR", help="the data directory of a stopped broker, to load into that")
    parser.add_argument("--format", default="parquet", help="what the files are, as Spark calls it (default: parquet)")
    parser.add_argument("--load-id", metavar="NAME", help="a name for the load, never adopted twice (default: random)")
    add_options(parser, what="the format `barnabas-segments`, such as kafka.compression.type=zstd")


def run(spark: SparkSession, arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.load import load  # It imports Spark.

    return load(
        spark,
        arguments.files,
        arguments.topic,
        bootstrap_servers=None if arguments.data else arguments.bootstrap_server,
        log_dirs=arguments.data,
        load_id=arguments.load_id,
        source_format=arguments.format,
        options=dict(arguments.option),
        report=report,
    )
