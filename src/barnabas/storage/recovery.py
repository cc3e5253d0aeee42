"""Recovery of a segment: every batch is read and checked, the indexes are made anew, the first bad byte is the end.

It runs for the segments from the recovery point on when the broker was not stopped cleanly, and for any segment whose
index is missing or damaged. Runs of plain batches are walked by compiled code (`records/batch_walk.py`) that leaves the
GIL, so that a broker goes on serving other logs meanwhile; everything else is looked at batch by batch.

Rule 1: what lies before the damage is kept, what lies behind it is cut off, and the log says where and why.
Rule 2: doing it twice gives the same files.
Rule 3: walked or not, a segment gives the same indexes, the same producer state and the same complaint.
"""

import logging
from array import array
from collections.abc import Callable

from barnabas.model import NO_TIMESTAMP, TimestampOffset
from barnabas.records import batch_walk
from barnabas.records.batch import HEADER, HEADER_SIZE, BatchHeader, CorruptRecordError
from barnabas.storage.batches import CorruptLogError, LogFile, check_left, checked_header, overrun, scan_batches
from barnabas.storage.segment import RELATIVE_OFFSET_MAX, IndexWriter, LogSegment, SegmentOptions

logger = logging.getLogger(__name__)

BatchObserver = Callable[[LogSegment, BatchHeader, memoryview], None]

OFFSET_MAX = 2**63 - 1

WALK_BYTES = 1 << 20
"""How much is read at a time. It is the time that a thread spends without the GIL, half a millisecond or so."""
WALKED_BATCH_BYTES_MAX = 32 * 1024
"""Larger batches are checked one by one: the checksum that the processor computes is then worth its call."""


def recover_segment(
    segment: LogSegment,
    options: SegmentOptions,
    index_interval_bytes: int,
    observe: BatchObserver,
    on_progress: Callable[[int], None] | None = None,
    *,
    end_offset: int = OFFSET_MAX,
) -> int:
    """Check every batch, tell `observe` of it, and make the indexes anew; return how many bytes were cut off.

    Batches that change nothing for the observer (no new leader epoch, no producer whose state would remember them) may
    be left out. `on_progress` is called with bytes that were read, now and then. No batch may reach `end_offset`, at
    which the next segment starts.
    """
    file = options.files.open(segment.path, writable=True)
    size = file.size()
    segment.size = 0
    segment.largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
    segment.offset_index.open(0, options.index_bytes_max)
    segment.time_index.open(0, options.index_bytes_max)
    for index in (segment.offset_index, segment.time_index, segment.transaction_index):
        index.delete()
    segment.transaction_index.reset()
    _keep_in_memory(segment, True)
    log = LogFile(file, segment.path, size)
    scan = _Scan(segment, log, index_interval_bytes, observe, end_offset)
    try:
        if batch_walk.COMPILED:
            scan.walk(on_progress or (lambda count: None))
        else:
            scan.look_at_each(on_progress or (lambda count: None))
        if file.has_room_ahead():
            file.truncate(segment.size)  # A broker that was killed in the middle of a roll has left it.
    except CorruptLogError as error:
        logger.warning("%s; the %d bytes from there on are cut off", error, size - segment.size)
        file.truncate(segment.size)
    finally:
        file.close()
    segment.time_index.maybe_append(*segment.largest, skip_full_check=True)
    segment.offset_index.close()
    segment.time_index.close()
    _keep_in_memory(segment, False)
    return size - segment.size


def _keep_in_memory(segment: LogSegment, is_allowed: bool) -> None:
    """Let the indexes do without room on the disk: the segment can be read with them, and no flush vouches for it."""
    segment.offset_index.keep_in_memory(is_allowed)
    segment.time_index.keep_in_memory(is_allowed)


class _Scan:
    """One reading of a segment from its start; `segment.size` says how far it has come."""

    def __init__(
        self, segment: LogSegment, log: LogFile, interval_bytes: int, observe: BatchObserver, end_offset: int
    ) -> None:
        self._segment = segment
        self._log = log
        self._observe = observe
        self._indexes = IndexWriter(segment, interval_bytes)
        self._next_offset = segment.base_offset
        self._offset_end = min(segment.base_offset + RELATIVE_OFFSET_MAX + 1, end_offset)
        self._leader_epoch = -1

    def look_at_each(self, on_progress: Callable[[int], None]) -> None:
        """Check every batch by itself."""
        told = 0
        for position, batch, view in scan_batches(self._log):
            self._take(position, batch, view)
            if self._segment.size - told >= WALK_BYTES:
                on_progress(self._segment.size - told)
                told = self._segment.size
        on_progress(self._segment.size - told)

    def _take(self, position: int, batch: BatchHeader, view: memoryview) -> None:
        if batch.base_offset < self._next_offset:
            reason = f"the batch starts at offset {batch.base_offset}, but {self._next_offset} or more comes next"
            raise CorruptLogError(self._log.path, position, reason)
        next_offset = batch.base_offset + batch.last_offset_delta + 1
        if next_offset > self._offset_end:
            start = self._segment.base_offset
            reason = f"offset {batch.last_offset} does not fit into a segment that starts at {start}"
            if self._offset_end <= start + RELATIVE_OFFSET_MAX:
                reason += f", before one at {self._offset_end}"
            raise CorruptLogError(self._log.path, position, reason)
        self._next_offset = next_offset
        try:
            self._observe(self._segment, batch, view)
        except CorruptRecordError as error:
            raise CorruptLogError(self._log.path, position, error.reason) from None
        self._leader_epoch = max(self._leader_epoch, batch.leader_epoch)
        self._segment.size = self._indexes.add(batch, position)

    def walk(self, on_progress: Callable[[int], None]) -> None:
        """Walk over the plain batches of one chunk after the other, and look at the others one by one."""
        log, segment = self._log, self._segment
        buffer = memoryview(bytearray(min(WALK_BYTES, max(log.size, 1))))
        walker = _Walker(self._indexes, len(buffer))
        # Invariant: `chunk` is what was read of the file from `segment.size - inside` on.
        chunk, inside, told = buffer[:0], 0, 0
        while segment.size < log.size:
            needed = check_left(chunk, inside, log, segment.size)
            if needed > len(chunk) - inside:
                on_progress(segment.size - told)
                told = segment.size
                rest = len(chunk) - inside
                target = buffer if needed <= len(buffer) else memoryview(bytearray(needed))
                target[:rest] = chunk[inside:]
                buffer, inside = target, 0
                end = min(len(buffer), log.size - segment.size)
                chunk = buffer[: rest + log.file.read_into(buffer[rest:end], segment.size + rest)]
                if len(chunk) < needed:
                    raise CorruptLogError(log.path, segment.size, overrun(needed, len(chunk)))
                continue
            walked = self._walk_run(walker, chunk[inside:]) if needed <= WALKED_BATCH_BYTES_MAX else 0
            inside += walked or self._take_one(chunk[inside : inside + needed])
        on_progress(segment.size - told)

    def _take_one(self, view: memoryview) -> int:
        """Check a batch that the walk does not look at, and return its size."""
        position = self._segment.size
        try:
            header = checked_header(view, 0)
        except CorruptRecordError as error:
            raise CorruptLogError(self._log.path, position, error.reason) from None
        self._take(position, header, view)
        return len(view)

    def _walk_run(self, walker: "_Walker", chunk: memoryview) -> int:
        """Walk over plain batches as far as they go, and return how many bytes they are."""
        segment = self._segment
        relative_max = self._offset_end - 1 - segment.base_offset
        walked = walker.walk(chunk, segment.size, self._next_offset, self._leader_epoch, relative_max)
        if walked:
            for position in walker.notable():
                header: BatchHeader = tuple.__new__(BatchHeader, HEADER.unpack_from(chunk, position))
                self._observe(segment, header, chunk[position : position + header.size])
            self._next_offset = walker.next_offset
            self._leader_epoch = walker.leader_epoch
            segment.size += walked
        return walked


class _Walker:
    """The memory that the compiled walk fills, used again for every run."""

    def __init__(self, indexes: IndexWriter, chunk_bytes: int) -> None:
        self._indexes = indexes
        count = chunk_bytes // HEADER_SIZE + 1
        self._state = array("q", bytes(8 * batch_walk.STATE_SIZE))
        self._offset_entries = bytearray(8 * count)
        self._time_entries = bytearray(12 * count)
        self._notable = array("q", bytes(8 * count))

    def walk(
        self, chunk: memoryview, position: int, next_offset: int, leader_epoch: int, relative_offset_max: int
    ) -> int:
        """Walk over the plain batches at the start of a chunk, index them, and return how many bytes they are."""
        state = self._state
        state[batch_walk.NEXT_OFFSET] = next_offset
        state[batch_walk.LEADER_EPOCH] = leader_epoch
        start, interval_bytes = self._indexes.base_offset, self._indexes.interval_bytes
        limits = array("q", (start, position, interval_bytes, WALKED_BATCH_BYTES_MAX, relative_offset_max))
        self._indexes.before_walk(state)
        # A chunk that had to grow for one large batch may have more small ones behind that than there is room for: the
        # walk then ends early, and is begun again.
        walked = batch_walk.walk_batches(chunk, limits, state, self._offset_entries, self._time_entries, self._notable)
        self._indexes.after_walk(state, self._offset_entries, self._time_entries)
        return walked

    def notable(self) -> list[int]:
        """Return where in the chunk the batches are that somebody has to look at."""
        return self._notable[: self._state[batch_walk.NOTABLE]].tolist()

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self._state[batch_walk.NEXT_OFFSET]

    @property
    def leader_epoch(self) -> int:
        """The largest leader epoch so far."""
        return self._state[batch_walk.LEADER_EPOCH]
