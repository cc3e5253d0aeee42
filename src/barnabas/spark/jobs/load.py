"""The job `load`: bulk load of a DataFrame, or of files that Spark can read, into a topic through sealed segments.

The rows are written by tasks beside the logs of the topic and adopted by its broker in one step: see `segments.writer`.
Plain Parquet files are read by these tasks too, and everything else by Spark: see `segments.parquet_rows`.
A load that was killed before is started again with the same id: it is adopted once, and refused by that id afterwards.
"""

import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from barnabas.client.bulk_load import AdoptedRange
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.failures import plain_failures
from barnabas.spark.jobs.job import JobResult, Report, say_nothing
from barnabas.spark.jobs.watching import watched
from barnabas.spark.segments.adopting import adopted_ranges
from barnabas.spark.segments.parquet_rows import FilesPlan, plan_files, rows_of
from barnabas.spark.segments.writer import SegmentsWriter

# With these Spark reads files in another way.
_SETTINGS_OF_READING = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.parquet.int96TimestampConversion",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult(JobResult):
    """What a load brought."""

    load_id: str
    topic: str
    records: int
    ranges: tuple[AdoptedRange, ...]
    """The offsets that the records got, by partition; a partition without any is not there."""

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return "partition", "start offset", "end offset", "records"

    def rows(self) -> list[tuple[object, ...]]:
        """A row a partition."""
        return [
            (each.partition, each.base_offset, each.end_offset, each.end_offset - each.base_offset)
            for each in self.ranges
        ]

    def sentence(self) -> str:
        """What was loaded, and under which id."""
        return f"{self.records:,} records are in topic {self.topic!r}; the id of the load is {self.load_id}."


def load(
    spark: SparkSession,
    rows: DataFrame | str,
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    log_dirs: str | None = None,
    load_id: str | None = None,
    source_format: str = "parquet",
    options: Mapping[str, str] | None = None,
    report: Report = say_nothing,
) -> LoadResult:
    """Load rows into a topic.

    Args:
        spark: The session that the tasks run in.
        rows: A DataFrame with the columns of the sink, or the path of files that have them.
        topic: The topic, which exists.
        bootstrap_servers: The running broker that adopts the load.
        log_dirs: The data directories, with commas between: of a stopped broker, or as the workers see them.
        load_id: A name for the load; the same one is never adopted twice.
        source_format: What the files of a path are.
        options: Options of the format `barnabas-segments` besides.
        report: Told how far the job is.

    Raises:
        PipelineError: The load is refused, with everything as it was before.
    """
    chosen = load_id or uuid4().hex
    given = {"topic": topic, "loadId": chosen, **(options or {})}
    if bootstrap_servers is not None:
        given["kafka.bootstrap.servers"] = bootstrap_servers
    if log_dirs is not None:
        given["path"] = log_dirs
    with plain_failures(), watched(spark, "load", report):
        plan = _plan(spark, rows) if isinstance(rows, str) and source_format == "parquet" else None
        if plan is not None:
            _load_files(spark, plan, given)
        else:
            frame = _read(spark, rows, source_format) if isinstance(rows, str) else rows
            frame.write.format("barnabas-segments").options(**given).mode("append").save()
    ranges = tuple(sorted(adopted_ranges(given, chosen), key=lambda one: one.partition))
    records = sum(one.end_offset - one.base_offset for one in ranges)
    return LoadResult(load_id=chosen, topic=topic, records=records, ranges=ranges)


def _read(spark: SparkSession, path: str, source_format: str) -> DataFrame:
    try:
        return spark.read.format(source_format).load(path)
    except AnalysisException as error:
        raise PipelineError(
            f"{path} can not be read as {source_format}: {str(error).strip().splitlines()[0]}"
        ) from error


def _plan(spark: SparkSession, path: str) -> FilesPlan | None:
    """Return what tasks read of the files of a path; None where Spark has to."""
    configuration: Any = spark._jsc.hadoopConfiguration()
    if not str(configuration.get("fs.defaultFS", "file:///")).startswith("file:"):
        return None  # Spark looks for a path elsewhere.
    if not path or any(spark.conf.get(name, "false") != "false" for name in _SETTINGS_OF_READING):
        return None
    jvm: Any = spark._jvm
    # To Spark a path is below the folder that its JVM was started in.
    path = os.path.join(str(jvm.java.lang.System.getProperty("user.dir")), path)
    return plan_files(path, spark.sparkContext.defaultParallelism)


def _load_files(spark: SparkSession, plan: FilesPlan, options: Mapping[str, str]) -> None:
    """Do what Spark does to write a DataFrame, with tasks that read files."""
    writer = SegmentsWriter(CaseInsensitiveDict(options), plan.spark_schema(), overwrite=False)
    columns = plan.schema.names

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                written = writer.write(rows_of(plan.tasks[number], columns))
                yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(written)]})

    count = len(plan.tasks)
    try:
        done = spark.range(0, count, 1, count).mapInArrow(write, "written binary").collect()
        writer.commit([pickle.loads(row.written) for row in done])
    except BaseException:
        writer.abort([])
        raise
