"""An archive on a file system that Spark can read: opened or made, its commits, and its records as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.spark.archives.files import ExistsError, Files
from barnabas.spark.archives.manifest import (
    COMMITS,
    DESCRIPTION,
    PARQUET,
    ArchiveDescription,
    Commit,
    commit_name,
    commit_text,
    current_files,
    description_text,
    end_offsets,
    read_commit,
    read_description,
)
from barnabas.spark.archives.table_formats import read_table
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Archive:
    """What is kept of one topic."""

    def __init__(self, spark: SparkSession, files: Files, description: ArchiveDescription) -> None:
        self.spark = spark
        self.files = files
        self.description = description
        # Commits never change, so that each is read once.
        self._known: list[Commit] = []

    def commits(self) -> list[Commit]:
        """Return all commits, in order; raises PipelineError when one is missing or can not be read."""
        names = [name for name in self.files.names(COMMITS) if name.endswith(".json")]
        for number, name in enumerate(names):
            if f"{COMMITS}/{name}" != commit_name(number):
                raise PipelineError(f"commit {number} of the archive {self.files.folder} is missing")
            if number == len(self._known):
                path = f"{COMMITS}/{name}"
                self._known.append(read_commit(self.files.read(path), self.files.path(path)))
        return self._known[: len(names)]

    def add(self, commit: Commit) -> None:
        """Make a commit part of the archive; raises PipelineError when another job was faster."""
        try:
            self.files.create(commit_name(commit.number), commit_text(commit))
        except ExistsError:
            raise PipelineError(
                f"commit {commit.number} of the archive {self.files.folder} is there already: another job writes to it"
            ) from None

    def end_offsets(self) -> dict[int, int]:
        """Return, for each partition, the offset behind the last one that was archived."""
        return end_offsets(self.description, self.commits())

    def records(self, commits: Sequence[Commit] | None = None) -> DataFrame:
        """Return the records of all commits, or of these, with the columns that reading the topic with headers has.

        Records that could not be decoded are among them: they were in the topic. In mode "upsert" there is only the
        last record of every key of a partition, and none of a key that was deleted; given the first so many commits, as
        it was after these.
        """
        schema = spark_schema(include_headers=True)
        chosen = self.commits() if commits is None else commits
        letters = [name for commit in chosen for name in commit.dead_letter_files]
        rows = self._rows(chosen, schema).select(*schema.names)
        return rows.unionAll(self._parquet(letters, schema)) if letters else rows

    def decoded(self) -> DataFrame:
        """Return the records that could be decoded, with the column `data`; raises PipelineError where none were."""
        if self.description.decode == "none":
            raise PipelineError(f"the archive {self.files.folder} has values as they are: it was made without decoding")
        return self._rows(self.commits())

    def dead_letters(self) -> DataFrame:
        """Return the records that could not be decoded."""
        names = [name for commit in self.commits() for name in commit.dead_letter_files]
        return self._parquet(names, spark_schema(include_headers=True))

    def current_files(self) -> dict[str, int]:
        """Return the data files that are part of the archive now, and their sizes."""
        return current_files(self.commits())

    def _rows(self, commits: Sequence[Commit], schema: StructType | None = None) -> DataFrame:
        if self.description.table_format != PARQUET:
            return read_table(self.spark, self.files, self.description, [commit.number for commit in commits])
        return self._parquet(list(current_files(commits)), schema)

    def _parquet(self, names: Sequence[str], schema: StructType | None) -> DataFrame:
        if not names:
            return self.spark.createDataFrame([], schema or spark_schema(include_headers=True))
        reader = self.spark.read if schema is None else self.spark.read.schema(schema)
        return reader.parquet(*(self.files.pattern(name) for name in names))


def open_archive(spark: SparkSession, folder: str) -> Archive:
    """Open an archive; raises PipelineError when there is none."""
    files = Files(spark, folder)
    if not files.exists(DESCRIPTION):
        raise PipelineError(f"{folder} is not an archive: there is no {DESCRIPTION} in it")
    return Archive(spark, files, read_description(files.read(DESCRIPTION), files.path(DESCRIPTION)))


def open_or_create_archive(spark: SparkSession, folder: str, description: ArchiveDescription) -> Archive:
    """Open the archive of a topic, or make it; raises PipelineError when it keeps something else."""
    files = Files(spark, folder)
    if not files.exists(DESCRIPTION):
        try:
            files.create(DESCRIPTION, description_text(description))
        except ExistsError:
            pass  # Another job made it just now, and it is looked at like any other.
    archive = open_archive(spark, folder)
    kept = archive.description
    if kept.topic != description.topic:
        raise PipelineError(f"{folder} is the archive of topic {kept.topic!r}, and not of {description.topic!r}")
    if kept.topic_id != description.topic_id:
        raise DataLossError(
            f"{folder} is the archive of an earlier topic {kept.topic!r}, which was deleted and created again since"
        )
    for name in ("mode", "table_format", "decode", "schema", "isolation_level"):
        if getattr(kept, name) != getattr(description, name):
            raise PipelineError(
                f"{folder} was made with {name} {getattr(kept, name)!r}, and not with {getattr(description, name)!r}"
            )
    return archive
