# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The end of a log, which every append moves, and the append of a plain batch; compiled as the kernel is.

    segments ... [ active segment            size | next batch ]     SegmentEnd: size, newest timestamp, index distance
                                                ^ end offset         LogEnd: end offset, high watermark, limits

`Log` and `LogSegment` are made of these two, so that everybody sees what an append has changed. Numbers of a compiled
class cost nothing to change, which the attributes of a Python object do: this is what most requests come by.

A plain batch is what almost every producer sends to almost every topic: one batch of magic 2, uncompressed, for a topic
that takes batches as they come and acknowledges them when they are in the log. An idempotent producer's is plain if it
follows the last one that is known of that producer, in the same epoch, and in the transaction that is open, if one is.
The first one of a transaction is plain as well, for those who know that the producer may begin one here.

Rule 1: `append_plain` does what `Log.append_as_leader` does, and tests compare the two; what is not plain, or is to be
refused, or needs a roll, it leaves to that one and answers -1. Nothing is changed then but the offset and the epoch
inside of the bytes, which the long way stamps again.
Rule 2: compiled or not, every input gives the same answer: no number here leaves 64 bits.
"""

from __future__ import annotations

import crc32c

from barnabas.model import NO_OFFSET, NO_TIMESTAMP, LogOffsetMetadata
from barnabas.records import kernel

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled

DISTANCE_MAX = 1 << 61
"""Timestamps and their distances are plain below this: sums of two stay inside 64 bits."""
AHEAD_BYTES_MIN = 4 << 20

_FAR = cython.declare(cython.longlong, DISTANCE_MAX)
_SEQUENCE_MAX = cython.declare(cython.longlong, 2**31 - 1)
_crc32c = crc32c.crc32c
_read_plain_batch = kernel.read_plain_batch
_build_own_batch = kernel.build_own_batch


@cython.cclass
class SegmentEnd:
    """What an append changes of the segment that it goes to."""

    base_offset = cython.declare(cython.longlong, visibility="public")
    size = cython.declare(cython.longlong, visibility="public")
    largest_timestamp = cython.declare(cython.longlong, visibility="public")
    largest_offset = cython.declare(cython.longlong, visibility="public")
    bytes_since_entry = cython.declare(cython.longlong, visibility="public")
    is_index_full = cython.declare(cython.bint, visibility="public")
    room_end = cython.declare(cython.longlong, visibility="public")

    def __init__(self, base_offset: cython.longlong) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = base_offset
        # Since the last entry of the indexes.
        self.bytes_since_entry = 0
        # Whether one of the indexes has no room for another entry, so that the segment has to be rolled.
        self.is_index_full = False
        # Where the segment asks for room ahead: not before it has shown that it will be large.
        self.room_end = AHEAD_BYTES_MIN


@cython.cclass
class LogEnd:
    """What an append changes of a log, and what decides whether it is a plain one."""

    end_offset = cython.declare(cython.longlong, visibility="public")
    log_start_offset = cython.declare(cython.longlong, visibility="public")
    is_closed = cython.declare(cython.bint, visibility="public")
    is_touched = cython.declare(cython.bint, visibility="public")
    producers = cython.declare(object, visibility="public")
    leader_epochs = cython.declare(object, visibility="public")
    active = cython.declare(object, visibility="public")
    active_end = cython.declare(SegmentEnd, visibility="public")
    takes_plain = cython.declare(cython.bint, visibility="public")
    refuses_keyless = cython.declare(cython.bint, visibility="public")
    batch_bytes_max = cython.declare(cython.longlong, visibility="public")
    segment_bytes = cython.declare(cython.longlong, visibility="public")
    interval_bytes = cython.declare(cython.longlong, visibility="public")
    offset_max = cython.declare(cython.longlong, visibility="public")
    roll_after = cython.declare(cython.longlong, visibility="public")
    before_max_ms = cython.declare(cython.longlong, visibility="public")
    after_max_ms = cython.declare(cython.longlong, visibility="public")
    _watermark_offset = cython.declare(cython.longlong)
    _watermark_base_offset = cython.declare(cython.longlong)
    _watermark_position = cython.declare(cython.longlong)

    @property
    def log_end(self) -> LogOffsetMetadata:
        """The offset that the next record gets, and where it will lie."""
        segment: SegmentEnd = self.active_end
        return tuple.__new__(LogOffsetMetadata, (self.end_offset, segment.base_offset, segment.size))

    @property
    def high_watermark(self) -> LogOffsetMetadata:
        """The offset up to which consumers may read, and where it lies."""
        place = (self._watermark_offset, self._watermark_base_offset, self._watermark_position)
        return tuple.__new__(LogOffsetMetadata, place)

    @high_watermark.setter
    def high_watermark(self, place: LogOffsetMetadata) -> None:
        self._watermark_offset, self._watermark_base_offset, self._watermark_position = place

    @property
    def high_watermark_offset(self) -> int:
        """The offset up to which consumers may read."""
        return self._watermark_offset

    @cython.cfunc
    def _watermark_to_end(self) -> None:
        segment: SegmentEnd = self.active_end
        self._watermark_offset = self.end_offset
        self._watermark_base_offset = segment.base_offset
        self._watermark_position = segment.size

    def watermark_to_end(self) -> None:
        """Move the high watermark to the log end."""
        self._watermark_to_end()

    def append_plain(
        self,
        data: object,
        start: cython.longlong,
        end: cython.longlong,
        leader_epoch: cython.longlong,
        now_ms: cython.longlong,
        is_admitted: cython.bint = False,
    ) -> int:
        """Append the batch in `data[start:end]`, whose length is right, and return its first offset.

        -1 is for every batch that has to go the long way. The high watermark moves along. Raises OSError from the disk,
        with the segment as it was.

        Args:
            is_admitted: whether the batch may begin a transaction.
        """
        segment: SegmentEnd = self.active_end
        position: cython.longlong = segment.size
        size: cython.longlong = end - start
        first_offset: cython.longlong = self.end_offset
        last_offset: cython.longlong
        oldest: cython.longlong
        newest: cython.longlong
        keyless: cython.longlong
        base_timestamp: cython.longlong
        # The first batch of a segment decides when it is rolled, which the long way keeps.
        if not self.takes_plain or self.is_closed or segment.is_index_full or not position:
            return NO_OFFSET
        if size > self.batch_bytes_max or position + size > self.segment_bytes:
            return NO_OFFSET
        # A watermark that ends a transaction is seen to there.
        if leader_epoch > self.leader_epochs.latest or self.producers.unreplicated:
            return NO_OFFSET
        checked = _read_plain_batch(data, start, first_offset, leader_epoch)
        if checked is None:
            return NO_OFFSET
        header, oldest, newest, keyless = checked
        base_timestamp = header[7]
        if header[1] + 12 != size or header[6] > self.offset_max - first_offset or (keyless and self.refuses_keyless):
            return NO_OFFSET
        last_offset = first_offset + header[6]
        producer = None
        if header[9] >= 0:
            producer = self.producers.find_next(header[9], header[10], header[11], header[5] != 0, is_admitted)
            if producer is None:
                return NO_OFFSET
        if base_timestamp < 0 or base_timestamp > _FAR or oldest < -_FAR or newest > _FAR or newest < -_FAR:
            return NO_OFFSET
        oldest += base_timestamp
        newest += base_timestamp
        if newest != header[8] or newest > self.roll_after or newest - now_ms > self.after_max_ms:
            return NO_OFFSET
        if oldest < 0 or now_ms - oldest > self.before_max_ms:
            return NO_OFFSET
        if _crc32c(data[start + 21 : end]) != header[4]:
            return NO_OFFSET
        self._write(data[start:end], first_offset, last_offset, newest)
        if producer is not None:
            producer.remember((header[11] + header[6]) & _SEQUENCE_MAX, last_offset, header[6], newest)
            if header[5] != 0:
                self.producers.begin_transaction(producer, first_offset)
        self.end_offset = last_offset + 1
        self.is_touched = True
        self._watermark_to_end()
        return first_offset

    def append_own_plain(self, own: object, leader_epoch: cython.longlong) -> int:
        """Append an OwnBatch of a coordinator and return its size in bytes.

        -1 is for one that has to go the long way: that is one of a producer, unless it commits the producer's open
        transaction. The high watermark stays where it is. Raises as `append_plain` does.
        """
        records, time, attributes, producer_id, producer_epoch, end = own
        segment: SegmentEnd = self.active_end
        timestamp: cython.longlong = time
        first_offset: cython.longlong = self.end_offset
        last_offset_delta: cython.longlong = len(records) - 1
        last_offset: cython.longlong
        size: cython.longlong
        if not self.takes_plain or self.is_closed or segment.is_index_full or not segment.size:
            return NO_OFFSET
        if timestamp > self.roll_after or last_offset_delta > self.offset_max - first_offset:
            return NO_OFFSET
        last_offset = first_offset + last_offset_delta
        if leader_epoch > self.leader_epochs.latest:
            return NO_OFFSET
        producer = None
        if producer_id >= 0:
            # An abort goes into an index as well, and records of a producer open a transaction.
            if end is None or not end[0]:
                return NO_OFFSET
            producer = self.producers.find_open(producer_id, producer_epoch, end[1])
            if producer is None:
                return NO_OFFSET
        batch = _build_own_batch(
            records, first_offset, leader_epoch, attributes, timestamp, producer_id, producer_epoch
        )
        size = len(batch)
        if segment.size + size > self.segment_bytes:
            return NO_OFFSET
        view = memoryview(batch)
        view[17:21] = _crc32c(view[21:]).to_bytes(4, "big")
        self._write(view, first_offset, last_offset, timestamp)
        if producer is not None:
            self.producers.end_transaction(producer, producer_epoch, end, last_offset, timestamp)
        self.end_offset = last_offset + 1
        self.is_touched = True
        return size

    @cython.cfunc
    def _write(
        self, batch: object, first_offset: cython.longlong, last_offset: cython.longlong, newest: cython.longlong
    ) -> object:
        """Write a batch behind the last one, and add it to the indexes where an entry is due."""
        segment: SegmentEnd = self.active_end
        position: cython.longlong = segment.size
        largest_timestamp: cython.longlong = segment.largest_timestamp
        largest_offset: cython.longlong = segment.largest_offset
        if position + len(batch) > segment.room_end:
            self.active.reserve_ahead()
        try:
            self.active.write_at(batch, position)
            if newest > largest_timestamp:
                segment.largest_timestamp = newest
                segment.largest_offset = last_offset
            if segment.bytes_since_entry > self.interval_bytes:
                self.active.index_writer.add_entry(last_offset, position)
        except BaseException:
            segment.largest_timestamp = largest_timestamp
            segment.largest_offset = largest_offset
            self.active.undo(position, first_offset)
            raise
        segment.bytes_since_entry += len(batch)
        segment.size = position + len(batch)
        return None
