"""OffsetIndex and TimeIndex: where in a segment an offset or a point in time is to be found.

Both are sparse: an entry is added when more than `index.interval.bytes` were appended since the last. Both hold
offsets relative to the base offset of their segment, so that they fit into four bytes.

Rule 1: an index is a cache. Whatever looks wrong in it raises CorruptIndexError, and the index is made again from the
log; it is never trusted against the log, and never a reason to stop.
"""

from struct import Struct
from typing import NamedTuple

from barnabas.model import NO_TIMESTAMP, TimestampOffset
from barnabas.storage.files import Files
from barnabas.storage.index_file import IndexFile, IndexFullError

# An entry of the offset index, both numbers big-endian. With a base offset of 50, a batch that ends at offset 55 and
# starts at byte 4,301 is stored as (5, 4301).
#
#     0              4              8
#     | relative     | position     |
#     | offset       | of its batch |
OFFSET_ENTRY = Struct(">ii")
assert OFFSET_ENTRY.size == 8
OFFSET_KEY = Struct(">i")

# An entry of the time index: no record at or below the offset has a larger timestamp.
#
#     0                             8              12
#     | timestamp                   | relative     |
#     |                             | offset       |
TIME_ENTRY = Struct(">qi")
assert TIME_ENTRY.size == 12
TIME_KEY = Struct(">q")


class CorruptIndexError(Exception):
    """An index disagrees with itself; it has to be made again from its log."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}, position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class InvalidOffsetError(Exception):
    """An entry was to be added that does not lie after the last one."""


class OffsetPosition(NamedTuple):
    """An offset and the position in the segment's file of the batch that holds it."""

    offset: int
    position: int


def check_length(path: str, size_bytes: int, entry: Struct) -> None:
    """Raise CorruptIndexError for a file that does not consist of whole entries."""
    rest = size_bytes % entry.size
    if rest:
        reason = f"the file has {size_bytes} bytes, which is not a multiple of the {entry.size} bytes of an entry"
        raise CorruptIndexError(path, size_bytes - rest, reason)


class OffsetIndex:
    """Finds the position of the last indexed batch at or before an offset."""

    __slots__ = ("_entries", "base_offset", "last_offset")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._entries = IndexFile(files, path, OFFSET_ENTRY, OFFSET_KEY)
        self.base_offset = base_offset
        # Invariant: the offset of the last entry, or the base offset when there is none.
        self.last_offset = base_offset

    @property
    def path(self) -> str:
        """Where the index is."""
        return self._entries.path

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        return self._entries.count

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return self._entries.count_max - self._entries.count

    @property
    def is_full(self) -> bool:
        """Whether the next entry would be one too many."""
        return self.room <= 0

    def open(self, size_bytes: int, size_bytes_max: int) -> None:
        """Take over a file of `size_bytes`; it is empty where there is none yet."""
        check_length(self.path, size_bytes, OFFSET_ENTRY)
        self._entries.open(size_bytes, size_bytes_max)
        self._entries.cut_zero_tail()
        self._find_last()

    def _find_last(self) -> None:
        count = self._entries.count
        self.last_offset = self.base_offset + (self._entries.at(count - 1)[0] if count else 0)

    def content(self) -> bytes:
        """Return all entries as the file has them, or will."""
        return self._entries.content()

    def keep_in_memory(self, is_allowed: bool) -> None:
        """Say whether entries that find no room on the disk may wait in memory."""
        self._entries.is_lenient = is_allowed

    def append(self, offset: int, position: int) -> None:
        """Add the last offset of a batch and the position at which the batch starts."""
        if offset < self.base_offset or (self._entries.count and offset <= self.last_offset):
            message = f"{self.path}: offset {offset} does not lie after the last one, {self.last_offset}"
            raise InvalidOffsetError(message)
        self._entries.append(OFFSET_ENTRY.pack(offset - self.base_offset, position))
        self.last_offset = offset

    def extend(self, entries: bytes | bytearray, last_offset: int) -> None:
        """Add entries as they stand in the file, which lie after the last one; `last_offset` is that of the last."""
        if entries:
            self._entries.extend(entries)
            self.last_offset = last_offset

    def lookup(self, target: int) -> OffsetPosition:
        """Return the largest entry that is <= `target`, or the start of the segment."""
        slot = self._entries.last_at_most(target - self.base_offset)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def entry(self, slot: int) -> OffsetPosition:
        """Return the entry in one slot."""
        relative, position = self._entries.at(slot)
        return OffsetPosition(self.base_offset + relative, position)

    def fetch_upper_bound(self, fetched: OffsetPosition, size_bytes: int) -> OffsetPosition | None:
        """Return the first entry at or past the end of what was fetched, or None when the index ends before."""
        end = fetched.position + size_bytes
        low, high = max(0, self._entries.last_at_most(fetched.offset - self.base_offset)), self._entries.count
        while low < high:
            middle = (low + high) >> 1
            if self._entries.at(middle)[1] < end:
                low = middle + 1
            else:
                high = middle
        return self.entry(low) if low < self._entries.count else None

    def truncate_to(self, offset: int) -> None:
        """Keep the entries below `offset`: in [1 4 6 8], 4 leaves one entry and 5 leaves two."""
        self._entries.truncate(self._entries.last_at_most(offset - self.base_offset - 1) + 1)
        self._find_last()

    def truncate(self) -> None:
        """Drop all entries."""
        self._entries.truncate(0)
        self.last_offset = self.base_offset

    def reset(self, size_bytes_max: int) -> None:
        """Drop all entries and make room for as many as the settings allow now."""
        self.truncate()
        self.resize(size_bytes_max)

    def resize(self, size_bytes_max: int) -> None:
        """Change how many entries fit."""
        self._entries.resize(size_bytes_max)

    def sanity_check(self, log_size_bytes: int) -> None:
        """Raise CorruptIndexError when the last entry can not be right for a log of this size."""
        if not self._entries.count:
            return
        place = (self._entries.count - 1) * OFFSET_ENTRY.size
        if self.last_offset < self.base_offset:
            reason = f"the last entry has offset {self.last_offset}, below the segment's base offset {self.base_offset}"
            raise CorruptIndexError(self.path, place, reason)
        position = self.entry(self._entries.count - 1).position
        if not 0 <= position < max(log_size_bytes, 1):
            reason = f"the last entry has position {position}, but the log has {log_size_bytes} bytes"
            raise CorruptIndexError(self.path, place, reason)

    def flush(self) -> None:
        """Return when all entries are on the disk."""
        self._entries.write_out(sync=True)

    def rename(self, path: str) -> None:
        """Give the file another name, in one step."""
        self._entries.rename(path)

    def release(self) -> None:
        """Give back what memory a search took."""
        self._entries.release()

    def delete(self) -> None:
        """Remove the file."""
        self._entries.delete()

    def close(self) -> None:
        """Put all entries into the file."""
        self._entries.close()


class TimeIndex:
    """Finds the last offset up to which every record is older than a point in time."""

    __slots__ = ("_entries", "base_offset", "last")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._entries = IndexFile(files, path, TIME_ENTRY, TIME_KEY)
        self.base_offset = base_offset
        # Invariant: the last entry, or (-1, base offset) when there is none.
        self.last = TimestampOffset(NO_TIMESTAMP, base_offset)

    @property
    def path(self) -> str:
        """Where the index is."""
        return self._entries.path

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        return self._entries.count

    @property
    def room(self) -> int:
        """How many more entries fit, apart from the one that closes the segment."""
        return self._entries.count_max - 1 - self._entries.count

    @property
    def is_full(self) -> bool:
        """Whether only the room for the entry that closes the segment is left."""
        return self.room <= 0

    def open(self, size_bytes: int, size_bytes_max: int) -> None:
        """Take over a file of `size_bytes`; it is empty where there is none yet."""
        check_length(self.path, size_bytes, TIME_ENTRY)
        self._entries.open(size_bytes, size_bytes_max)
        self._entries.cut_zero_tail()
        self._find_last()

    def _find_last(self) -> None:
        count = self._entries.count
        self.last = self.entry(count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def content(self) -> bytes:
        """Return all entries as the file has them, or will."""
        return self._entries.content()

    def keep_in_memory(self, is_allowed: bool) -> None:
        """Say whether entries that find no room on the disk may wait in memory."""
        self._entries.is_lenient = is_allowed

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add the largest timestamp so far and the last offset of the batch that has it.

        The entry that is already the last is not added again, which happens when a segment is closed; neither is one
        that says nothing new. `skip_full_check` lets that closing entry into the room that is kept for it.
        """
        if self._entries.count:
            if offset < self.last.offset:
                raise InvalidOffsetError(f"{self.path}: offset {offset} lies before the last one, {self.last.offset}")
            if timestamp < self.last.timestamp:
                message = f"{self.path}: timestamp {timestamp} lies before the last one, {self.last.timestamp}"
                raise InvalidOffsetError(message)
        if timestamp <= self.last.timestamp or timestamp == NO_TIMESTAMP:
            return
        if self.is_full and not skip_full_check:
            raise IndexFullError(f"{self.path} is full with {self._entries.count} entries")
        self._entries.append(TIME_ENTRY.pack(timestamp, offset - self.base_offset))
        self.last = TimestampOffset(timestamp, offset)

    def extend(self, entries: bytes | bytearray, last: TimestampOffset) -> None:
        """Add entries as they stand in the file, which lie after the last one; `last` is the last of them."""
        if entries:
            self._entries.extend(entries)
            self.last = last

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry that is <= `timestamp`, or (-1, base offset)."""
        slot = self._entries.last_at_most(timestamp)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def entry(self, slot: int) -> TimestampOffset:
        """Return the entry in one slot."""
        timestamp, relative = self._entries.at(slot)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        """Keep the entries below `offset`; offsets grow with the timestamps, so they can be searched as well."""
        low, high = 0, self._entries.count
        while low < high:
            middle = (low + high) >> 1
            if self.base_offset + self._entries.at(middle)[1] < offset:
                low = middle + 1
            else:
                high = middle
        self._entries.truncate(low)
        self._find_last()

    def truncate(self) -> None:
        """Drop all entries."""
        self._entries.truncate(0)
        self._find_last()

    def reset(self, size_bytes_max: int) -> None:
        """Drop all entries and make room for as many as the settings allow now."""
        self.truncate()
        self.resize(size_bytes_max)

    def resize(self, size_bytes_max: int) -> None:
        """Change how many entries fit; the one that closes the segment always finds room."""
        self._entries.resize(max(size_bytes_max, (self._entries.count + 1) * TIME_ENTRY.size))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError when first and last entry can not both be right."""
        if not self._entries.count:
            return
        position = (self._entries.count - 1) * TIME_ENTRY.size
        if self.last.timestamp < self.entry(0).timestamp:
            reason = f"the last timestamp {self.last.timestamp} is smaller than the first, {self.entry(0).timestamp}"
            raise CorruptIndexError(self.path, position, reason)
        if self.last.offset < self.base_offset:
            reason = f"the last entry has offset {self.last.offset}, below the segment's base offset {self.base_offset}"
            raise CorruptIndexError(self.path, position, reason)

    def flush(self) -> None:
        """Return when all entries are on the disk."""
        self._entries.write_out(sync=True)

    def rename(self, path: str) -> None:
        """Give the file another name, in one step."""
        self._entries.rename(path)

    def release(self) -> None:
        """Give back what memory a search took."""
        self._entries.release()

    def delete(self) -> None:
        """Remove the file."""
        self._entries.delete()

    def close(self) -> None:
        """Put all entries into the file."""
        self._entries.close()
