"""The job `snapshot`: the latest value of every key at a time, from a topic, its archive, or both together.

Records are read once, in tasks; `latest` says which record of a key is the latest, `snapshot_spans` what is read from
where. The result is a folder of Parquet, JSON or CSV files with key, value, partition, offset, timestamp and headers.

Rule 1: the folder is there whole or not at all. It is written under another name beside it, and renamed at the end;
what a killed job leaves behind has a name that begins with an underscore, and may be deleted.
Rule 2: tombstones remove their keys. Records without a key are counted, and have no place in a snapshot.
Rule 3: only finished transactions count, unless the option `kafka.isolation.level` says otherwise.
Rule 4: JSON and CSV have keys and values as text. Bytes that are no UTF-8 are refused, never changed; base64 has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation, SparkSession, functions

from barnabas.spark.archives.files import ExistsError, Files
from barnabas.spark.archives.manifest import UPSERT
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.jobs.archived import archive_of, archived_spans, within
from barnabas.spark.jobs.failures import plain_failures
from barnabas.spark.jobs.job import JobResult, Report, say_nothing
from barnabas.spark.jobs.latest import COLUMNS, latest_of_keys
from barnabas.spark.jobs.snapshot_spans import Part, check_ends, parts, whole
from barnabas.spark.jobs.topic import ISOLATION_LEVEL, Span, Topic
from barnabas.spark.jobs.watching import watched

FORMATS = ("parquet", "json", "csv")
ENCODINGS = ("text", "base64")

At = int | datetime | Mapping[int, int] | None
"""A time in milliseconds or as a datetime, offsets by partition to end before, or None for everything there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """The offsets of a partition that went into a snapshot, from `start` to before `end`."""

    partition: int
    start: int
    end: int
    from_archive_to: int
    """Up to here they were read from the archive; `start` where none were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResult(JobResult):
    """What a snapshot has, and what it was made from."""

    topic: str
    output: str
    format: str
    keys: int
    tombstones: int
    tombstones_are_kept: bool
    records_read: int
    records_without_key: int
    keys_in_several_partitions: int
    partitions: tuple[ReadPart, ...]

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return "partition", "start offset", "from archive to", "end offset"

    def rows(self) -> list[tuple[object, ...]]:
        """A row a partition."""
        return [(each.partition, each.start, each.from_archive_to, each.end) for each in self.partitions]

    def sentence(self) -> str:
        """What was written, and what was left out."""
        deleted = (
            "kept as tombstones" if self.tombstones_are_kept else "left out, because their last record deletes them"
        )
        words = [f"{self.keys:,} keys of topic {self.topic!r} are in {self.output}, from {self.records_read:,} records"]
        if self.tombstones:
            words.append(f"{self.tombstones:,} keys are {deleted}")
        if self.records_without_key:
            words.append(f"{self.records_without_key:,} records have no key and are left out")
        if self.keys_in_several_partitions:
            words.append(
                f"{self.keys_in_several_partitions:,} keys are in several partitions, and of these the record with "
                "the highest timestamp counts"
            )
        return "; ".join(words) + "."


def snapshot(
    spark: SparkSession,
    topic: str,
    output: str,
    *,
    bootstrap_servers: str | None = None,
    archive: str | None = None,
    at: At = None,
    format: str = "parquet",
    encoding: str = "text",
    keep_tombstones: bool = False,
    overwrite: bool = False,
    options: Mapping[str, str] | None = None,
    report: Report = say_nothing,
) -> SnapshotResult:
    """Write the latest value of every key.

    Args:
        spark: The session that the tasks run in.
        topic: The topic.
        output: The folder to write, which must not exist yet.
        bootstrap_servers: Where the topic is read; None to take the archive alone.
        archive: The folder of the topic's archive, which is read for what it has; the topic is, for the rest.
        at: A time: records before the first later one of each partition count. Or offsets by partition, to end before.
        format: parquet, json or csv.
        encoding: How JSON and CSV have keys and values: text, or base64.
        keep_tombstones: Keep the keys whose last value is null.
        overwrite: Replace a folder that is there; the old one stays until the new one is complete.
        options: Options of the format `barnabas` besides.
        report: Told how far the job is.

    Raises:
        PipelineError: It can not be done; there is nothing new then.
    """
    if format not in FORMATS:
        raise OptionError("format", f"is {', '.join(FORMATS)}, but {format!r} was given")
    if encoding not in ENCODINGS:
        raise OptionError("encoding", f"is {' or '.join(ENCODINGS)}, but {encoding!r} was given")
    target = _Output(spark, output, overwrite=overwrite)
    source = _Source(spark, topic, bootstrap_servers, archive, options)
    chosen = source.parts(at)
    read, kept = Observation("read"), Observation("kept")
    records = source.records(chosen).observe(
        read,
        functions.count("*").alias("records"),
        functions.count_if(functions.col("key").isNull()).alias("without_key"),
    )
    is_tombstone = functions.col("value").isNull()
    is_text = functions.expr("is_valid_utf8(key) AND coalesce(is_valid_utf8(value), true)")
    latest = latest_of_keys(records).observe(
        kept,
        functions.count("*").alias("keys"),
        functions.count_if(is_tombstone).alias("tombstones"),
        functions.count_if(functions.col("partitions") > 1).alias("in_several"),
        functions.count_if(~is_text).alias("not_text"),
    )
    rows = (latest if keep_tombstones else latest.where(~is_tombstone)).select(*COLUMNS)
    try:
        with plain_failures(), watched(spark, "snapshot", report):
            _write(rows, target.draft, format, encoding)
        seen, found = read.get, kept.get
        if format != "parquet" and encoding == "text" and found["not_text"]:
            raise PipelineError(
                f"{found['not_text']:,} keys or values are not UTF-8 text: base64 as the encoding, or Parquet as the "
                "format, has them as they are"
            )
        target.publish()
    finally:
        target.clean_up()
    return SnapshotResult(
        topic=topic,
        output=target.folder,
        format=format,
        keys=found["keys"] - (0 if keep_tombstones else found["tombstones"]),
        tombstones=found["tombstones"],
        tombstones_are_kept=keep_tombstones,
        records_read=seen["records"],
        records_without_key=seen["without_key"],
        keys_in_several_partitions=found["in_several"],
        partitions=tuple(
            ReadPart(
                partition=part.partition,
                start=part.start,
                end=part.end,
                from_archive_to=part.archived.end if part.archived.size else part.start,
            )
            for part in chosen
        ),
    )


class _Source:
    """Topic, archive, or both."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        bootstrap_servers: str | None,
        archive: str | None,
        options: Mapping[str, str] | None,
    ) -> None:
        if bootstrap_servers is None and archive is None:
            raise PipelineError("a snapshot is made from a topic or an archive, but neither a broker nor one is given")
        self._topic: Topic | None = None
        self._live: Mapping[int, Span] = {}
        topic_id = None
        if bootstrap_servers is not None:
            given = {ISOLATION_LEVEL: "read_committed", **(options or {})}
            self._topic = Topic(spark, topic, bootstrap_servers, given)
            state = self._topic.state()
            self._live, topic_id = state.spans, state.topic_id
        self._archive = None if archive is None else archive_of(spark, archive, topic, topic_id)
        # The archive may grow meanwhile; what is read is what it had at this moment.
        self._commits = [] if self._archive is None else self._archive.commits()
        self._archived = {} if self._archive is None else archived_spans(self._archive.description, self._commits)

    def parts(self, at: At) -> list[Part]:
        """Return what is read; raises PipelineError."""
        available = whole(self._archived, self._live)
        ends = {partition: span.end for partition, span in available.items()}
        if isinstance(at, Mapping):
            check_ends(at, available)
            ends = dict(at)
        elif at is not None:
            timestamp_ms = _milliseconds(at) if isinstance(at, datetime) else at
            for found in (self._first_in_archive(timestamp_ms), self._first_in_topic(timestamp_ms)):
                ends |= {partition: min(offset, ends[partition]) for partition, offset in found.items()}
        if at is not None and self._archive is not None and self._archive.description.mode == UPSERT:
            raise PipelineError(
                f"{self._archive.files.folder} keeps only the last record of every key, and none from before: a "
                "snapshot at a time needs an archive of every record, or the topic alone"
            )
        return parts(self._archived, self._live, ends)

    def _first_in_topic(self, timestamp_ms: int) -> dict[int, int]:
        """Return where the first record after a time is."""
        return {} if self._topic is None else self._topic.offsets_from(timestamp_ms + 1, self._live)

    def _first_in_archive(self, timestamp_ms: int) -> dict[int, int]:
        if self._archive is None:
            return {}
        later = self._archive.records(self._commits).where(functions.unix_millis("timestamp") > timestamp_ms)
        rows = later.groupBy("partition").agg(functions.min("offset").alias("offset")).collect()
        return {row.partition: row.offset for row in rows}

    def records(self, chosen: list[Part]) -> DataFrame:
        """Return the records of all parts."""
        frames = []
        if self._topic is not None:
            frames.append(self._topic.records({part.partition: part.live for part in chosen}).select(*COLUMNS))
        if self._archive is not None:
            archived = self._archive.records(self._commits).select(*COLUMNS)
            frames.append(within(archived, {part.partition: part.archived for part in chosen}))
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


class _Output:
    """The folder that is written: first a draft beside it, which gets its name when it is complete."""

    def __init__(self, spark: SparkSession, folder: str, *, overwrite: bool) -> None:
        path = folder.rstrip("/")
        parent, _, self._name = path.rpartition("/")
        if not self._name:
            raise PipelineError(f"a snapshot can not be written to {folder!r}: the name of a folder is needed")
        self._files = Files(spark, parent or ("/" if path.startswith("/") else "."))
        self._overwrite = overwrite
        mark = uuid.uuid4().hex
        self._draft, self._old = f"_{self._name}.{mark}.draft", f"_{self._name}.{mark}.old"
        if self._files.exists(self._name) and not overwrite:
            raise PipelineError(f"{self.folder} is there already; with overwrite it would be replaced")

    @property
    def folder(self) -> str:
        return self._files.path(self._name)

    @property
    def draft(self) -> str:
        return self._files.path(self._draft)

    def publish(self) -> None:
        """Give the draft its name."""
        if self._overwrite and self._files.exists(self._name):
            self._files.move(self._name, self._old)
        try:
            self._files.move(self._draft, self._name)
        except ExistsError:
            raise PipelineError(f"{self.folder} is there already: somebody else wrote it meanwhile") from None

    def clean_up(self) -> None:
        """Remove what is not needed any more, whether it was published or not."""
        self._files.delete(self._draft)
        self._files.delete(self._old)


def _write(rows: DataFrame, folder: str, format: str, encoding: str) -> None:
    if format == "parquet":
        rows.write.parquet(folder)
        return
    texts = {
        name: functions.base64(name) if encoding == "base64" else functions.col(name).cast("string")
        for name in ("key", "value")
    }
    rows = rows.withColumns(texts)
    if format == "json":
        rows.write.option("ignoreNullFields", "false").json(folder)
    else:
        rows.withColumn("headers", functions.to_json("headers")).write.option("header", "true").csv(folder)
