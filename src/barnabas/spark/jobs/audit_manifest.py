"""What an audit finds out about an archive from its manifest and the sizes of its files, without reading a record.

Rule 1: what is damaged is a finding and not the end of the audit, so that all of it is seen at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.manifest import COMMITS, Commit, OffsetRange, commit_name, current_files, read_commit
from barnabas.spark.errors import PipelineError

_SHOWN = 5


class Kind(StrEnum):
    """What can be wrong."""

    COMMIT = "commit"
    FILE = "file"
    GAP = "gap"
    MISSING = "missing"
    DOUBLED = "doubled"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be; `partition` is -1 where it is not one partition's."""

    kind: Kind
    partition: int = -1
    count: int = 1
    what: str


def read_commits(archive: Archive) -> tuple[list[Commit], list[Finding]]:
    """Return the commits that can be read, in order, and a finding for every other one."""
    commits, findings = [], []
    expected = 0
    for name in archive.files.names(COMMITS):
        if not name.endswith(".json") or not name.removesuffix(".json").isdecimal():
            continue
        number = int(name.removesuffix(".json"))
        findings += [_missing_commit(each) for each in range(expected, number)]
        expected = number + 1
        path = f"{COMMITS}/{name}"
        try:
            commits.append(read_commit(archive.files.read(path), archive.files.path(path)))
        except PipelineError as error:
            findings.append(Finding(kind=Kind.COMMIT, what=str(error)))
    return commits, findings


def _missing_commit(number: int) -> Finding:
    return Finding(kind=Kind.COMMIT, what=f"commit {number} of the manifest is missing ({commit_name(number)})")


def check_files(commits: Iterable[Commit], sizes: Mapping[str, int]) -> tuple[set[str], list[Finding]]:
    """Compare what commits say of their files with the sizes of those that are there; return the sound ones too."""
    commits = list(commits)
    expected = current_files(commits)
    for commit in commits:
        expected |= commit.dead_letter_files
    sound, findings = set(), []
    for name, size in expected.items():
        if name not in sizes:
            findings.append(Finding(kind=Kind.FILE, what=f"file {name} is missing"))
        elif sizes[name] != size:
            found = f"file {name} has {sizes[name]:,} bytes instead of {size:,}"
            findings.append(Finding(kind=Kind.FILE, what=found))
        else:
            sound.add(name)
    return sound, findings


def check_ranges(commits: Iterable[Commit]) -> list[Finding]:
    """Find offsets that no commit has, and those that several have."""
    ranges: dict[int, list[OffsetRange]] = {}
    for commit in commits:
        for each in commit.ranges:
            ranges.setdefault(each.partition, []).append(each)
    findings = []
    for partition, of_partition in sorted(ranges.items()):
        ordered = sorted(of_partition, key=lambda each: (each.start, each.end))
        end = ordered[0].start
        for each in ordered:
            if each.start > end:
                what = f"offsets {end} to {each.start - 1} of partition {partition} are in no commit"
                findings.append(Finding(kind=Kind.GAP, partition=partition, count=each.start - end, what=what))
            elif each.start < end:
                last = min(end, each.end) - 1
                what = f"offsets {each.start} to {last} of partition {partition} are in more than one commit"
                count = last + 1 - each.start
                findings.append(Finding(kind=Kind.DOUBLED, partition=partition, count=count, what=what))
            end = max(end, each.end)
    return findings


def offsets_text(offsets: Iterable[int], total: int) -> str:
    """Return offsets in words, the first of them as runs: `offsets 3, 5 to 9, and 40 more`."""
    runs: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    shown = runs[:_SHOWN]
    words = [str(first) if first == last else f"{first} to {last}" for first, last in shown]
    more = total - sum(last - first + 1 for first, last in shown)
    return f"offset{'s' if total > 1 else ''} {', '.join(words)}" + (f", and {more:,} more" if more > 0 else "")
