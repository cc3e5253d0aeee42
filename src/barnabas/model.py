"""The nouns that every layer shares: which partition, which offset, where in which segment.

They are tuples, because they are dictionary keys and are made on the hot path.

Rule 1: nothing here knows of bytes, files, sockets or time.
Rule 2: ranges are half-open; an `end_offset` is the first offset that is not in the range.
"""

from typing import NamedTuple
from uuid import UUID

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

ZERO_TOPIC_ID = UUID(int=0)
"""The topic id that means there is none: clients from before topic ids send it, and no topic ever has it."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogOffsetMetadata(NamedTuple):
    """An offset of a log together with where it lies, so that bytes between two offsets are a subtraction."""

    message_offset: int
    segment_base_offset: int
    position_in_segment: int

    def is_on_older_segment_than(self, other: "LogOffsetMetadata") -> bool:
        """Tell whether this offset lies in an earlier segment, where position differences mean nothing."""
        return self.segment_base_offset < other.segment_base_offset

    def position_difference(self, other: "LogOffsetMetadata") -> int:
        """Return how many bytes lie from `other` to this offset, both in one segment."""
        assert self.segment_base_offset == other.segment_base_offset
        return self.position_in_segment - other.position_in_segment


class TimestampOffset(NamedTuple):
    """A timestamp and the offset of the record or batch that has it."""

    timestamp: int
    offset: int
