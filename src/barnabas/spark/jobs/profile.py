"""The job `profile`: the records, bytes, keys, sizes and rates of a topic, as one HTML page that needs nothing else.

Records are read once, from a broker or from log directories, by tasks that keep only sums and sketches (`summary`);
`profile_page` makes the page of them. No record comes to the driver, and of the data only the beginnings of some keys.

Rule 1: sizes are those of keys, values and headers as they were sent, before compression.
Rule 2: the page is there whole or not at all, and replaces the one before.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import col

from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.failures import plain_failures
from barnabas.spark.jobs.job import JobResult, Report, say_nothing
from barnabas.spark.jobs.profile_page import page
from barnabas.spark.jobs.profile_result import ProfileFigures, figures
from barnabas.spark.jobs.summary import KEY_HEAD_BYTES, Summary
from barnabas.spark.jobs.topic import Topic
from barnabas.spark.jobs.watching import watched

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult(JobResult):
    """The figures of a topic, and where the page is."""

    output: str
    figures: ProfileFigures

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return "partition", "records", "bytes", "share", "start offset", "end offset"

    def rows(self) -> list[tuple[object, ...]]:
        """A row a partition."""
        total = self.figures.records
        return [
            (
                each.partition,
                each.records,
                each.size_bytes,
                f"{each.records / total:.1%}" if total else "-",
                each.start_offset,
                each.end_offset,
            )
            for each in self.figures.partitions
        ]

    def sentence(self) -> str:
        """The headline, and where the page is."""
        seen = self.figures
        about = "" if seen.distinct_keys_are_exact else "about "
        return (
            f"Topic {seen.topic!r} has {seen.records:,} records with {seen.size_bytes:,} bytes and "
            f"{about}{seen.distinct_keys:,} different keys; the page is {self.output}."
        )


def profile(
    spark: SparkSession,
    topic: str,
    output: str | os.PathLike[str],
    *,
    bootstrap_servers: str | None = None,
    directories: Sequence[str | os.PathLike[str]] = (),
    options: Mapping[str, str] | None = None,
    report: Report = say_nothing,
) -> ProfileResult:
    """Look at all records of a topic, and write a page about them.

    Args:
        spark: The session that the tasks run in.
        topic: The topic.
        output: The HTML file, on this machine; one that is there is replaced.
        bootstrap_servers: Where the topic is.
        directories: Log directories to read instead, without a broker.
        options: Options of the format `barnabas`, or of `barnabas-segments` with directories.
        report: Told how far the job is.

    Raises:
        PipelineError: There is no such topic, or the page can not be written.
    """
    target = Path(output)
    if not target.parent.is_dir():
        raise PipelineError(f"the page can not be written: {target.parent} is no folder")
    state = None
    if directories:
        paths = ",".join(os.path.abspath(directory) for directory in directories)
        reader = spark.read.format("barnabas-segments").options(**(options or {}))
        with plain_failures():
            records = reader.option("subscribe", topic).option("includeHeaders", "true").load(paths)
    elif bootstrap_servers is not None:
        source = Topic(spark, topic, bootstrap_servers, options)
        state = source.state()
        records = source.records(state.spans)
    else:
        raise PipelineError("a profile is made of a topic, but neither a broker nor log directories are given")
    with plain_failures(), watched(spark, "profile", report):
        summary = summarize(records)
    seen = figures(topic, summary, state.settings if state else {}, state.spans if state else None)
    _write_whole(target, page(seen))
    return ProfileResult(output=str(target), figures=seen)


def summarize(records: DataFrame) -> Summary:
    """Read records once, and return what is known of them."""
    header_size = functions.expr(
        "aggregate(headers, 0L, (sum, header) -> "
        "sum + octet_length(header.key) + coalesce(octet_length(header.value), 0))"
    )
    columns = records.select(
        "partition",
        "offset",
        functions.unix_millis("timestamp").alias("timestamp_ms"),
        # The hash of nothing would be a number too; whether there is a key is told by its size.
        functions.xxhash64("key").alias("key_hash"),
        functions.substring("key", 1, KEY_HEAD_BYTES).alias("key_head"),
        functions.octet_length("key").alias("key_size"),
        functions.octet_length(col("value")).alias("value_size"),
        functions.coalesce(header_size, functions.lit(0)).alias("header_size"),
    )
    summaries = columns.mapInArrow(_summarize_task, "summary binary").rdd.map(_unpacked)
    if summaries.getNumPartitions() == 0:
        return Summary()
    return summaries.treeReduce(Summary.merge)


def _summarize_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # Here it is a task's, and not the driver's.

    summary = Summary()
    for batch in batches:
        if batch.num_rows:
            summary.add(batch)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(summary)], pa.binary())], ["summary"])


def _unpacked(row: Sequence[bytearray]) -> Summary:
    """Return what a task of this very job has packed."""
    summary: Summary = pickle.loads(bytes(row[0]))
    return summary


def _write_whole(target: Path, text: str) -> None:
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            # A draft is for its owner alone; a page is for whom the folder is.
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise PipelineError(f"{target} can not be written: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
