"""The job `replay`: an archive, or a part of a topic, written to a topic, with everything that records have.

The offsets are taken in steps (`replay_plan`). A step is written by one transaction a source partition, all of which
are decided about together and then committed, by the same code and files as a streaming query's batch
(`sink.exactly_once`): so a replay that is killed at any point is started again, and no record is lost or there twice
for readers with isolation.level=read_committed.

Rule 1: keys, values, headers and times stay as they are; offsets are the target's own.
Rule 2: a record stays in its partition where the target has as many partitions as the source, or more. Where it has
fewer, its key says where it goes, and without a key the remainder of its partition's number. The result says which.
Rule 3: records of one source partition that go to one target partition keep their order.
Rule 4: a step is committed only if both topics still are those of the plan after it was written, and not others of the
same names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from barnabas.client.client import Client
from barnabas.client.offsets import IsolationLevel
from barnabas.client.sender import TransactionHandle
from barnabas.spark.archives.archive import Archive, open_archive
from barnabas.spark.archives.files import Files
from barnabas.spark.archives.manifest import DESCRIPTION, FOLDER, UPSERT
from barnabas.spark.archives.writer_lock import writer_lock
from barnabas.spark.connecting import Cluster, read_cluster, shared_client
from barnabas.spark.errors import DataLossError, OptionError, PipelineError
from barnabas.spark.jobs.job import JobResult, Progress, Report, say_nothing
from barnabas.spark.jobs.places import offsets_option, parse_place, resolve_place
from barnabas.spark.jobs.replay_archive import archive_place, archived_starts
from barnabas.spark.jobs.replay_plan import ReplayPlan, read_plan, wanted_text, write_plan
from barnabas.spark.jobs.topics import cluster_options, find_topic, plain_error
from barnabas.spark.sink.decisions import FINISHED, Decisions
from barnabas.spark.sink.exactly_once import abort_batch, abort_leftovers, commit_batch, id_prefix, write_in_transaction
from barnabas.spark.sink.failures import told_as_pipeline_errors
from barnabas.spark.sink.options import SinkOptions, read_options
from barnabas.spark.source.failures import plain_errors

STEP_RECORDS = 1_000_000
_COLUMNS = ("key", "value", "headers", "timestamp", "partition")
_HANDLES = "transactional_id string, producer_id bigint, producer_epoch int, rows bigint"
"""What a task tells the driver: the transaction that it left open, and how much it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(JobResult):
    """What a run of `replay` did."""

    source: str
    target_topic: str
    records: int
    steps: int
    steps_done_before: int
    keeps_partitions: bool
    checkpoint: str
    ranges: tuple[tuple[int, int, int], ...]

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return ("partition", "from", "to")

    def rows(self) -> list[tuple[object, ...]]:
        """A row for each partition of the source."""
        return list(self.ranges)

    def sentence(self) -> str:
        """What was replayed, in words."""
        if self.steps_done_before == self.steps:
            return (
                f"{self.source} was replayed to topic {self.target_topic!r} before; to do it once more, "
                f"give another checkpoint than {self.checkpoint}"
            )
        where = "in the same partitions" if self.keeps_partitions else "in partitions by key, of which there are fewer"
        said = f"replayed {self.records:,} records of {self.source} to topic {self.target_topic!r}, {where}"
        return said + (f", after {self.steps_done_before:,} steps of an earlier run" if self.steps_done_before else "")


def replay(
    spark: SparkSession,
    source: str,
    target_topic: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
    source_bootstrap_servers: str | None = None,
    source_options: Mapping[str, str] | None = None,
    start: str = "earliest",
    to: str = "latest",
    checkpoint: str | None = None,
    records_per_step: int = STEP_RECORDS,
    report: Report = say_nothing,
) -> ReplayResult:
    """Write an archive, or a part of a topic, to a topic; started again after a kill, it goes on where it was.

    Args:
        spark: The session that the tasks run in.
        source: The folder of an archive, or else the name of a topic.
        target_topic: The topic to write to, which exists.
        bootstrap_servers: A broker of the target's cluster.
        options: Further options of the sink, as `kafka.compression.type` or `kafka.security.protocol`.
        source_bootstrap_servers: A broker of the source topic's cluster, where that is another one.
        source_options: Further options of the source topic's cluster; those of the target where it is the same one.
        start: Where to begin in the source (see `places`).
        to: Where to end; offsets are those behind the last one, times those of the first record that is left out.
        checkpoint: A folder that says how far the replay is. For an archive there is one inside it for every target.
        records_per_step: How many offsets are written, and committed, at a time.
        report: Told how far the job is.

    Raises:
        PipelineError: There is no such source or target, the checkpoint is of another replay, and the like.
    """
    if records_per_step < 1:
        raise OptionError("records_per_step", f"is a number from 1 on, but {records_per_step} was given")
    sink_given = {**cluster_options(bootstrap_servers, options), "topic": target_topic}
    archive = open_archive(spark, source) if Files(spark, source).exists(DESCRIPTION) else None
    files = _checkpoint(spark, checkpoint, archive, target_topic)
    sink_given["checkpointLocation"] = files.folder
    sink = read_options(sink_given, is_streaming=True)
    cluster = read_cluster(sink_given)
    own = options if source_bootstrap_servers is None else {}
    source_given = _source_options(source_bootstrap_servers or bootstrap_servers, source_options or own)
    wanted = wanted_text(
        source=source if archive is None else archive.files.folder,
        servers=None if archive else source_bootstrap_servers,
        target=target_topic,
        start=start,
        to=to,
        records_per_step=records_per_step,
    )
    with writer_lock(files), Client(cluster.bootstrap_servers, cluster.options) as client:
        plan = read_plan(files, wanted)
        if plan is None:
            with plain_errors(f"planning the replay of {source}"):
                plan = _plan(client, source, archive, target_topic, source_given, start, to, records_per_step, wanted)
            write_plan(files, plan)
        return _Run(spark, plan, archive, source_given, client, cluster, sink, files.folder, report).run()


class _Run:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        plan: ReplayPlan,
        archive: Archive | None,
        source_given: Mapping[str, str],
        client: Client,
        cluster: Cluster,
        sink: SinkOptions,
        checkpoint: str,
        report: Report,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._archive = archive
        self._source_given = source_given
        self._client = client
        self._cluster = cluster
        self._sink = sink
        self._checkpoint = checkpoint
        self._report = report
        self._decisions = Decisions(checkpoint, plan.step_text)
        self._prefix = id_prefix(sink, self._decisions.query_id())

    def run(self) -> ReplayResult:
        """Take all steps that are left."""
        self._check_topics()
        plan, records, before = self._plan, 0, self._steps_done()
        with told_as_pipeline_errors("looking for what an earlier run left open"):
            abort_leftovers(self._client, self._prefix)
        for number in range(before, plan.steps):
            self._tell(number)
            records += self._take(number)
        self._tell(plan.steps)
        return ReplayResult(
            source=plan.source,
            target_topic=plan.target_topic,
            records=records,
            steps=plan.steps,
            steps_done_before=before,
            keeps_partitions=plan.keeps_partitions,
            checkpoint=self._checkpoint,
            ranges=tuple((int(each), plan.starts[each], plan.ends[each]) for each in sorted(plan.starts, key=int)),
        )

    def _steps_done(self) -> int:
        """Return how many steps were done before, the last decision carried out."""
        known = self._decisions.batch_ids()
        if not known:
            return 0
        last = max(known)
        self._decisions.read(last)
        if known[last] != FINISHED:
            self._commit(last, [])
        return last + 1

    def _check_topics(self) -> None:
        """Refuse topics that are not those of the plan any more."""
        plan = self._plan
        _check_same(self._client, plan.target_topic, plan.target_topic_id)
        if self._archive is None:
            cluster = read_cluster(self._source_given)
            with Client(cluster.bootstrap_servers, cluster.options) as client:
                _check_same(client, plan.source_topic, plan.source_topic_id)

    def _commit(self, number: int, handles: list[TransactionHandle]) -> None:
        timeout_ms = self._sink.transaction_timeout_ms
        commit_batch(self._client, self._decisions, number, handles, prefix=self._prefix, timeout_ms=timeout_ms)

    def _tell(self, steps: int) -> None:
        done = sum(last - first for number in range(steps) for first, last in self._plan.step(number).values())
        self._report(Progress(step="replaying", done=done, total=self._plan.offsets, unit="offsets"))

    def _take(self, number: int) -> int:
        rows = self._placed(self._rows(self._plan.step(number)))
        writing = _Writing(cluster=self._cluster, sink=self._sink, prefix=self._prefix)
        try:
            told = rows.mapInArrow(writing.write, _HANDLES).collect()
            # Only now is it sure that all records were those of the plan's topic, and went to the plan's target.
            self._check_topics()
        except Exception as error:
            abort_batch(self._client, self._decisions, number, prefix=self._prefix)
            plain = plain_error(error)
            if plain is None:
                raise
            raise plain from error
        handles = [
            TransactionHandle(
                transactional_id=row.transactional_id, producer_id=row.producer_id, producer_epoch=row.producer_epoch
            )
            for row in told
        ]
        self._commit(number, handles)
        return sum(row.rows for row in told)

    def _rows(self, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
        """Return the records of a step: each source partition in one task, in order."""
        if self._archive is not None:
            some = functions.lit(False)
            for partition, (first, last) in ranges.items():
                offset = functions.col("offset")
                some = some | ((functions.col("partition") == partition) & (offset >= first) & (offset < last))
            rows = self._archive.records(self._archive.commits()[: self._plan.commits]).where(some)
            return rows.repartition(len(ranges), "partition").sortWithinPartitions("partition", "offset")
        topic = self._plan.source_topic
        given = {
            **self._source_given,
            "assign": f'{{"{topic}": {sorted(ranges)}}}',
            "startingOffsets": offsets_option(topic, {each: first for each, (first, _) in ranges.items()}),
            "endingOffsets": offsets_option(topic, {each: last for each, (_, last) in ranges.items()}),
        }
        return self._spark.read.format("barnabas").options(**given).load()

    def _placed(self, rows: DataFrame) -> DataFrame:
        if not self._plan.keeps_partitions:
            count = len(find_topic(self._client, self._plan.target_topic).partitions)
            by_number = functions.when(functions.col("key").isNull(), functions.col("partition") % count)
            rows = rows.withColumn("partition", by_number)
        return rows.select(*_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """What a task needs to write its rows; it travels to the workers."""

    cluster: Cluster
    sink: SinkOptions
    prefix: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task into a transaction that stays open, and tell which one that is."""
        context = TaskContext.get()
        assert context is not None
        name = f"{self.prefix}{context.partitionId()}-{context.attemptNumber()}"
        handle, rows = write_in_transaction(shared_client(self.cluster), self.sink, frozenset(_COLUMNS), name, batches)
        if handle is not None:
            values = [[handle.transactional_id], [handle.producer_id], [handle.producer_epoch], [rows]]
            types = (pa.string(), pa.int64(), pa.int32(), pa.int64())
            arrays = [pa.array(value, kind) for value, kind in zip(values, types, strict=True)]
            names = ["transactional_id", "producer_id", "producer_epoch", "rows"]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _checkpoint(spark: SparkSession, checkpoint: str | None, archive: Archive | None, target_topic: str) -> Files:
    if checkpoint is not None:
        return Files(spark, checkpoint)
    if archive is None:
        raise OptionError(
            "checkpoint",
            "is needed to replay a topic: a folder that says how far it is, so that it can be started again",
        )
    return Files(spark, archive.files.path(f"{FOLDER}/replays/{target_topic}"))


def _source_options(bootstrap_servers: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of a source topic. One task reads a partition, so that the order is kept."""
    return {
        "kafka.isolation.level": "read_committed",
        **{name: value for name, value in (options or {}).items() if name.lower().startswith(_CONNECTING)},
        **cluster_options(bootstrap_servers, None),
        "includeHeaders": "true",
        "maxBytesPerPartition": "0",
    }


_CONNECTING = ("kafka.security.", "kafka.ssl.", "kafka.sasl.", "kafka.isolation.level", "kafka.client.id")


def _plan(
    client: Client,
    source: str,
    archive: Archive | None,
    target_topic: str,
    source_given: Mapping[str, str],
    start: str,
    to: str,
    records_per_step: int,
    wanted: str,
) -> ReplayPlan:
    target = find_topic(client, target_topic)
    if archive is None:
        topic, topic_id, starts, ends = _topic_limits(source, source_given, start, to)
    else:
        topic, topic_id = archive.description.topic, archive.description.topic_id
        starts = archive_place(archive, "start", start, is_start=True)
        ends = archive_place(archive, "to", to, is_start=False)
        if archive.description.mode != UPSERT:
            starts = {each: max(offset, archived_starts(archive)[each]) for each, offset in starts.items()}
    late = [each for each in starts if starts[each] > ends.get(each, starts[each])]
    if late:
        raise OptionError(
            "start", f"is offset {starts[late[0]]} of partition {late[0]}, which is behind 'to', {ends[late[0]]}"
        )
    return ReplayPlan(
        source=source,
        source_topic=topic,
        source_topic_id=topic_id,
        target_topic=target_topic,
        target_topic_id=str(target.topic_ids[target_topic]),
        starts={str(each): offset for each, offset in starts.items()},
        ends={str(each): ends[each] for each in starts},
        step_offsets=max(1, records_per_step // max(1, len(starts))),
        keeps_partitions=len(target.partitions) > max(starts, default=-1),
        commits=0 if archive is None else len(archive.commits()),
        wanted=wanted,
    )


def _topic_limits(
    topic: str, source_given: Mapping[str, str], start: str, to: str
) -> tuple[str, str, dict[int, int], dict[int, int]]:
    cluster = read_cluster(source_given)
    isolation = IsolationLevel[source_given["kafka.isolation.level"].upper()]
    with Client(cluster.bootstrap_servers, cluster.options) as client:
        try:
            assigned = find_topic(client, topic)
        except PipelineError as error:
            raise PipelineError(f"{topic!r} is no archive, and {error}") from None
        starts = resolve_place(client, assigned, parse_place("start", start, topic), isolation)
        ends = resolve_place(client, assigned, parse_place("to", to, topic), isolation)
    return topic, str(assigned.topic_ids[topic]), starts, ends


def _check_same(client: Client, topic: str, topic_id: str) -> None:
    with plain_errors(f"looking at topic {topic!r}"):
        found = str(find_topic(client, topic).topic_ids[topic])
    if found != topic_id:
        raise DataLossError(
            f"topic {topic!r} was deleted and created again since this replay began: "
            "give another checkpoint to begin anew"
        )
