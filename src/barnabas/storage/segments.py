"""LogSegments: the segments of a log, ordered by base offset."""

from bisect import bisect_right
from collections.abc import Iterator

from barnabas.storage.segment import LogSegment


class LogSegments:
    """An ordered map from base offset to segment."""

    def __init__(self) -> None:
        # Invariant: both lists have one item a segment, in order of base offset.
        self._base_offsets: list[int] = []
        self._segments: list[LogSegment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._segments))

    def __contains__(self, base_offset: object) -> bool:
        return base_offset in self._base_offsets

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def last(self) -> LogSegment:
        """The newest segment, which is the active one."""
        return self._segments[-1]

    def _slot(self, offset: int) -> int:
        return bisect_right(self._base_offsets, offset) - 1

    def add(self, segment: LogSegment) -> None:
        """Add a segment, in place of one with the same base offset."""
        slot = self._slot(segment.base_offset)
        if slot >= 0 and self._base_offsets[slot] == segment.base_offset:
            self._segments[slot] = segment
        else:
            self._base_offsets.insert(slot + 1, segment.base_offset)
            self._segments.insert(slot + 1, segment)

    def remove(self, segment: LogSegment) -> None:
        """Take a segment out."""
        slot = self._slot(segment.base_offset)
        assert self._segments[slot] is segment
        del self._base_offsets[slot]
        del self._segments[slot]

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment with the greatest base offset <= `offset`."""
        slot = self._slot(offset)
        return self._segments[slot] if slot >= 0 else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """Return the segment after the one with this base offset."""
        slot = self._slot(base_offset) + 1
        return self._segments[slot] if slot < len(self._segments) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segment that holds `offset` and all after it."""
        return self._segments[max(0, self._slot(offset)) :]
