# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops over records and headers, compiled at install where there is a compiler, and plain Python elsewhere.

Buffers come from `record`, `storage` and `builder`; every function takes any contiguous buffer of bytes, and the walks
leave the GIL. The types of the interface are in `kernel.pyi`.

Rule 1: compiled or not, every input gives the same answer. Python integers do not wrap around, so no value here can
leave 64 bits: a varint whose bits would is a fault before it is a number.
Rule 2: bad bytes are an answer (a fault number and a position), never an exception and never a read outside the buffer.
Rule 3: a loop makes no Python objects, or says in its name that it does (`decode`, `encode`).

It does not decompress, does not check checksums, and does not know time.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled

# What a record can have wrong, as the end of the sentence "The record ...". `check_records` answers with an index.
FAULTS = (
    "is fine",
    "has a length of fewer than 0 bytes",
    "runs past the end of the records",
    "has a varint that is longer or larger than its type allows",
    "has a field that runs past the end of the record",
    "has a key length below -1",
    "has a value length below -1",
    "has a negative header count",
    "has a header with a negative key length",
    "has a header with a value length below -1",
    "does not fill its length with its fields",
    "does not have the offset delta that follows the record before",
    "has an offset delta above the last offset delta of the batch",
    "is the last of the count, but bytes follow it",
    "is missing: the records end before the count is reached",
    "count does not agree with the last offset delta",
)
# The indexes into FAULTS, as C integers, so that the walks can name them without the GIL.
_FINE = cython.declare(cython.int, 0)
_LENGTH = cython.declare(cython.int, 1)
_PAST_END = cython.declare(cython.int, 2)
_VARINT = cython.declare(cython.int, 3)
_FIELD_PAST_END = cython.declare(cython.int, 4)
_KEY_LENGTH = cython.declare(cython.int, 5)
_VALUE_LENGTH = cython.declare(cython.int, 6)
_HEADER_COUNT = cython.declare(cython.int, 7)
_HEADER_KEY_LENGTH = cython.declare(cython.int, 8)
_HEADER_VALUE_LENGTH = cython.declare(cython.int, 9)
_UNFILLED = cython.declare(cython.int, 10)
_OFFSET_ORDER = cython.declare(cython.int, 11)
_OFFSET_LAST = cython.declare(cython.int, 12)
_TRAILING = cython.declare(cython.int, 13)
_MISSING = cython.declare(cython.int, 14)
_COUNT = cython.declare(cython.int, 15)

# Literals of more than 31 bits would be Python objects to Cython.
_SIGN_BIT = cython.declare(cython.longlong, 0x80000000)
_HALF = cython.declare(cython.longlong, 0x100000000)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_long_varint(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t, wide: cython.bint
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A varint (or varlong, when `wide`) of any length: its value and the position behind it, or a fault and -1."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.int = 0
    last_shift: cython.int = 63 if wide else 28
    while True:
        if position >= end:
            return _FIELD_PAST_END, -1
        byte = data[position]
        position += 1
        # The last group of a varint has room for 4 of its 7 bits (32 - 28), that of a varlong for 1 (64 - 63).
        if shift == last_shift and byte > (1 if wide else 15):
            return _VARINT, -1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Zigzag: the lowest bit is the sign. Both halves fit into 63 bits before the sign is applied.
            if value & 1:
                return -cython.cast(cython.longlong, value >> 1) - 1, position
            return cython.cast(cython.longlong, value >> 1), position
        shift += 7


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_varint(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t, wide: cython.bint
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """As `_read_long_varint`, with a short way for the one and two bytes that almost every field has."""
    first: cython.longlong
    second: cython.longlong
    if end - position >= 2:
        first = data[position]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        second = data[position + 1]
        if second < 0x80:
            return ((first & 0x7F) >> 1 | second << 6) ^ -(first & 1), position + 2
    return _read_long_varint(data, position, end, wide)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_headers(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """Checks `count` headers: _FINE and the position behind them, or a fault and -1. Each takes bytes, so this ends."""
    length: cython.longlong
    while count > 0:
        length, position = _read_varint(data, position, end, False)
        if position < 0:
            return length, -1
        if length < 0:
            return _HEADER_KEY_LENGTH, -1
        if length > end - position:
            return _FIELD_PAST_END, -1
        position += length
        length, position = _read_varint(data, position, end, False)
        if position < 0:
            return length, -1
        if length < -1:
            return _HEADER_VALUE_LENGTH, -1
        if length > end - position:
            return _FIELD_PAST_END, -1
        if length > 0:
            position += length
        count -= 1
    return _FINE, position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_payload(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t, cython.bint]:
    """Checks key, value and headers of a record that ends at `end`: _FINE, `end` and whether the key is null."""
    length: cython.longlong
    keyless: cython.bint = False
    length, position = _read_varint(data, position, end, False)
    if position < 0:
        return length, -1, False
    if length < 0:
        if length < -1:
            return _KEY_LENGTH, -1, False
        keyless = True
        length = 0
    if length > end - position:
        return _FIELD_PAST_END, -1, False
    position += length
    length, position = _read_varint(data, position, end, False)
    if position < 0:
        return length, -1, False
    if length < 0:
        if length < -1:
            return _VALUE_LENGTH, -1, False
        length = 0
    if length > end - position:
        return _FIELD_PAST_END, -1, False
    position += length
    length, position = _read_varint(data, position, end, False)
    if position < 0:
        return length, -1, False
    if length != 0:
        if length < 0:
            return _HEADER_COUNT, -1, False
        length, position = _skip_headers(data, position, end, length)
        if position < 0:
            return length, -1, False
    if position != end:
        return _UNFILLED, -1, False
    return _FINE, position, keyless


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_length(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The length of the record at `position` and where its fields start, or a fault and -1."""
    length: cython.longlong
    if position >= end:
        return _MISSING, -1
    length, position = _read_varint(data, position, end, False)
    if position < 0:
        return (_PAST_END if length == _FIELD_PAST_END else length), -1
    if length < 0:
        return _LENGTH, -1
    if length > end - position:
        return _PAST_END, -1
    # The attributes, one byte that no format uses yet, come before the first varint.
    if length == 0:
        return _FIELD_PAST_END, -1
    return length, position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_short(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A varint of one or two bytes, its sign in its lowest bit, and the position behind it; -1 for a longer one."""
    first: cython.longlong = data[position]
    second: cython.longlong
    if first < 0x80:
        return first, position + 1
    second = data[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    return -1, position


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_plain(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, size: cython.Py_ssize_t, count: cython.longlong
) -> tuple[cython.longlong, cython.Py_ssize_t, cython.longlong, cython.longlong, cython.longlong]:
    """Checks records as most are: no headers, no field longer than 8 KB, and offsets that follow each other from 0.

    Answers (how many there were before the first other one, where that starts, least and greatest timestamp delta, null
    keys). It takes half the time of `_walk`, because a length that is wrong anywhere makes the sum of all wrong: it is
    compared once, at the end of the record, and no byte behind the end was taken for a field then.
    """
    index: cython.longlong = 0
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    field: cython.longlong
    time: cython.longlong
    delta_min: cython.longlong = 0
    delta_max: cython.longlong = 0
    keyless: cython.longlong = 0
    is_keyless: cython.bint
    # Up to the length of the key a record has nine bytes at most here, and these are looked at without asking.
    while index < count and size - position >= 9:
        # What is negative, or too long, is odd.
        field, start = _read_short(data, position)
        end = start + (field >> 1)
        if field & 1 or end > size:
            break
        time, start = _read_short(data, start + 1)
        field, start = _read_short(data, start)
        if time < 0 or field != index << 1:
            break
        field, start = _read_short(data, start)
        is_keyless = field == 1
        if is_keyless:
            field = 0
        start += field >> 1
        if field & 1 or start + 2 > end:
            break
        field, start = _read_short(data, start)
        if field == 1:
            field = 0
        # The number of headers is the last byte.
        if field & 1 or start + (field >> 1) + 1 != end or data[end - 1] != 0:
            break
        position = end
        keyless += is_keyless
        time = (time >> 1) ^ -(time & 1)
        if index == 0:
            delta_min = delta_max = time
        elif time < delta_min:
            delta_min = time
        elif time > delta_max:
            delta_max = time
        index += 1
    return index, position, delta_min, delta_max, keyless


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    count: cython.longlong,
    dense: cython.bint,
    last_offset_delta: cython.longlong,
) -> tuple[cython.longlong, cython.Py_ssize_t, cython.longlong, cython.longlong, cython.longlong]:
    """Checks the records from `position` to `size`: what `check_records` answers."""
    start: cython.Py_ssize_t = position
    end: cython.Py_ssize_t
    value: cython.longlong
    timestamp_delta: cython.longlong
    delta_min: cython.longlong = 0
    delta_max: cython.longlong = 0
    offset_delta: cython.longlong
    previous: cython.longlong = -1
    index: cython.longlong = 0
    keyless: cython.longlong = 0
    null_key: cython.bint
    fault: cython.longlong = _FINE
    if dense:
        # Not the last one: a fault behind it is told with the place where it starts.
        index, position, delta_min, delta_max, keyless = _walk_plain(data, position, size, count - 1)
        previous = index - 1
    while index < count:
        start = position
        value, position = _read_length(data, start, size)
        if position < 0:
            return value, start, 0, 0, 0
        end = position + value
        timestamp_delta, position = _read_varint(data, position + 1, end, True)
        if position < 0:
            return timestamp_delta, start, 0, 0, 0
        offset_delta, position = _read_varint(data, position, end, False)
        if position < 0:
            return offset_delta, start, 0, 0, 0
        fault, position, null_key = _skip_payload(data, position, end)
        if fault != _FINE:
            return fault, start, 0, 0, 0
        # It is the same number, but known as soon as the length was read: the processor can begin with the next
        # record while it is still busy with the fields of this one.
        position = end
        if offset_delta <= previous or (dense and offset_delta != index):
            return _OFFSET_ORDER, start, 0, 0, 0
        previous = offset_delta
        keyless += null_key
        if index == 0:
            delta_min = delta_max = timestamp_delta
        elif timestamp_delta < delta_min:
            delta_min = timestamp_delta
        elif timestamp_delta > delta_max:
            delta_max = timestamp_delta
        index += 1
    if position != size:
        return _TRAILING, start, 0, 0, 0
    if previous > last_offset_delta:
        return _OFFSET_LAST, start, 0, 0, 0
    return _FINE, position, delta_min, delta_max, keyless


def check_records(
    records: cython.const[cython.uchar][::1],
    count: cython.longlong,
    dense: cython.bint,
    last_offset_delta: cython.longlong,
) -> tuple[int, int, int, int, int]:
    """Walks every record: (fault, position of the faulty record, least and greatest timestamp delta, null keys)."""
    size: cython.Py_ssize_t = len(records)
    fault: cython.longlong
    position: cython.Py_ssize_t
    delta_min: cython.longlong
    delta_max: cython.longlong
    keyless: cython.longlong
    if dense and count != last_offset_delta + 1:
        return _COUNT, 0, 0, 0, 0
    with cython.nogil:
        fault, position, delta_min, delta_max, keyless = _walk(records, 0, size, count, dense, last_offset_delta)
    return fault, position, delta_min, delta_max, keyless


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_uint32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = data[position]
    value = value << 8 | data[position + 1]
    value = value << 8 | data[position + 2]
    return value << 8 | data[position + 3]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = _read_uint32(data, position)
    # The highest bit is worth -2**31, not 2**31.
    return (value & 0x7FFFFFFF) - (value & _SIGN_BIT)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int64(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    # The upper half carries the sign; multiplying keeps it where a shift of a negative number would be open in C.
    return _read_int32(data, position) * _HALF + _read_uint32(data, position + 4)


def read_plain_batch(
    data: cython.uchar[::1], position: cython.Py_ssize_t, base_offset: cython.longlong, leader_epoch: cython.longlong
) -> tuple | None:
    """Reads, checks and stamps the batch at `position`, if it is of the kind that almost every request brings.

    That is a batch of a client that is all there, uncompressed, with one offset for each of its records. Answers (the
    13 fields of its header, least and greatest timestamp delta, null keys), with its checksum still to be compared;
    or None for every other batch, be it good or bad, which is then left as it is: the long way finds out.
    """
    size: cython.Py_ssize_t = len(data) - position
    length: cython.longlong
    attributes: cython.longlong
    last_offset_delta: cython.longlong
    producer_id: cython.longlong
    producer_epoch: cython.longlong
    base_sequence: cython.longlong
    count: cython.longlong
    fault: cython.longlong
    _end: cython.Py_ssize_t
    delta_min: cython.longlong
    delta_max: cython.longlong
    keyless: cython.longlong
    byte: cython.int
    if size < 61:
        return None
    length = _read_int32(data, position + 8)
    attributes = data[position + 21] * 256 + data[position + 22]
    last_offset_delta = _read_int32(data, position + 23)
    producer_id = _read_int64(data, position + 43)
    producer_epoch = _read_int32(data, position + 49) & 0xFFFF
    base_sequence = _read_int32(data, position + 53)
    count = _read_int32(data, position + 57)
    if length < 49 or length + 12 > size or data[position + 16] != 2 or count < 1 or count != last_offset_delta + 1:
        return None
    # The only attribute it may have is that it is transactional, and then, as ever, a producer has all three fields.
    if attributes != 0 and attributes != 16:
        return None
    if producer_id < 0:
        if attributes != 0:
            return None
    elif producer_epoch >= 0x8000 or base_sequence < 0:
        return None
    with cython.nogil:
        fault, _end, delta_min, delta_max, keyless = _walk(
            data, position + 61, position + length + 12, count, True, last_offset_delta
        )
    if fault != _FINE:
        return None
    header = (
        base_offset,
        length,
        leader_epoch,
        2,
        _read_uint32(data, position + 17),
        attributes,
        last_offset_delta,
        _read_int64(data, position + 27),
        _read_int64(data, position + 35),
        producer_id,
        producer_epoch - (producer_epoch & 0x8000) * 2,
        base_sequence,
        count,
    )
    for byte in range(8):
        data[position + byte] = (base_offset >> (56 - 8 * byte)) & 0xFF
    for byte in range(4):
        data[position + 12 + byte] = (leader_epoch >> (24 - 8 * byte)) & 0xFF
    return header, delta_min, delta_max, keyless


@cython.cfunc
def _decode_headers(
    whole: bytes,
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> tuple:
    """The headers of a checked record as pairs of name and value."""
    length: cython.longlong
    headers: list = []
    while count > 0:
        length, position = _read_varint(data, position, end, False)
        name = whole[position : position + length]
        position += length
        length, position = _read_varint(data, position, end, False)
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, whole[position : position + length]))
            position += length
        count -= 1
    return tuple(headers)


def decode_records(records: cython.const[cython.uchar][::1], count: cython.longlong) -> list:
    """Each record as (timestamp delta, offset delta, key, value, headers), from bytes that `check_records` has passed.

    The structure is walked once more first, because a caller's mistake must not become a read outside the buffer.
    """
    size: cython.Py_ssize_t = len(records)
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    length: cython.longlong
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    fault: cython.longlong = check_records(records, count, False, 0x7FFFFFFF)[0]
    if fault != _FINE:
        raise AssertionError("decode_records was called with records that check_records refuses")
    # One copy of everything makes each key and value a slice of bytes, compiled or not.
    whole: bytes = bytes(records)
    decoded: list = []
    while count > 0:
        length, position = _read_varint(records, position, size, False)
        end = position + length
        timestamp_delta, position = _read_varint(records, position + 1, end, True)
        offset_delta, position = _read_varint(records, position, end, False)
        length, position = _read_varint(records, position, end, False)
        key = None
        if length >= 0:
            key = whole[position : position + length]
            position += length
        length, position = _read_varint(records, position, end, False)
        value = None
        if length >= 0:
            value = whole[position : position + length]
            position += length
        length, position = _read_varint(records, position, end, False)
        headers: tuple = ()
        if length > 0:
            headers = _decode_headers(whole, records, position, end, length)
        decoded.append((timestamp_delta, offset_delta, key, value, headers))
        position = end
        count -= 1
    return decoded


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    # Written without shifts of negative numbers, whose result C leaves open.
    if value < 0:
        return cython.cast(cython.ulonglong, -(value + 1)) * 2 + 1
    return cython.cast(cython.ulonglong, value) * 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    rest: cython.ulonglong = _zigzag(value)
    size: cython.Py_ssize_t = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_varint(data: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Writes `value` at `position` and answers the position behind it."""
    rest: cython.ulonglong = _zigzag(value)
    while rest >= 0x80:
        data[position] = rest & 0x7F | 0x80
        rest >>= 7
        position += 1
    data[position] = rest
    return position + 1


@cython.cfunc
@cython.inline
def _bytes_size(payload: object) -> cython.Py_ssize_t:
    """Bytes that a nullable field takes with its length in front."""
    if payload is None:
        return 1
    size: cython.Py_ssize_t = len(payload)
    return _varint_size(size) + size


@cython.cfunc
@cython.inline
def _write_bytes(
    out: bytearray, data: cython.uchar[::1], position: cython.Py_ssize_t, payload: object
) -> cython.Py_ssize_t:
    if payload is None:
        return _write_varint(data, position, -1)
    size: cython.Py_ssize_t = len(payload)
    position = _write_varint(data, position, size)
    out[position : position + size] = payload
    return position + size


def encode_records(records: object) -> bytearray:
    """The records section of a batch, from tuples as `decode_records` gives them; all deltas fit into their types."""
    size: cython.Py_ssize_t
    total: cython.Py_ssize_t = 0
    position: cython.Py_ssize_t = 0
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    sizes: list = []
    for timestamp_delta, offset_delta, key, value, headers in records:
        # The 1 is for the attributes, which stay 0.
        size = 1 + _varint_size(timestamp_delta) + _varint_size(offset_delta) + _bytes_size(key) + _bytes_size(value)
        size += _varint_size(len(headers))
        for header_name, header_value in headers:
            size += _bytes_size(header_name) + _bytes_size(header_value)
        sizes.append(size)
        total += _varint_size(size) + size
    out: bytearray = bytearray(total)
    data: cython.uchar[::1] = out
    for (timestamp_delta, offset_delta, key, value, headers), body_size in zip(records, sizes, strict=True):
        position = _write_varint(data, position, body_size) + 1
        position = _write_varint(data, position, timestamp_delta)
        position = _write_varint(data, position, offset_delta)
        position = _write_bytes(out, data, position, key)
        position = _write_bytes(out, data, position, value)
        position = _write_varint(data, position, len(headers))
        for header_name, header_value in headers:
            position = _write_bytes(out, data, position, header_name)
            position = _write_bytes(out, data, position, header_value)
    return out


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_integer(
    data: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.Py_ssize_t:
    """Write an integer of `size` bytes, the most significant first; returns the position behind it."""
    byte: cython.int
    for byte in range(size):
        data[position + byte] = (value >> (8 * (size - 1 - byte))) & 0xFF
    return position + size


def build_own_batch(
    records: list,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    attributes: cython.longlong,
    timestamp: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
) -> bytearray:
    """A batch of (key, value) that are all of one time and have no headers; its checksum is still to be put in."""
    count: cython.longlong = len(records)
    delta: cython.longlong
    size: cython.Py_ssize_t
    total: cython.Py_ssize_t = 61
    position: cython.Py_ssize_t
    sizes: list = []
    for delta, (key, value) in enumerate(records):
        # Attributes, timestamp delta and number of headers are 0 and one byte each.
        size = 3 + _varint_size(delta) + _bytes_size(key) + _bytes_size(value)
        sizes.append(size)
        total += _varint_size(size) + size
    out: bytearray = bytearray(total)
    data: cython.uchar[::1] = out
    position = _write_integer(data, 0, base_offset, 8)
    position = _write_integer(data, position, total - 12, 4)
    position = _write_integer(data, position, leader_epoch, 4)
    position = _write_integer(data, position, 2, 1) + 4
    position = _write_integer(data, position, attributes, 2)
    position = _write_integer(data, position, count - 1, 4)
    position = _write_integer(data, position, timestamp, 8)
    position = _write_integer(data, position, timestamp, 8)
    position = _write_integer(data, position, producer_id, 8)
    position = _write_integer(data, position, producer_epoch, 2)
    position = _write_integer(data, position, -1, 4)
    position = _write_integer(data, position, count, 4)
    for delta, (key, value) in enumerate(records):
        position = _write_varint(data, position, sizes[delta]) + 2
        position = _write_varint(data, position, delta)
        position = _write_bytes(out, data, position, key)
        position = _write_bytes(out, data, position, value) + 1
    return out
