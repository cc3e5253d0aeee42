"""Builds v2 batches from records, and the markers that end a transaction.

Records come from the coordinators, the cleaner, message sets of older producers and tests; a batch goes to a log.

Rule 1: a batch that is built here passes `check_header`, `check_crc` and `check_body`.
Rule 2: offsets are only ever deltas; a plain tuple takes the next one, and a Record keeps the one that it has.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import crc32c

from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from barnabas.records import kernel
from barnabas.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL,
    CRC,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    CorruptRecordError,
    restamp_crc,
)
from barnabas.records.codecs import Codec, compress
from barnabas.records.record import Header, Record

# (timestamp, key, value, headers): a record that has no offset yet.
NewRecord = tuple[int, bytes | None, bytes | None, Sequence[Header]]

#  Control record, key:   0         2         4          value:  0         2                    6
#                         +---------+---------+                  +---------+--------------------+
#                         | version | type    |                  | version | coordinator epoch  |
#                         | i16 = 0 | i16     |                  | i16 = 0 | i32                |
#                         +---------+---------+                  +---------+--------------------+
MARKER_KEY = struct.Struct(">hh")
MARKER_VALUE = struct.Struct(">hi")
assert MARKER_KEY.size == 4
assert MARKER_VALUE.size == 6
# The one record of a marker, as every Kafka writes it. Lengths are zigzag varints of one byte.
#
#   0        1            2           3           4            5         9            10        16
#   +--------+------------+-----------+-----------+------------+---------+------------+---------+---------+
#   | length | attributes | timestamp | offset    | key length | key     | value      | value   | headers |
#   | 16     | 0          | delta 0   | delta 0   | 4          |         | length 6   |         | 0       |
#   +--------+------------+-----------+-----------+------------+---------+------------+---------+---------+
MARKER_RECORD = struct.Struct(">bbbbbhhbhib")
assert MARKER_RECORD.size == 17
MARKER_START = (32, 0, 0, 0, 8)
MARKER_VALUE_LENGTH = 12
MARKER_SIZE = HEADER_SIZE + MARKER_RECORD.size
_MARKER_VERSION = 0
_MARKER_ABORT = 0
_MARKER_COMMIT = 1

_LENGTH = struct.Struct(">i")
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


def build_batch(
    records: Sequence[NewRecord | Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    log_append_time: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch with these records.

    Args:
        records: Tuples (timestamp, key, value, headers), or Records whose offsets ascend from `base_offset` on.
        base_offset: The offset that deltas count from.
        leader_epoch: The epoch of the leader that appends the batch.
        codec: How the records section is compressed.
        level: The codec's level; its default where None.
        log_append_time: The time of all records, instead of their own.
        producer_id: The idempotent producer, with its epoch and the sequence of the first record.
        producer_epoch: See `producer_id`.
        base_sequence: See `producer_id`.
        transactional: The records are part of a transaction.
        control: The records are control records.

    Raises:
        ValueError: An offset does not ascend, or a delta is too large for a batch.
    """
    base_timestamp = _timestamp(records[0]) if records else NO_TIMESTAMP
    rows, max_timestamp = _rows(records, base_offset, base_timestamp)
    attributes = int(codec)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=rows[-1][1] if rows else 0,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(rows),
    )
    return seal_batch(header, kernel.encode_records(rows), level)


def seal_batch(header: BatchHeader, body: Buffer, level: int | None = None) -> bytearray:
    """The batch with this header and these encoded records; compression, length and checksum are made here."""
    if body and header.codec != Codec.NONE:
        body = compress(Codec(header.codec), body, level)
    batch = bytearray(HEADER_SIZE + len(body))
    batch[HEADER_SIZE:] = body
    seal_in_place(header, batch)
    return batch


def seal_in_place(header: BatchHeader, batch: bytearray | memoryview) -> None:
    """Puts the header in front of records that lie where they are to be; length and checksum are made here."""
    HEADER.pack_into(batch, 0, *header)
    _LENGTH.pack_into(batch, LENGTH_POSITION, len(batch) - LOG_OVERHEAD)
    restamp_crc(batch, 0, len(batch))


def _timestamp(record: NewRecord | Record) -> int:
    return record.timestamp if isinstance(record, Record) else record[0]


def _rows(
    records: Sequence[NewRecord | Record], base_offset: int, base_timestamp: int
) -> tuple[list[tuple[int, int, bytes | None, bytes | None, Sequence[Header]]], int]:
    """The records as the kernel takes them, and the greatest timestamp."""
    rows: list[tuple[int, int, bytes | None, bytes | None, Sequence[Header]]] = []
    max_timestamp = base_timestamp
    delta = -1
    headers: Sequence[Header]
    for record in records:
        if isinstance(record, Record):
            offset, timestamp, key, value, headers = record
            if offset - base_offset <= delta:
                raise ValueError(f"The record's offset is at least {base_offset + delta + 1}, but {offset} was found.")
            delta = offset - base_offset
        else:
            timestamp, key, value, headers = record
            delta += 1
        if delta > _INT32_MAX:
            raise ValueError(f"The offset delta in a batch is at most {_INT32_MAX}, but {delta} was found.")
        time_delta = timestamp - base_timestamp
        if not -_INT64_MAX <= time_delta <= _INT64_MAX:
            raise ValueError(f"The timestamp {timestamp} is too far from {base_timestamp} for one batch.")
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        rows.append((time_delta, delta, key, value, headers))
    return rows, max_timestamp


class OwnBatch(NamedTuple):
    """What a coordinator of this broker appends: keys and values, all of the same time."""

    records: list[tuple[bytes, bytes | None]]
    timestamp: int
    attributes: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    end: tuple[bool, int] | None = None
    """Of a marker: whether it commits, and the coordinator epoch; what its only record says."""


def own_marker(*, commit: bool, timestamp: int, producer: tuple[int, int], coordinator_epoch: int) -> OwnBatch:
    """The control batch that ends a producer's transaction in a partition."""
    key = MARKER_KEY.pack(_MARKER_VERSION, _MARKER_COMMIT if commit else _MARKER_ABORT)
    value = MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    return OwnBatch([(key, value)], timestamp, TRANSACTIONAL | CONTROL, *producer, (commit, coordinator_epoch))


def seal_own_batch(own: OwnBatch, base_offset: int, leader_epoch: int) -> tuple[memoryview, BatchHeader]:
    """The bytes of a batch, with the offset and the epoch that it has in the log, and its header."""
    records, timestamp, attributes, producer_id, producer_epoch, _ = own
    batch = kernel.build_own_batch(
        records, base_offset, leader_epoch, attributes, timestamp, producer_id, producer_epoch
    )
    view = memoryview(batch)
    crc = crc32c.crc32c(view[ATTRIBUTES_POSITION:])
    CRC.pack_into(batch, CRC_POSITION, crc)
    count, length = len(records), len(batch) - LOG_OVERHEAD
    # What the constructor of a NamedTuple does inside, at a third of its price.
    header = tuple.__new__(
        BatchHeader,
        (
            base_offset,
            length,
            leader_epoch,
            MAGIC,
            crc,
            attributes,
            count - 1,
            timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            NO_SEQUENCE,
            count,
        ),
    )
    return view, header


def end_transaction_marker(
    *,
    commit: bool,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The same with an offset and an epoch, as it stands in a log."""
    producer = (producer_id, producer_epoch)
    own = own_marker(commit=commit, timestamp=timestamp, producer=producer, coordinator_epoch=coordinator_epoch)
    return bytearray(seal_own_batch(own, base_offset, leader_epoch)[0])


def read_usual_marker(batch: Buffer) -> tuple[bool, int] | None:
    """What `read_marker` reads, of a batch in the form that every Kafka writes; None for any other."""
    if len(batch) < MARKER_SIZE:
        return None
    *start, version, kind, length, value_version, coordinator_epoch, headers = MARKER_RECORD.unpack_from(
        batch, HEADER_SIZE
    )
    if tuple(start) != MARKER_START or (version, length, value_version, headers) != (0, MARKER_VALUE_LENGTH, 0, 0):
        return None
    if kind not in (_MARKER_ABORT, _MARKER_COMMIT):
        return None
    return kind == _MARKER_COMMIT, coordinator_epoch


def read_marker(record: Record) -> tuple[bool, int]:
    """(whether the transaction was committed, coordinator epoch) of a control record; raises CorruptRecordError.

    A later version may append fields, so both parts may be longer than what is read. The position in the error is 0,
    the start of the key or value, because a record does not know where its bytes were.
    """
    if record.key is None or len(record.key) < MARKER_KEY.size:
        raise CorruptRecordError(f"The key of a marker has at least {MARKER_KEY.size} bytes: {record.key!r}.", 0)
    if record.value is None or len(record.value) < MARKER_VALUE.size:
        raise CorruptRecordError(f"The value of a marker has at least {MARKER_VALUE.size} bytes: {record.value!r}.", 0)
    version, kind = MARKER_KEY.unpack_from(record.key)
    if version < _MARKER_VERSION:
        raise CorruptRecordError(f"The version of a marker is {_MARKER_VERSION} or later, but {version} was found.", 0)
    if kind not in (_MARKER_ABORT, _MARKER_COMMIT):
        raise CorruptRecordError(f"The type of a marker is 0 (abort) or 1 (commit), but {kind} was found.", 0)
    _, coordinator_epoch = MARKER_VALUE.unpack_from(record.value)
    return kind == _MARKER_COMMIT, coordinator_epoch
