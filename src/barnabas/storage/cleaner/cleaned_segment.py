"""CleanedSegment: the segment that a clean writes, under names that end in `.cleaned`.

Batches come with their offsets and go to the file in large pieces; the indexes are made as they are when a log is
appended to.

Rule 1: `finish` returns when all files, and their names, are on the disk.
Rule 2: what is not finished is removed by `discard`, and by the next start or the next clean after a crash.
"""

from barnabas.records.batch import BatchHeader
from barnabas.storage.cleaner.job import CleaningError, CleaningJob
from barnabas.storage.files import Files
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    IndexWriter,
    LogSegment,
    OpenSegments,
    SegmentOptions,
)
from barnabas.storage.segment_swap import remove_cleaned
from barnabas.storage.transaction_index import TransactionIndex

POSITION_MAX = 2**31 - 1


class CleanedSegment:
    """A segment that is being written."""

    def __init__(self, files: Files, job: CleaningJob, base_offset: int) -> None:
        self._files = files
        self._directory = job.directory
        self._base_offset = base_offset
        options = SegmentOptions(
            files, job.directory, OpenSegments(), job.segment_index_bytes, job.decompressed_bytes_max
        )
        self._segment = LogSegment(options, base_offset, job.now_ms, CLEANED_SUFFIX)
        self._segment.open(0, 0, 0)
        self._indexes = IndexWriter(self._segment, job.index_interval_bytes)
        self._file = files.open(self._segment.path, writable=True)
        self._waiting = bytearray()
        self._io_buffer_size = job.io_buffer_size
        # Invariant: the bytes in the file and those that wait.
        self._size = 0

    @property
    def transaction_index(self) -> TransactionIndex:
        """The aborted transactions whose markers are in this segment."""
        return self._segment.transaction_index

    def append(self, header: BatchHeader, batch: memoryview | bytearray) -> None:
        """Add a batch."""
        if self._size + len(batch) > POSITION_MAX:
            raise CleaningError(f"{self._segment.path} would have more than {POSITION_MAX} bytes")
        self._size = self._indexes.add(header, self._size)
        self._waiting += batch
        if len(self._waiting) >= self._io_buffer_size:
            self._write_out()

    def _write_out(self) -> None:
        self._file.write_at(self._waiting, self._size - len(self._waiting))
        self._waiting.clear()

    def finish(self, modified_ms: int) -> tuple[int, int, int]:
        """Return the sizes of the log and its two indexes when everything is on the disk.

        The file is as old as the newest that it was made from: retention asks for that where timestamps tell nothing.
        """
        if self._waiting:
            self._write_out()
        segment = self._segment
        segment.size = self._size
        segment.time_index.maybe_append(*segment.largest, skip_full_check=True)
        self._file.close()
        self._files.set_modified_ms(segment.path, modified_ms)
        segment.flush()
        self._files.sync_directory(self._directory)
        index_bytes = segment.offset_index.entry_count * OFFSET_ENTRY.size
        return self._size, index_bytes, segment.time_index.entry_count * TIME_ENTRY.size

    def discard(self) -> None:
        """Remove what was written."""
        self._file.close()
        remove_cleaned(self._files, self._directory, [self._base_offset])
