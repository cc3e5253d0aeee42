"""The five codecs of Kafka, with a limit on what a few bytes may expand to.

Compressed bytes come from clients, so none of them are trusted: the caller says how many bytes a batch may become, and
no more memory than about that is ever touched, whatever the input claims.

Rule 1: `decompress` gives the whole output, or raises one of two errors: over the limit, or not valid.
Rule 2: what we write, Java reads: snappy in xerial's framing, lz4 frames with independent blocks.
Rule 3: cramjam is imported at first use, so that importing barnabas stays light.

It does not know batches: see `record` for the records section and `legacy` for wrapped messages.
"""

import mmap
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from barnabas.records.batch import Buffer


class Codec(IntEnum):
    """The codecs by their number in the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The values of the setting `compression.type` that name a codec. Producers say `none` where topics say `uncompressed`.
CODEC_NAMES = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

# Kafka's own defaults. Level 1 of lz4 is the fast compressor that Kafka uses unless told otherwise.
_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3

#  byte  0                8           12          16          20
#        +----------------+-----------+-----------+-----------+----------------+-----------+------
#        | 0x82 SNAPPY 00 | version   | compatible| block     | raw snappy     | block     | ...
#        | 8 bytes        | i32 = 1   | i32 = 1   | length i32| block          | length i32|
#        +----------------+-----------+-----------+-----------+----------------+-----------+------
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
assert len(_XERIAL_HEADER) == 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")

# The densest element of snappy makes 64 bytes of 3, so a claim of more than this times the input cannot be true.
_SNAPPY_RATIO_MAX = 22

# The first attempt of a decompression has room for this ratio, and at least for this many bytes.
_FIRST_RATIO = 8
_FIRST_BYTES_MIN = 64 * 1024

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE = 0x08
_LZ4_DICTIONARY_ID = 0x01
_UINT32_MASK = 0xFFFFFFFF


class CodecError(Exception):
    """The compressed bytes cannot be used."""


class DecompressionError(CodecError):
    """The compressed bytes are not valid for their codec."""


class DecompressionLimitError(CodecError):
    """The compressed bytes expand to more than the caller allows."""


def codec_by_name(name: str) -> Codec:
    """The codec for a value of `compression.type`; raises ValueError for `producer` too, which names none."""
    codec = CODEC_NAMES.get(name)
    if codec is None:
        raise ValueError(f"The codec is one of {', '.join(CODEC_NAMES)}, but {name!r} was found.")
    return codec


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compresses `data`; `level` has the meaning of `compression.<codec>.level`, and snappy has none."""
    # A header has the codec as a number; one that is not in the enum raises ValueError here and goes no further.
    codec = Codec(codec)
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        # zlib with a gzip wrapper (16 + 15) leaves the time out of the header: the same input gives the same bytes.
        gzip = zlib.compressobj(_GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
        return gzip.compress(data) + gzip.flush()
    import cramjam

    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        # Java refuses frames whose blocks depend on each other.
        lz4 = cramjam.lz4.Compressor(
            level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
        )
        # This one function of cramjam takes nothing but bytes.
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, limit: int, *, lz4_legacy_checksum: bool = False) -> Buffer:
    """Decompresses all of `data`, concatenated frames too, into at most `limit` bytes.

    Args:
        codec: The codec; NONE answers `data` itself.
        data: The compressed bytes.
        limit: The most bytes that the output may have.
        lz4_legacy_checksum: The frame was written for magic 0, where Kafka computed the header's checksum wrongly.

    Raises:
        DecompressionError: The bytes are not valid.
        DecompressionLimitError: The output has more than `limit` bytes.
    """
    codec = Codec(codec)
    if codec is Codec.NONE:
        if len(data) > limit:
            raise _over_limit(codec, limit)
        return data
    import cramjam

    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    if codec is Codec.GZIP:
        return _decompress_bounded(codec, cramjam.gzip.decompress_into, data, limit)
    if codec is Codec.LZ4:
        if lz4_legacy_checksum:
            data = _with_right_lz4_checksum(data)
        return _decompress_bounded(codec, cramjam.lz4.decompress_into, data, limit)
    return _decompress_bounded(codec, cramjam.zstd.decompress_into, data, limit)


def _decompress_bounded(codec: Codec, decompress_into: Callable[[Any, Any], int], data: Buffer, limit: int) -> Buffer:
    """Tries a buffer that fits almost always, then address space for the limit, of which only what is written counts.

    The output's size is unknown before, and a buffer of `limit` bytes set to zeros would cost more than the work.
    """
    import cramjam

    room = min(limit, max(_FIRST_BYTES_MIN, len(data) * _FIRST_RATIO))
    output: bytearray | mmap.mmap = bytearray(room)
    while True:
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if not _output_is_full(error):
                raise DecompressionError(f"The {codec.name.lower()} data is not valid: {error}.") from error
            if room == limit:
                raise _over_limit(codec, limit) from error
        else:
            return memoryview(output)[:size]
        room = limit
        output = mmap.mmap(-1, limit, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _output_is_full(error: Exception) -> bool:
    # cramjam has one exception for everything; the text is that of Rust's WriteZero, and a test holds it.
    return "failed to write whole buffer" in str(error)


def _over_limit(codec: Codec, limit: int) -> DecompressionLimitError:
    return DecompressionLimitError(f"The {codec.name.lower()} data expands to more than the {limit} bytes allowed.")


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces.append(_INT32.pack(len(block)))
        pieces.append(block)
    return b"".join(pieces)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    """Sums up what the blocks claim before anything is allocated, then fills one buffer of exactly that size."""
    import cramjam

    view = memoryview(data)
    blocks = _xerial_blocks(view) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [view]
    sizes = []
    total = 0
    for block in blocks:
        try:
            size = cramjam.snappy.decompress_raw_len(block)
        except cramjam.DecompressionError as error:
            raise DecompressionError(f"The snappy data is not valid: {error}.") from error
        total += size
        if total > limit:
            raise _over_limit(Codec.SNAPPY, limit)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise DecompressionError(f"A snappy block of {len(block)} bytes cannot hold the {size} bytes it claims.")
        sizes.append(size)
    output = memoryview(bytearray(total))
    start = 0
    for block, size in zip(blocks, sizes, strict=True):
        # Nothing has one encoding; cramjam would also find nothing in no bytes, and in any bytes behind a zero.
        if size == 0:
            if len(block) != 1:
                raise DecompressionError(f"A snappy block of nothing is one byte 0, but {len(block)} bytes were found.")
            continue
        try:
            written = cramjam.snappy.decompress_raw_into(block, output[start : start + size])
        except cramjam.DecompressionError as error:
            raise DecompressionError(f"The snappy data is not valid: {error}.") from error
        if written != size:
            raise DecompressionError(f"A snappy block claims {size} bytes, but {written} were found.")
        start += size
    return output


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The raw snappy blocks of one xerial stream, or of several in a row. Version fields are not looked at, because
    writers exist that give them in the wrong byte order."""
    blocks = []
    position = 0
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise DecompressionError(f"A xerial header takes {len(_XERIAL_HEADER)} bytes, but the data ends in it.")
            continue
        if len(view) - position < _INT32.size:
            raise DecompressionError(f"A xerial block length takes 4 bytes, but {len(view) - position} are left.")
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < length <= len(view) - position:
            raise DecompressionError(
                f"A xerial block has 1 to {len(view) - position} bytes, but its length is {length}."
            )
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _with_right_lz4_checksum(data: Buffer) -> Buffer:
    """A copy of an lz4 frame with the header checksum that the format wants.

    Writers of magic 0 summed up the frame's magic too. Kafka does not look at the byte then, and neither do we.
    """
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        return data
    flags = data[4]
    checksum_position = 6
    if flags & _LZ4_CONTENT_SIZE:
        checksum_position += 8
    if flags & _LZ4_DICTIONARY_ID:
        checksum_position += 4
    if len(data) <= checksum_position:
        return data
    corrected = bytearray(data)
    corrected[checksum_position] = _short_xxh32(bytes(data[4:checksum_position])) >> 8 & 0xFF
    return corrected


def _short_xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0 of fewer than 16 bytes, which is all that an lz4 frame header has."""
    assert len(data) < 16
    accumulator = 374761393 + len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        accumulator = _rotate_left(accumulator + word * 3266489917, 17) * 668265263
    for byte in data[whole:]:
        accumulator = _rotate_left(accumulator + byte * 374761393, 11) * 2654435761
    accumulator &= _UINT32_MASK
    accumulator = (accumulator ^ accumulator >> 15) * 2246822519 & _UINT32_MASK
    accumulator = (accumulator ^ accumulator >> 13) * 3266489917 & _UINT32_MASK
    return accumulator ^ accumulator >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= _UINT32_MASK
    return (value << bits | value >> (32 - bits)) & _UINT32_MASK
