"""Reads the partition of an internal topic from its start to its end, and keeps the last value of every key.

    log --a chunk at a time, in the pool--> batches --> by key: offset, value --> records in the order of the log

A coordinator needs only the last value of each key, so nothing else is decoded: a log that nobody has compacted yet
costs a dictionary entry a record, and not the decoding of every commit that was ever made.

Rule 1: what belongs to a transaction counts from its marker on, if it was committed, and not if a later record of the
same key is there already. What has no marker yet is handed over as pending.
Rule 2: a record that can not be read is named in the log and left out; it must not keep all groups out.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.broker.partition import Partition
from barnabas.broker.scheduler import IoPool
from barnabas.coordination.records import RecordKind, decode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.records.batch import HEADER_SIZE, BatchHeader, CorruptRecordError, read_header
from barnabas.records.builder import read_marker
from barnabas.records.record import batch_records
from barnabas.wire.errors import ApiError
from barnabas.wire.primitives import DecodeError

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18
"""So much is taken in at a time: the loop does nothing else for some milliseconds."""
NO_PRODUCER = -1


class LiveRecord(NamedTuple):
    """A record that still counts, or may."""

    producer_id: int
    """Whose transaction it waits for, or NO_PRODUCER."""
    record: CoordinatorRecord


class CoordinatorLog:
    """One reading of a log."""

    def __init__(self, partition: Partition, pool: IoPool, kinds: tuple[RecordKind, ...]) -> None:
        self._partition = partition
        self._pool = pool
        self._kinds = kinds
        self._next_offset = partition.log.log_start_offset
        self._live: dict[bytes, tuple[int, bytes | None]] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    def load(self, done: Callable[[Iterator[LiveRecord] | Exception], None]) -> None:
        """Read everything, and call back with what still counts, or with what went wrong.

        The call back comes in the turn of the loop in which the end of the log was reached: nothing is between. Records
        are decoded as they are taken, so that whoever has many to take can let others have their turn.
        """
        log = self._partition.log
        try:
            if self._next_offset >= log.log_end_offset:
                done(self._records())
                return
            found = log.read(self._next_offset, CHUNK_BYTES, log.log_end, min_one_message=True).records
        except (ApiError, OSError) as error:
            done(error)
            return
        if found is None:
            self._next_offset = log.log_end_offset
            self.load(done)
            return

        def read(data: bytes | None, error: BaseException | None) -> None:
            if error is not None or data is None:
                done(error if isinstance(error, Exception) else OSError("nothing could be read"))
                return
            try:
                self._take(memoryview(data))
            except CorruptRecordError as damage:
                done(damage)
                return
            self.load(done)

        slice_ = found
        self._pool.submit(lambda: slice_.file.read_at(slice_.size, slice_.position), read)

    def _take(self, data: memoryview) -> None:
        """Take in the whole batches of a chunk, which ends anywhere, in the header of a batch too."""
        before = self._next_offset
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                break
            if header.last_offset >= self._next_offset:
                self._take_batch(data, header, position)
                self._next_offset = header.last_offset + 1
            position += header.size
        if self._next_offset == before:
            raise CorruptRecordError(
                f"There is no whole batch in the {len(data)} bytes behind offset {before}.", position
            )

    def _take_batch(self, data: memoryview, header: BatchHeader, position: int) -> None:
        records = batch_records(data, header, position)
        if header.is_control:
            if records:
                is_commit, _ = read_marker(records[0])
                self._end_transaction(header.producer_id, is_commit)
            return
        into = self._pending.setdefault(header.producer_id, {}) if header.is_transactional else self._live
        for record in records:
            if record.key is not None:
                # Taken out first, so that the dictionary has the order of the last values.
                into.pop(record.key, None)
                into[record.key] = (record.offset, record.value)

    def _end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for key, entry in self._pending.pop(producer_id, {}).items():
            if is_commit and (key not in self._live or self._live[key][0] < entry[0]):
                self._live.pop(key, None)
                self._live[key] = entry

    def _records(self) -> Iterator[LiveRecord]:
        entries = [(offset, NO_PRODUCER, key, value) for key, (offset, value) in self._live.items()]
        for producer_id, pending in self._pending.items():
            entries += [(offset, producer_id, key, value) for key, (offset, value) in pending.items()]
        entries.sort(key=lambda entry: entry[0])
        for offset, producer_id, key, value in entries:
            if value is None and not self._pending:
                continue  # While a transaction is open, it matters what was deleted after it wrote the same key.
            try:
                record = decode(self._kinds, key, value)
            except DecodeError as error:
                logger.error("offset %d of %s is left out: %s", offset, self._partition.topic_partition, error)
                continue
            if record is not None:
                yield LiveRecord(producer_id, record)
