"""A batch of records on its way into an archive: files first, and then the commit that names them.

    data/00000000000000000007-<random>/...          the files of commit 7, or of an attempt at it
    dead-letters/00000000000000000007-<random>/...  records that can not be decoded

Rule 1: every attempt has a folder of its own, so that a job that was thought dead can not add to it.
Rule 2: records are counted where it is known which files they are in, not on their way there: a task may run twice.
Rule 3: where tasks can write the files themselves they do (`topic_files`); everything else is written by Spark.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from barnabas.clock import Clock
from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.decoding import NONE, UNDECODABLE, with_data
from barnabas.spark.archives.manifest import DATA, DEAD_LETTERS, PARQUET, UPSERT, Commit, OffsetRange
from barnabas.spark.archives.table_formats import append_rows, merge_rows
from barnabas.spark.archives.topic_files import FilesPlan, write_files
from barnabas.spark.archives.upserting import last_of_keys, merged_buckets, with_keys_needed
from barnabas.spark.errors import PipelineError
from barnabas.spark.schema import spark_schema

DEAD_LETTER, SKIP, FAIL = "dead-letter", "skip", "fail"
ON_ERROR = (DEAD_LETTER, SKIP, FAIL)

_COLUMNS = spark_schema(include_headers=True).names


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """How batches are written."""

    on_error: str = DEAD_LETTER
    target_file_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What becomes a commit: the records, the offsets that they are read from, and how many files are wanted."""

    frame: DataFrame
    ranges: Sequence[OffsetRange]
    files: int
    # Where tasks write the files themselves.
    plan: FilesPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What is on the disk, and not committed yet."""

    # By partition: records that can be decoded, and records that can not.
    good: Mapping[int, int]
    bad: Mapping[int, int]
    files: Mapping[str, int]
    dead_letter_files: Mapping[str, int]
    removed: tuple[str, ...] = ()


def file_count(size_bytes: float, target_bytes: int) -> int:
    """Return into how many files so many bytes go."""
    return max(1, round(size_bytes / target_bytes))


def write_commit(archive: Archive, batch: Batch, rules: WriteRules, clock: Clock) -> Commit:
    """Write a batch and commit it; raises PipelineError."""
    number = len(archive.commits())
    attempt = f"{number:020d}-{uuid.uuid4().hex[:8]}"
    if batch.plan is not None:
        written = _write_by_tasks(archive, batch.plan, attempt, batch.files)
    else:
        written = _write_by_spark(archive, batch, rules, number, attempt)
    bad = sum(written.bad.values())
    commit = Commit(
        number=number,
        timestamp_ms=clock.now_ms(),
        ranges=tuple(
            replace(each, records=written.good.get(each.partition, 0) + written.bad.get(each.partition, 0))
            for each in batch.ranges
        ),
        files=written.files,
        dead_letter_files=written.dead_letter_files,
        removed=written.removed,
        dead_letters=bad if rules.on_error == DEAD_LETTER else 0,
        skipped=bad if rules.on_error == SKIP else 0,
    )
    archive.add(commit)
    return commit


def _write_by_tasks(archive: Archive, plan: FilesPlan, attempt: str, files: int) -> _Written:
    folder = f"{DATA}/{attempt}"
    written = write_files(archive, plan, folder, files)
    counts: Counter[int] = Counter()
    for each in written:
        counts.update(each.records)
    sizes = {f"{folder}/{each.name}": each.size for each in written}
    return _Written(good=counts, bad={}, files=sizes, dead_letter_files={})


def _write_by_spark(archive: Archive, batch: Batch, rules: WriteRules, number: int, attempt: str) -> _Written:
    # Other programs read these times, and find rows by them; Spark's own default is a type that is given up elsewhere.
    batch.frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    description = archive.description
    rows = with_data(batch.frame, description.decode, description.schema)
    if description.mode == UPSERT:
        rows = with_keys_needed(rows)
    if description.mode == UPSERT or description.table_format != PARQUET:
        return _write_kept(archive, rows, rules, number, attempt)
    if description.decode == NONE:
        return _write_plain(archive, batch.frame, attempt, batch.files)
    return _write_decoded(archive, rows, rules, attempt, batch.files)


def _write_plain(archive: Archive, frame: DataFrame, attempt: str, files: int) -> _Written:
    folder = f"{DATA}/{attempt}"
    frame.coalesce(files).write.parquet(archive.files.path(folder))
    rows = frame.sparkSession.read.schema("partition INT").parquet(archive.files.pattern(folder))
    counts = {row.partition: row["count"] for row in rows.groupBy("partition").count().collect()}
    return _Written(good=counts, bad={}, files=data_files(archive, folder), dead_letter_files={})


def _write_decoded(archive: Archive, rows: DataFrame, rules: WriteRules, attempt: str, files: int) -> _Written:
    """Write good and bad records in one pass over the topic, into two folders."""
    folder, bad_folder = f"{DATA}/{attempt}", f"{DATA}/{attempt}/{UNDECODABLE}=true"
    ordered = rows.coalesce(files).sortWithinPartitions(UNDECODABLE, "partition", "offset")
    ordered.write.partitionBy(UNDECODABLE).parquet(archive.files.path(folder))
    there = rows.sparkSession.read.schema(f"partition INT, {UNDECODABLE} BOOLEAN").parquet(
        archive.files.pattern(folder)
    )
    good, bad = _counted(there)
    letters: Mapping[str, int] = {}
    if bad:
        _refuse_if_fatal(archive, rules, rows.sparkSession.read.parquet(archive.files.pattern(bad_folder)))
        if rules.on_error == DEAD_LETTER:
            archive.files.move(bad_folder, f"{DEAD_LETTERS}/{attempt}")
            letters = data_files(archive, f"{DEAD_LETTERS}/{attempt}")
        else:
            archive.files.delete(bad_folder)
    return _Written(good=good, bad=bad, files=data_files(archive, folder), dead_letter_files=letters)


def _write_kept(archive: Archive, rows: DataFrame, rules: WriteRules, number: int, attempt: str) -> _Written:
    """Write a batch that is gone through several times, and is kept for that."""
    rows.persist()
    try:
        good, bad = _counted(rows)
        letters: Mapping[str, int] = {}
        if bad:
            bad_rows = rows.where(UNDECODABLE).select(*_COLUMNS)
            _refuse_if_fatal(archive, rules, bad_rows)
            if rules.on_error == DEAD_LETTER:
                bad_rows.coalesce(1).write.parquet(archive.files.path(f"{DEAD_LETTERS}/{attempt}"))
                letters = data_files(archive, f"{DEAD_LETTERS}/{attempt}")
        kept = rows.where(f"NOT {UNDECODABLE}").drop(UNDECODABLE)
        files: Mapping[str, int] = {}
        removed: tuple[str, ...] = ()
        if archive.description.mode != UPSERT:
            append_rows(kept, archive.files, archive.description, number)
        elif archive.description.table_format != PARQUET:
            merge_rows(last_of_keys(kept), archive.files, archive.description, number)
        else:
            folder = f"{DATA}/{attempt}"
            removed = merged_buckets(archive, kept, folder)
            files = data_files(archive, folder)
    finally:
        rows.unpersist()
    return _Written(good=good, bad=bad, files=files, dead_letter_files=letters, removed=removed)


def _counted(rows: DataFrame) -> tuple[dict[int, int], dict[int, int]]:
    counts = rows.groupBy("partition", UNDECODABLE).count().collect()
    good = {row.partition: row["count"] for row in counts if not row[UNDECODABLE]}
    return good, {row.partition: row["count"] for row in counts if row[UNDECODABLE]}


def _refuse_if_fatal(archive: Archive, rules: WriteRules, bad: DataFrame) -> None:
    if rules.on_error != FAIL:
        return
    first = bad.orderBy("partition", "offset").first()
    assert first is not None
    description = archive.description
    reason = f"can not be decoded as {description.decode}"
    if description.mode == UPSERT and first.key is None:
        reason = "has no key, which mode 'upsert' needs"
    raise PipelineError(
        f"the record at offset {first.offset} of {description.topic}-{first.partition} {reason}; with on_error "
        f"'{DEAD_LETTER}' or '{SKIP}' the job would go on"
    )


def data_files(archive: Archive, folder: str) -> dict[str, int]:
    """Return the files that were written into a folder, and their sizes; Spark and Hadoop put others beside them."""
    sizes = archive.files.sizes(folder)
    return {name: size for name, size in sorted(sizes.items()) if not name.rpartition("/")[2].startswith((".", "_"))}
