"""What jobs ask of the archive of a topic: that it is the one of this topic, and which offsets it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions

from barnabas.spark.archives.archive import Archive, open_archive
from barnabas.spark.archives.manifest import ArchiveDescription, Commit, end_offsets
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.topic import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


def archive_of(spark: SparkSession, folder: str, topic: str, topic_id: str | None) -> Archive:
    """Open the archive of a topic, of the one with this id where it is known; raises PipelineError."""
    archive = open_archive(spark, folder)
    kept = archive.description
    if kept.topic != topic:
        raise PipelineError(f"{folder} is the archive of topic {kept.topic!r}, and not of {topic!r}")
    if topic_id is not None and kept.topic_id != topic_id:
        raise PipelineError(
            f"{folder} is the archive of an earlier topic {topic!r}, which was deleted and created again since"
        )
    return archive


def archived_spans(description: ArchiveDescription, commits: Iterable[Commit]) -> dict[int, Span]:
    """Return from where to where commits have offsets of each partition."""
    commits = list(commits)
    starts = {int(partition): offset for partition, offset in description.start_offsets.items()}
    for commit in commits:
        for each in commit.ranges:
            starts[each.partition] = min(each.start, starts.get(each.partition, each.start))
    ends = end_offsets(description, commits)
    return {partition: Span(start=starts[partition], end=end) for partition, end in sorted(ends.items())}


def within(records: DataFrame, spans: Mapping[int, Span]) -> DataFrame:
    """Return the records that have these offsets."""
    chosen = functions.lit(False)
    for partition, span in spans.items():
        if span.size:
            offsets = (functions.col("offset") >= span.start) & (functions.col("offset") < span.end)
            chosen |= (functions.col("partition") == partition) & offsets
    return records.where(chosen)
