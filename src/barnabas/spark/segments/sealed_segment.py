"""Writes a sealed segment: batches one after the other with offsets from 0 on, and both indexes beside them.

What is written is what a broker's own segment would be, but for the base offset and the leader epoch in the headers of
the batches: those the broker stamps when it adopts the segment. Indexes count from the base offset anyhow.

Rule 1: when `close` returns, the three files are on the disk.
Rule 2: what is written goes to the disk as it comes, on a thread, so that `close` has little to wait for. A sync that
has failed there fails the segment: a later one may find nothing left to write, and says nothing about what was lost.
Rule 3: room on the disk is reserved ahead, as for a broker's own segment, and given back when the segment is closed.
"""

import os
from concurrent.futures import Executor, Future

from barnabas.model import NO_TIMESTAMP
from barnabas.records.batch import PREFIX, read_header
from barnabas.storage.files import OsFiles
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.log_end import AHEAD_BYTES_MIN
from barnabas.storage.segment import (
    INDEX_INTERVAL_BYTES,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    reserve_room,
)
from barnabas.storage.staged_load import StagedSegment

NO_LEADER_EPOCH = -1
# So much is left to the disk at a time: enough to be written in one piece, and a small part of a segment.
SYNC_BYTES = 8 * 1024 * 1024


class SealedSegment:
    """A segment that is being written."""

    def __init__(self, folder: str, name: str, syncs: Executor) -> None:
        """Begin a segment. `syncs` are the threads that wait for the disk; `close` may be called on one of them."""
        self._syncs = syncs
        self._syncing: Future[None] | None = None
        self._bytes_since_last_sync = 0
        self._stem = os.path.join(folder, name)
        self._name = name
        self._file = OsFiles().open(self._stem + LOG_SUFFIX, writable=True)
        # An application that died may have had a task of this number, in a load of the same name.
        self._file.truncate(0)
        self._room_end = AHEAD_BYTES_MIN
        self.size = 0
        self.records = 0
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._bytes_since_last_entry = 0
        self._newest = (NO_TIMESTAMP, 0)
        self._newest_indexed = NO_TIMESTAMP

    def has_room(self, batch: bytearray | memoryview, bytes_max: int) -> bool:
        """Tell whether a batch may be appended; the first always may."""
        if self.size == 0:
            return True
        return self.size + len(batch) <= bytes_max and self.records + read_header(batch).count <= RELATIVE_OFFSET_MAX

    def append(self, batch: bytearray | memoryview) -> None:
        """Write a sealed batch, whose offsets are given here."""
        header = read_header(batch)
        PREFIX.pack_into(batch, 0, self.records, header.batch_length, NO_LEADER_EPOCH)
        last_offset = self.records + header.last_offset_delta
        if header.max_timestamp > self._newest[0]:
            self._newest = (header.max_timestamp, last_offset)
        if self._bytes_since_last_entry > INDEX_INTERVAL_BYTES:
            self._offset_index += OFFSET_ENTRY.pack(last_offset, self.size)
            self._index_time()
            self._bytes_since_last_entry = 0
        self._write(batch)
        self._bytes_since_last_entry += len(batch)
        self.size += len(batch)
        self.records = last_offset + 1

    def _write(self, batch: bytearray | memoryview) -> None:
        if self.size + len(batch) > self._room_end:
            self._room_end = reserve_room(self._file, max(self._room_end, self.size))
        self._file.write_at(batch, self.size)
        self._bytes_since_last_sync += len(batch)
        if self._bytes_since_last_sync >= SYNC_BYTES and (self._syncing is None or self._syncing.done()):
            self._check_sync()
            self._bytes_since_last_sync = 0
            self._syncing = self._syncs.submit(os.fdatasync, self._file.fileno())

    def _check_sync(self) -> None:
        """Wait for the sync under way, if there is one; raises its OSError."""
        if self._syncing is not None:
            self._syncing.result()

    def _index_time(self) -> None:
        timestamp, offset = self._newest
        if timestamp > self._newest_indexed:
            self._time_index += TIME_ENTRY.pack(timestamp, offset)
            self._newest_indexed = timestamp

    def close(self) -> StagedSegment:
        """Finish the segment, and return what a manifest says of it."""
        self._index_time()
        # Threads begin what they are asked for in order, so that this sync runs or is over when `close` is on a thread.
        self._check_sync()
        self._file.truncate(self.size)
        os.fsync(self._file.fileno())
        self._file.close()
        for suffix, content in ((INDEX_SUFFIX, self._offset_index), (TIME_INDEX_SUFFIX, self._time_index)):
            with open(self._stem + suffix, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        return StagedSegment(self._name, self.size, self.records)

    def abandon(self) -> None:
        """Remove what was written; no thread is at it any more."""
        self._file.close()
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if os.path.exists(self._stem + suffix):
                os.unlink(self._stem + suffix)
