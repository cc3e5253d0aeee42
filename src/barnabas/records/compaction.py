# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops of log compaction: the offset map of keys, and the walk that leaves out what is out of date.

Bytes are the records sections of batches, decompressed, and come from the cleaner (`storage/cleaner`). The map is one
block of memory that the caller gives, three 64-bit words a slot; what is kept of a batch goes to a buffer of theirs.

    word 0             word 1             word 2
    | first hash     | second hash      | offset + 1, or 0: free |

A key is known by its two hashes only, 128 bits in all, which are seeded for every clean: two keys that are taken for
one would lose a record, and that needs 2**64 keys, by chance or by anybody who can not guess the seeds.

Rule 1: compiled or not, every input gives the same answer: whatever may leave 64 bits is masked.
Rule 2: every walk checks its records first (`kernel.check_records`). Bad bytes are an answer: the fault's number, which
is an index into `kernel.FAULTS`.
Rule 3: a map takes no more keys than its limit, which is smaller than its number of slots: a search always ends.
"""

from __future__ import annotations

from barnabas.records import kernel

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled

SLOT_WORDS = 3
SLOT_BYTES = 8 * SLOT_WORDS

# Literals of more than 31 bits would be Python objects to Cython.
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
# Odd numbers with well-mixed bits: from the fractions of the square roots of 2, 3, 5 and 7.
_FIRST = cython.declare(cython.ulonglong, 0x6A09E667F3BCC909)
_SECOND = cython.declare(cython.ulonglong, 0xBB67AE8584CAA73B)
_THIRD = cython.declare(cython.ulonglong, 0x3C6EF372FE94F82B)
_FOURTH = cython.declare(cython.ulonglong, 0xA54FF53A5F1D36F1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _mix(value: cython.ulonglong, factor: cython.ulonglong) -> cython.ulonglong:
    """Lets every bit of a value act on every bit of the answer."""
    value = (value ^ value >> 32) * factor & _MASK
    value = (value ^ value >> 29) * factor & _MASK
    return value ^ value >> 32


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hash(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
    first_seed: cython.ulonglong,
    second_seed: cython.ulonglong,
) -> tuple[cython.ulonglong, cython.ulonglong]:
    """Two hashes of the bytes at `position` that have nothing in common but the bytes."""
    first: cython.ulonglong = first_seed ^ cython.cast(cython.ulonglong, length)
    second: cython.ulonglong = (second_seed + cython.cast(cython.ulonglong, length) * _FOURTH) & _MASK
    word: cython.ulonglong
    shift: cython.int
    end: cython.Py_ssize_t = position + length
    while position < end:
        word = 0
        shift = 0
        while shift < 64 and position < end:
            word |= cython.cast(cython.ulonglong, data[position]) << shift
            shift += 8
            position += 1
        first = (first ^ _mix(word, _FIRST)) * _SECOND & _MASK
        first = (first << 31 | first >> 33) & _MASK
        second = (second + _mix(word ^ second >> 17, _THIRD)) & _MASK
        second = (second << 27 | second >> 37) * _FOURTH & _MASK
    return _mix(first, _SECOND), _mix(second, _FIRST)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _find_slot(
    table: cython.ulonglong[::1], word: cython.Py_ssize_t, first: cython.ulonglong, second: cython.ulonglong
) -> cython.Py_ssize_t:
    """The word at which the slot of a key starts, or the free slot where it belongs, from where it is looked for."""
    end: cython.Py_ssize_t = len(table) // 3 * 3
    while table[word + 2] != 0 and (table[word] != first or table[word + 1] != second):
        word += 3
        if word == end:
            word = 0
    return word


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_varint(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A varint of records that were checked: its value and the position behind it."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.int = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if value & 1:
        return -cython.cast(cython.longlong, value >> 1) - 1, position
    return cython.cast(cython.longlong, value >> 1), position


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    target: cython.uchar[::1],
    position: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copies bytes, and answers the position behind them in the target."""
    index: cython.Py_ssize_t
    if cython.compiled:
        for index in range(length):
            target[position + index] = source[start + index]
    else:
        target[position : position + length] = source[start : start + length]
    return position + length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash_keys(
    table: cython.ulonglong[::1],
    first_seed: cython.ulonglong,
    second_seed: cython.ulonglong,
    records: cython.const[cython.uchar][::1],
    count: cython.longlong,
    hashes: cython.ulonglong[::1],
) -> cython.Py_ssize_t:
    """Puts both hashes of every key, and the word at which to look for it, into `hashes`, and looks at those words.

    The map is larger than the processor's caches. Looks that do not wait for each other's answers are made together,
    in a third of the time of one after the other.
    """
    slots: cython.ulonglong = len(table) // 3
    position: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    index: cython.Py_ssize_t
    length: cython.longlong
    _delta: cython.longlong
    first: cython.ulonglong
    second: cython.ulonglong
    seen: cython.ulonglong = 0
    for index in range(count):
        length, position = _read_varint(records, position)
        end = position + length
        _delta, position = _read_varint(records, position + 1)
        _delta, position = _read_varint(records, position)
        length, position = _read_varint(records, position)
        first = second = 0
        if length >= 0:
            first, second = _hash(records, position, length, first_seed, second_seed)
        hashes[3 * index] = first
        hashes[3 * index + 1] = second
        hashes[3 * index + 2] = first % slots * 3
        position = end
    for index in range(count):
        seen ^= table[hashes[3 * index + 2]] ^ table[hashes[3 * index + 2] + 2]
    # What was seen is written down, or the compiler would leave the looks out.
    hashes[3 * count] = seen
    return 0


def put_keys(
    table: cython.ulonglong[::1],
    seeds: tuple,
    known: cython.longlong,
    limit: cython.longlong,
    hashes: cython.ulonglong[::1],
    records: cython.const[cython.uchar][::1],
    count: cython.longlong,
    base_offset: cython.longlong,
    start_offset: cython.longlong,
) -> tuple[int, int, int]:
    """Notes the offsets of all keys of a batch from `start_offset` on, until a new key finds the map at its limit.

    `hashes` is for the time of the call, three words a record and one more, as it is for `filter_records`.
    Answers (fault, keys in the map now, next offset), where the next offset is that of the record which found no room,
    and -1 when all found it. Records without a key are passed over.
    """
    first_seed: cython.ulonglong = seeds[0]
    second_seed: cython.ulonglong = seeds[1]
    position: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    end: cython.Py_ssize_t
    word: cython.Py_ssize_t
    length: cython.longlong
    offset: cython.longlong
    full_at: cython.longlong = -1
    first: cython.ulonglong
    second: cython.ulonglong
    fault: cython.longlong = kernel.check_records(records, count, False, 0x7FFFFFFF)[0]
    if fault != 0:
        return fault, known, -1
    if limit >= len(table) // 3:
        raise AssertionError("a map needs a free slot, or a search would not end")
    if len(hashes) < 3 * count + 1:
        raise AssertionError("the hashes need three words a record, and one more")
    with cython.nogil:
        _hash_keys(table, first_seed, second_seed, records, count, hashes)
        for index in range(count):
            length, position = _read_varint(records, position)
            end = position + length
            length, position = _read_varint(records, position + 1)
            offset, position = _read_varint(records, position)
            length, position = _read_varint(records, position)
            offset += base_offset
            if length >= 0 and offset >= start_offset:
                first = hashes[3 * index]
                second = hashes[3 * index + 1]
                word = _find_slot(table, hashes[3 * index + 2], first, second)
                if table[word + 2] == 0:
                    if known >= limit:
                        full_at = offset
                        break
                    known += 1
                    table[word] = first
                    table[word + 1] = second
                table[word + 2] = cython.cast(cython.ulonglong, offset) + 1
            position = end
    return 0, known, full_at


def filter_records(
    table: cython.ulonglong[::1],
    seeds: tuple,
    hashes: cython.ulonglong[::1],
    records: cython.const[cython.uchar][::1],
    count: cython.longlong,
    base_offset: cython.longlong,
    end_offset: cython.longlong,
    drop_tombstones: cython.bint,
    out: cython.uchar[::1],
) -> tuple[int, int, int, int, int, int]:
    """Copies the records of a batch that are kept to `out`, byte for byte.

    Below `end_offset` a record is kept when it has a key, the map has no later offset of that key, and it has a value
    or tombstones are not dropped. Answers (fault, records kept, their bytes, greatest timestamp delta of them,
    tombstones kept below `end_offset`, records dropped because they have no key).
    """
    first_seed: cython.ulonglong = seeds[0]
    second_seed: cython.ulonglong = seeds[1]
    position: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    word: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    length: cython.longlong
    offset: cython.longlong
    time_delta: cython.longlong
    time_delta_max: cython.longlong = 0
    kept: cython.longlong = 0
    tombstones: cython.longlong = 0
    keyless: cython.longlong = 0
    keep: cython.bint
    fault: cython.longlong = kernel.check_records(records, count, False, 0x7FFFFFFF)[0]
    if fault != 0:
        return fault, 0, 0, 0, 0, 0
    if len(out) < len(records):
        raise AssertionError("what is kept may be all of it, and needs as much room")
    if len(hashes) < 3 * count + 1:
        raise AssertionError("the hashes need three words a record, and one more")
    with cython.nogil:
        _hash_keys(table, first_seed, second_seed, records, count, hashes)
        for index in range(count):
            start = position
            length, position = _read_varint(records, position)
            end = position + length
            time_delta, position = _read_varint(records, position + 1)
            offset, position = _read_varint(records, position)
            length, position = _read_varint(records, position)
            offset += base_offset
            keep = True
            if offset < end_offset:
                if length < 0:
                    keep = False
                    keyless += 1
                else:
                    word = _find_slot(table, hashes[3 * index + 2], hashes[3 * index], hashes[3 * index + 1])
                    keep = table[word + 2] <= cython.cast(cython.ulonglong, offset) + 1
                    length, position = _read_varint(records, position + length)
                    if length < 0 and keep:
                        if drop_tombstones:
                            keep = False
                        else:
                            tombstones += 1
            if keep:
                size = _copy(out, size, records, start, end - start)
                if kept == 0 or time_delta > time_delta_max:
                    time_delta_max = time_delta
                kept += 1
            position = end
    return 0, kept, size, time_delta_max, tombstones, keyless


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_varint(data: cython.uchar[::1], position: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Writes `value` at `position` and answers the position behind it."""
    rest: cython.ulonglong
    # Zigzag, written without shifts of negative numbers, whose result C leaves open.
    if value < 0:
        rest = cython.cast(cython.ulonglong, -(value + 1)) * 2 + 1
    else:
        rest = cython.cast(cython.ulonglong, value) * 2
    while rest >= 0x80:
        data[position] = rest & 0x7F | 0x80
        rest >>= 7
        position += 1
    data[position] = rest
    return position + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    rest: cython.ulonglong
    size: cython.Py_ssize_t = 1
    if value < 0:
        rest = cython.cast(cython.ulonglong, -(value + 1)) * 2 + 1
    else:
        rest = cython.cast(cython.ulonglong, value) * 2
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


def shift_timestamps(
    records: cython.const[cython.uchar][::1], count: cython.longlong, shift: cython.longlong, out: cython.uchar[::1]
) -> tuple[int, int]:
    """Copies records with `shift` added to every timestamp delta, for a batch whose base timestamp is moved back by it.

    `out` has 14 bytes a record more than the records: 9 for the delta and 5 for the length. Answers (fault, bytes).
    """
    position: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    length: cython.longlong
    time_delta: cython.longlong
    moved: cython.ulonglong
    fault: cython.longlong = kernel.check_records(records, count, False, 0x7FFFFFFF)[0]
    if fault != 0:
        return fault, 0
    if len(out) < len(records) + 14 * count:
        raise AssertionError("the deltas may take more room than they had")
    with cython.nogil:
        while count > 0:
            count -= 1
            length, position = _read_varint(records, position)
            end = position + length
            start = position + 1
            time_delta, position = _read_varint(records, start)
            # Added without a sign, so that a delta that nobody can have meant wraps around in Python as it does in C.
            moved = (cython.cast(cython.ulonglong, time_delta) + cython.cast(cython.ulonglong, shift)) & _MASK
            if moved >> 63:
                time_delta = -cython.cast(cython.longlong, _MASK - moved) - 1
            else:
                time_delta = cython.cast(cython.longlong, moved)
            length += _varint_size(time_delta) - (position - start)
            size = _write_varint(out, size, length)
            out[size] = records[start - 1]
            size = _write_varint(out, size + 1, time_delta)
            size = _copy(out, size, records, position, end - position)
            position = end
    return 0, size


def put_key(
    table: cython.ulonglong[::1],
    seeds: tuple,
    known: cython.longlong,
    limit: cython.longlong,
    key: cython.const[cython.uchar][::1],
    offset: cython.longlong,
) -> int:
    """Notes the offset of one key; answers the keys in the map now, or -1 when it is new and finds no room."""
    slots: cython.ulonglong = len(table) // 3
    first: cython.ulonglong
    second: cython.ulonglong
    word: cython.Py_ssize_t
    if limit >= len(table) // 3:
        raise AssertionError("a map needs a free slot, or a search would not end")
    first, second = _hash(key, 0, len(key), seeds[0], seeds[1])
    word = _find_slot(table, first % slots * 3, first, second)
    if table[word + 2] == 0:
        if known >= limit:
            return -1
        known += 1
        table[word] = first
        table[word + 1] = second
    table[word + 2] = offset + 1
    return known


def find_key(table: cython.ulonglong[::1], seeds: tuple, key: cython.const[cython.uchar][::1]) -> int:
    """Answers the last offset that was noted of a key, or -1."""
    slots: cython.ulonglong = len(table) // 3
    first: cython.ulonglong
    second: cython.ulonglong
    first, second = _hash(key, 0, len(key), seeds[0], seeds[1])
    noted: cython.ulonglong = table[_find_slot(table, first % slots * 3, first, second) + 2]
    return cython.cast(cython.longlong, noted) - 1
