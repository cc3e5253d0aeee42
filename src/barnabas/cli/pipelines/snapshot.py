"""`barnabas pipeline snapshot TOPIC OUTPUT`: the latest value of every key, at a time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server
from barnabas.cli.pipelines.arguments import add_options
from barnabas.cli.pipelines.moments import AT_WORDS, parse_at
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Write the latest value of every key of a topic, as files with key, value, partition, offset, timestamp and headers.
With --archive what the archive has is read from there, and the rest from the topic. Keys whose last record is a
tombstone are left out, and so are records without a key. OUTPUT appears when it is complete, or not at all."""
EXAMPLES = """\
examples:
  barnabas pipeline snapshot customers customers-now
  barnabas pipeline snapshot customers friday --at 2026-01-30T18:00 --archive lake/customers
  barnabas pipeline snapshot customers customers.csv --format csv --overwrite
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the job takes."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument("output", metavar="OUTPUT", help="the folder to write, which must not exist yet")
    add_bootstrap_server(parser)
    parser.add_argument("--archive", metavar="FOLDER", help="the archive of the topic, to read what it has from there")
    parser.add_argument("--archive-only", action="store_true", help="read the archive alone, without a broker")
    parser.add_argument("--at", type=parse_at, metavar="WHEN", help=f"{AT_WORDS} (default: latest)")
    parser.add_argument(
        "--format", choices=("parquet", "json", "csv"), default="parquet", help="what to write (default: parquet)"
    )
    parser.add_argument(
        "--encoding",
        choices=("text", "base64"),
        default="text",
        help="how JSON and CSV have keys and values (default: text)",
    )
    parser.add_argument("--keep-tombstones", action="store_true", help="keep keys whose last value is null")
    parser.add_argument("--overwrite", action="store_true", help="replace OUTPUT when it is there")
    add_options(parser, what="the format `barnabas`, such as kafka.security.protocol=SSL")


def run(spark: SparkSession, arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.snapshot import snapshot  # It imports Spark.

    return snapshot(
        spark,
        arguments.topic,
        arguments.output,
        bootstrap_servers=None if arguments.archive_only else arguments.bootstrap_server,
        archive=arguments.archive,
        at=arguments.at,
        format=arguments.format,
        encoding=arguments.encoding,
        keep_tombstones=arguments.keep_tombstones,
        overwrite=arguments.overwrite,
        options=dict(arguments.option),
        report=report,
    )
