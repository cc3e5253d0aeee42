"""Message sets of magic 0 and 1, which producers before 0.11 send and old segments still hold.

Bytes come from a produce request (and leave as v2 batches, by `convert_to_v2`) or from an old segment (and are read
where they are). Nothing is ever written in these formats.

Rule 1: every message that is given out has passed its checksum, and so has its wrapper.
Rule 2: only the last message of the outer set may be cut off, and it is left out: a request may end anywhere.
Rule 3: a wrapper holds plain messages of its own magic, at least one. Nested compression is refused.
Rule 4: `limit` bounds what all wrappers of a set together expand to.
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import groupby, islice
from typing import NamedTuple

from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from barnabas.records import kernel
from barnabas.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    CorruptRecordError,
)
from barnabas.records.builder import seal_batch
from barnabas.records.codecs import Codec, CodecError, decompress
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, Header

#  byte  0        8       12      16  17  18          26
#        +--------+-------+-------+---+---+-----------+-----------+-----+-------------+-------+
#        | offset | size  | crc32 | m | a | timestamp | key length| key | value length| value |
#        | i64    | i32   | u32 of| a | t | i64, only | i32, or -1|     | i32, or -1  |       |
#        |        |       | 16..  | g | t | magic 1   | for null  |     | for null    |       |
#        +--------+-------+-------+---+---+-----------+-----------+-----+-------------+-------+
#                         |<- size counts from here to the end ->
# With magic 0 there is no timestamp, and everything behind it is 8 bytes earlier.
MESSAGE_HEADER = struct.Struct(">qiIbb")
MESSAGE_HEADER_SIZE = 18
assert MESSAGE_HEADER.size == MESSAGE_HEADER_SIZE

SIZE_POSITION = 8
CRC_POSITION = 12
ATTRIBUTES_POSITION = 17
TIMESTAMP_POSITION = 18

_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
# Where the key length is, and the least value of the size field, by magic.
_KEY_POSITIONS = (MESSAGE_HEADER_SIZE, MESSAGE_HEADER_SIZE + 8)
_SIZES_MIN = (14, 22)

NO_TIMESTAMP_TYPE = -1
CREATE_TIME_TYPE = 0
LOG_APPEND_TIME_TYPE = 1

# Converted messages are encoded this many at a time, so that memory holds few of them as Python objects.
_CONVERT_COUNT = 10_000
_INT64_MAX = 2**63 - 1


class MessageHeader(NamedTuple):
    """The fields in front of the key; `size` counts all bytes of the message, as that of a batch does."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME_TYPE if self.attributes & LOG_APPEND_TIME else CREATE_TIME_TYPE


class LegacyMessage(NamedTuple):
    """One message; `codec` is that of the wrapper that it was in."""

    offset: int
    magic: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    codec: Codec


def message_header(buffer: Buffer, position: int) -> MessageHeader:
    """Reads the header of the message at `position`; raises CorruptRecordError when it is cut off or not magic 0 or 1.

    With compression, `offset` is that of the last message inside.
    """
    left = len(buffer) - position
    if left < MESSAGE_HEADER_SIZE:
        raise CorruptRecordError(
            f"A message header takes {MESSAGE_HEADER_SIZE} bytes, but only {max(0, left)} are left.", position
        )
    offset, size, crc, magic, attributes = MESSAGE_HEADER.unpack_from(buffer, position)
    if magic not in (0, 1):
        raise CorruptRecordError(f"The magic of a message is 0 or 1, but {magic} was found.", position + MAGIC_POSITION)
    if size < _SIZES_MIN[magic]:
        raise CorruptRecordError(
            f"The size of a message of magic {magic} is at least {_SIZES_MIN[magic]}, but {size} was found.",
            position + SIZE_POSITION,
        )
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if left < _KEY_POSITIONS[1]:
            raise CorruptRecordError(
                f"A message header of magic 1 takes {_KEY_POSITIONS[1]} bytes, but only {left} are left.", position
            )
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, position + TIMESTAMP_POSITION)
    return MessageHeader(offset, size + LOG_OVERHEAD, crc, magic, attributes, timestamp)


def check_message(buffer: Buffer, position: int) -> MessageHeader:
    """Raises CorruptRecordError unless the message at `position` is whole and valid, not looking into a wrapper."""
    header = message_header(buffer, position)
    left = len(buffer) - position
    if header.size > left:
        raise CorruptRecordError(f"The message takes {header.size} bytes, but only {left} are left.", position)
    computed = zlib.crc32(memoryview(buffer)[position + MAGIC_POSITION : position + header.size])
    if computed != header.crc:
        raise CorruptRecordError(
            f"The checksum of the message is {computed:#010x}, but its header says {header.crc:#010x}.",
            position + CRC_POSITION,
        )
    if header.codec > Codec.LZ4:
        raise CorruptRecordError(
            f"The codec of a message is 0 to {int(Codec.LZ4)}, but {header.codec} was found.",
            position + ATTRIBUTES_POSITION,
        )
    end = position + header.size
    _, value_position = _field(buffer, position + _KEY_POSITIONS[header.magic], end, "key")
    _, behind = _field(buffer, value_position, end, "value")
    if behind != end:
        raise CorruptRecordError(
            f"The message takes {header.size} bytes, but its value ends after {behind - position}.", position
        )
    return header


def _field(buffer: Buffer, position: int, end: int, name: str) -> tuple[memoryview | None, int]:
    """The nullable bytes at `position`, which end before `end`, and the position behind them."""
    start = position + _LENGTH.size
    if start > end:
        raise CorruptRecordError(f"The message ends before the length of its {name}.", position)
    (length,) = _LENGTH.unpack_from(buffer, position)
    if not -1 <= length <= end - start:
        raise CorruptRecordError(
            f"The {name} of the message has -1 to {end - start} bytes, but its length is {length}.", position
        )
    if length == -1:
        return None, start
    return memoryview(buffer)[start : start + length], start + length


def iterate_messages(
    buffer: Buffer, limit: int = DECOMPRESSED_BYTES_MAX, *, deep: bool = True
) -> Iterator[LegacyMessage]:
    """The messages of a set, those inside wrappers too, or the wrappers themselves when not `deep`.

    Raises CorruptRecordError when it gets to bad bytes, so what was given out before may have to be dropped.
    """
    position = 0
    while not _is_cut_off(buffer, position):
        header = check_message(buffer, position)
        if deep and header.codec:
            inner = _unwrap(buffer, position, header, limit)
            limit -= len(inner)
            yield from _inner_messages(inner, header, position)
        else:
            yield _read_message(buffer, position, header, Codec(header.codec))
        position += header.size


def _is_cut_off(buffer: Buffer, position: int) -> bool:
    """Whether the set ends here, or inside the message at `position`. Bad sizes are left to `check_message`."""
    left = len(buffer) - position
    if left < MESSAGE_HEADER_SIZE:
        return True
    (size,) = _LENGTH.unpack_from(buffer, position + SIZE_POSITION)
    return bool(size + LOG_OVERHEAD > left)


def _read_message(buffer: Buffer, position: int, header: MessageHeader, codec: Codec) -> LegacyMessage:
    end = position + header.size
    key, value_position = _field(buffer, position + _KEY_POSITIONS[header.magic], end, "key")
    value, _ = _field(buffer, value_position, end, "value")
    return LegacyMessage(
        header.offset,
        header.magic,
        header.timestamp,
        header.timestamp_type,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        codec,
    )


def _unwrap(buffer: Buffer, position: int, header: MessageHeader, limit: int) -> Buffer:
    """The message set inside the wrapper at `position`."""
    end = position + header.size
    _, value_position = _field(buffer, position + _KEY_POSITIONS[header.magic], end, "key")
    value, _ = _field(buffer, value_position, end, "value")
    if value is None:
        raise CorruptRecordError("A compressed message holds a message set, but its value is null.", position)
    try:
        return decompress(Codec(header.codec), value, max(0, limit), lz4_legacy_checksum=header.magic == 0)
    except CodecError as error:
        raise CorruptRecordError(str(error), value_position) from error


def _inner_messages(inner: Buffer, wrapper: MessageHeader, position: int) -> Iterator[LegacyMessage]:
    """The messages of the decompressed set of the wrapper at `position`, with absolute offsets.

    Magic 0 has absolute offsets inside. Magic 1 has offsets that count from the first, and the wrapper has that of the
    last, so that the broker could stamp one field. A wrapper's LogAppendTime holds for everything in it.
    """
    last_offset = _check_inner_messages(inner, wrapper, position)
    base_offset = wrapper.offset - last_offset if wrapper.magic == 1 else 0
    codec = Codec(wrapper.codec)
    log_append_time = wrapper.timestamp_type == LOG_APPEND_TIME_TYPE
    place = 0
    while place < len(inner):
        header = message_header(inner, place)
        message = _read_message(inner, place, header, codec)
        yield message._replace(
            offset=base_offset + header.offset,
            timestamp=wrapper.timestamp if log_append_time else header.timestamp,
            timestamp_type=wrapper.timestamp_type,
        )
        place += header.size


def _check_inner_messages(inner: Buffer, wrapper: MessageHeader, position: int) -> int:
    """Checks a whole decompressed set and answers its last offset; errors have the position of the wrapper."""
    last_offset = -1
    place = 0
    while place < len(inner):
        try:
            header = check_message(inner, place)
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"At byte {error.position} inside a compressed message: {error.reason}", position
            ) from error
        if header.magic != wrapper.magic:
            raise CorruptRecordError(
                f"A compressed message of magic {wrapper.magic} holds that magic only, but {header.magic} was found.",
                position,
            )
        if header.codec:
            raise CorruptRecordError("A compressed message holds plain ones, but one is compressed again.", position)
        last_offset = header.offset
        place += header.size
    if place == 0:
        raise CorruptRecordError("A compressed message holds at least one message, but none was found.", position)
    return last_offset


def convert_to_v2(buffer: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytearray:
    """The message set of a producer as v2 batches: one for each run of messages with the same codec, so mostly one.

    Offsets are new and dense from 0 on, because those in the set mean nothing before the log has given its own.
    Magic 0 has no timestamps and gets -1. Raises CorruptRecordError; a set without a whole message gives no batch.
    """
    batches = bytearray()
    base_offset = 0
    for codec, run in groupby(iterate_messages(buffer, limit), key=lambda message: message.codec):
        batch, count = _convert_run(run, codec, base_offset)
        batches += batch
        base_offset += count
    return batches


def _check_timestamps(messages: list[LegacyMessage], base_timestamp: int) -> None:
    """Raises CorruptRecordError for a time that a batch cannot hold; no position is known any more, so it is 0."""
    for message in messages:
        if not NO_TIMESTAMP <= message.timestamp <= base_timestamp + _INT64_MAX:
            raise CorruptRecordError(
                f"The timestamp of a message is {NO_TIMESTAMP} to {min(_INT64_MAX, base_timestamp + _INT64_MAX)}, "
                f"but {message.timestamp} was found.",
                0,
            )


def _convert_run(run: Iterator[LegacyMessage], codec: Codec, base_offset: int) -> tuple[bytearray, int]:
    """One batch of all messages of `run`, and how many they are."""
    body = bytearray()
    count = 0
    base_timestamp = max_timestamp = NO_TIMESTAMP
    no_headers: tuple[Header, ...] = ()
    while chunk := list(islice(run, _CONVERT_COUNT)):
        if count == 0:
            base_timestamp = chunk[0].timestamp
        _check_timestamps(chunk, base_timestamp)
        max_timestamp = max(max_timestamp, *(message.timestamp for message in chunk))
        body += kernel.encode_records(
            [
                (message.timestamp - base_timestamp, delta, message.key, message.value, no_headers)
                for delta, message in enumerate(chunk, count)
            ]
        )
        count += len(chunk)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        count=count,
    )
    return seal_batch(header, body), count
