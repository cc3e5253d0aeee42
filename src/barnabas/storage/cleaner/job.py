"""What a broker asks the cleaning process for, and what that answers: plain values that travel as lines of JSON.

    broker -> process    one line: the job
    process -> broker    a line for every group of segments that is ready to be swapped in, then one with the result,
                         or one with the error

Rule 1: a job has all that a clean depends on, the time included, so that the same files and the same job give the same
files again.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from barnabas.storage.transaction_index import AbortedTransaction


class SourceSegment(NamedTuple):
    """A segment as the broker knew it when the job was made."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


class ActiveProducer(NamedTuple):
    """What must still be found in the log of a producer that is remembered, were its state read from the log alone."""

    producer_id: int
    epoch: int
    last_offset: int
    """The last offset of its last batch of records, or -1."""
    coordinator_epoch: int
    last_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """One clean of one log."""

    directory: str
    segments: tuple[SourceSegment, ...]
    """All segments from the first on that may be cleaned, in order."""
    end_offset: int
    """The base offset of the segment after them."""
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    decompressed_bytes_max: int
    dedupe_buffer_size: int
    io_buffer_size: int
    load_factor: float
    bytes_per_second_max: float
    aborted: tuple[AbortedTransaction, ...] = ()
    producers: tuple[ActiveProducer, ...] = ()


class CleanedGroup(NamedTuple):
    """Segments that were cleaned into one, whose files have the suffix `.cleaned`."""

    base_offsets: tuple[int, ...]
    size: int
    index_bytes: int
    time_index_bytes: int
    is_changed: bool
    """False when it is one segment that lost nothing: there is nothing to swap in, and no files."""


class CleaningResult(NamedTuple):
    """What a whole clean did."""

    end_offset: int
    """Up to here the log is clean; less than was asked for when the offset map was full."""
    bytes_in: int
    bytes_out: int
    records_removed: int
    keyless_removed: int


class CleaningError(Exception):
    """A clean failed; `errno` says so where the disk was the reason."""

    def __init__(self, reason: str, errno: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.errno = errno


def encode_job(job: CleaningJob) -> str:
    """Return a job as a line."""
    return json.dumps(asdict(job))


def decode_job(line: str) -> CleaningJob:
    """Return the job of a line."""
    fields: dict[str, Any] = json.loads(line)
    for name, kind in (("segments", SourceSegment), ("aborted", AbortedTransaction), ("producers", ActiveProducer)):
        rows: Sequence[Sequence[Any]] = fields[name]
        fields[name] = tuple(kind(*row) for row in rows)
    return CleaningJob(**fields)


def encode_answer(answer: CleanedGroup | CleaningResult | CleaningError) -> str:
    """Return an answer as a line."""
    if isinstance(answer, CleaningError):
        return json.dumps({"error": [answer.reason, answer.errno]})
    return json.dumps({"group" if isinstance(answer, CleanedGroup) else "result": list(answer)})


def decode_answer(line: str) -> CleanedGroup | CleaningResult | CleaningError:
    """Return the answer of a line; raises ValueError for any other."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or len(fields) != 1:
        raise ValueError(f"a cleaning process said {line!r}")
    ((kind, values),) = fields.items()
    if kind == "group":
        return CleanedGroup(tuple(values[0]), *values[1:])
    if kind == "result":
        return CleaningResult(*values)
    if kind == "error":
        return CleaningError(*values)
    raise ValueError(f"a cleaning process said {line!r}")
