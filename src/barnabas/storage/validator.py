"""What may be appended: every batch is checked here before a byte of it is written, and gets its offsets here.

Bytes come from a produce request, a leader or a coordinator. A leader assigns offsets and timestamps; a follower keeps
what its leader assigned. The bytes are changed in place wherever that is enough, which is almost always: only another
codec or an old message format needs new bytes.

Rule 1: what comes from a client is refused with the error its client is answered with (ApiError), and nothing of the
append is kept.
Rule 2: an incomplete batch at the end is cut off, because a client or a fetch may send as much as fits.
"""

from struct import Struct
from typing import TypeAlias

import crc32c

from barnabas.config import LogConfig
from barnabas.model import NO_TIMESTAMP
from barnabas.records import kernel
from barnabas.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    BatchHeader,
    CorruptRecordError,
    check_crc,
    check_header,
    read_header,
    restamp_crc,
    stamp,
)
from barnabas.records.builder import seal_batch
from barnabas.records.codecs import Codec, CodecError, DecompressionLimitError, codec_by_name, decompress
from barnabas.records.legacy import convert_to_v2
from barnabas.storage.batches import ENTRY_SIZE_MIN, checked_header
from barnabas.wire.errors import ApiError, ErrorCode

_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
TIMESTAMP_MAX = 2**63 - 1


class OffsetsOutOfOrderError(Exception):
    """A leader sent offsets that this log already has or that go backwards."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(f"a batch starts at offset {found}, but the log goes on at {expected}")
        self.found = found
        self.expected = expected


class LeaderStamp:
    """What a leader gives the batches it appends, and who sent them."""

    __slots__ = ("is_client", "leader_epoch", "next_offset", "now_ms")

    def __init__(self, next_offset: int, leader_epoch: int, now_ms: int, is_client: bool) -> None:
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.is_client = is_client


def _size_at(data: memoryview, position: int) -> int | None:
    """Return the size of the batch at `position`, or None when it is not all there."""
    left = len(data) - position
    if left < ENTRY_SIZE_MIN:
        return None
    length: int = _LENGTH.unpack_from(data, position + LENGTH_POSITION)[0]
    size = length + LOG_OVERHEAD
    if size < ENTRY_SIZE_MIN:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} has a length of {length}")
    return size if size <= left else None


def validate_for_leader(
    records: bytes | bytearray | memoryview, config: LogConfig, leader: LeaderStamp
) -> tuple[memoryview, list[BatchHeader]]:
    """Check what a client or coordinator sent and stamp offsets, epoch and time into it.

    Returns the bytes to append, in place wherever that is possible, and the headers of the batches in them.
    """
    data = memoryview(records)
    if data.readonly:
        data = memoryview(bytearray(data))
    if len(data) >= ENTRY_SIZE_MIN and data[MAGIC_POSITION] < MAGIC:
        data = memoryview(_from_message_set(data, config))
    if config.compression_type != "producer":
        data = _with_codec(data, codec_by_name(config.compression_type), config, leader)
    batches: list[BatchHeader] = []
    position, end, next_offset = 0, len(data), leader.next_offset
    while position < end:
        checked = _check_plain_batch(data, position, next_offset, leader.leader_epoch)
        if checked is None:
            checked = _check_any_batch(data, position, next_offset, config, leader)
            if checked is None:
                break
        header, oldest, newest, keyless = checked
        newest += header.base_timestamp
        if header.batch_length + LOG_OVERHEAD > config.max_message_bytes:
            _check_size(header, config, leader)
        _check_rules(header, header.base_timestamp + oldest, newest, keyless, config, leader.now_ms)
        if config.message_timestamp_type == "LogAppendTime":
            header = _set_time(data, position, header, header.attributes | LOG_APPEND_TIME, leader.now_ms)
        elif newest != header.max_timestamp:
            header = _set_time(data, position, header, header.attributes, newest)
        batches.append(header)
        next_offset += header.last_offset_delta + 1
        position += header.batch_length + LOG_OVERHEAD
    return data[:position], batches


def validate_for_follower(
    records: bytes | bytearray | memoryview, next_offset: int
) -> tuple[memoryview, list[BatchHeader]]:
    """Check what a leader sent: it is stored as it is, so checksums must be right and offsets must go up."""
    data = memoryview(records)
    batches: list[BatchHeader] = []
    position = 0
    while (size := _size_at(data, position)) is not None:
        try:
            header = checked_header(data, position)
        except CorruptRecordError as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from None
        if header.base_offset < next_offset:
            raise OffsetsOutOfOrderError(header.base_offset, next_offset)
        batches.append(header)
        next_offset = header.last_offset + 1
        position += size
    return data[:position], batches


def _from_message_set(data: memoryview, config: LogConfig) -> bytearray:
    try:
        return convert_to_v2(data, config.decompressed_bytes_max)
    except CorruptRecordError as error:
        is_too_large = isinstance(error.__cause__, DecompressionLimitError)
        code = ErrorCode.MESSAGE_TOO_LARGE if is_too_large else ErrorCode.CORRUPT_MESSAGE
        raise ApiError(code, error.reason) from None


def _with_codec(data: memoryview, codec: Codec, config: LogConfig, leader: LeaderStamp) -> memoryview:
    """Return the same batches with the codec of the topic; the encoding of the records inside stays as it is.

    Batches that are changed get new checksums, so the old ones are looked at here for the last time. A marker is never
    compressed.
    """
    changed = bytearray()
    position = 0
    while (header := _sound_header(data, position)) is not None:
        _check_size(header, config, leader)
        end = position + header.size
        if header.codec == codec or header.is_control:
            changed += data[position:end]
        else:
            body = data[position + HEADER_SIZE : end]
            if header.codec:
                body = _decompressed(body, header, config)
            attributes = header.attributes & ~CODEC_MASK | codec
            changed += seal_batch(header._replace(attributes=attributes), body, _level(codec, config))
        position = end
    return memoryview(changed)


def _level(codec: Codec, config: LogConfig) -> int | None:
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)


def _check_size(header: BatchHeader, config: LogConfig, leader: LeaderStamp) -> None:
    """Refuse a large batch of a client; a coordinator's is as large as what it has to keep together."""
    if header.size > config.max_message_bytes and leader.is_client:
        message = f"the batch has {header.size} bytes, but max.message.bytes is {config.max_message_bytes}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)


def _sound_header(data: memoryview, position: int) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None for one that is cut off.

    A wrong checksum may come right when the client sends the batch again. A header that is wrong under a right checksum
    is what the client meant to send, and will be next time too, so it gets the other error.
    """
    if _size_at(data, position) is None:
        return None
    code = ErrorCode.CORRUPT_MESSAGE
    try:
        header = read_header(data, position)
        if header.magic == MAGIC:
            check_crc(data, position, header)
            code = ErrorCode.INVALID_RECORD
        check_header(header, position)
    except CorruptRecordError as error:
        raise ApiError(code, error.reason) from None
    return header


# A batch that passed: its header as it is stored, the oldest and newest timestamp delta, and how many keys are null.
Checked: TypeAlias = tuple[BatchHeader, int, int, int]


def _check_plain_batch(data: memoryview, position: int, base_offset: int, leader_epoch: int) -> Checked | None:
    """Check and stamp a batch of the usual kind in one step; None for all others, which go the long way.

    It is the same as what `_check_any_batch` does, at a quarter of the price.
    """
    plain = kernel.read_plain_batch(data, position, base_offset, leader_epoch)
    if plain is None:
        return None
    fields, oldest, newest, keyless = plain
    header: BatchHeader = tuple.__new__(BatchHeader, fields)
    end = position + header.batch_length + LOG_OVERHEAD
    if crc32c.crc32c(data[position + ATTRIBUTES_POSITION : end]) != header.crc:
        return None
    return header, oldest, newest, keyless


def _check_any_batch(
    data: memoryview, position: int, base_offset: int, config: LogConfig, leader: LeaderStamp
) -> Checked | None:
    """Check a batch step by step, so that what is wrong with it has a name; None for one that is cut off."""
    header = _sound_header(data, position)
    if header is None:
        return None
    _check_size(header, config, leader)
    header = header._replace(base_offset=base_offset, leader_epoch=leader.leader_epoch)
    if leader.is_client:
        _check_producer_fields(header)
    body = data[position + HEADER_SIZE : position + header.size]
    if header.codec:
        body = _decompressed(body, header, config)
    fault, place, oldest, newest, keyless = kernel.check_records(body, header.count, True, header.last_offset_delta)
    if fault:
        message = f"the record at byte {place} of the records {kernel.FAULTS[fault]}"
        raise ApiError(ErrorCode.INVALID_RECORD, message)
    stamp(data, position, header)
    return header, oldest, newest, 0 if header.is_control else keyless


def _check_rules(header: BatchHeader, oldest: int, newest: int, keyless: int, config: LogConfig, now_ms: int) -> None:
    """Refuse a batch that is sound, but not what the topic takes."""
    if keyless and config.is_compacted:
        message = f"{keyless} records have no key, but the topic is compacted by key"
        raise ApiError(ErrorCode.INVALID_RECORD, message)
    if config.message_timestamp_type != "CreateTime":
        return
    if header.attributes & LOG_APPEND_TIME:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer can not mark a batch as stamped by the broker")
    if newest > now_ms + config.message_timestamp_after_max_ms or newest > TIMESTAMP_MAX:
        message = f"timestamp {newest} lies more than message.timestamp.after.max.ms after the clock, {now_ms}"
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
    if oldest != NO_TIMESTAMP and oldest < now_ms - config.message_timestamp_before_max_ms:
        message = f"timestamp {oldest} lies more than message.timestamp.before.max.ms before the clock, {now_ms}"
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)


def _check_producer_fields(header: BatchHeader) -> None:
    if header.is_control:
        raise ApiError(ErrorCode.INVALID_RECORD, "only brokers write control batches")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            message = f"a batch of producer {header.producer_id} has no sequence number or no epoch"
            raise ApiError(ErrorCode.INVALID_RECORD, message)
    elif header.is_transactional:
        raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch has no producer id")


def _decompressed(body: memoryview, header: BatchHeader, config: LogConfig) -> memoryview:
    try:
        return memoryview(decompress(Codec(header.codec), body, config.decompressed_bytes_max))
    except DecompressionLimitError as error:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except CodecError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None


def _set_time(data: memoryview, position: int, header: BatchHeader, attributes: int, max_timestamp: int) -> BatchHeader:
    """Change what the batch says of its time; the checksum covers that, so it is made anew."""
    _ATTRIBUTES.pack_into(data, position + ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(data, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    restamp_crc(data, position, header.batch_length + LOG_OVERHEAD)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp)
