"""Which part of a log may be cleaned, and whether it is time to: decisions, without doing anything.

    log start        first dirty offset                end offset        active segment
       |  cleaned before    |   dirty: not cleaned yet     |  not yet to be cleaned  |
       [ sealed ) [ sealed ) [ sealed ) [ sealed ) [ sealed ) [ sealed ) [ active    )

A clean reads the keys of the dirty part, and writes everything up to its end anew. Only whole segments are cleaned.

Rule 1: what is cleaned lies below the last stable offset: which records of an open transaction count is not known yet.
Rule 2: what is cleaned is flushed. A record that supersedes another must not be lost to a power cut after the other
was cleaned away.
Rule 3: whatever the answer is, it can be said in a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.config import LONG_MAX, LogConfig


class Segment(Protocol):
    """What is asked of a segment."""

    base_offset: int
    size: int

    def newest_ms(self) -> int:
        """Return the newest timestamp."""
        ...

    def first_timestamp(self) -> int:
        """Return the timestamp of the first batch, or -1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What the choice depends on."""

    segments: Sequence[Segment]
    log_start_offset: int
    last_stable_offset: int
    recovery_point: int
    first_dirty_offset: int
    config: LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """What may be cleaned of a log."""

    segment_count: int
    """So many of the first segments may be cleaned."""
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether a record waits for longer than `max.compaction.lag.ms`."""
    limited_by: str
    """Why the part after the end is not cleaned."""

    @property
    def dirty_ratio(self) -> float:
        """The share of the dirty part."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(view: LogView) -> int:
    """Return where the dirty part starts; a checkpoint that says something impossible says nothing."""
    start = max(view.log_start_offset, view.segments[0].base_offset)
    if view.first_dirty_offset > view.segments[-1].base_offset:
        return start
    return max(view.first_dirty_offset, start)


def cleanable_part(view: LogView, now_ms: int) -> Cleanable:
    """Return the part that may be cleaned now, whether or not it is time to."""
    count, limited_by = _cleanable_segments(view, now_ms)
    segments = view.segments[:count]
    end_offset = view.segments[count].base_offset
    first_dirty = min(first_dirty_offset(view), end_offset)
    ends = [segment.base_offset for segment in view.segments[1 : count + 1]]
    dirty = [segment for segment, end in zip(segments, ends, strict=True) if end > first_dirty]
    dirty_bytes = sum(segment.size for segment in dirty)
    return Cleanable(
        segment_count=count,
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=sum(segment.size for segment in segments) - dirty_bytes,
        dirty_bytes=dirty_bytes,
        is_overdue=_is_overdue(dirty, view.config.max_compaction_lag_ms, now_ms),
        limited_by=limited_by,
    )


def _cleanable_segments(view: LogView, now_ms: int) -> tuple[int, str]:
    """Return how many segments may be cleaned, and why not more."""
    lag_ms = view.config.min_compaction_lag_ms
    for count, segment in enumerate(view.segments[:-1]):
        end_offset = view.segments[count + 1].base_offset
        if end_offset > view.last_stable_offset:
            return count, f"from offset {segment.base_offset} on transactions are open or records are not replicated"
        if end_offset > view.recovery_point:
            return count, f"from offset {segment.base_offset} on the log is not flushed yet"
        if lag_ms and segment.newest_ms() > now_ms - lag_ms:
            return count, f"from offset {segment.base_offset} on records are younger than min.compaction.lag.ms"
    return len(
        view.segments
    ) - 1, f"the active segment, which starts at offset {view.segments[-1].base_offset}, is kept"


def _is_overdue(dirty: Sequence[Segment], lag_ms: int, now_ms: int) -> bool:
    if lag_ms == LONG_MAX:
        return False
    for segment in dirty:
        first = segment.first_timestamp()
        if segment.size and 0 <= first < now_ms - lag_ms:
            return True
    return False


def why_not(view: LogView, part: Cleanable) -> str | None:
    """Return why a log is not cleaned now, or None when it is to be."""
    if not view.config.is_compacted:
        return "it is not compacted: cleanup.policy is " + ",".join(view.config.cleanup_policy)
    if not part.dirty_bytes:
        return f"there is nothing to clean from offset {part.first_dirty_offset} on: {part.limited_by}"
    if part.is_overdue or part.dirty_ratio >= view.config.min_cleanable_dirty_ratio:
        return None
    return (
        f"its dirty ratio is {part.dirty_ratio:.3f}, below min.cleanable.dirty.ratio"
        f" {view.config.min_cleanable_dirty_ratio:g}; {part.limited_by}"
    )
