"""The offsets of an archive, from what it says of itself."""

from barnabas.spark.archives.manifest import ArchiveDescription, Commit, OffsetRange
from barnabas.spark.jobs.archived import archived_spans
from barnabas.spark.jobs.topic import Span


def test_offsets_begin_where_the_archive_was_begun() -> None:
    description = ArchiveDescription(topic="orders", topic_id="abc", start_offsets={"0": 5, "2": 8})
    ranges = (
        OffsetRange(partition=0, start=5, end=9, records=4),
        OffsetRange(partition=1, start=2, end=3, records=1),
    )
    later = (OffsetRange(partition=0, start=9, end=20, records=11),)
    commits = [Commit(number=0, timestamp_ms=0, ranges=ranges), Commit(number=1, timestamp_ms=0, ranges=later)]
    assert archived_spans(description, commits) == {
        0: Span(start=5, end=20),
        1: Span(start=2, end=3),
        2: Span(start=8, end=8),
    }
