"""The job `ingest`: files, a DataFrame, or any source that Spark reads, to a topic, exactly once.

    files                   a stream of files with a checkpoint: a second run takes only those that are new
    a streaming DataFrame   as it is
    anything else           its rows are first kept as Parquet in the checkpoint, and those files are then the stream,
                            so that a run that was killed goes on with the same rows

The sink writes in transactions, so that readers with isolation.level=read_committed have every row once, however often
the job is killed and started again with the same checkpoint.

Rule 1: what a checkpoint is of is kept in it. Another source, topic or expression is refused, because its rows would be
mixed with those that are written already.
Rule 2: a file is taken once, by its path. Files are to be complete when they appear: written elsewhere and moved.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from barnabas.client.client import Client
from barnabas.spark.archives.files import ExistsError, Files
from barnabas.spark.archives.writer_lock import writer_lock
from barnabas.spark.connecting import read_cluster
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.jobs.job import JobResult, Progress, Report, say_nothing
from barnabas.spark.jobs.streams import run_to_the_end
from barnabas.spark.jobs.topics import cluster_options, create_missing_topic, find_topic
from barnabas.spark.sink.options import read_options
from barnabas.spark.source.failures import plain_errors

FILE_FORMATS = ("csv", "json", "parquet", "text", "orc", "avro", "xml", "binaryFile")
"""Formats that Spark reads as a stream of files; of all others the rows are kept first."""

FILES_PER_BATCH = 100
_PLAN = "barnabas-ingest.json"
_QUERY = "query"
_ROWS = "rows"
# Spark leaves files out that are this much older than the newest, and forgets that it has read them.
_FOR_EVER = "36500d"
# What a checkpoint has no business with: it is a file that others may read, and a password changes.
_SECRET = re.compile(r"passw|secret|token|credential|key", re.IGNORECASE)
_GLOB_SIGNS = re.compile(r"([\\*?\[\]{}])")
_TYPES = {"timestamp": "timestamp", "partition": "int"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExpressions:
    """What becomes of a row, in SQL; None leaves it out. Without a value, it is the JSON of all columns."""

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult(JobResult):
    """What a run of `ingest` did."""

    source: str
    topic: str
    records: int
    batches: int
    checkpoint: str

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return ("source", "topic", "batches", "records")

    def rows(self) -> list[tuple[object, ...]]:
        """One row."""
        return [(self.source, self.topic, self.batches, self.records)]

    def sentence(self) -> str:
        """What was ingested, in words."""
        if not self.records:
            return f"nothing new in {self.source} for topic {self.topic!r}; what was ingested is in {self.checkpoint}"
        return f"ingested {self.records:,} records from {self.source} to topic {self.topic!r}"


def ingest(
    spark: SparkSession,
    source: str | DataFrame,
    topic: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
    source_format: str = "json",
    reader_options: Mapping[str, str] | None = None,
    schema: str | None = None,
    expressions: RecordExpressions | None = None,
    checkpoint: str | None = None,
    create_topic: bool = False,
    partitions: int = 1,
    files_per_batch: int = FILES_PER_BATCH,
    report: Report = say_nothing,
) -> IngestResult:
    """Write rows to a topic; run again, only what is new since.

    Args:
        spark: The session that the tasks run in.
        source: A folder, a file, or a pattern of paths; a DataFrame; with other formats than files, what they load.
        topic: Where rows go.
        bootstrap_servers: A broker of the cluster.
        options: Further options of the sink, as `kafka.compression.type` or `kafka.security.protocol`.
        source_format: What Spark reads: csv, json, parquet, text, or any other format that it has.
        reader_options: Options of that format, as `header` of csv.
        schema: The columns of files as DDL; by default they are found out at the first run, and kept.
        expressions: What becomes of a row.
        checkpoint: A folder that says what was ingested; by default `_barnabas` beside the files.
        create_topic: Create the topic if it is not there.
        partitions: With so many partitions.
        files_per_batch: How many files at most are written and committed at a time.
        report: Told how far the job is.

    Raises:
        PipelineError: The source can not be read, the checkpoint is of something else, and the like.
    """
    chosen = expressions or RecordExpressions()
    name = source if isinstance(source, str) else "a DataFrame"
    files = Files(spark, _checkpoint(source, source_format, checkpoint, topic))
    given = {**cluster_options(bootstrap_servers, options), "topic": topic}
    given["checkpointLocation"] = files.path(_QUERY)
    cluster = read_cluster(given)
    read_options(given, is_streaming=True)
    with Client(cluster.bootstrap_servers, cluster.options) as client, writer_lock(files):
        with plain_errors(f"looking at topic {topic!r}"):
            if create_topic:
                create_missing_topic(client, topic, partitions)
            topic_id = str(find_topic(client, topic).topic_ids[topic])
        reading = _Reading(name, source_format, dict(reader_options or {}), files_per_batch)
        plan = _kept_plan(spark, files, source, reading, schema, topic, topic_id, chosen)
        stream = _stream(spark, files, source, reading, plan)
        records = as_records(stream, chosen)
        return _run(records, given, name, topic, files, report)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the source is read."""

    name: str
    source_format: str
    options: Mapping[str, str]
    files_per_batch: int

    @property
    def is_of_files(self) -> bool:
        return self.source_format.lower() in {each.lower() for each in FILE_FORMATS}


def as_records(rows: DataFrame, expressions: RecordExpressions) -> DataFrame:
    """Return the records that rows become; raises OptionError for an expression that Spark does not take."""
    columns = []
    for name, text in asdict(expressions).items():
        if text is None and name != "value":
            continue
        try:
            if text is None:
                expression = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
            else:
                expression = functions.expr(text)
            expression = expression.cast(_TYPES[name]) if name in _TYPES else _as_bytes(rows, name, expression)
            rows.select(expression)
        except (AnalysisException, ParseException) as error:
            first = next(iter(str(error).strip().splitlines()), "")
            raise OptionError(name, f"is {text!r}, which is no expression over these rows: {first}") from None
        columns.append(expression.alias(name))
    return rows.select(*columns)


def _as_bytes(rows: DataFrame, name: str, expression: Any) -> Any:
    """Return an expression as the sink takes it: numbers and the like become text."""
    if name == "headers":
        return expression
    kind = rows.select(expression).schema.fields[0].dataType.typeName()
    return expression if kind in ("binary", "string") else expression.cast("string")


def _checkpoint(source: str | DataFrame, source_format: str, checkpoint: str | None, topic: str) -> str:
    """Return the folder of the checkpoint: the one that was given, or one that Spark does not read as data."""
    if checkpoint is not None:
        return checkpoint
    needs = "is needed here: a folder that says what was ingested, so that the job can be started again"
    if not isinstance(source, str) or source_format not in FILE_FORMATS or any(sign in source for sign in "*?[{:"):
        raise OptionError("checkpoint", needs)
    if os.path.isdir(source):
        return os.path.join(source, "_barnabas", f"ingest-{topic}")
    folder, name = os.path.split(os.path.abspath(source))
    return os.path.join(folder, "_barnabas", f"ingest-{topic}-{name}")


def _kept_plan(
    spark: SparkSession,
    files: Files,
    source: str | DataFrame,
    reading: _Reading,
    schema: str | None,
    topic: str,
    topic_id: str,
    expressions: RecordExpressions,
) -> dict[str, Any]:
    """Return what this checkpoint is of, as it was when it was first used; raises PipelineError if that was another."""
    wanted = {
        "source": reading.name,
        "format": reading.source_format,
        "readerOptions": {name: value for name, value in reading.options.items() if not _SECRET.search(name)},
        "topic": topic,
        "topicId": topic_id,
        "expressions": asdict(expressions),
    }
    if not files.exists(_PLAN):
        found = _schema(spark, reading, schema) if isinstance(source, str) and reading.is_of_files else None
        # A typing error must not become what this checkpoint is of.
        if isinstance(source, DataFrame):
            as_records(source, expressions)
        elif found is not None:
            as_records(_stream(spark, files, source, reading, {"schema": found}), expressions)
        try:
            files.create(_PLAN, json.dumps({**wanted, "schema": found}, indent=2, sort_keys=True) + "\n")
        except ExistsError:
            raise PipelineError(f"another job has begun with the checkpoint {files.folder} just now") from None
    try:
        plan: dict[str, Any] = json.loads(files.read(_PLAN))
    except ValueError:
        raise PipelineError(f"{files.path(_PLAN)} is not written by this job") from None
    for name, value in wanted.items():
        if plan.get(name) != value:
            if name == "topicId":
                raise PipelineError(
                    f"topic {topic!r} was deleted and created again since {files.folder} was begun: "
                    "give another checkpoint to ingest everything anew"
                )
            raise PipelineError(
                f"{files.folder} is the checkpoint of another ingest: {_difference(name, plan.get(name), value)}; "
                "give another checkpoint, or remove this one to ingest everything anew"
            )
    return plan


def _difference(name: str, kept: Any, wanted: Any) -> str:
    """Say what differs, of options and expressions the first one."""
    if isinstance(kept, dict) and isinstance(wanted, dict):
        inner = next(each for each in sorted({*kept, *wanted}) if kept.get(each) != wanted.get(each))
        return _difference(inner, kept.get(inner), wanted.get(inner))
    return f"its {name} is {kept!r}, and not {wanted!r}"


def _schema(spark: SparkSession, reading: _Reading, schema: str | None) -> str:
    """Return the columns of files as JSON, from what was given or from the files that are there."""
    try:
        if schema is not None:
            return spark.createDataFrame([], schema).schema.json()
        return spark.read.format(reading.source_format).options(**reading.options).load(reading.name).schema.json()
    except Exception as error:  # Spark's, of many kinds: no such path, nothing in it, not that format.
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        what = "schema" if schema is not None else "source"
        value = schema if schema is not None else reading.name
        raise OptionError(what, f"is {value!r}, and Spark says to it: {first}") from error


def _stream(
    spark: SparkSession, files: Files, source: str | DataFrame, reading: _Reading, plan: Mapping[str, Any]
) -> DataFrame:
    """Return the rows as a stream."""
    if isinstance(source, str) and reading.is_of_files:
        reader = spark.readStream.format(reading.source_format).options(**reading.options)
        reader = reader.schema(StructType.fromJson(json.loads(plan["schema"])))
        reader = reader.option("maxFilesPerTrigger", reading.files_per_batch).option("maxFileAge", _FOR_EVER)
        folder, _, name = reading.name.rpartition("/")
        if not Files(spark, reading.name).is_file():
            return reader.load(reading.name)
        # Spark takes folders and patterns as streams, and no single files.
        return reader.option("pathGlobFilter", _GLOB_SIGNS.sub(r"\\\1", name)).load(folder or ".")
    if isinstance(source, DataFrame) and source.isStreaming:
        return source
    rows = files.path(_ROWS)
    if not files.exists(f"{_ROWS}/_SUCCESS"):
        try:
            frame = source if isinstance(source, DataFrame) else _load(spark, source, reading)
            frame.write.mode("overwrite").parquet(rows)
        except Exception as error:  # Spark's, of many kinds, as above.
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise PipelineError(f"{reading.name} can not be read as {reading.source_format}: {first}") from error
    schema = spark.read.parquet(rows).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", reading.files_per_batch)
    return reader.option("maxFileAge", _FOR_EVER).parquet(rows)


def _load(spark: SparkSession, source: str, reading: _Reading) -> DataFrame:
    reader = spark.read.format(reading.source_format).options(**reading.options)
    return reader.load(source) if source else reader.load()


def _run(
    records: DataFrame, given: Mapping[str, str], name: str, topic: str, files: Files, report: Report
) -> IngestResult:
    writer = records.writeStream.format("barnabas").options(**given).trigger(availableNow=True)
    counted: dict[int, int] = {}

    def look() -> None:
        for progress in query.recentProgress:
            counted[int(progress["batchId"])] = int(progress["numInputRows"])
        report(Progress(step="ingesting", done=sum(counted.values()), total=0, unit="records"))

    query = writer.start()
    run_to_the_end(query, look, is_endless=False)
    batches = sum(1 for rows in counted.values() if rows)
    return IngestResult(
        source=name, topic=topic, records=sum(counted.values()), batches=batches, checkpoint=files.folder
    )
