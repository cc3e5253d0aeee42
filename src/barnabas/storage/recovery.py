"""Recovery of a segment: every batch is read and checked, the indexes are made anew, the first bad byte is the end.

It runs for the segments from the recovery point on when the broker was not stopped cleanly, and for any segment whose
index is missing or damaged.

Rule 1: what lies before the damage is kept, what lies behind it is cut off, and the log says where and why.
Rule 2: doing it twice gives the same files.
"""

import logging
from collections.abc import Callable

from barnabas.model import NO_TIMESTAMP, TimestampOffset
from barnabas.records.batch import BatchHeader, CorruptRecordError
from barnabas.storage.batches import CorruptLogError, LogFile, scan_batches
from barnabas.storage.segment import RELATIVE_OFFSET_MAX, IndexWriter, LogSegment, SegmentOptions

logger = logging.getLogger(__name__)

BatchObserver = Callable[[LogSegment, BatchHeader, memoryview], None]


def recover_segment(
    segment: LogSegment, options: SegmentOptions, index_interval_bytes: int, observe: BatchObserver
) -> int:
    """Check every batch, tell `observe` of it, and make the indexes anew; return how many bytes were cut off."""
    file = options.files.open(segment.path, writable=True)
    size = file.size()
    segment.size = 0
    segment.largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
    segment.offset_index.open(0, options.index_bytes_max)
    segment.time_index.open(0, options.index_bytes_max)
    for index in (segment.offset_index, segment.time_index, segment.transaction_index):
        index.delete()
    segment.transaction_index.reset()
    try:
        _index_batches(segment, LogFile(file, segment.path, size), index_interval_bytes, observe)
    except CorruptLogError as error:
        logger.warning("%s; the %d bytes from there on are cut off", error, size - segment.size)
        file.truncate(segment.size)
    finally:
        file.close()
    segment.time_index.maybe_append(*segment.largest, skip_full_check=True)
    segment.offset_index.close()
    segment.time_index.close()
    return size - segment.size


def _index_batches(segment: LogSegment, log: LogFile, interval_bytes: int, observe: BatchObserver) -> None:
    indexes = IndexWriter(segment, interval_bytes)
    next_offset = segment.base_offset
    offset_end = segment.base_offset + RELATIVE_OFFSET_MAX + 1
    for position, batch, view in scan_batches(log):
        if batch.base_offset < next_offset:
            reason = f"the batch starts at offset {batch.base_offset}, but {next_offset} or more comes next"
            raise CorruptLogError(log.path, position, reason)
        next_offset = batch.base_offset + batch.last_offset_delta + 1
        if next_offset > offset_end:
            reason = f"offset {batch.last_offset} does not fit into a segment that starts at {segment.base_offset}"
            raise CorruptLogError(log.path, position, reason)
        try:
            observe(segment, batch, view)
        except CorruptRecordError as error:
            raise CorruptLogError(log.path, position, error.reason) from None
        segment.size = indexes.add(batch, position)
