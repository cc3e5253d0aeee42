"""`barnabas pipeline JOB`: the jobs on Spark, with progress while they run and a table of what they did at the end.

The module `barnabas.cli.pipelines.<job>` has `configure(parser)` and `run(spark, arguments, report) -> JobResult`. It
imports the job itself, and with it Spark, only when it runs.
"""

import argparse
import importlib
import json
from pathlib import Path

from barnabas.cli.connecting import complain
from barnabas.cli.job_progress import JobProgress
from barnabas.cli.tables import print_rows
from barnabas.client.connection import ClientError
from barnabas.spark.errors import sentence_of
from barnabas.spark.jobs.job import JobResult
from barnabas.spark.session import LOCAL_MASTER, interrupted, start_session
from barnabas.wire.errors import ApiError

JOBS = {
    "ingest": "files, or any source of Spark, to a topic",
    "archive": "a topic to Parquet, as it grows or as it is",
    "replay": "an archive, or a part of a topic, to a topic",
    "snapshot": "the latest value of every key, at a time",
    "audit": "compare a topic with its archive: gaps, duplicates, counts, checksums",
    "profile": "records, sizes, keys and rates of a topic, as a page with charts",
    "verify": "check every batch and index of log directories",
    "load": "write rows as segments, which a broker takes over at once",
}

DESCRIPTION = """\
Move, keep and check whole topics with Spark: on this machine, or on a cluster with --master. Every job but `load`
works against Barnabas and against Apache Kafka, and can be killed at any point and started again.
It needs Java 17 or 21, and pip install 'barnabas[spark]'."""
EXAMPLES = """\
examples:
  barnabas pipeline archive orders lake/orders
  barnabas pipeline audit orders lake/orders
  barnabas pipeline profile orders --output orders.html
  barnabas pipeline archive orders lake/orders --master spark://host:7077 --conf spark.executor.memory=4g
  spark-submit "$(barnabas pipeline script)" pipeline archive orders lake/orders
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the jobs."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, sentence in JOBS.items():
        job = jobs.add_parser(name, help=sentence, formatter_class=argparse.RawDescriptionHelpFormatter)
        job.description = f"{sentence[0].upper()}{sentence[1:]}."
        importlib.import_module(f"barnabas.cli.pipelines.{name}").configure(job)
        _add_common(job)
    jobs.add_parser("script", help="print the path of the file that spark-submit runs")


def _add_common(job: argparse.ArgumentParser) -> None:
    """Declare what all jobs take."""
    spark = job.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", help=f"where Spark runs (default: {LOCAL_MASTER})")
    spark.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of Spark; repeatable",
    )
    output = job.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the result as one JSON object")
    output.add_argument("--debug", action="store_true", help="show Spark's own log, and a traceback when it fails")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"a setting is NAME=VALUE, but {text!r} was given")
    return name, value


def run(arguments: argparse.Namespace) -> int:
    """Run a job. The exit code is 0, or 1 when a check found something, or 2 when the job could not be done."""
    if arguments.job == "script":
        print(Path(__file__).parents[1] / "__main__.py")
        return 0
    progress = JobProgress(arguments.job)
    try:
        spark = start_session(
            arguments.job, master=arguments.master, conf=dict(arguments.conf), is_quiet=not arguments.debug
        )
        try:
            result = importlib.import_module(f"barnabas.cli.pipelines.{arguments.job}").run(
                spark, arguments, progress.report
            )
        finally:
            progress.finish()
            spark.stop()
    except Exception as error:
        if arguments.debug:
            raise
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        complain(f"pipeline {arguments.job}", _sentence(error))
        return 2
    _print_result(result, as_json=arguments.json)
    return 0 if result.is_fine else 1


def _sentence(error: Exception) -> str:
    """Return what went wrong in one sentence, also when Spark has wrapped it."""
    if isinstance(error, ClientError | ApiError | OSError):
        return str(error)
    said = sentence_of(error)
    if said is not None:
        return said
    return f"{_first_cause(error)} (--debug shows all of it)"


def _first_cause(error: Exception) -> str:
    """Return what an exception says in its first line, and one of Java's by what it comes from."""
    lines = str(error).strip().splitlines()
    if type(error).__name__ != "Py4JJavaError":
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    # An error occurred while calling o1.save.
    # : org.apache.spark.SparkException: ...
    # \tat ...
    # Caused by: java.io.IOException: ...
    causes = [line.partition(": ")[2] for line in lines if line.startswith((": ", "Caused by: "))]
    name, _, reason = (causes or lines)[-1].partition(": ")
    return f"{name.rpartition('.')[2]}: {reason}"


def _print_result(result: JobResult, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.as_dict(), sort_keys=True))
        return
    rows = result.rows()
    if rows:
        print_rows(result.headings(), rows)
    print(result.sentence())
