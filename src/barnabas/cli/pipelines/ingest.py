"""`barnabas pipeline ingest SOURCE TOPIC`."""

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.connecting import add_bootstrap_server, positive
from barnabas.cli.pipelines.arguments import add_options
from barnabas.spark.jobs.job import JobResult, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Write the rows of files to a topic, each once. Run again, only files that are new since are taken: the checkpoint, by
default SOURCE/_barnabas/ingest-TOPIC, says what was ingested. Other formats of Spark than files (--format jdbc, say)
are read once for each checkpoint."""
EXAMPLES = """\
examples:
  barnabas pipeline ingest incoming/orders orders --key customer
  barnabas pipeline ingest prices.csv prices --format csv --reader-option header=true --create-topic --partitions 4
  barnabas pipeline ingest 'logs/*.gz' logs --format text --checkpoint state/logs
  barnabas pipeline ingest events events --key 'user.id' --value 'to_json(struct(*))' --timestamp 'to_timestamp(time)'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="a folder, a file or a pattern; or what another format loads")
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    add_options(parser, what="the sink")
    parser.add_argument(
        "--format", default="json", help="csv, json, parquet, text, or any that Spark has (default: json)"
    )
    add_options(parser, "--reader-option", "the format, as header=true for csv")
    parser.add_argument("--schema", metavar="DDL", help="the columns, as 'id BIGINT, name STRING' (default: found out)")
    parser.add_argument("--key", metavar="EXPR", help="the key of a record, in SQL (default: none)")
    parser.add_argument("--value", metavar="EXPR", help="its value (default: all columns as JSON)")
    parser.add_argument("--headers", metavar="EXPR", help="its headers, array<struct<key string, value binary>>")
    parser.add_argument("--timestamp", metavar="EXPR", help="its time (default: when it is written)")
    parser.add_argument("--partition", metavar="EXPR", help="its partition (default: by key)")
    parser.add_argument(
        "--checkpoint", metavar="FOLDER", help="what was ingested (default: _barnabas beside the files)"
    )
    parser.add_argument("--create-topic", action="store_true", help="create the topic if it is not there")
    parser.add_argument("--partitions", type=positive, default=1, metavar="COUNT", help="with so many (default: 1)")
    parser.add_argument(
        "--files-per-batch", type=positive, default=100, metavar="COUNT", help="committed at a time (default: 100)"
    )


def run(spark: "SparkSession", arguments: argparse.Namespace, report: Report) -> JobResult:
    """Run the job."""
    from barnabas.spark.jobs.ingest import RecordExpressions, ingest

    return ingest(
        spark,
        arguments.source,
        arguments.topic,
        bootstrap_servers=arguments.bootstrap_server,
        options=dict(arguments.option),
        source_format=arguments.format,
        reader_options=dict(arguments.reader_option),
        schema=arguments.schema,
        expressions=RecordExpressions(
            key=arguments.key,
            value=arguments.value,
            headers=arguments.headers,
            timestamp=arguments.timestamp,
            partition=arguments.partition,
        ),
        checkpoint=arguments.checkpoint,
        create_topic=arguments.create_topic,
        partitions=arguments.partitions,
        files_per_batch=arguments.files_per_batch,
        report=report,
    )
