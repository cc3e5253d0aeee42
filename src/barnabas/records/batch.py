"""The header of a v2 record batch, read and stamped at fixed offsets.

Bytes come from a produce request or a segment file and go back unchanged, except for the two fields that the broker
owns (base offset, leader epoch) and that the checksum therefore does not cover.

Rule 1: nothing here looks behind the header; the records section belongs to `kernel` and `record`.
Rule 2: `read_header` only needs 61 bytes; whether the values make sense is said by `check_header`, and whether the
bytes are the ones that were written by `check_crc`. Call them in that order.
Rule 3: every fault is a `CorruptRecordError` with the byte position in the buffer that the caller gave.

It does not know message sets of magic 0 and 1: see `legacy`.
"""

import struct
from typing import NamedTuple

import crc32c

#  byte  0       8       12      16  17      21    23      27        35        43        51     53        57     61
#        +-------+-------+-------+---+-------+-----+-------+---------+---------+---------+------+---------+------+----
#        | base  | batch |leader | m | crc   |attri| last  | base    | max     | producer| prod.| base    |record|rec-
#        | offset| length|epoch  | a | 32c of|butes| offset| time-   | time-   | id      | epoch| sequence|count |ords
#        | i64   | i32   | i32   | g | 21..  | i16 | delta | stamp   | stamp   | i64     | i16  | i32     | i32  |
#        |       |       |       |ic | u32   |     | i32   | i64     | i64     |         |      |         |      |
#        +-------+-------+-------+---+-------+-----+-------+---------+---------+---------+------+---------+------+----
#                        |<- batch length counts from here to the end of the records ->
#                                            |<- the checksum covers from here to the end of the records ->
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
assert HEADER.size == HEADER_SIZE

# Base offset and length: the part that every message format shares and that the length field does not count.
LOG_OVERHEAD = 12

BASE_OFFSET_POSITION = 0
LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
PRODUCER_EPOCH_POSITION = 51
BASE_SEQUENCE_POSITION = 53
COUNT_POSITION = 57

MAGIC = 2

# Attribute bits.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
CODEC_ID_MAX = 4

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

# Sequence numbers are 31 bits wide: the one after 2**31 - 1 is 0.
SEQUENCE_MODULUS = 1 << 31

CRC = struct.Struct(">I")
# What comes before the magic byte: the two fields that the broker owns, and the length between them.
PREFIX = struct.Struct(">qii")

Buffer = bytes | bytearray | memoryview


class CorruptRecordError(Exception):
    """The bytes are not a valid batch, message or record; `position` is a byte in the buffer that was given."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class BatchHeader(NamedTuple):
    """The 13 fields in the order of the bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    # Hides `tuple.count`, which nobody calls on a header.
    count: int  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last offset of the batch; NO_SEQUENCE where the producer is not idempotent."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the 61 bytes at `position`; raises CorruptRecordError when there are fewer."""
    if len(buffer) - position < HEADER_SIZE:
        found = max(0, len(buffer) - position)
        raise CorruptRecordError(f"A batch header takes {HEADER_SIZE} bytes, but only {found} are left.", position)
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def check_header(header: BatchHeader, position: int) -> None:
    """Raises CorruptRecordError when a field has a value that no writer gives it."""
    if header.magic != MAGIC:
        raise CorruptRecordError(
            f"The magic of a record batch is {MAGIC}, but {header.magic} was found.", position + MAGIC_POSITION
        )
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecordError(
            f"The length of a batch is at least {HEADER_SIZE - LOG_OVERHEAD}, but {header.batch_length} was found.",
            position + LENGTH_POSITION,
        )
    if header.attributes & CODEC_MASK > CODEC_ID_MAX:
        raise CorruptRecordError(
            f"The codec of a batch is 0 to {CODEC_ID_MAX}, but {header.codec} was found.",
            position + ATTRIBUTES_POSITION,
        )
    if header.last_offset_delta < 0:
        raise CorruptRecordError(
            f"The last offset delta of a batch is 0 or more, but {header.last_offset_delta} was found.",
            position + LAST_OFFSET_DELTA_POSITION,
        )
    # A compacted batch has fewer records than offsets, down to none at all, but never more.
    if not 0 <= header.count <= header.last_offset_delta + 1:
        raise CorruptRecordError(
            f"The record count of a batch with last offset delta {header.last_offset_delta} is 0 to "
            f"{header.last_offset_delta + 1}, but {header.count} was found.",
            position + COUNT_POSITION,
        )


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C of the batch of `size` bytes at `position`: of everything after its crc field."""
    return crc32c.crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CorruptRecordError when the batch is not all there, or is not what its writer summed up."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        left = len(buffer) - position
        raise CorruptRecordError(f"The batch takes {header.size} bytes, but only {left} are left.", position)
    computed = crc32c.crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if computed != header.crc:
        raise CorruptRecordError(
            f"The checksum of the batch is {computed:#010x}, but its header says {header.crc:#010x}.",
            position + CRC_POSITION,
        )


def stamp(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Sets the two fields that the broker owns, in place; the checksum stays right because it does not cover them."""
    PREFIX.pack_into(buffer, position, header.base_offset, header.batch_length, header.leader_epoch)


def restamp_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Sets the checksum anew, after a field that it covers was changed in place."""
    CRC.pack_into(buffer, position + CRC_POSITION, compute_crc(buffer, position, size))
