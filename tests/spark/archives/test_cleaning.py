"""What is not part of an archive, and when it may be deleted."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from barnabas.clock import ManualClock
from barnabas.spark.archives.archive import open_or_create_archive
from barnabas.spark.archives.cleaning import ATTEMPT_KEPT_MS, REMOVED_KEPT_MS, clean, needed_files, unneeded_folders
from barnabas.spark.archives.files import DRAFT
from barnabas.spark.archives.manifest import COMMITS, ArchiveDescription, Commit


def test_files_are_needed_as_long_as_somebody_may_read_them() -> None:
    commits = [
        Commit(number=0, timestamp_ms=0, files={"data/0-a/x": 1, "data/0-a/y": 1, "data/0-b/z": 1}),
        Commit(number=1, timestamp_ms=1000, files={"data/1-c/x": 1}, removed=("data/0-a/x", "data/0-b/z")),
        Commit(number=2, timestamp_ms=2000, dead_letter_files={"dead-letters/2-d/x": 1}, removed=("data/1-c/x",)),
    ]
    needed = needed_files(commits, REMOVED_KEPT_MS + 1000)
    assert needed == {"data/0-a/y", "data/1-c/x", "dead-letters/2-d/x"}
    assert unneeded_folders(["0-a", "0-b", "1-c", "2-d", "3-e"], needed) == ["0-b", "3-e"]


def test_only_the_one_writer_cleans_at_once(spark: SparkSession, tmp_path: Path) -> None:
    now_ms = 2_000_000_000_000
    archive = open_or_create_archive(spark, str(tmp_path), ArchiveDescription(topic="a", topic_id="b"))
    for name in ("data/0-kept/f", "data/0-left/f", "data/old/f", "dead-letters/0-left/f"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        os.utime((tmp_path / name).parent, (now_ms / 1000, now_ms / 1000))
    long_ago = (now_ms - ATTEMPT_KEPT_MS) / 1000
    os.utime(tmp_path / "data/old", (long_ago, long_ago))
    (tmp_path / "data/0-kept/g").touch()
    archive.add(Commit(number=0, timestamp_ms=now_ms, files={"data/0-kept/f": 0, "data/0-kept/g": 0}))
    archive.add(Commit(number=1, timestamp_ms=now_ms - REMOVED_KEPT_MS, removed=("data/0-kept/f",)))
    clock = ManualClock(now_ms)
    assert clean(archive, clock, is_only_writer=False) == 2
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["0-kept", "0-left"]
    assert not (tmp_path / "data/0-kept/f").exists()
    (tmp_path / COMMITS / f"2.json{DRAFT}").touch()
    assert clean(archive, clock, is_only_writer=True) == 3
    assert clean(archive, clock, is_only_writer=True) == 0
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["0-kept"]
