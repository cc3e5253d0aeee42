"""Where a replay of an archive begins and ends: places in a topic, found in what the archive has of it."""

from pyspark.sql import functions

from barnabas.spark.archives.archive import Archive
from barnabas.spark.errors import OptionError
from barnabas.spark.jobs.places import parse_place
from barnabas.spark.source.offset_limits import AtTime, Named, SpecificOffsets


def archived_starts(archive: Archive) -> dict[int, int]:
    """Return, for each partition, the first offset that was archived."""
    starts = {int(number): offset for number, offset in archive.description.start_offsets.items()}
    for commit in archive.commits():
        for each in commit.ranges:
            starts.setdefault(each.partition, each.start)
    return starts


def archive_place(archive: Archive, option: str, text: str, *, is_start: bool) -> dict[int, int]:
    """Return the offset that a place is in each partition; raises OptionError.

    A time is found by reading the archive's times. A place outside what there is means its nearer end.
    """
    firsts, lasts = archived_starts(archive), archive.end_offsets()
    place = parse_place(option, text, archive.description.topic)
    if isinstance(place, Named):
        return firsts if place is Named.EARLIEST else lasts
    if isinstance(place, int):
        return {each: min(max(place, firsts[each]), lasts[each]) for each in firsts}
    if isinstance(place, SpecificOffsets):
        return _given(archive, place, firsts, lasts, is_start=is_start)
    assert isinstance(place, AtTime)
    later = archive.records().where(
        functions.col("timestamp") >= functions.timestamp_millis(functions.lit(place.timestamp_ms))
    )
    found = {
        row.partition: row.first
        for row in later.groupBy("partition").agg(functions.min("offset").alias("first")).collect()
    }
    return {each: found.get(each, lasts[each]) for each in firsts}


def _given(
    archive: Archive, place: SpecificOffsets, firsts: dict[int, int], lasts: dict[int, int], *, is_start: bool
) -> dict[int, int]:
    offsets = dict(firsts if is_start else lasts)
    for partition, offset in place.offsets.items():
        if partition.topic != archive.description.topic or partition.partition not in firsts:
            raise OptionError(place.option, f"names {partition}, which is not in the archive {archive.files.folder}")
        first, last = firsts[partition.partition], lasts[partition.partition]
        chosen = {-2: first, -1: last}.get(offset, offset)
        if not first <= chosen <= last:
            raise OptionError(
                place.option, f"asks for offset {offset} of {partition}, of which the archive has {first} to {last}"
            )
        offsets[partition.partition] = chosen
    return offsets
