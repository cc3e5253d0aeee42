"""What an archive says of itself: which topic it keeps, and for every commit which files and which offsets it added.

    <archive>/
      _barnabas/archive.json                       the topic, its id, and how it is kept
      _barnabas/commits/00000000000000000000.json  one a commit, in order: offset ranges, files, counts
      _barnabas/checkpoint/...                     Spark's own; without it the job goes on from the commits all the same
      data/...                                     Parquet; only files that a commit names belong to the archive
      dead-letters/...                             Parquet; records that could not be decoded

Rule 1: a commit is whole or not there. Readers look only at files that commits name, so that what a killed job left
behind is never read.
Rule 2: of a partition, every commit begins where the one before has ended, or the first one where `start_offsets` says
(0 for partitions that came later). Offsets between two commits were lost before they could be read.
Rule 3: what is written once is never changed; an archive of a newer format is refused by name.
Rule 4: a commit of mode "upsert" takes out files of earlier commits, whose rows it has again as far as they are still
the last of their key. They are deleted an hour later, so that who reads them can end.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from barnabas.spark.errors import PipelineError

FORMAT = 1
FOLDER = "_barnabas"
DESCRIPTION = f"{FOLDER}/archive.json"
COMMITS = f"{FOLDER}/commits"
CHECKPOINT = f"{FOLDER}/checkpoint"
DATA = "data"
PARQUET = "parquet"
APPEND = "append"
UPSERT = "upsert"
DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDescription:
    """What an archive is of, and how it is kept."""

    topic: str
    topic_id: str
    # "append": every record; "upsert": the last record of every key.
    mode: str = APPEND
    table_format: str = PARQUET
    # How values are decoded into the column `data`: "none", "json" or "avro", with the schema as text.
    decode: str = "none"
    schema: str = ""
    # Which records are kept: only those of committed transactions, or also those of open and aborted ones.
    isolation_level: str = "read_committed"
    # Where the first commit begins, by partition (as text, because JSON has no other keys).
    start_offsets: Mapping[str, int] = field(default_factory=dict)
    # Mode "upsert" only: into how many parts the keys are divided by their hash; a commit writes those anew that it has
    # keys of.
    buckets: int = 0
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets of a partition from `start` to before `end`, and how many records were among them."""

    partition: int
    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one commit added."""

    number: int
    timestamp_ms: int
    ranges: tuple[OffsetRange, ...] = ()
    # Paths below the archive, and sizes in bytes.
    files: Mapping[str, int] = field(default_factory=dict)
    dead_letter_files: Mapping[str, int] = field(default_factory=dict)
    # Files of earlier commits that are not part of the archive any more.
    removed: tuple[str, ...] = ()
    dead_letters: int = 0
    skipped: int = 0

    @property
    def records(self) -> int:
        """How many records were read for this commit."""
        return sum(each.records for each in self.ranges)


def description_text(description: ArchiveDescription) -> str:
    """Return the text of `archive.json`."""
    return json.dumps(asdict(description), indent=2, sort_keys=True) + "\n"


def read_description(text: str, where: str) -> ArchiveDescription:
    """Read `archive.json`; raises PipelineError."""
    fields = _object(text, where)
    if fields.get("format") != FORMAT:
        raise PipelineError(f"{where} has format {fields.get('format')!r}, and this version reads format {FORMAT}")
    try:
        return ArchiveDescription(**fields)
    except TypeError:
        raise PipelineError(f"{where} does not describe an archive") from None


def commit_name(number: int) -> str:
    """Return the path of a commit below the archive."""
    return f"{COMMITS}/{number:020d}.json"


def commit_text(commit: Commit) -> str:
    """Return the text of a commit."""
    return json.dumps(asdict(commit), indent=2, sort_keys=True) + "\n"


def read_commit(text: str, where: str) -> Commit:
    """Read a commit; raises PipelineError."""
    fields = _object(text, where)
    try:
        ranges = tuple(OffsetRange(**each) for each in fields.pop("ranges"))
        removed = tuple(str(name) for name in fields.pop("removed", ()))
        return Commit(**fields, ranges=ranges, removed=removed)
    except (KeyError, TypeError):
        raise PipelineError(f"{where} is not a commit of an archive") from None


def current_files(commits: Iterable[Commit]) -> dict[str, int]:
    """Return the data files that are part of the archive after these commits, and their sizes."""
    files: dict[str, int] = {}
    for commit in commits:
        for name in commit.removed:
            files.pop(name, None)
        files |= commit.files
    return files


def end_offsets(description: ArchiveDescription, commits: Iterable[Commit]) -> dict[int, int]:
    """Return, for each partition, the offset behind the last one that was archived."""
    ends = {int(partition): offset for partition, offset in description.start_offsets.items()}
    for commit in commits:
        for each in commit.ranges:
            ends[each.partition] = max(each.end, ends.get(each.partition, 0))
    return ends


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError:
        raise PipelineError(f"{where} is not JSON") from None
    if not isinstance(fields, dict):
        raise PipelineError(f"{where} is not a JSON object")
    return fields
