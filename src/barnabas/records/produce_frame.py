# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the records in the frame of a produce request, compiled as the kernel is, and plain Python elsewhere.

Almost every produce request has one batch for one partition of one topic. Such a frame is read here without making a
message of it; the codec of `wire` reads all others, and every test compares the two.

    | 0 i16 | version i16 | correlation id i32 | client id | tags | transactional id | acks i16 | time-out i32 |
    | 1 topic | its name, or its id from version 13 on | 1 partition | its number i32 | length and batch | tags 3 x |

Lengths are int16 or int32 before version 9 and compact from there on, and only then are there tagged fields.

Rule 1: what is not as usual is None, be it good or bad; nothing here answers a client.
Rule 2: no byte is looked at that is not there.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled


# A literal of more than 31 bits would be a Python object to Cython.
_SIGN_BIT = cython.declare(cython.longlong, 0x80000000)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = 0
    byte: cython.int
    for byte in range(4):
        value = value * 256 + data[position + byte]
    return value - (value & _SIGN_BIT) * 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int16(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = data[position] * 256 + data[position + 1]
    return value - (value & 0x8000) * 2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _transactional_id(
    frame: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, version: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Where the transactional id of a produce request is, and its length, which is 0 for none; -1 for a strange one.

    `position` is behind the client id, and at least 40 bytes follow it.
    """
    length: cython.longlong
    if version < 9:
        length = _read_int16(frame, position)
        if length == -1:
            return position + 2, 0
        if length < 1:
            return -1, 0
        return position + 2, length
    # A compact length, behind the tagged fields of the header, of which there must be none.
    length = frame[position + 1]
    if frame[position] != 0 or length == 1 or length > 127:
        return -1, 0
    if length == 0:
        return position + 2, 0
    return position + 2, length - 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _produce_head(
    frame: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, version: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Where the topic of a produce request is, and its length, or -1 for a request that is not for one topic.

    `position` is behind the transactional id, and at least 32 bytes follow it.
    """
    length: cython.longlong = 16
    # Acks (int16), time-out (int32), one topic, and its name or id.
    if version < 9:
        if _read_int32(frame, position + 6) != 1:
            return -1, 0
        return position + 12, _read_int16(frame, position + 10)
    if frame[position + 6] != 2:
        return -1, 0
    position += 7
    if version < 13:
        length = frame[position] - 1
        position += 1
        if length > 126:
            return -1, 0
    return position, length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _produce_records(
    frame: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, version: cython.longlong
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """Where the records of a produce request begin, and their length, or -1 when it is not for one partition.

    `position` is behind the topic, and at least 13 bytes follow it.
    """
    length: cython.longlong = 0
    shift: cython.int = 0
    if version < 9:
        if _read_int32(frame, position) != 1:
            return -1, 0
        return position + 12, _read_int32(frame, position + 8)
    if frame[position] != 2:
        return -1, 0
    position += 5
    while shift < 35:
        length |= cython.cast(cython.longlong, frame[position] & 0x7F) << shift
        position += 1
        if frame[position - 1] < 0x80:
            return position, length - 1
        shift += 7
    return -1, 0


def read_produce(frame: cython.const[cython.uchar][::1]) -> object:
    """Reads a produce request of one batch for one partition, which almost every one is, without making a message.

    Answers (version, correlation id, acks, time-out, topic as its bytes on the wire, partition, position and end of the
    batch, transactional id or nothing), where the topic is a name or, from version 13 on, an id; or None for every
    other frame, be it good or bad: of another API or shape, with tagged fields, with records that are not one batch, or
    transactional in the request and not in the batch, or the other way round. The codec then reads it. What else is in
    the batch is not looked at.
    """
    size: cython.Py_ssize_t = len(frame)
    version: cython.longlong
    head: cython.Py_ssize_t = 10
    topic: cython.Py_ssize_t
    topic_end: cython.Py_ssize_t
    start: cython.Py_ssize_t
    tail: cython.Py_ssize_t
    length: cython.longlong
    transactional: cython.longlong
    if size < 64 or frame[0] != 0 or frame[1] != 0:
        return None
    version = _read_int16(frame, 2)
    if version < 3 or version > 13:
        return None
    length = _read_int16(frame, 8)
    if length > 0:
        head += length
    if size < head + 40:
        return None
    head, transactional = _transactional_id(frame, head, version)
    if head < 0 or size < head + transactional + 38:
        return None
    head += transactional
    topic, length = _produce_head(frame, head, version)
    topic_end = topic + length
    if topic < 0 or length < 1 or size < topic_end + 13:
        return None
    start, length = _produce_records(frame, topic_end, version)
    # Three structures end, each with its tagged fields, of which there must be none.
    tail = 3 if version >= 9 else 0
    if start < 0 or length < 61 or start + length + tail != size:
        return None
    # One whole batch of magic 2, and no zstd before version 7.
    if _read_int32(frame, start + 8) + 12 != length or frame[start + 16] != 2:
        return None
    if version < 7 and frame[start + 22] & 7 == 4:
        return None
    if (transactional > 0) != (frame[start + 22] & 16 != 0):
        return None
    if tail and (frame[size - 1] != 0 or frame[size - 2] != 0 or frame[size - 3] != 0):
        return None
    return (
        version,
        _read_int32(frame, 4),
        _read_int16(frame, head),
        _read_int32(frame, head + 2),
        bytes(frame[topic:topic_end]),
        _read_int32(frame, topic_end + (1 if version >= 9 else 4)),
        start,
        start + length,
        bytes(frame[head - transactional : head]) if transactional else b"",
    )
