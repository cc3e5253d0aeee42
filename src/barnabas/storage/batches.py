"""Walks over the batches of a segment's file, of any magic: headers only, or whole batches with their checksums.

Bytes come from the file in chunks; what is yielded is a BatchHeader. Message sets of magic 0 and 1, which old segments
may hold, look like batches of one offset here: their `last_offset` is right, and that is what searches need.

Rule 1: a length is compared with what is left of the file before anything is allocated for it.
Rule 2: damage raises CorruptLogError with the path and the position at which the bad batch starts; what was yielded
before is good.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    CorruptRecordError,
    check_crc,
    check_header,
)
from barnabas.records.legacy import LegacyMessage, check_message, iterate_messages, message_header
from barnabas.records.record import Record, batch_records
from barnabas.storage.files import File

# A little more than a megabyte: two batches that fill half of one each, and their headers, are there at once then.
CHUNK_BYTES = (1 << 20) + (1 << 16)
HEADER_CHUNK_BYTES = 4096

_LENGTH = Struct(">i")

# The shortest entries: a message of magic 0 has 14 bytes behind the offset and the size.
ENTRY_SIZE_MIN = LOG_OVERHEAD + 14


class CorruptLogError(Exception):
    """A file of the log holds bytes that no writer wrote; says where, and what is wrong."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}, position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogFile(NamedTuple):
    """An open `.log` file, its path for messages, and how many of its bytes count."""

    file: File
    path: str
    size: int


def legacy_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    """Return the header that a message of magic 0 or 1 would have, were it a batch."""
    message = message_header(buffer, position)
    return BatchHeader(
        base_offset=message.offset,
        batch_length=message.size - LOG_OVERHEAD,
        leader_epoch=-1,
        magic=message.magic,
        crc=message.crc,
        attributes=message.attributes,
        last_offset_delta=0,
        base_timestamp=message.timestamp,
        max_timestamp=message.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        count=1,
    )


def read_any_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    """Return the header of the batch or message at `position`; raises CorruptRecordError where there is none."""
    left = len(buffer) - position
    if left < ENTRY_SIZE_MIN:
        raise CorruptRecordError(f"only {left} bytes are left, which is too few for a batch", position)
    magic = buffer[position + MAGIC_POSITION]
    if magic > MAGIC:
        raise CorruptRecordError(f"the magic byte is {magic}, but only 0, 1 and 2 exist", position)
    if magic < MAGIC:
        return legacy_header(buffer, position)
    if left < HEADER_SIZE:
        raise CorruptRecordError(f"only {left} bytes are left, which is too few for a batch header", position)
    # What the constructor of a NamedTuple does inside: recovery comes by here for every batch.
    header: BatchHeader = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    check_header(header, position)
    return header


def scan_headers(log: LogFile, start: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch from `start` to the end, without reading the records."""
    position, chunk, chunk_start = start, b"", start
    while position < log.size:
        inside = position - chunk_start
        if inside < 0 or len(chunk) - inside < HEADER_SIZE:
            chunk = log.file.read_at(min(HEADER_CHUNK_BYTES, log.size - position), position)
            chunk_start, inside = position, 0
        try:
            header = read_any_header(chunk, inside)
        except CorruptRecordError as error:
            raise CorruptLogError(log.path, position, error.reason) from None
        if header.size > log.size - position:
            raise CorruptLogError(log.path, position, overrun(header.size, log.size - position))
        yield position, header
        position += header.size


def overrun(size: int, left: int) -> str:
    """Return what is wrong with a batch that the file ends in the middle of."""
    return f"the batch has {size} bytes by its header, but the file ends after {left}"


def scan_batches(log: LogFile, start: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of every batch from `start` on, each checked against its checksum.

    The bytes are only good until the next one is asked for: one buffer is used for the whole walk.
    """
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(log.size - start, 1))))
    # Invariant: `chunk` is what was read of the file up to `position` and beyond; the next batch starts at `inside`.
    chunk, inside, position = buffer[:0], 0, start
    while position < log.size:
        size = check_left(chunk, inside, log, position)
        if size > len(chunk) - inside:
            # The batch is not all here: what there is of it goes to the front, and the file fills up the rest.
            rest = len(chunk) - inside
            target = buffer if size <= len(buffer) else memoryview(bytearray(size))
            target[:rest] = chunk[inside:]
            buffer, inside = target, 0
            end = min(len(buffer), log.size - position)
            chunk = buffer[: rest + log.file.read_into(buffer[rest:end], position + rest)]
            if len(chunk) < size:
                raise CorruptLogError(log.path, position, overrun(size, len(chunk)))
            continue
        try:
            header = checked_header(chunk, inside)
        except CorruptRecordError as error:
            raise CorruptLogError(log.path, position, error.reason) from None
        yield position, header, chunk[inside : inside + size]
        inside += size
        position += size


def check_left(chunk: memoryview, inside: int, log: LogFile, position: int) -> int:
    """Return how many bytes are needed for the next batch, as far as can be told from what is here of it.

    Raises CorruptLogError where the file has not so many left.
    """
    if len(chunk) - inside < ENTRY_SIZE_MIN:
        left = log.size - position
        if left < ENTRY_SIZE_MIN:
            raise CorruptLogError(log.path, position, f"only {left} bytes are left, which is too few for a batch")
        return ENTRY_SIZE_MIN
    size: int = _LENGTH.unpack_from(chunk, inside + LENGTH_POSITION)[0] + LOG_OVERHEAD
    if size < ENTRY_SIZE_MIN:
        reason = f"the batch has a length of {size - LOG_OVERHEAD}, which no batch has"
        raise CorruptLogError(log.path, position, reason)
    if size > log.size - position:
        raise CorruptLogError(log.path, position, overrun(size, log.size - position))
    return size


def checked_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    """Return the header of a whole batch or message whose checksum is right; raises CorruptRecordError."""
    header = read_any_header(buffer, position)
    if header.magic == MAGIC:
        check_crc(buffer, position, header)
    else:
        check_message(buffer, position)
    return header


def records_of(view: memoryview, header: BatchHeader, limit: int) -> list[Record]:
    """Return the records of one whole batch or message of any magic."""
    if header.magic == MAGIC:
        return batch_records(view, header, 0, limit)
    return [_legacy_record(message) for message in iterate_messages(view, limit)]


def _legacy_record(message: LegacyMessage) -> Record:
    return Record(message.offset, message.timestamp, message.key, message.value, ())


def producer_batches(batches: list[BatchHeader]) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches of idempotent producers, with the position of each in the bytes of all.

    Almost every append is one batch without a producer, and whoever asks for this looks at that first.
    """
    position = 0
    for batch in batches:
        if batch.producer_id >= 0:
            yield position, batch
        position += batch.batch_length + LOG_OVERHEAD
