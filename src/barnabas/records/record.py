"""The records of one v2 batch, as Python objects.

Bytes come from a segment or a request; tools, compaction and the coordinators read the records. The produce and fetch
paths do not come here: they pass bytes on.

Rule 1: whatever is wrong with the records section, its compression included, is a `CorruptRecordError`.
Rule 2: records are decoded only after `kernel.check_records` has passed all of them.
Rule 3: the header must have passed `check_header` before; whether its checksum is right is the caller's question.
"""

from typing import NamedTuple

from barnabas.records import kernel
from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer, CorruptRecordError
from barnabas.records.codecs import Codec, CodecError, decompress

# The most bytes that the records of one batch may have after decompression, unless the caller says otherwise.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    """One record with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def records_body(
    buffer: Buffer, header: BatchHeader, position: int = 0, limit: int = DECOMPRESSED_BYTES_MAX
) -> memoryview:
    """The records section of the batch at `position`, decompressed; raises CorruptRecordError."""
    left = len(buffer) - position
    if header.size > left:
        raise CorruptRecordError(f"The batch takes {header.size} bytes, but only {left} are left.", position)
    body = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    # The cleaner keeps the header of a batch that lost its last record, with nothing behind it to decompress.
    if header.codec == Codec.NONE or (header.count == 0 and not body):
        return body
    try:
        return memoryview(decompress(Codec(header.codec), body, limit))
    except CodecError as error:
        raise CorruptRecordError(str(error), position + HEADER_SIZE) from error


def check_body(body: memoryview, header: BatchHeader, position: int = 0, *, dense: bool = False) -> None:
    """Raises CorruptRecordError when a record of the batch at `position` is not valid.

    `dense` asks for an offset delta for every record and none between, as a producer's batch has and a compacted one
    has not. The position in the error is that of the record for plain records, and of the section for compressed ones.
    """
    fault, place, *_ = kernel.check_records(body, header.count, dense, header.last_offset_delta)
    if fault == 0:
        return
    start = position + HEADER_SIZE
    compressed = " decompressed" if header.codec else ""
    raise CorruptRecordError(
        f"The record at byte {place} of the {len(body)}{compressed} bytes of {header.count} records "
        f"{kernel.FAULTS[fault]}.",
        start if header.codec else start + place,
    )


def batch_records(
    buffer: Buffer, header: BatchHeader, position: int = 0, limit: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """All records of the v2 batch at `position`; raises CorruptRecordError.

    With the delete horizon set, the base timestamp is that horizon; deltas count from it all the same, as Kafka's
    DefaultRecordBatch has it. With LogAppendTime, the time of every record is the maximum timestamp.
    """
    body = records_body(buffer, header, position, limit)
    check_body(body, header, position)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    decoded = kernel.decode_records(body, header.count)
    if header.is_log_append_time:
        append_time = header.max_timestamp
        return [Record(base_offset + delta, append_time, key, value, rest) for _, delta, key, value, rest in decoded]
    return [
        Record(base_offset + delta, base_timestamp + time_delta, key, value, headers)
        for time_delta, delta, key, value, headers in decoded
    ]
