"""`barnabas pipeline archive TOPIC FOLDER`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server, positive
from barnabas.cli.pipelines.arguments import add_options, place
from barnabas.cli.times import START_WORDS
from barnabas.spark.errors import OptionError
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Keep a topic as Parquet. The first run makes the archive; each further run adds what is new, and --follow goes on until
it is stopped. Killed at any point and started again, it has every record once. Every commit has a manifest of its
offsets and files in FOLDER/_barnabas/commits, and only files that are named there belong to the archive."""
EXAMPLES = """\
examples:
  barnabas pipeline archive orders lake/orders
  barnabas pipeline archive orders lake/orders --follow --trigger "1 minute" --group orders-archive
  barnabas pipeline archive orders lake/orders --decode json --schema 'id BIGINT, item STRING' --on-error skip
  barnabas pipeline archive customers lake/customers --mode upsert
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("folder", metavar="FOLDER", help="the archive, on any file system that Spark knows")
    add_bootstrap_server(parser)
    add_options(parser, what="the source")
    parser.add_argument(
        "--from",
        dest="start",
        type=place,
        default="earliest",
        metavar="START",
        help=f'where a new archive begins: {START_WORDS}, or offsets like {{"0": 1000}} (default: earliest)',
    )
    parser.add_argument(
        "--mode",
        choices=["append", "upsert"],
        default="append",
        help="keep every record, or the last one of every key (default: append)",
    )
    parser.add_argument(
        "--table-format",
        choices=["parquet", "delta", "iceberg"],
        default="parquet",
        help="delta and iceberg need their packages in Spark (default: parquet)",
    )
    parser.add_argument(
        "--decode", choices=["none", "json", "avro"], default="none", help="decode values into the column data"
    )
    parser.add_argument("--schema", default="", metavar="DDL", help="by this schema, as 'id BIGINT, name STRING'")
    parser.add_argument("--schema-file", type=Path, metavar="FILE", help="by the schema in a file: DDL, JSON or Avro")
    parser.add_argument(
        "--on-error",
        choices=["dead-letter", "skip", "fail"],
        default="dead-letter",
        help="what to do with records that do not decode (default: dead-letter, which keeps them beside the others)",
    )
    parser.add_argument("--follow", action="store_true", help="go on with what arrives, until interrupted")
    parser.add_argument(
        "--trigger", default="10 seconds", metavar="INTERVAL", help="how often then (default: 10 seconds)"
    )
    parser.add_argument("--group", metavar="ID", help="a group that shows tools how far the archive is")
    parser.add_argument(
        "--target-file-mb", type=positive, default=128, metavar="MB", help="about how large files become"
    )
    parser.add_argument(
        "--records-per-commit", type=positive, default=10_000_000, metavar="COUNT", help="at most (default: 10000000)"
    )
    parser.add_argument(
        "--buckets", type=positive, default=16, metavar="COUNT", help="files of a new archive that upserts"
    )


def run(spark: "SparkSession", arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.archive import archive

    return archive(
        spark,
        arguments.topic,
        arguments.folder,
        bootstrap_servers=arguments.bootstrap_server,
        options=dict(arguments.option),
        mode=arguments.mode,
        table_format=arguments.table_format,
        decode=arguments.decode,
        schema=_schema(arguments.schema, arguments.schema_file),
        on_error=arguments.on_error,
        start=arguments.start,
        target_file_mb=arguments.target_file_mb,
        records_per_commit=arguments.records_per_commit,
        buckets=arguments.buckets,
        group_id=arguments.group,
        follow=arguments.follow,
        trigger=arguments.trigger,
        report=report,
    )


def _schema(text: str, file: Path | None) -> str:
    if file is None:
        return text
    if text:
        raise OptionError("--schema-file", "and '--schema' both say the schema: give one of them")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise OptionError("--schema-file", f"is {file}, which is no text") from None
