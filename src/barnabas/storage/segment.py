"""LogSegment: one `.log` file with its indexes, named by the base offset in 20 digits.

    00000000000000368769.log         batches, one after the other
    00000000000000368769.index       OffsetIndex: offset -> position
    00000000000000368769.timeindex   TimeIndex: timestamp -> offset
    00000000000000368769.txnindex    TransactionIndex, only where transactions aborted

A LogSegment can be read. Only an ActiveSegment can be appended to: it holds the LogSegment that readers see, and
`seal` gives that one back for good. Batches are stored as the bytes they came as.

Rule 1: base offset <= every offset in the segment, and > every offset of the segments before.
Rule 2: `size` is set after the bytes are in the file and in the indexes. No reader looks past it, so a reader never
sees half an append.
Rule 3: an append that fails leaves the segment as it was: what may have been written is cut off again.
"""

import logging
import os
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from barnabas.model import NO_TIMESTAMP, LogOffsetMetadata, TimestampOffset
from barnabas.records import batch_walk
from barnabas.records.batch import LENGTH_POSITION, LOG_OVERHEAD, MAGIC, MAGIC_POSITION, BatchHeader
from barnabas.storage.batches import CorruptLogError, LogFile, records_of, scan_headers
from barnabas.storage.files import Buffer, File, Files
from barnabas.storage.index import OffsetIndex, OffsetPosition, TimeIndex
from barnabas.storage.log_end import SegmentEnd
from barnabas.storage.transaction_index import TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

RELATIVE_OFFSET_MAX = 2**31 - 1
LOCATE_CHUNK_BYTES = 4096
AHEAD_BYTES_MAX = 16 << 20
NO_ROOM_WANTED = 2**62
INDEX_INTERVAL_BYTES = 4096
_LENGTH = Struct(">i")
_BASE_OFFSET = Struct(">q")

logger = logging.getLogger(__name__)


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of one file of a segment."""
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


def reserve_room(file: File, start: int) -> int:
    """Reserve blocks from `start` on, as many as come before and not too many; returns where they end.

    A disk that knows where bytes will lie takes them at three quarters of the price: a file system that is asked
    page by page keeps accounts of every page until it has found a place for it.
    """
    size = min(start, AHEAD_BYTES_MAX)
    return start + size if file.reserve_ahead(start, size) else NO_ROOM_WANTED


class FileSlice(NamedTuple):
    """Bytes of a file that are to be sent as they are."""

    file: File
    position: int
    size: int


class FetchDataInfo(NamedTuple):
    """What a read found: where its offset lies, and the batches from there on."""

    offset_metadata: LogOffsetMetadata
    records: FileSlice | None
    is_first_batch_whole: bool = True
    """Whether `records` has the batch of the offset to its end, and not only a part that nobody can use."""


class BatchPosition(NamedTuple):
    """A batch found in a segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int


class OpenSegments:
    """The sealed segments whose files are open or mapped: the least recently used are closed beyond a limit."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._used: OrderedDict[LogSegment, None] = OrderedDict()

    def use(self, segment: "LogSegment") -> None:
        """Note that a segment is being read."""
        # Two steps that each are one for other threads too: those that load logs share this.
        self._used.pop(segment, None)
        self._used[segment] = None
        while len(self._used) > self._limit:
            self._used.popitem(last=False)[0].release()

    def forget(self, segment: "LogSegment") -> None:
        """Note that a segment is closed or gone."""
        self._used.pop(segment, None)


class SegmentOptions(NamedTuple):
    """What all segments of a log have in common."""

    files: Files
    directory: str
    open_segments: OpenSegments
    index_bytes_max: int
    decompressed_bytes_max: int


class LogSegment(SegmentEnd):
    """A segment as readers see it."""

    def __init__(self, options: SegmentOptions, base_offset: int, created_ms: int, suffix: str = "") -> None:
        super().__init__(base_offset)
        self._options = options
        self._stem = segment_file(options.directory, base_offset, "")
        self.created_ms = created_ms
        self.path = self._path(LOG_SUFFIX, suffix)
        self.offset_index = OffsetIndex(options.files, self._path(INDEX_SUFFIX, suffix), base_offset)
        self.time_index = TimeIndex(options.files, self._path(TIME_INDEX_SUFFIX, suffix), base_offset)
        self.transaction_index = TransactionIndex(
            options.files, self._path(TRANSACTION_INDEX_SUFFIX, suffix), base_offset
        )
        self._file: File | None = None
        self._pinned = False
        # Whether the files are gone, so that a flush that was prepared before need not look for them.
        self.is_deleted = False
        self._first_timestamp: int | None = None
        # Whether it is taken out of the log for good, and its data gets another name while a flush may be at it.
        self.is_leaving = False

    @property
    def largest(self) -> TimestampOffset:
        """The newest timestamp, -1 without one, and the last offset of the first batch that has it."""
        return TimestampOffset(self.largest_timestamp, self.largest_offset)

    @largest.setter
    def largest(self, largest: TimestampOffset) -> None:
        self.largest_timestamp, self.largest_offset = largest

    def _path(self, kind: str, suffix: str = "") -> str:
        return self._stem + kind + suffix

    def open(self, size: int, index_size: int, time_index_size: int) -> None:
        """Take over files of these sizes; raises CorruptIndexError when an index has to be made again."""
        self.size = size
        self.offset_index.open(index_size, self._options.index_bytes_max)
        self.offset_index.sanity_check(size)
        self.time_index.open(time_index_size, self._options.index_bytes_max)
        self.time_index.sanity_check()
        self.largest = self.time_index.last
        self.release()

    def file(self) -> File:
        """Return the open `.log` file."""
        file = self._file
        if file is None:
            file = self._file = self._options.files.open(self.path)
        if not self._pinned:
            self._options.open_segments.use(self)
        return file

    def log_file(self) -> LogFile:
        """Return the `.log` file for a walk over its batches."""
        return LogFile(self.file(), self.path, self.size)

    def pin(self, file: File) -> None:
        """Keep this file open, because it is being appended to."""
        self._file = file
        self._pinned = True
        self._options.open_segments.forget(self)

    def unpin(self) -> None:
        """Let the file be closed when others are used more; whoever reads it now keeps it."""
        self._file = None
        self._pinned = False

    def release(self) -> None:
        """Let go of files and maps; the next read opens them again."""
        if not self._pinned:
            self._file = None
        self.offset_index.release()
        self.time_index.release()

    def locate(self, offset: int) -> BatchPosition | None:
        """Return the first batch whose last offset is at or past `offset`, or None when there is none here."""
        try:
            return self._locate_from(self.offset_index.lookup(offset), offset)
        except CorruptLogError as error:
            if not self.offset_index.entry_count:
                raise
            logger.warning("%s; if that is what the index says, it is made again", error)
        self.rebuild_indexes()
        return self._locate_from(self.offset_index.lookup(offset), offset)

    def _locate_from(self, start: OffsetPosition, offset: int) -> BatchPosition | None:
        position, file = start.position, self.file()
        if position < 0 or (position and position >= self.size):
            raise CorruptLogError(self.path, position, "the index points outside of the file")
        while position < self.size:
            chunk = file.read_at(min(LOCATE_CHUNK_BYTES, self.size - position), position)
            inside, last_offset = batch_walk.find_batch(chunk, offset)
            if last_offset == -2 or (last_offset == -1 and inside == 0):
                raise CorruptLogError(self.path, position + inside, "there is no batch where one should start")
            if position == start.position and position and _BASE_OFFSET.unpack_from(chunk)[0] > start.offset:
                # Whatever lies between would be skipped.
                raise CorruptLogError(self.path, position, "the index points past the batch it should point to")
            position += inside
            if last_offset >= 0:
                size = LOG_OVERHEAD + _LENGTH.unpack_from(chunk, inside + LENGTH_POSITION)[0]
                base_offset = _BASE_OFFSET.unpack_from(chunk, inside)[0]
                return BatchPosition(position, size, base_offset, last_offset, chunk[inside + MAGIC_POSITION])
        return None

    def rebuild_indexes(self) -> None:
        """Make both indexes again from the headers of the batches; raises CorruptLogError when those are damaged."""
        for _ in scan_headers(self.log_file(), 0):
            pass  # Where the log is damaged its index, such as it is, is the only way to what lies behind.
        self.offset_index.truncate()
        self.time_index.truncate()
        self.largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        indexes = IndexWriter(self, INDEX_INTERVAL_BYTES)
        for position, header in scan_headers(self.log_file(), 0):
            indexes.add(header, position)
        self.time_index.maybe_append(*self.largest, skip_full_check=True)
        self.offset_index.close()
        self.time_index.close()

    def read(
        self, start_offset: int, max_size: int, max_position: int, *, min_one_message: bool = False
    ) -> FetchDataInfo | None:
        """Return the bytes from the batch that holds `start_offset` on, up to `max_size` and `max_position`.

        With `min_one_message` the first batch is returned whole even when it is larger. None says that all offsets
        of the segment lie before `start_offset`.
        """
        if max_size < 0:
            raise ValueError(f"a read of {max_size} bytes was asked for")
        found = self.locate(start_offset)
        if found is None:
            return None
        metadata = LogOffsetMetadata(start_offset, self.base_offset, found.position)
        size = max(max_size, found.size) if min_one_message else max_size
        size = min(size, max_position - found.position)
        records = FileSlice(self.file(), found.position, size) if size > 0 else None
        return FetchDataInfo(metadata, records, size >= found.size)

    def find_offset_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record at or past `start_offset` whose timestamp is at or past `timestamp`."""
        offset = max(self.time_index.lookup(timestamp).offset, start_offset)
        log = self.log_file()
        for position, header in scan_headers(log, self.offset_index.lookup(offset).position):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            view = memoryview(log.file.read_at(header.size, position))
            for record in records_of(view, header, self._options.decompressed_bytes_max):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset)
        return None

    def find_offset_of_max_timestamp(self, start_offset: int) -> TimestampOffset | None:
        """Return the first of the newest records at or past `start_offset`, by looking at them; None without any."""
        found: TimestampOffset | None = None
        log = self.log_file()
        for position, header in scan_headers(log, self.offset_index.lookup(start_offset).position):
            is_older = header.max_timestamp < 0 or (found is not None and header.max_timestamp <= found.timestamp)
            if is_older or header.last_offset < start_offset:
                continue
            view = memoryview(log.file.read_at(header.size, position))
            for record in records_of(view, header, self._options.decompressed_bytes_max):
                if record.offset >= start_offset and record.timestamp > (found.timestamp if found else NO_TIMESTAMP):
                    found = TimestampOffset(record.timestamp, record.offset)
        return found

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, which rolling by time counts from, or -1 without one."""
        if self._first_timestamp is not None:
            return self._first_timestamp
        first = next((header.max_timestamp for _, header in scan_headers(self.log_file(), 0)), NO_TIMESTAMP)
        if not self._pinned:
            self._first_timestamp = first  # Nothing is appended to it any more, and it is asked for again and again.
        return first

    def next_offset(self) -> int:
        """Return the offset after the last one in the segment."""
        next_offset = self.base_offset
        start = self.offset_index.lookup(2**63 - 1).position
        for _, header in scan_headers(self.log_file(), start):
            next_offset = header.last_offset + 1
        if next_offset == self.base_offset and self.size:
            raise CorruptLogError(self.path, start, "there is no batch where the last one should be")
        return next_offset

    def newest_ms(self) -> int:
        """Return the newest timestamp, or when the file was last written if no record has one."""
        if self.largest_timestamp >= 0:
            return self.largest_timestamp
        return self._options.files.modified_ms(self.path)

    def modified_ms(self) -> int:
        """Return when the file was last written, in milliseconds since 1970."""
        return self._options.files.modified_ms(self.path)

    def flush(self) -> None:
        """Return when the segment, with its indexes, is on the disk."""
        file = self._file if self._pinned and self._file is not None else self._options.files.open(self.path)
        file.sync()
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename all files; the data first, so that no moment shows a segment that lacks only its indexes."""
        files = self._options.files
        path = self._path(LOG_SUFFIX, new)
        files.rename(self._path(LOG_SUFFIX, old), path)
        self.path = path
        self.offset_index.rename(self._path(INDEX_SUFFIX, new))
        self.time_index.rename(self._path(TIME_INDEX_SUFFIX, new))
        self.transaction_index.rename(self._path(TRANSACTION_INDEX_SUFFIX, new))

    def set_aside(self) -> None:
        """Give the data, without which its indexes are nothing, the name of files that are removed later.

        That is one rename instead of three or four, on the loop, for each of the thousands that retention may take at
        once. The indexes keep their names until `delete`; a start that finds them without their data removes them.
        """
        path = self._path(LOG_SUFFIX, DELETED_SUFFIX)
        self._options.files.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove all files; the data first, for the same reason, unless it is set aside and so says what they are."""
        self.is_deleted = True
        self._options.open_segments.forget(self)
        self.release()
        if not self.is_leaving:
            self._options.files.remove(self.path)
        self.offset_index.delete()
        self.time_index.delete()
        self.transaction_index.delete()
        if self.is_leaving:
            self._options.files.remove(self.path)

    def close(self) -> None:
        """Put the indexes into their files and let go of everything."""
        self.offset_index.close()
        self.time_index.close()
        self._options.open_segments.forget(self)
        self.unpin()
        self.release()


class IndexWriter:
    """Keeps the indexes of a segment up with its batches: an entry every `index.interval.bytes`."""

    __slots__ = ("_room", "_segment", "interval_bytes")

    def __init__(self, segment: LogSegment, interval_bytes: int) -> None:
        self._segment = segment
        self.interval_bytes = interval_bytes
        segment.bytes_since_entry = 0
        # Invariant: the indexes of the segment are not full as long as there is room, which counts the entries that fit
        # into both.
        self._room = 0
        self._measure_room()

    def _measure_room(self) -> None:
        self._room = min(self._segment.offset_index.room, self._segment.time_index.room)
        self._segment.is_index_full = self._room <= 0

    def resize(self, interval_bytes: int, size_bytes_max: int) -> None:
        """Apply changed settings."""
        self.interval_bytes = interval_bytes
        self._segment.offset_index.resize(size_bytes_max)
        self._segment.time_index.resize(size_bytes_max)
        self._measure_room()

    def add(self, batch: BatchHeader, position: int) -> int:
        """Take in the batch that starts at `position`, and return where it ends."""
        segment = self._segment
        size = batch.batch_length + LOG_OVERHEAD
        last_offset = batch.base_offset + batch.last_offset_delta
        if batch.max_timestamp > segment.largest_timestamp:
            segment.largest_timestamp = batch.max_timestamp
            segment.largest_offset = last_offset
        # One append of many batches can fill the index up; the log rolls before the next append.
        if segment.bytes_since_entry > self.interval_bytes and not segment.is_index_full:
            self.add_entry(last_offset, position)
        segment.bytes_since_entry += size
        return position + size

    def add_entry(self, last_offset: int, position: int) -> None:
        """Let the indexes point to the batch that starts at `position`; they must not be full."""
        segment = self._segment
        segment.offset_index.append(last_offset, position)
        if segment.largest_timestamp > segment.time_index.last.timestamp:
            segment.time_index.maybe_append(*segment.largest)
        segment.bytes_since_entry = 0
        self._room -= 1
        if self._room <= 0:
            self._measure_room()

    @property
    def base_offset(self) -> int:
        """The base offset of the segment."""
        return self._segment.base_offset

    def before_walk(self, state: "array[int]") -> None:
        """Tell a walk over batches (records/batch_walk.py) what the entries that it makes follow."""
        segment = self._segment
        state[batch_walk.BYTES_SINCE_ENTRY] = segment.bytes_since_entry
        state[batch_walk.LARGEST_TIMESTAMP], state[batch_walk.LARGEST_OFFSET] = segment.largest
        state[batch_walk.TIME_INDEX_TIMESTAMP], state[batch_walk.TIME_INDEX_OFFSET] = segment.time_index.last
        state[batch_walk.OFFSET_INDEX_OFFSET] = segment.offset_index.last_offset
        state[batch_walk.ROOM] = 0 if segment.is_index_full else self._room

    def after_walk(self, state: "array[int]", offset_entries: bytearray, time_entries: bytearray) -> None:
        """Take in the entries that a walk made."""
        segment = self._segment
        largest = TimestampOffset(state[batch_walk.LARGEST_TIMESTAMP], state[batch_walk.LARGEST_OFFSET])
        last = TimestampOffset(state[batch_walk.TIME_INDEX_TIMESTAMP], state[batch_walk.TIME_INDEX_OFFSET])
        segment.offset_index.extend(
            offset_entries[: 8 * state[batch_walk.OFFSET_ENTRIES]], state[batch_walk.OFFSET_INDEX_OFFSET]
        )
        segment.time_index.extend(time_entries[: 12 * state[batch_walk.TIME_ENTRIES]], last)
        segment.largest = largest
        segment.bytes_since_entry = state[batch_walk.BYTES_SINCE_ENTRY]
        if not segment.is_index_full:
            self._room = state[batch_walk.ROOM]
            if self._room <= 0:
                self._measure_room()

    def restart(self) -> None:
        """Count from here on, after batches were cut off."""
        self._segment.bytes_since_entry = 0
        self._measure_room()


class ActiveSegment:
    """The one segment of a log that can be appended to."""

    def __init__(self, segment: LogSegment, options: SegmentOptions, index_interval_bytes: int) -> None:
        self.segment = segment
        self.index_writer = IndexWriter(segment, index_interval_bytes)
        self._file = options.files.open(segment.path, writable=True)
        self.write_at = self._file.write_at
        segment.pin(self._file)
        self.offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        # The timestamp of the first batch, which rolling by time counts from; read when first needed after a reopen.
        self._rolling_based_timestamp: int | None = None if segment.size else NO_TIMESTAMP
        # Where the room ends that was reserved here; there may be more that a killed broker left.
        self._ahead_end = 0

    @classmethod
    def create(
        cls, options: SegmentOptions, base_offset: int, created_ms: int, index_interval_bytes: int
    ) -> "ActiveSegment":
        """Make a new, empty segment."""
        segment = LogSegment(options, base_offset, created_ms)
        segment.open(0, 0, 0)
        segment.transaction_index.begin()
        return cls(segment, options, index_interval_bytes)

    def preallocate(self, size: int) -> None:
        """Reserve the room for a whole segment, which `seal` and `close` give back."""
        self._file.allocate(size)
        self.segment.room_end = max(size, self.segment.room_end)

    def reserve_ahead(self) -> None:
        """Reserve the blocks that come next; they are given back as well."""
        segment = self.segment
        segment.room_end = reserve_room(self._file, max(segment.room_end, segment.size))
        if segment.room_end != NO_ROOM_WANTED:
            self._ahead_end = segment.room_end

    def give_room_back(self) -> None:
        """Let others have the room that was reserved, and ask for no more: the disk is full."""
        self.segment.room_end = NO_ROOM_WANTED
        if self._has_room_ahead():
            self._file.truncate(self.segment.size)
            self._ahead_end = 0

    def _has_room_ahead(self) -> bool:
        return self._ahead_end > self.segment.size or self._file.has_room_ahead()

    def append(self, data: Buffer, batches: Sequence[BatchHeader]) -> None:
        """Write the bytes of these batches, and index them when enough were written since the last entry."""
        segment = self.segment
        start = position = segment.size
        largest = segment.largest
        if start + len(data) > segment.room_end:
            self.reserve_ahead()
        try:
            self.write_at(data, start)
            for batch in batches:
                position = self.index_writer.add(batch, position)
        except BaseException:
            segment.largest = largest
            self.undo(start, batches[0].base_offset)
            raise
        if start == 0:
            self._rolling_based_timestamp = batches[0].max_timestamp
        segment.size = position

    def undo(self, position: int, first_offset: int) -> None:
        """Cut off what an append that failed has written, and its entries in the indexes."""
        self._file.truncate(position)
        self.segment.offset_index.truncate_to(first_offset)
        self.segment.time_index.truncate_to(first_offset)
        self.index_writer.restart()

    def rolling_based_timestamp(self) -> int:
        """Return the timestamp that rolling by time counts from, or -1 without one."""
        if self._rolling_based_timestamp is None:
            self._rolling_based_timestamp = self.segment.first_timestamp()
        return self._rolling_based_timestamp

    def truncate_to(self, offset: int) -> int:
        """Cut off every batch that ends at or past `offset` and return the offset at which the next one starts.

        A batch is never cut in two. In {[10,10] [11,30] [31,100]}, truncating to 31 leaves [10,10] and [11,30] and
        the next offset is 31; truncating to 40 leaves the same two batches, and the next offset is 31 as well: the
        leader sends the batch that holds 40 whole.
        """
        segment = self.segment
        found = segment.locate(offset)
        if found is None:
            return offset
        segment.offset_index.truncate_to(offset)
        segment.time_index.truncate_to(offset)
        segment.transaction_index.truncate_to(offset)
        segment.size = found.position
        self._file.truncate(found.position)
        self.index_writer.restart()
        if found.position == 0:
            self._rolling_based_timestamp = NO_TIMESTAMP
        self._find_largest()
        # The wrapper of an old message set only knows its last offset; the log then goes on where it ends now.
        return min(offset, found.base_offset if found.magic == MAGIC else segment.next_offset())

    def _find_largest(self) -> None:
        # The index knows the largest timestamp up to its last entry; what lies behind is a few batches.
        segment = self.segment
        segment.largest = segment.time_index.last
        for _, header in scan_headers(segment.log_file(), segment.offset_index.lookup(segment.largest.offset).position):
            if header.max_timestamp > segment.largest.timestamp:
                segment.largest = TimestampOffset(header.max_timestamp, header.last_offset)

    def _finish(self) -> None:
        """Add the entry that ends the time index, and give back all room that the data did not need."""
        self.segment.time_index.maybe_append(*self.segment.largest, skip_full_check=True)
        if self._file.size() != self.segment.size or self._has_room_ahead():
            self._file.truncate(self.segment.size)

    def seal(self) -> LogSegment:
        """Make the segment one that is only read, and return it; this object is of no more use."""
        self._finish()
        self.segment.offset_index.close()
        self.segment.time_index.close()
        self.segment.unpin()
        return self.segment

    def release(self) -> None:
        """Let go of the file: nothing is appended any more, and whoever reads it now keeps it."""
        self.segment.unpin()
        del self._file, self.write_at

    def sync(self) -> None:
        """Return when the appended bytes are on the disk. Indexes wait: after a crash they are made anew."""
        self._file.sync()

    def close(self) -> None:
        """Bring the files into the state in which a clean start expects them, on the disk."""
        self._finish()
        self.segment.flush()
        self.segment.close()
