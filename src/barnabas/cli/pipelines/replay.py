"""`barnabas pipeline replay SOURCE TOPIC`."""

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server, positive
from barnabas.cli.pipelines.arguments import add_options, place
from barnabas.cli.times import START_WORDS
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Write an archive, or a part of a topic, to a topic, with keys, headers, times and the order of each partition. It writes
in transactions: killed and started again with the same checkpoint, no record is lost or there twice for readers with
isolation.level=read_committed. Where the target has fewer partitions, records go by their key."""
EXAMPLES = """\
examples:
  barnabas pipeline replay lake/orders orders-restored
  barnabas pipeline replay lake/orders orders-restored --from 2026-01-31T12:00 --to 2026-02-01
  barnabas pipeline replay orders orders-copy --from 1h --checkpoint state/orders-copy
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="the folder of an archive, or a topic")
    parser.add_argument("topic", metavar="TOPIC", help="where to, which exists")
    add_bootstrap_server(parser)
    add_options(parser, what="the sink")
    parser.add_argument(
        "--source-bootstrap-server",
        metavar="HOST:PORT",
        help="a broker of the source topic (default: the same cluster)",
    )
    add_options(parser, "--source-option", "how to connect to the source")
    parser.add_argument(
        "--from",
        dest="start",
        type=place,
        default="earliest",
        metavar="START",
        help=f'{START_WORDS}, or offsets like {{"0": 1000}} (default: earliest)',
    )
    parser.add_argument("--to", type=place, default="latest", metavar="END", help="the same (default: latest)")
    parser.add_argument(
        "--checkpoint", metavar="FOLDER", help="how far it is (default: inside the archive; needed for a topic)"
    )
    parser.add_argument(
        "--records-per-step", type=positive, default=1_000_000, metavar="COUNT", help="committed at a time"
    )


def run(spark: "SparkSession", arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.replay import replay

    return replay(
        spark,
        arguments.source,
        arguments.topic,
        bootstrap_servers=arguments.bootstrap_server,
        options=dict(arguments.option),
        source_bootstrap_servers=arguments.source_bootstrap_server,
        source_options=dict(arguments.source_option),
        start=arguments.start,
        to=arguments.to,
        checkpoint=arguments.checkpoint,
        records_per_step=arguments.records_per_step,
        report=report,
    )
