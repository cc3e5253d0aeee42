"""The job `archive`: a topic kept as Parquet, or as a Delta or Iceberg table, record by record or key by key.

A streaming query reads the topic, and each of its batches becomes a commit of the archive (`archives.commit_writer`).
Spark's checkpoint lies inside the archive and says how far a batch goes before it runs; the commits say what is there.

Rule 1: killed at any point and started again, every record is there once. A batch that the commits have is passed over
whole; files that no commit names are not read, and are deleted by the next run.
Rule 2: records that are gone before they were archived are an error, and so is a topic that was made again.
Rule 3: where the archive begins is found out once, when it is made, and kept in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.client import Client
from barnabas.client.offsets import EARLIEST, LATEST, offsets_at
from barnabas.clock import Clock, SystemClock
from barnabas.model import TopicPartition
from barnabas.spark.archives.archive import Archive, open_or_create_archive
from barnabas.spark.archives.batch_ranges import (
    count_offsets,
    is_archived,
    ranges_of_batch,
    read_place,
    start_of_batch,
    starting_offsets,
)
from barnabas.spark.archives.cleaning import clean
from barnabas.spark.archives.commit_writer import DEAD_LETTER, ON_ERROR, Batch, WriteRules, file_count, write_commit
from barnabas.spark.archives.decoding import NONE, check_decoding
from barnabas.spark.archives.files import Files
from barnabas.spark.archives.manifest import (
    APPEND,
    CHECKPOINT,
    DESCRIPTION,
    PARQUET,
    UPSERT,
    ArchiveDescription,
    Commit,
    OffsetRange,
)
from barnabas.spark.archives.table_formats import check_table_format
from barnabas.spark.archives.topic_files import FilesPlan, files_by_tasks
from barnabas.spark.archives.upserting import BUCKETS_DEFAULT
from barnabas.spark.archives.writer_lock import writer_lock
from barnabas.spark.connecting import read_cluster
from barnabas.spark.errors import OptionError
from barnabas.spark.jobs.job import JobResult, Progress, Report, say_nothing
from barnabas.spark.jobs.places import by_number, parse_place, resolve_place
from barnabas.spark.jobs.streams import run_to_the_end
from barnabas.spark.jobs.topics import cluster_options, find_topic
from barnabas.spark.source.admission import HAS_ADMISSION_CONTROL
from barnabas.spark.source.failures import plain_errors
from barnabas.spark.source.offsets import Assigned, sample_densities
from barnabas.spark.source.options import read_stream_options
from barnabas.spark.source.stream_offsets import StreamOffset, to_json
from barnabas.spark.source.stream_reader import StreamReader

MODES = (APPEND, UPSERT)
_MEGABYTE = 1024 * 1024
# A task reads no more than this, so that many work on a large batch.
_TASK_BYTES_MAX = 64 * _MEGABYTE
_COMMITS_BETWEEN_CLEANINGS = 100
_ISOLATION_LEVEL = "kafka.isolation.level"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """What a run added of one partition."""

    partition: int
    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveResult(JobResult):
    """What a run of `archive` did."""

    topic: str
    folder: str
    commits: int
    records: int
    files: int
    size_bytes: int
    dead_letters: int
    skipped: int
    partitions: tuple[ArchivedPartition, ...]

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return ("partition", "from", "to", "records")

    def rows(self) -> list[tuple[object, ...]]:
        """A row for each partition that records came from."""
        return [(each.partition, each.start, each.end, each.records) for each in self.partitions]

    def sentence(self) -> str:
        """What was archived, in words."""
        if not self.commits:
            return f"{self.folder} has everything of topic {self.topic!r} already"
        said = (
            f"archived {self.records:,} records of topic {self.topic!r} in {self.folder}: {self.commits:,} commits, "
            f"{self.files:,} files, {self.size_bytes:,} bytes"
        )
        if self.dead_letters:
            said += f"; {self.dead_letters:,} could not be decoded and are in dead-letters"
        return said + (f"; {self.skipped:,} could not be decoded and were skipped" if self.skipped else "")


def archive(
    spark: SparkSession,
    topic: str,
    folder: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
    mode: str = APPEND,
    table_format: str = PARQUET,
    decode: str = NONE,
    schema: str = "",
    on_error: str = DEAD_LETTER,
    start: str = "earliest",
    target_file_mb: int = 128,
    records_per_commit: int = 10_000_000,
    buckets: int = BUCKETS_DEFAULT,
    group_id: str | None = None,
    follow: bool = False,
    trigger: str = "10 seconds",
    report: Report = say_nothing,
) -> ArchiveResult:
    """Archive what a topic has and the archive has not yet; or, with `follow`, go on until interrupted.

    Args:
        spark: The session that the tasks run in.
        topic: What to archive.
        folder: The archive; it is made where there is none.
        bootstrap_servers: A broker of the cluster.
        options: Further options of the source, as `kafka.security.protocol`.
        mode: "append" keeps every record, "upsert" the last one of every key.
        table_format: "parquet", or "delta" or "iceberg" where Spark has them.
        decode: How values are decoded into the column `data`: "none", "json" or "avro".
        schema: By what: DDL as 'id BIGINT, name STRING' or Spark's JSON of it; an Avro schema.
        on_error: What to do with records that can not be decoded: "dead-letter", "skip" or "fail".
        start: Where a new archive begins (see `places`); without effect on one that is there.
        target_file_mb: About how large files become, as far as a commit has that much.
        records_per_commit: How many offsets a commit has at most.
        buckets: Mode "upsert": into how many files the keys of a new archive are divided.
        group_id: A group that shows to tools how far the archive is.
        follow: Go on with what arrives.
        trigger: With `follow`, how long to wait between commits.
        report: Told how far the job is.

    Raises:
        PipelineError: The archive is of something else, the broker can not be reached, and the like.
        DataLossError: Records are gone, or the topic is another one by now.
    """
    given = _source_options(topic, bootstrap_servers, options, group_id, target_file_mb, records_per_commit)
    _check_choices(mode=mode, on_error=on_error)
    _check_counts(target_file_mb=target_file_mb, records_per_commit=records_per_commit, buckets=buckets)
    check_table_format(spark, table_format)
    kept_schema = check_decoding(spark, decode, schema)
    source = read_stream_options(given)
    cluster, files = read_cluster(given), Files(spark, folder)
    with Client(cluster.bootstrap_servers, cluster.options) as client, writer_lock(files) as is_only_writer:
        with plain_errors(f"looking at topic {topic!r}"):
            assigned = find_topic(client, topic)
            place = parse_place("start", start, topic)
            starts = {} if files.exists(DESCRIPTION) else resolve_place(client, assigned, place, source.isolation)
        description = ArchiveDescription(
            topic=topic,
            topic_id=str(assigned.topic_ids[topic]),
            mode=mode,
            table_format=table_format,
            decode=decode,
            schema=kept_schema,
            isolation_level=given[_ISOLATION_LEVEL],
            start_offsets={str(number): offset for number, offset in starts.items()},
            buckets=buckets if mode == UPSERT else 0,
        )
        opened = open_or_create_archive(spark, folder, description)
        clock = SystemClock()
        clean(opened, clock, is_only_writer=is_only_writer)
        rules = WriteRules(on_error=on_error, target_file_bytes=target_file_mb * _MEGABYTE)
        run = _Run(opened, client, given, rules, clock, report, is_only_writer=is_only_writer)
        run.stream(spark, assigned, trigger if follow else None)
    return _result(opened, run.added)


class _Run:
    """One run of the job: its query, and what that has added."""

    def __init__(
        self,
        archive: Archive,
        client: Client,
        options: Mapping[str, str],
        rules: WriteRules,
        clock: Clock,
        report: Report,
        *,
        is_only_writer: bool,
    ) -> None:
        self._archive = archive
        self._client = client
        self._options = options
        self._cluster = read_cluster(options)
        self._source = read_stream_options(options)
        self._reader = StreamReader(options)
        self._rules = rules
        self._clock = clock
        self._report = report
        self._is_only_writer = is_only_writer
        self._total = 0
        self._done = 0
        self.added: list[Commit] = []

    def stream(self, spark: SparkSession, assigned: Assigned, trigger: str | None) -> None:
        """Run the query until the archive has everything, or, with a trigger, until it is interrupted."""
        topic = self._archive.description.topic
        ends = self._archive.end_offsets()
        with plain_errors(f"finding the end of topic {topic!r}"):
            latest = offsets_at(self._client, assigned.partitions, LATEST, self._source.isolation)
        self._total = 0 if trigger else count_offsets(ends, latest)
        self._tell()
        begin = starting_offsets(topic, len(assigned.partitions), ends)
        stream = spark.readStream.format("barnabas").options(**self._options).option("startingOffsets", begin).load()
        writer = (
            stream.writeStream.queryName(f"barnabas archive {topic} {self._archive.files.folder}")
            .foreachBatch(self._write)
            .option("checkpointLocation", self._archive.files.path(CHECKPOINT))
        )
        try:
            writer = writer.trigger(processingTime=trigger) if trigger else writer.trigger(availableNow=True)
        except IllegalArgumentException:
            raise OptionError("trigger", f"is {trigger!r}, which is no time like '10 seconds'") from None
        run_to_the_end(writer.start(), self._tell, is_endless=trigger is not None)

    def _tell(self) -> None:
        self._report(Progress(step="archiving", done=self._done, total=self._total, unit="offsets"))

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        """Make a batch a commit; Spark calls this on the driver, and again after a crash."""
        start, end = self._places(batch_id)
        ranges = self._ranges(start, end)
        may_have_gaps = not self._source.fail_on_data_loss
        if not ranges or is_archived(self._archive.end_offsets(), ranges, may_have_gaps=may_have_gaps):
            return
        batch = Batch(frame=frame, ranges=ranges, files=self._file_count(ranges), plan=self._plan(start, end))
        self.added.append(write_commit(self._archive, batch, self._rules, self._clock))
        self._done += sum(each.end - each.start for each in ranges)
        if len(self.added) % _COMMITS_BETWEEN_CLEANINGS == 0:
            clean(self._archive, self._clock, is_only_writer=self._is_only_writer)

    def _places(self, batch_id: int) -> tuple[StreamOffset, StreamOffset]:
        """Return where a batch begins and ends."""

        def place(number: int) -> StreamOffset:
            name = f"{CHECKPOINT}/offsets/{number}"
            return read_place(self._archive.files.read(name), self._archive.files.path(name))

        end = place(batch_id)
        before = place(batch_id - 1) if batch_id else None
        return start_of_batch(before, end, self._archive.description.topic, self._archive.end_offsets()), end

    def _ranges(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        description = self._archive.description
        earliest: dict[int, int] = {}
        if not self._source.fail_on_data_loss:
            with plain_errors(f"looking at topic {description.topic!r}"):
                earliest = by_number(offsets_at(self._client, end.offsets, EARLIEST, self._source.isolation))
        return ranges_of_batch(start, end, description.topic, description.topic_id, earliest)

    def _plan(self, start: StreamOffset, end: StreamOffset) -> FilesPlan | None:
        """Return what tasks write, where they do; the query's frame, which has the same records, is not asked then."""
        how = files_by_tasks(self._archive, self._cluster, self._source)
        if how is None:
            return None
        planned = self._reader.partitions(to_json(start), to_json(end))
        return FilesPlan(how=how, ranges=[each.offset_range for each in planned])

    def _file_count(self, ranges: list[OffsetRange]) -> int:
        """Return how many files the records of some offsets go into, judged by earlier commits or by a look at some."""
        offsets = sum(each.end - each.start for each in ranges)
        before = next((each for each in reversed(self._archive.commits()) if each.files and each.records), None)
        if before is not None:
            per_offset = sum(before.files.values()) / before.records
        else:
            topic = self._archive.description.topic
            starts = {TopicPartition(topic, each.partition): each.start for each in ranges}
            densities = sample_densities(self._client, starts)
            per_offset = sum(densities.values()) / len(densities) if densities else 0.0
        return file_count(offsets * per_offset, self._rules.target_file_bytes)


def _source_options(
    topic: str,
    bootstrap_servers: str,
    options: Mapping[str, str] | None,
    group_id: str | None,
    target_file_mb: int,
    records_per_commit: int,
) -> dict[str, str]:
    """Return the options of the query, ours below those that were given."""
    chosen = {
        # A record of a transaction that was aborted was never there for anybody.
        _ISOLATION_LEVEL: "read_committed",
        "maxBytesPerPartition": str(min(_TASK_BYTES_MAX, target_file_mb * _MEGABYTE)),
        **cluster_options(bootstrap_servers, options),
        "subscribe": topic,
        "includeHeaders": "true",
    }
    if HAS_ADMISSION_CONTROL:
        chosen.setdefault("maxOffsetsPerTrigger", str(records_per_commit))
    if group_id is not None:
        chosen["kafka.group.id"] = group_id
    return chosen


def _check_choices(*, mode: str, on_error: str) -> None:
    for name, value, values in (("mode", mode, MODES), ("on_error", on_error, ON_ERROR)):
        if value not in values:
            raise OptionError(name, f"is {value!r}, but has to be one of: {', '.join(values)}")


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise OptionError(name, f"is a number from 1 on, but {count} was given")


def _result(archive: Archive, added: list[Commit]) -> ArchiveResult:
    ranges: dict[int, ArchivedPartition] = {}
    for each in (each for commit in added for each in commit.ranges):
        known = ranges.get(each.partition)
        ranges[each.partition] = ArchivedPartition(
            partition=each.partition,
            start=each.start if known is None else known.start,
            end=each.end,
            records=each.records + (0 if known is None else known.records),
        )
    return ArchiveResult(
        topic=archive.description.topic,
        folder=archive.files.folder,
        commits=len(added),
        records=sum(commit.records for commit in added),
        files=sum(len(commit.files) for commit in added),
        size_bytes=sum(sum(commit.files.values()) for commit in added),
        dead_letters=sum(commit.dead_letters for commit in added),
        skipped=sum(commit.skipped for commit in added),
        partitions=tuple(ranges[number] for number in sorted(ranges)),
    )
