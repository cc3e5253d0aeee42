"""What one fetch brought of a partition: the bytes as they came, and views of the batches and records in them.

Rule 1: a broker may send more than was asked for: the batch that the fetch offset lies in from its beginning, and a
part of one behind the last whole batch. Neither is shown.
Rule 2: for a read_committed consumer, batches of aborted transactions are left out here, by the list that the broker
sent along (KIP-98). It names those that overlap with this very answer, so nothing is to be remembered between fetches.
Rule 3: control batches are never shown; they only move the position.
Rule 4: headers are read once. Who fetches wants to know where to go on before anybody looks at the batches.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import NamedTuple

from barnabas.model import TopicPartition
from barnabas.records.batch import (
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    CorruptRecordError,
    check_crc,
    check_header,
    read_header,
)
from barnabas.records.builder import MARKER_KEY, read_marker
from barnabas.records.legacy import check_message, iterate_messages, message_header
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, Record, batch_records

_LENGTH = Struct(">i")

# A message of magic 0 has 14 bytes behind the offset and the size; nothing is shorter.
_ENTRY_SIZE_MIN = LOG_OVERHEAD + 14
_END_OF_TRANSACTION_TYPES = (0, 1)


class FetchedBatch(NamedTuple):
    """A whole batch as it came. Messages of magic 0 and 1, which old segments may hold, have no header."""

    last_offset: int
    header: BatchHeader | None
    data: memoryview

    def check(self) -> None:
        """Raise CorruptRecordError unless the checksum is right."""
        if self.header is None:
            check_message(self.data, 0)
        else:
            check_crc(self.data, 0, self.header)

    def records(self, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
        """Return all records; raises CorruptRecordError."""
        if self.header is not None:
            return batch_records(self.data, self.header, 0, limit)
        messages = iterate_messages(self.data, limit)
        return [Record(message.offset, message.timestamp, message.key, message.value, ()) for message in messages]


class AbortedTransaction(NamedTuple):
    """From this offset on, what a producer wrote up to its next marker is void."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, kw_only=True)
class FetchedPartition:
    """One partition of an answer. With no `data` there was nothing new."""

    partition: TopicPartition
    fetch_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    data: memoryview
    aborted: tuple[AbortedTransaction, ...] = ()
    check_crcs: bool = True

    @property
    def next_offset(self) -> int:
        """Where the next fetch goes on: behind the last whole batch, shown or not."""
        return max([self.fetch_offset, *(batch.last_offset + 1 for batch in self._whole_batches)])

    @cached_property
    def _whole_batches(self) -> list[FetchedBatch]:
        return list(whole_batches(self.data))

    def batches(self) -> Iterator[FetchedBatch]:
        """Yield the batches a consumer sees, checked, with at least one offset from the fetch offset on."""
        announced = deque(sorted(self.aborted, key=lambda transaction: transaction.first_offset))
        aborting: set[int] = set()
        for batch in self._whole_batches:
            header = batch.header
            if self.check_crcs:
                batch.check()
            if header is not None:
                while announced and announced[0].first_offset <= batch.last_offset:
                    aborting.add(announced.popleft().producer_id)
                if header.is_control:
                    if _is_abort(batch):
                        aborting.discard(header.producer_id)
                    continue
                if header.is_transactional and header.producer_id in aborting:
                    continue
            if batch.last_offset >= self.fetch_offset:
                yield batch

    def records(self) -> Iterator[Record]:
        """Yield the records a consumer sees, from the fetch offset on."""
        for batch in self.batches():
            for record in batch.records():
                if record.offset >= self.fetch_offset:
                    yield record


def whole_batches(data: memoryview) -> Iterator[FetchedBatch]:
    """Yield every whole batch, and stop before a part of one; raises CorruptRecordError for what is no batch."""
    position = 0
    while len(data) - position >= _ENTRY_SIZE_MIN:
        size = LOG_OVERHEAD + _LENGTH.unpack_from(data, position + LENGTH_POSITION)[0]
        if size < _ENTRY_SIZE_MIN:
            raise CorruptRecordError(
                f"A batch takes {_ENTRY_SIZE_MIN} bytes at least, but {size} were found.", position
            )
        if size > len(data) - position:
            return
        batch = data[position : position + size]
        if batch[MAGIC_POSITION] < MAGIC:
            yield FetchedBatch(message_header(batch, 0).offset, None, batch)
        else:
            if size < HEADER_SIZE:
                reason = f"The header of a batch takes {HEADER_SIZE} bytes, but the batch has {size}."
                raise CorruptRecordError(reason, position)
            header = read_header(batch)
            check_header(header, 0)
            yield FetchedBatch(header.last_offset, header, batch)
        position += size


def _is_abort(batch: FetchedBatch) -> bool:
    records = batch.records()
    # Other kinds of control records exist, and end no transaction.
    if not records or records[0].key is None or len(records[0].key) < MARKER_KEY.size:
        return False
    if MARKER_KEY.unpack_from(records[0].key)[1] not in _END_OF_TRANSACTION_TYPES:
        return False
    return not read_marker(records[0])[0]
