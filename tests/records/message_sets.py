"""Writes message sets of magic 0 and 1, plain and wrapped, which the project itself only reads."""

import struct
import zlib
from collections.abc import Sequence

from barnabas.records.codecs import Codec, _short_xxh32, compress

Message = tuple[int, int, bytes | None, bytes | None]


def build_message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, *, attributes: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def build_message_set(
    magic: int,
    messages: Sequence[Message],
    *,
    codec: Codec = Codec.NONE,
    wrapper_offset: int | None = None,
    log_append_time: int | None = None,
) -> bytes:
    """A set of messages (offset, timestamp, key, value); with a codec, one wrapper around them.

    As a broker stores it: the wrapper has the offset of the last message, and magic 1 counts from 0 inside.
    """
    if codec is Codec.NONE:
        return b"".join(build_message(magic, *message) for message in messages)
    first = messages[0][0] if magic == 1 and messages else 0
    inner = b"".join(build_message(magic, message[0] - first, *message[1:]) for message in messages)
    last_offset = messages[-1][0] if messages else 0
    timestamp = max((message[1] for message in messages), default=-1)
    attributes = int(codec)
    if log_append_time is not None:
        attributes |= 8
        timestamp = log_append_time
    return build_message(
        magic,
        last_offset if wrapper_offset is None else wrapper_offset,
        timestamp,
        None,
        compress_for(magic, codec, inner),
        attributes=attributes,
    )


def compress_for(magic: int, codec: Codec, data: bytes) -> bytes:
    """As `compress`, with Kafka's wrong header checksum where a writer of magic 0 would have it."""
    compressed = compress(codec, data)
    if magic == 0 and codec is Codec.LZ4:
        # The right checksum is over bytes 4 and 5; the wrong one began with the frame's magic.
        wrong = _short_xxh32(compressed[:6]) >> 8 & 0xFF
        compressed = compressed[:6] + bytes([wrong]) + compressed[7:]
    return compressed
