"""The job `audit`: a topic against its archive. Nothing is written.

The manifest is checked first (`audit_manifest`), then the records of both (`audit_records`); what differs is named by
partition and offset.

Rule 1: both are read as the archive was made: with the same isolation level, and in mode "upsert" only the last record
of every key, and all dead letters. Offsets without a record (markers of transactions, aborted records, compaction)
are no gaps then.
Rule 2: what the archive does not have yet is fine, and so is what the topic does not have any more; both are said. What
is lost, doubled or different is not fine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.manifest import UPSERT, Commit, current_files
from barnabas.spark.archives.upserting import last_of_keys, without_deleted
from barnabas.spark.jobs.archived import archive_of, archived_spans
from barnabas.spark.jobs.audit_manifest import (
    Finding,
    Kind,
    check_files,
    check_ranges,
    offsets_text,
    read_commits,
)
from barnabas.spark.jobs.audit_records import PartitionCounts, compare
from barnabas.spark.jobs.failures import plain_failures
from barnabas.spark.jobs.job import JobResult, Report, say_nothing
from barnabas.spark.jobs.latest import COLUMNS
from barnabas.spark.jobs.topic import ISOLATION_LEVEL, Span, Topic, TopicState
from barnabas.spark.jobs.watching import watched
from barnabas.spark.schema import spark_schema

_NOTHING = Span(start=0, end=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPartition:
    """What was compared of a partition. Offsets are from `start` to before `end`."""

    partition: int
    topic_start: int
    topic_end: int
    archive_start: int
    archive_end: int
    records_in_topic: int
    """Of the offsets that both have, like the next; in mode "upsert" the last record of every key."""
    records_in_archive: int
    checksum_of_topic: str
    """The sum of the hashes of these records, as text because JSON's numbers are too small."""
    checksum_of_archive: str
    missing: int
    doubled: int
    changed: int
    unknown: int
    """Records of the archive that the topic should have, and does not."""
    compacted: int
    """The same, where the topic's compaction has taken them away."""
    only_in_archive: int
    """Records that the topic has let go by its retention."""
    not_archived_yet: int
    """Offsets behind the end of the archive."""
    before_archive: int
    """Offsets of the topic before the archive's beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult(JobResult):
    """What an audit found."""

    topic: str
    archive: str
    mode: str
    isolation_level: str
    commits: int
    files: int
    skipped: int
    """Records that the archive left out on purpose, because they could not be decoded."""
    verdict: str
    findings: tuple[Finding, ...]
    partitions: tuple[AuditedPartition, ...]

    @property
    def is_fine(self) -> bool:
        """Whether nothing is lost, doubled or different."""
        return not self.findings

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        names = ("missing", "doubled", "changed", "unknown", "not archived yet", "only in archive")
        return ("partition", "topic offsets", "archive offsets", "in topic", "in archive", *names)

    def rows(self) -> list[tuple[object, ...]]:
        """A row a partition."""
        return [
            (
                each.partition,
                f"{each.topic_start}..{each.topic_end}",
                f"{each.archive_start}..{each.archive_end}",
                each.records_in_topic,
                each.records_in_archive,
                each.missing,
                each.doubled,
                each.changed,
                each.unknown,
                each.not_archived_yet,
                each.only_in_archive,
            )
            for each in self.partitions
        ]

    def sentence(self) -> str:
        """The findings, one a line, and the verdict."""
        return "\n".join([*(f"{each.kind}: {each.what}" for each in self.findings), self.verdict])


def audit(
    spark: SparkSession,
    topic: str,
    archive: str,
    *,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
    report: Report = say_nothing,
) -> AuditResult:
    """Compare a topic with its archive.

    Args:
        spark: The session that the tasks run in.
        topic: The topic.
        archive: The folder of its archive.
        bootstrap_servers: Where the topic is.
        options: Options of the format `barnabas` besides.
        report: Told how far the job is.

    Raises:
        PipelineError: There is nothing to compare: no such topic, or no archive of it.
    """
    plain = Topic(spark, topic, bootstrap_servers, options)
    opened = archive_of(spark, archive, topic, plain.state().topic_id)
    kept = opened.description
    source = Topic(spark, topic, bootstrap_servers, {ISOLATION_LEVEL: kept.isolation_level, **(options or {})})
    state = source.state()
    commits, findings = read_commits(opened)
    sound, damaged = check_files(commits, opened.files.sizes("."))
    findings += damaged + check_ranges(commits)
    spans = archived_spans(kept, commits)
    common = {
        partition: Span(start=max(span.start, spans[partition].start), end=min(span.end, spans[partition].end))
        for partition, span in state.spans.items()
        if partition in spans
    }
    with plain_failures(), watched(spark, "audit", report):
        expected = source.records(common).select(*COLUMNS)
        if kept.mode == UPSERT:
            letters = {name for commit in commits for name in commit.dead_letter_files} & sound
            expected = _last_records(expected, _read(spark, opened, letters) if letters else None)
        counts = compare(expected, _sound_records(spark, opened, commits, sound), common)
    audited = [
        _audited(partition, state, spans.get(partition, _NOTHING), counts.get(partition, PartitionCounts()))
        for partition in sorted({*state.spans, *spans, *counts})
    ]
    skipped = sum(commit.skipped for commit in commits)
    findings += _findings(audited, counts, spans, skipped)
    findings += _unexplained(audited, commits, findings, skipped) if kept.mode != UPSERT else []
    return AuditResult(
        topic=topic,
        archive=opened.files.folder,
        mode=kept.mode,
        isolation_level=source.isolation_level,
        commits=len(commits),
        files=len(sound) + sum(each.kind is Kind.FILE for each in damaged),
        skipped=skipped,
        verdict=verdict(audited, findings, skipped),
        findings=tuple(findings),
        partitions=tuple(audited),
    )


def _sound_records(spark: SparkSession, archive: Archive, commits: Sequence[Commit], sound: set[str]) -> DataFrame:
    """Return the records of the files that are there as they should be."""
    if archive.description.table_format != "parquet":
        return archive.records().select(*COLUMNS)
    names = {*current_files(commits), *(name for commit in commits for name in commit.dead_letter_files)} & sound
    return _read(spark, archive, names)


def _read(spark: SparkSession, archive: Archive, names: Collection[str]) -> DataFrame:
    schema = spark_schema(include_headers=True)
    if not names:
        return spark.createDataFrame([], schema).select(*COLUMNS)
    paths = [archive.files.pattern(name) for name in sorted(names)]
    return spark.read.schema(schema).parquet(*paths).select(*COLUMNS)


def _last_records(records: DataFrame, letters: DataFrame | None) -> DataFrame:
    """Return what an archive of mode "upsert" has of these: dead letters as they were, and the last of all others."""
    if letters is None:
        return without_deleted(last_of_keys(records))
    places = letters.select("partition", "offset").distinct()
    others = records.join(places, ["partition", "offset"], "left_anti").select(*COLUMNS)
    as_they_were = records.join(places, ["partition", "offset"], "left_semi").select(*COLUMNS)
    return without_deleted(last_of_keys(others)).unionAll(as_they_were)


def _audited(partition: int, state: TopicState, archived: Span, counts: PartitionCounts) -> AuditedPartition:
    live = state.spans.get(partition, _NOTHING)
    return AuditedPartition(
        partition=partition,
        topic_start=live.start,
        topic_end=live.end,
        archive_start=archived.start,
        archive_end=archived.end,
        records_in_topic=counts.topic_records,
        records_in_archive=counts.archive_records,
        checksum_of_topic=str(counts.topic_checksum),
        checksum_of_archive=str(counts.archive_checksum),
        missing=counts.missing,
        doubled=counts.doubled,
        changed=counts.changed,
        unknown=0 if state.is_compacted else counts.unknown,
        compacted=counts.unknown if state.is_compacted else 0,
        only_in_archive=counts.other_records,
        not_archived_yet=max(0, live.end - max(archived.end, live.start)),
        before_archive=max(0, min(archived.start, live.end) - live.start),
    )


def _findings(
    audited: Sequence[AuditedPartition],
    counts: Mapping[int, PartitionCounts],
    spans: Mapping[int, Span],
    skipped: int,
) -> list[Finding]:
    """Say of each partition what differs."""
    words = {
        Kind.MISSING: "in the topic, but not in the archive",
        Kind.DOUBLED: "in the archive more than once",
        Kind.CHANGED: "not the same in the archive",
        Kind.UNKNOWN: "in the archive, but not in the topic",
    }
    # Records that were left out on purpose are counted, but not written down: so many may be missing.
    allowed = {Kind.MISSING} if sum(each.missing for each in audited) <= skipped else set()
    findings = []
    for each in audited:
        for kind, sentence in words.items():
            count = getattr(each, kind.value)
            if count == 0 or kind in allowed:
                continue
            offsets = offsets_text(counts[each.partition].examples.get(kind.value, []), count)
            what = f"partition {each.partition}, {offsets}: {'is' if count == 1 else 'are'} {sentence}"
            findings.append(Finding(kind=kind, partition=each.partition, count=count, what=what))
        if each.partition in spans and each.archive_end > each.topic_end:
            what = (
                f"partition {each.partition}: the archive goes up to offset {each.archive_end}, but the topic ends at "
                f"{each.topic_end}"
            )
            count = each.archive_end - each.topic_end
            findings.append(Finding(kind=Kind.UNKNOWN, partition=each.partition, count=count, what=what))
    return findings


def _unexplained(
    audited: Sequence[AuditedPartition], commits: Sequence[Commit], findings: Sequence[Finding], skipped: int
) -> list[Finding]:
    """Compare the counts of the manifest with those of the files, where the topic can not tell any more."""
    explained = {each.partition for each in findings}
    if skipped or -1 in explained:
        return []
    expected: dict[int, int] = {}
    for commit in commits:
        for each in commit.ranges:
            expected[each.partition] = expected.get(each.partition, 0) + each.records
    unexplained = []
    for partition in audited:
        found = partition.records_in_archive + partition.only_in_archive
        said = expected.get(partition.partition, 0)
        if partition.partition in explained or said == found:
            continue
        kind = Kind.MISSING if found < said else Kind.DOUBLED
        what = f"partition {partition.partition}: the manifest says {said:,} records, but the files have {found:,}"
        unexplained.append(Finding(kind=kind, partition=partition.partition, count=abs(said - found), what=what))
    return unexplained


def verdict(audited: Sequence[AuditedPartition], findings: Sequence[Finding], skipped: int) -> str:
    """Return the one sentence that an audit comes down to."""
    compared = sum(each.records_in_topic for each in audited)
    if findings:
        kinds = sorted({each.kind.value for each in findings})
        return f"The archive is NOT what the topic is: {len(findings):,} findings ({', '.join(kinds)})."
    words = [f"Nothing is lost, nothing is doubled: {compared:,} records are the same in topic and archive"]
    for count, sentence in (
        (sum(each.not_archived_yet for each in audited), "offsets are not archived yet"),
        (sum(each.only_in_archive for each in audited), "records are only in the archive any more"),
        (sum(each.compacted for each in audited), "records are gone from the topic by compaction"),
        (sum(each.before_archive for each in audited), "offsets are from before the archive begins"),
        (skipped, "records were left out of the archive on purpose, because they do not decode"),
    ):
        if count:
            words.append(f"{count:,} {sentence}")
    return "; ".join(words) + "."
