"""Places in an archive. Replays of archives are in test_replay.py."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.archive import open_or_create_archive
from barnabas.spark.archives.manifest import ArchiveDescription, Commit, OffsetRange
from barnabas.spark.errors import OptionError
from barnabas.spark.jobs.replay_archive import archive_place, archived_starts
from barnabas.spark.schema import spark_schema


def test_places_are_found_in_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    description = ArchiveDescription(topic="t", topic_id="1", start_offsets={"0": 5})
    archive = open_or_create_archive(spark, str(tmp_path), description)
    rows = [
        (None, b"v", "t", partition, offset, datetime.fromtimestamp(offset, UTC), 0, None)
        for partition, offset in ((0, 5), (0, 6), (0, 7), (1, 0), (1, 1))
    ]
    frame = spark.createDataFrame(rows, spark_schema(include_headers=True))
    frame.coalesce(1).write.parquet(str(tmp_path / "data/0"))
    (file,) = (tmp_path / "data/0").glob("*.parquet")
    ranges = (
        OffsetRange(partition=0, start=5, end=9, records=3),
        OffsetRange(partition=1, start=0, end=2, records=2),
    )
    archive.add(Commit(number=0, timestamp_ms=0, ranges=ranges, files={f"data/0/{file.name}": 1}))
    assert archived_starts(archive) == {0: 5, 1: 0}

    def at(text: str, *, is_start: bool = True) -> dict[int, int]:
        return archive_place(archive, "start", text, is_start=is_start)

    assert at("earliest") == {0: 5, 1: 0}
    assert at("latest") == {0: 9, 1: 2}
    assert at("1") == {0: 5, 1: 1}
    assert at("@6000") == {0: 6, 1: 2}
    assert at('{"1": 1}') == {0: 5, 1: 1}
    assert at('{"1": -2}', is_start=False) == {0: 9, 1: 0}
    with pytest.raises(OptionError, match="names t-7, which is not in the archive"):
        at('{"7": 1}')
    with pytest.raises(OptionError, match="asks for offset 1 of t-0, of which the archive has 5 to 9"):
        at('{"0": 1}')
