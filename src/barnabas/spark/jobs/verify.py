"""The job `verify`: every batch, record and index entry of log directories, checked by Spark tasks side by side.

Each task checks one segment with the verifier of `barnabas verify`; what segments say of each other, the small files of
partitions and the checkpoints are compared on the driver. Nothing is written. The directories have to be on a disk that
all workers see.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from barnabas.model import TopicPartition
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.job import JobResult, Progress, Report, say_nothing
from barnabas.storage.files import OsFiles
from barnabas.storage.log_directory import parse_folder
from barnabas.storage.verifier import (
    Fault,
    SegmentVerifier,
    Verified,
    holds_logs,
    partition_folders,
    segment_base_offsets,
    verify_checkpoints,
    verify_folder,
    was_shut_down_cleanly,
)

CHECKING = "verify"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult(JobResult):
    """How much was checked, and what was found."""

    partitions: int
    segments: int
    batches: int
    records: int
    size_bytes: int
    faults: tuple[Fault, ...]

    @property
    def is_fine(self) -> bool:
        """Whether nothing was found."""
        return not self.faults

    def headings(self) -> tuple[str, ...]:
        """The headings of the final table."""
        return "path", "at", "fault"

    def rows(self) -> list[tuple[object, ...]]:
        """A row a fault."""
        return [(fault.path, f"{fault.unit} {fault.position}", fault.reason) for fault in self.faults]

    def sentence(self) -> str:
        """How much was checked, and whether it is sound."""
        found = f"{len(self.faults):,} faults" if self.faults else "no faults"
        return (
            f"{self.partitions:,} partitions, {self.segments:,} segments, {self.batches:,} batches, "
            f"{self.records:,} records, {self.size_bytes:,} bytes: {found}."
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        counts = ("partitions", "segments", "batches", "records", "size_bytes")
        return {name: getattr(self, name) for name in counts} | {"faults": [each._asdict() for each in self.faults]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """What one task checks."""

    directory: str
    base_offset: int
    is_clean: bool


def verify(
    spark: SparkSession,
    directories: Sequence[str | os.PathLike[str]],
    *,
    report: Report = say_nothing,
    segments_per_job: int = 1000,
) -> VerifyResult:
    """Check log directories, or the folders of single partitions.

    Args:
        spark: The session that the tasks run in.
        directories: What to check.
        report: Told of the segments that are checked.
        segments_per_job: How many segments are handed to Spark at a time; between two jobs the report is made.

    Raises:
        PipelineError: A directory does not exist, or is none that has logs.
    """
    files, faults = OsFiles(), list[Fault]()
    clean = {path: was_shut_down_cleanly(files, path) for path in _checked_paths(directories)}
    folders = [(folder, is_clean) for path, is_clean in clean.items() for folder in _folders(path, faults)]
    segments = [
        _Segment(directory=folder, base_offset=base_offset, is_clean=is_clean)
        for folder, is_clean in folders
        for base_offset in segment_base_offsets(files, folder)
    ]
    seen: dict[str, list[Verified]] = {}
    report(Progress(step=CHECKING, done=0, total=len(segments), unit="segments"))
    for first in range(0, len(segments), segments_per_job):
        some = segments[first : first + segments_per_job]
        for segment, (verified, found) in zip(some, _verify_segments(spark, some), strict=True):
            faults += found
            if verified is not None:
                seen.setdefault(segment.directory, []).append(verified)
        done = first + len(some)
        report(Progress(step=CHECKING, done=done, total=len(segments), unit="segments"))
    for folder, is_clean in folders:
        verify_folder(files, folder, seen.get(folder, []), faults.append, is_clean=is_clean)
    for path in clean:
        verify_checkpoints(files, path, _ends(path, seen), faults.append)
    return _result(len(folders), [one for each in seen.values() for one in each], faults)


def _checked_paths(directories: Sequence[str | os.PathLike[str]]) -> list[str]:
    paths = list(dict.fromkeys(os.path.abspath(directory) for directory in directories))
    for path in paths:
        if not os.path.isdir(path):
            raise PipelineError(f"{path} is no folder, or does not exist: log directories are needed")
        if not holds_logs(OsFiles(), path):
            raise PipelineError(f"{path} is no log directory: nothing in it is a partition, such as orders-0")
    return paths


def _folders(path: str, faults: list[Fault]) -> list[str]:
    return partition_folders(OsFiles(), path, faults.append)


def _verify_segments(spark: SparkSession, segments: Sequence[_Segment]) -> list[tuple[Verified | None, list[Fault]]]:
    """Check segments, each in a task; they come back in order."""
    return spark.sparkContext.parallelize(segments, len(segments)).map(_verify_segment).collect()


def _verify_segment(segment: _Segment) -> tuple[Verified | None, list[Fault]]:
    faults: list[Fault] = []
    try:
        verifier = SegmentVerifier(OsFiles(), segment.directory, segment.base_offset, faults.append)
        return verifier.verify(segment.is_clean, lambda _path, _size: None), faults
    except OSError as error:
        path = error.filename or segment.directory
        return None, [*faults, Fault(path, 0, f"the file can not be read: {error.strerror}")]


def _ends(path: str, seen: dict[str, list[Verified]]) -> dict[TopicPartition, int]:
    """Return where the logs of a directory end, as far as that is known."""
    ends = {}
    for folder, segments in seen.items():
        parsed = parse_folder(os.path.basename(folder))
        if parsed is not None and os.path.dirname(folder) == path and segments[-1].is_complete:
            ends[parsed.partition] = segments[-1].next_offset
    return ends


def _result(partitions: int, verified: Iterable[Verified], faults: Sequence[Fault]) -> VerifyResult:
    segments = list(verified)
    return VerifyResult(
        partitions=partitions,
        segments=len(segments),
        batches=sum(one.batches for one in segments),
        records=sum(one.records for one in segments),
        size_bytes=sum(one.size for one in segments),
        faults=tuple(sorted(faults)),
    )
