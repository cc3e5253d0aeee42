# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Walks over batches, many in one call: to the one that has an offset, or, for recovery, to check each of them.

`find_batch` looks at headers only, of all formats. All else here is about `walk_batches`, which recovery uses:

Bytes come from a chunk of a segment's file. What comes out are the entries as they stand in the index files, and where
the batches are that somebody has to look at: those of a new leader epoch, and those of producers.

Rule 1: what is not plain (magic 0 or 1, a control batch, a large one, one that is not all here, and whatever is wrong)
ends the walk before it. It is never judged here: the caller looks at it batch by batch, and says what is wrong with it.
Rule 2: the walk leaves the GIL, so that the loop of a broker that recovers goes on meanwhile.
Rule 3: compiled or not, every input gives the same answer; uncompiled it is slower than looking at each batch.

Of the batches of a producer only those that its state remembers are told of: the first, which says in which order
producers came, and the last five. A transactional one is always told of.
"""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled

# The numbers that a walk goes on from, and leaves behind. The places of each in `state`:
NEXT_OFFSET = 0
"""The least offset that the next batch may start at."""
BYTES_SINCE_ENTRY = 1
LARGEST_TIMESTAMP = 2
LARGEST_OFFSET = 3
TIME_INDEX_TIMESTAMP = 4
"""The timestamp of the last entry of the time index."""
ROOM = 5
"""How many more entries fit; the walk ends when it becomes 0, and one that begins with 0 makes none."""
LEADER_EPOCH = 6
OFFSET_INDEX_OFFSET = 7
"""The offset of the last entry of the offset index."""
TIME_INDEX_OFFSET = 8
# What a walk has found:
OFFSET_ENTRIES = 9
TIME_ENTRIES = 10
NOTABLE = 11
STATE_SIZE = 12

# The same places as C integers, so that the walk can name them without the GIL.
_NEXT_OFFSET = cython.declare(cython.int, 0)
_BYTES_SINCE_ENTRY = cython.declare(cython.int, 1)
_LARGEST_TIMESTAMP = cython.declare(cython.int, 2)
_LARGEST_OFFSET = cython.declare(cython.int, 3)
_TIME_INDEX_TIMESTAMP = cython.declare(cython.int, 4)
_ROOM = cython.declare(cython.int, 5)
_LEADER_EPOCH = cython.declare(cython.int, 6)
_OFFSET_INDEX_OFFSET = cython.declare(cython.int, 7)
_TIME_INDEX_OFFSET = cython.declare(cython.int, 8)
_OFFSET_ENTRIES = cython.declare(cython.int, 9)
_TIME_ENTRIES = cython.declare(cython.int, 10)
_NOTABLE = cython.declare(cython.int, 11)

_HEADER_BYTES = cython.declare(cython.int, 61)
# How many batches of a producer its state remembers.
_BATCHES_KEPT = cython.declare(cython.int, 5)
# The size of the table of producers; a walk ends when half of it is used.
_SLOTS = cython.declare(cython.int, 2048)

_SIZE_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_SIGN_BIT = cython.declare(cython.longlong, 0x80000000)
_ONES = cython.declare(cython.longlong, 0xFFFFFFFF)
_INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


def _crc_tables() -> object:
    """Return sixteen tables of CRC-32C (Castagnoli): table k is that of a byte with k zero bytes behind it."""
    tables = array("I", bytes(16 * 256 * 4))
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        tables[byte] = value
    for place in range(256, 16 * 256):
        before = tables[place - 256]
        tables[place] = (before >> 8) ^ tables[before & 0xFF]
    return tables


_CRC_TABLES = _crc_tables()


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_uint32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = 0
    byte: cython.int
    for byte in range(4):
        value = value * 256 + data[position + byte]
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = _read_uint32(data, position)
    return value - (value & _SIGN_BIT) * 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_int64(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    return _read_int32(data, position) * (_ONES + 1) + _read_uint32(data, position + 4)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_integer(
    data: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write an integer of `size` bytes, big-endian, and return the position behind it."""
    place: cython.Py_ssize_t = position + size
    while place > position:
        place -= 1
        data[place] = value & 0xFF
        value >>= 8
    return position + size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _little32(data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.uint:
    # Compilers know this as one load.
    first: cython.uint = data[position]
    second: cython.uint = data[position + 1]
    third: cython.uint = data[position + 2]
    fourth: cython.uint = data[position + 3]
    return first | second << 8 | third << 16 | fourth << 24


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _crc32c(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    tables: cython.const[cython.uint][::1],
) -> cython.longlong:
    """The checksum of bytes, sixteen at a time."""
    crc: cython.uint = cython.cast(cython.uint, _ONES)
    a: cython.uint
    b: cython.uint
    c: cython.uint
    d: cython.uint
    while end - position >= 16:
        a = _little32(data, position) ^ crc
        b = _little32(data, position + 4)
        c = _little32(data, position + 8)
        d = _little32(data, position + 12)
        crc = (
            tables[3840 + (a & 255)]
            ^ tables[3584 + (a >> 8 & 255)]
            ^ tables[3328 + (a >> 16 & 255)]
            ^ tables[3072 + (a >> 24)]
            ^ tables[2816 + (b & 255)]
            ^ tables[2560 + (b >> 8 & 255)]
            ^ tables[2304 + (b >> 16 & 255)]
            ^ tables[2048 + (b >> 24)]
            ^ tables[1792 + (c & 255)]
            ^ tables[1536 + (c >> 8 & 255)]
            ^ tables[1280 + (c >> 16 & 255)]
            ^ tables[1024 + (c >> 24)]
            ^ tables[768 + (d & 255)]
            ^ tables[512 + (d >> 8 & 255)]
            ^ tables[256 + (d >> 16 & 255)]
            ^ tables[d >> 24]
        )
        position += 16
    while position < end:
        crc = tables[(crc ^ data[position]) & 255] ^ crc >> 8
        position += 1
    return cython.cast(cython.longlong, crc) ^ _ONES


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _plain_size(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    size_max: cython.longlong,
    tables: cython.const[cython.uint][::1],
) -> cython.longlong:
    """The size of the batch at `position` if it is plain and its checksum is right, and 0 otherwise."""
    left: cython.longlong = len(data) - position
    size: cython.longlong
    attributes: cython.longlong
    last_offset_delta: cython.longlong
    count: cython.longlong
    if left < _HEADER_BYTES:
        return 0
    size = _read_int32(data, position + 8) + 12
    if size < _HEADER_BYTES or size > size_max or size > left or data[position + 16] != 2:
        return 0
    attributes = data[position + 22]
    if attributes & 7 > 4 or attributes & 0x20:
        return 0
    last_offset_delta = _read_int32(data, position + 23)
    count = _read_int32(data, position + 57)
    if last_offset_delta < 0 or count < 0 or count > last_offset_delta + 1:
        return 0
    if _crc32c(data, position + 21, position + size, tables) != _read_uint32(data, position + 17):
        return 0
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _add_entries(
    state: cython.longlong[::1],
    base_offset: cython.longlong,
    last_offset: cython.longlong,
    position: cython.longlong,
    offset_entries: cython.uchar[::1],
    time_entries: cython.uchar[::1],
) -> cython.int:
    """Add the entry of a batch to the offset index, and to the time index where there is a newer timestamp."""
    place: cython.Py_ssize_t = state[_OFFSET_ENTRIES] * 8
    place = _write_integer(offset_entries, place, last_offset - base_offset, 4)
    _write_integer(offset_entries, place, position, 4)
    state[_OFFSET_ENTRIES] += 1
    state[_OFFSET_INDEX_OFFSET] = last_offset
    if state[_LARGEST_TIMESTAMP] > state[_TIME_INDEX_TIMESTAMP]:
        place = state[_TIME_ENTRIES] * 12
        place = _write_integer(time_entries, place, state[_LARGEST_TIMESTAMP], 8)
        _write_integer(time_entries, place, state[_LARGEST_OFFSET] - base_offset, 4)
        state[_TIME_ENTRIES] += 1
        state[_TIME_INDEX_TIMESTAMP] = state[_LARGEST_TIMESTAMP]
        state[_TIME_INDEX_OFFSET] = state[_LARGEST_OFFSET]
    state[_BYTES_SINCE_ENTRY] = 0
    state[_ROOM] -= 1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _slot_of(producer_id: cython.longlong, producers: cython.longlong[::1]) -> cython.Py_ssize_t:
    """The place of a producer in the table, of which at most half is used: id + 1, batches so far, batches in all."""
    # The ids of a broker follow each other, so their low bits spread well; high ones are folded in for all others.
    slot: cython.Py_ssize_t = (producer_id ^ (producer_id >> 13) ^ (producer_id >> 31)) & (_SLOTS - 1)
    while producers[slot * 3] != 0 and producers[slot * 3] != producer_id + 1:
        slot = (slot + 1) & (_SLOTS - 1)
    return slot


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(
    data: cython.const[cython.uchar][::1],
    limits: cython.const[cython.longlong][::1],
    tables: cython.const[cython.uint][::1],
    state: cython.longlong[::1],
    offset_entries: cython.uchar[::1],
    time_entries: cython.uchar[::1],
    notable: cython.longlong[::1],
    producers: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Walk as far as batches are plain, and return where the walk ended; `notable` has all that have a producer."""
    base_offset: cython.longlong = limits[0]
    file_position: cython.longlong = limits[1]
    interval_bytes: cython.longlong = limits[2]
    makes_entries: cython.bint = state[_ROOM] > 0
    position: cython.Py_ssize_t = 0
    size: cython.longlong
    offset: cython.longlong
    last_offset: cython.longlong
    timestamp: cython.longlong
    producer_id: cython.longlong
    leader_epoch: cython.longlong
    slot: cython.Py_ssize_t
    known: cython.Py_ssize_t = 0
    # A batch makes one entry of each kind and is notable once, so that each room is enough for as many batches.
    room: cython.Py_ssize_t = min(len(notable), len(offset_entries) // 8, len(time_entries) // 12)
    count: cython.Py_ssize_t = 0
    while count < room and known < _SLOTS // 2:
        size = _plain_size(data, position, limits[3], tables)
        offset = _read_int64(data, position) if size else 0
        if size == 0 or offset < state[_NEXT_OFFSET] or file_position + position > _SIZE_MAX:
            break
        # The difference first: the offset alone may be so large that nothing can be added to it.
        if offset - base_offset > limits[4] - _read_int32(data, position + 23):
            break
        producer_id = _read_int64(data, position + 43)
        if producer_id == _INT64_MAX:
            break  # The table has no room for it.
        last_offset = offset + _read_int32(data, position + 23)
        state[_NEXT_OFFSET] = last_offset + 1
        timestamp = _read_int64(data, position + 35)
        if timestamp > state[_LARGEST_TIMESTAMP]:
            state[_LARGEST_TIMESTAMP] = timestamp
            state[_LARGEST_OFFSET] = last_offset
        if makes_entries and state[_BYTES_SINCE_ENTRY] > interval_bytes:
            _add_entries(state, base_offset, last_offset, file_position + position, offset_entries, time_entries)
        state[_BYTES_SINCE_ENTRY] += size
        leader_epoch = _read_int32(data, position + 12)
        if producer_id >= 0:
            slot = _slot_of(producer_id, producers)
            known += producers[slot * 3] == 0
            producers[slot * 3] = producer_id + 1
            producers[slot * 3 + 2] += 1
        if leader_epoch > state[_LEADER_EPOCH]:
            state[_LEADER_EPOCH] = leader_epoch
            notable[state[_NOTABLE]] = -position - 1  # Whatever its producer sends later, this one is kept.
            state[_NOTABLE] += 1
        elif producer_id >= 0:
            notable[state[_NOTABLE]] = position
            state[_NOTABLE] += 1
        position += size
        count += 1
        if makes_entries and state[_ROOM] <= 0:
            break
    return position


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _drop_forgotten(
    data: cython.const[cython.uchar][::1],
    state: cython.longlong[::1],
    notable: cython.longlong[::1],
    producers: cython.longlong[::1],
) -> cython.int:
    """Take those batches out of `notable` that the state of their producer would not remember."""
    kept: cython.Py_ssize_t = 0
    one: cython.Py_ssize_t
    position: cython.longlong
    producer_id: cython.longlong
    slot: cython.Py_ssize_t
    is_kept: cython.bint
    for one in range(state[_NOTABLE]):
        position = notable[one]
        is_kept = position < 0
        if is_kept:
            position = -position - 1
        producer_id = _read_int64(data, position + 43)
        if producer_id >= 0:
            slot = _slot_of(producer_id, producers)
            producers[slot * 3 + 1] += 1
            is_kept = (
                is_kept
                or producers[slot * 3 + 1] == 1
                or producers[slot * 3 + 1] > producers[slot * 3 + 2] - _BATCHES_KEPT
                or data[position + 22] & 0x10 != 0
            )
        if is_kept:
            notable[kept] = position
            kept += 1
    state[_NOTABLE] = kept
    return 0


def walk_batches(
    chunk: cython.const[cython.uchar][::1],
    limits: cython.const[cython.longlong][::1],
    state: cython.longlong[::1],
    offset_entries: cython.uchar[::1],
    time_entries: cython.uchar[::1],
    notable: cython.longlong[::1],
) -> int:
    """Check the plain batches at the start of a chunk, and return how many bytes they are.

    Args:
        chunk: bytes of the file, from the start of a batch on.
        limits: the base offset of the segment, the position of the chunk in the file, `index.interval.bytes`, the size
            of the largest batch that is looked at here, and the largest relative offset that a batch may have.
        state: the numbers that are named above; changed.
        offset_entries: room for an entry of 8 bytes for every batch; filled.
        time_entries: room for an entry of 12 bytes for every batch; filled.
        notable: room for the position in the chunk of every batch; filled with those that somebody has to look at.
    """
    tables: cython.const[cython.uint][::1] = _CRC_TABLES
    producers: cython.longlong[::1] = array("q", bytes(3 * 8 * _SLOTS))
    position: cython.Py_ssize_t
    state[_OFFSET_ENTRIES] = 0
    state[_TIME_ENTRIES] = 0
    state[_NOTABLE] = 0
    with cython.nogil:
        position = _walk(chunk, limits, tables, state, offset_entries, time_entries, notable, producers)
        _drop_forgotten(chunk, state, notable, producers)
    return position


def find_batch(buffer: cython.const[cython.uchar][::1], target_offset: cython.longlong) -> tuple[int, int]:
    """Walks batches and messages from the first byte to the first whose last offset is `target_offset` or later.

    Answers (its position, its last offset); (position, -1) when the buffer ends first, where `position` is that of the
    first header that is not all in the buffer, and so lies behind the buffer when a body does; and (position, -2)
    when the length, magic or offset in the header there cannot be right.
    """
    size: cython.Py_ssize_t = len(buffer)
    position: cython.longlong = 0
    length: cython.longlong
    magic: cython.int
    delta: cython.longlong
    last_offset: cython.longlong
    answer: cython.longlong = -1
    with cython.nogil:
        while size - position >= 17:
            length = _read_int32(buffer, position + 8)
            magic = buffer[position + 16]
            # The least length is that of an empty batch (61 bytes) or of a message whose key and value are null (34
            # or 26), less the 12 bytes of offset and length. From 0x80 on, the offset's first byte has the sign bit.
            if magic > 2 or length < (49 if magic == 2 else 22 if magic == 1 else 14) or buffer[position] >= 0x80:
                answer = -2
                break
            last_offset = _read_uint32(buffer, position) << 32 | _read_uint32(buffer, position + 4)
            if magic == 2:
                if size - position < 27:
                    break
                delta = _read_int32(buffer, position + 23)
                if delta < 0 or last_offset > _INT64_MAX - delta:
                    answer = -2
                    break
                last_offset += delta
            if last_offset >= target_offset:
                answer = last_offset
                break
            position += length + 12
    return position, answer
