# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records to columns and back, compiled as the kernel is, and plain Python elsewhere.

The columns are laid out as Arrow has them, but nothing here knows Arrow: they are buffers of whoever calls.

    a column of bytes     offsets   | i32 | i32 | ...     row r is data[offsets[r] : offsets[r + 1]]
                          data      | bytes of all rows, one after the other |
                          validity  one bit a row, the lowest of a byte first; 0 is null
    a column of numbers   i64 or i32, one a row

Rule 1: records that are read have passed `kernel.check_records`; the caller makes the buffers large enough for the most
that they can bring, so that no loop has to look at an end.
Rule 2: compiled or not, every input gives the same answer. No value here can leave 64 bits.
Rule 3: a loop makes no Python objects.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from barnabas.records import cython_shim as cython

COMPILED = cython.compiled

# Literals of more than 31 bits would be Python objects to Cython.
# The greatest and least time in milliseconds whose microseconds fit into 64 bits.
_MILLIS_MAX = cython.declare(cython.longlong, 9223372036854775)
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_SEED = cython.declare(cython.ulonglong, 0x9747B28C)
_MULTIPLIER = cython.declare(cython.ulonglong, 0x5BD1E995)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_varint(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The value of a varint or varlong that was checked before, and the position behind it."""
    byte: cython.ulonglong = data[position]
    value: cython.ulonglong = byte & 0x7F
    shift: cython.int = 7
    position += 1
    while byte >= 0x80:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
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
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _set_valid(bits: cython.uchar[::1], row: cython.Py_ssize_t, valid: cython.bint) -> cython.Py_ssize_t:
    """Says of a row whether it has a value, and answers how many nulls that makes; rows come in order."""
    if row & 7 == 0:
        bits[row >> 3] = 0
    if valid:
        bits[row >> 3] |= 1 << (row & 7)
        return 0
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _micros(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """The sum of two numbers of milliseconds in microseconds; what 64 bits can not hold is the last time they can."""
    if base > _MILLIS_MAX or base < -_MILLIS_MAX:
        base = _MILLIS_MAX if base > 0 else -_MILLIS_MAX
    if delta > _MILLIS_MAX or delta < -_MILLIS_MAX:
        delta = _MILLIS_MAX if delta > 0 else -_MILLIS_MAX
    base += delta
    if base > _MILLIS_MAX:
        base = _MILLIS_MAX
    elif base < -_MILLIS_MAX:
        base = -_MILLIS_MAX
    return base * 1000


@cython.final
@cython.cclass
class RecordColumns:
    """Key, value, offset and time of records, filled row by row into buffers of the caller."""

    rows: cython.Py_ssize_t
    key_bytes: cython.Py_ssize_t
    key_nulls: cython.Py_ssize_t
    value_bytes: cython.Py_ssize_t
    value_nulls: cython.Py_ssize_t

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin with row 0 again."""
        self.rows = self.key_bytes = self.key_nulls = self.value_bytes = self.value_nulls = 0

    def filled(self) -> tuple[int, int, int, int, int]:
        """Answers how many rows, bytes and null keys, and bytes and null values there are."""
        return self.rows, self.key_bytes, self.key_nulls, self.value_bytes, self.value_nulls

    def fill(
        self,
        records: cython.const[cython.uchar][::1],
        count: cython.longlong,
        times: tuple,
        offsets: tuple,
        buffers: tuple,
    ) -> None:
        """Adds records of a batch.

        Args:
            records: The records section, decompressed and checked.
            count: How many records it has.
            times: The base timestamp, and the time of all records or None, in milliseconds.
            offsets: The base offset, and the range of offsets that is wanted, as start and end.
            buffers: For keys and for values: offsets (i32), data, validity; then offset and microseconds (i64).
        """
        key_offsets: cython.int[::1]
        keys: cython.uchar[::1]
        key_bits: cython.uchar[::1]
        value_offsets: cython.int[::1]
        values: cython.uchar[::1]
        value_bits: cython.uchar[::1]
        record_offsets: cython.longlong[::1]
        record_times: cython.longlong[::1]
        key_offsets, keys, key_bits, value_offsets, values, value_bits, record_offsets, record_times = buffers
        base_timestamp: cython.longlong = times[0] if times[1] is None else times[1]
        has_own_time: cython.bint = times[1] is None
        base_offset: cython.longlong = offsets[0]
        start_offset: cython.longlong = offsets[1]
        end_offset: cython.longlong = offsets[2]
        position: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        length: cython.longlong
        time_delta: cython.longlong
        offset: cython.longlong
        row: cython.Py_ssize_t = self.rows
        key_bytes: cython.Py_ssize_t = self.key_bytes
        key_nulls: cython.Py_ssize_t = self.key_nulls
        value_bytes: cython.Py_ssize_t = self.value_bytes
        value_nulls: cython.Py_ssize_t = self.value_nulls
        key_offsets[row] = key_bytes
        value_offsets[row] = value_bytes
        with cython.nogil:
            while count > 0:
                count -= 1
                length, position = _read_varint(records, position)
                end = position + length
                time_delta, position = _read_varint(records, position + 1)
                offset, position = _read_varint(records, position)
                offset += base_offset
                if offset >= end_offset:
                    break
                if offset < start_offset:
                    position = end
                    continue
                length, position = _read_varint(records, position)
                key_nulls += _set_valid(key_bits, row, length >= 0)
                if length > 0:
                    key_bytes = _copy(keys, key_bytes, records, position, length)
                    position += length
                length, position = _read_varint(records, position)
                value_nulls += _set_valid(value_bits, row, length >= 0)
                if length > 0:
                    value_bytes = _copy(values, value_bytes, records, position, length)
                record_offsets[row] = offset
                record_times[row] = _micros(base_timestamp, time_delta if has_own_time else 0)
                row += 1
                key_offsets[row] = key_bytes
                value_offsets[row] = value_bytes
                position = end
        self.rows = row
        self.key_bytes, self.key_nulls = key_bytes, key_nulls
        self.value_bytes, self.value_nulls = value_bytes, value_nulls


@cython.final
@cython.cclass
class HeaderColumns:
    """The headers of records: a list for each row, which is null where a record has none."""

    rows: cython.Py_ssize_t
    row_nulls: cython.Py_ssize_t
    headers: cython.Py_ssize_t
    name_bytes: cython.Py_ssize_t
    value_bytes: cython.Py_ssize_t
    value_nulls: cython.Py_ssize_t

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin with row 0 again."""
        self.rows = self.row_nulls = self.headers = self.name_bytes = self.value_bytes = self.value_nulls = 0

    def filled(self) -> tuple[int, int, int, int, int, int]:
        """Answers how many rows, rows without headers, headers, bytes of names, and bytes and nulls of values."""
        return self.rows, self.row_nulls, self.headers, self.name_bytes, self.value_bytes, self.value_nulls

    def fill(
        self,
        records: cython.const[cython.uchar][::1],
        count: cython.longlong,
        offsets: tuple,
        buffers: tuple,
    ) -> None:
        """Adds the headers of records of a batch.

        Args:
            records: The records section, decompressed and checked.
            count: How many records it has.
            offsets: The base offset, and the range of offsets that is wanted, as start and end.
            buffers: Offsets (i32) and validity of the lists; offsets (i32) and data of names; offsets (i32), data and
                validity of values.
        """
        list_offsets: cython.int[::1]
        list_bits: cython.uchar[::1]
        name_offsets: cython.int[::1]
        names: cython.uchar[::1]
        value_offsets: cython.int[::1]
        values: cython.uchar[::1]
        value_bits: cython.uchar[::1]
        list_offsets, list_bits, name_offsets, names, value_offsets, values, value_bits = buffers
        base_offset: cython.longlong = offsets[0]
        start_offset: cython.longlong = offsets[1]
        end_offset: cython.longlong = offsets[2]
        position: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        length: cython.longlong
        offset: cython.longlong
        left: cython.longlong
        row: cython.Py_ssize_t = self.rows
        header: cython.Py_ssize_t = self.headers
        row_nulls: cython.Py_ssize_t = self.row_nulls
        name_bytes: cython.Py_ssize_t = self.name_bytes
        value_bytes: cython.Py_ssize_t = self.value_bytes
        value_nulls: cython.Py_ssize_t = self.value_nulls
        list_offsets[row] = header
        name_offsets[header] = name_bytes
        value_offsets[header] = value_bytes
        with cython.nogil:
            while count > 0:
                count -= 1
                length, position = _read_varint(records, position)
                end = position + length
                length, position = _read_varint(records, position + 1)
                offset, position = _read_varint(records, position)
                offset += base_offset
                if offset >= end_offset:
                    break
                if offset < start_offset:
                    position = end
                    continue
                length, position = _read_varint(records, position)
                position += length if length > 0 else 0
                length, position = _read_varint(records, position)
                position += length if length > 0 else 0
                left, position = _read_varint(records, position)
                row_nulls += _set_valid(list_bits, row, left > 0)
                while left > 0:
                    left -= 1
                    length, position = _read_varint(records, position)
                    name_bytes = _copy(names, name_bytes, records, position, length)
                    position += length
                    length, position = _read_varint(records, position)
                    value_nulls += _set_valid(value_bits, header, length >= 0)
                    if length > 0:
                        value_bytes = _copy(values, value_bytes, records, position, length)
                        position += length
                    header += 1
                    name_offsets[header] = name_bytes
                    value_offsets[header] = value_bytes
                row += 1
                list_offsets[row] = header
                position = end
        self.rows, self.row_nulls, self.headers = row, row_nulls, header
        self.name_bytes, self.value_bytes, self.value_nulls = name_bytes, value_bytes, value_nulls


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
    rest: cython.ulonglong = _zigzag(value)
    while rest >= 0x80:
        data[position] = rest & 0x7F | 0x80
        rest >>= 7
        position += 1
    data[position] = rest
    return position + 1


@cython.final
@cython.cclass
class BytesColumn:
    """A column of bytes that is read. Without validity no row is null."""

    offsets: cython.const[cython.int][::1]
    data: cython.const[cython.uchar][::1]
    validity: cython.const[cython.uchar][::1]
    has_nulls: cython.bint

    def __init__(self, offsets: object, data: object, validity: object) -> None:
        self.offsets = offsets
        self.data = data
        self.has_nulls = validity is not None
        self.validity = b"\0" if validity is None else validity

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def length(self, row: cython.Py_ssize_t) -> cython.longlong:
        """The length of a row, or -1 for null."""
        if self.has_nulls and not self.validity[row >> 3] >> (row & 7) & 1:
            return -1
        return self.offsets[row + 1] - self.offsets[row]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes that a row takes in a record, with its length in front."""
        length: cython.longlong = self.length(row)
        if length < 0:
            return 1
        return _varint_size(length) + length

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def write(
        self, target: cython.uchar[::1], position: cython.Py_ssize_t, row: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Writes a row with its length in front, and answers the position behind it."""
        length: cython.longlong = self.length(row)
        position = _write_varint(target, position, length)
        if length <= 0:
            return position
        return _copy(target, position, self.data, self.offsets[row], length)


@cython.final
@cython.cclass
class RowColumns:
    """Rows that are to become records: keys, values, times in microseconds, and headers."""

    keys: BytesColumn
    values: BytesColumn
    micros: cython.const[cython.longlong][::1]
    time_bits: cython.const[cython.uchar][::1]
    has_times: cython.bint
    has_time_nulls: cython.bint
    list_offsets: cython.const[cython.int][::1]
    list_bits: cython.const[cython.uchar][::1]
    has_headers: cython.bint
    has_list_nulls: cython.bint
    header_names: BytesColumn
    header_values: BytesColumn
    default_time: cython.longlong

    def __init__(
        self, keys: BytesColumn, values: BytesColumn, times: object, headers: object, default_time: cython.longlong
    ) -> None:
        """Args:
        keys: The column of keys.
        values: The column of values.
        times: Microseconds (i64) and validity or None, or None when no row has a time.
        headers: Offsets (i32) and validity or None of the lists, names, values; or None when no row has headers.
        default_time: The time of rows that have none, in milliseconds.
        """
        self.keys, self.values, self.default_time = keys, values, default_time
        self.has_times = times is not None
        self.has_time_nulls = times is not None and times[1] is not None
        if times is not None:
            self.micros = times[0]
            self.time_bits = b"\0" if times[1] is None else times[1]
        self.has_headers = headers is not None
        self.has_list_nulls = headers is not None and headers[1] is not None
        if headers is not None:
            self.list_offsets, list_bits, self.header_names, self.header_values = headers
            self.list_bits = b"\0" if list_bits is None else list_bits

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def time(self, row: cython.Py_ssize_t) -> cython.longlong:
        """The time of a row in milliseconds. What is before 1970 is no time at all, which is -1."""
        if not self.has_times or (self.has_time_nulls and not self.time_bits[row >> 3] >> (row & 7) & 1):
            return self.default_time
        if self.micros[row] < 0:
            return -1
        return self.micros[row] // 1000

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def header_count(self, row: cython.Py_ssize_t) -> cython.longlong:
        if not self.has_headers or (self.has_list_nulls and not self.list_bits[row >> 3] >> (row & 7) & 1):
            return 0
        return self.list_offsets[row + 1] - self.list_offsets[row]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def record_size(
        self, row: cython.Py_ssize_t, delta: cython.longlong, base_time: cython.longlong
    ) -> cython.Py_ssize_t:
        """The bytes of a record behind its length."""
        headers: cython.longlong = self.header_count(row)
        header: cython.Py_ssize_t
        # The 1 is for the attributes, which stay 0.
        size: cython.Py_ssize_t = 1 + _varint_size(self.time(row) - base_time) + _varint_size(delta)
        size += self.keys.size(row) + self.values.size(row) + _varint_size(headers)
        if headers > 0:
            for header in range(self.list_offsets[row], self.list_offsets[row + 1]):
                size += self.header_names.size(header) + self.header_values.size(header)
        return size

    def first_size(self, row: cython.Py_ssize_t) -> int:
        """Answers how many bytes a row takes as the first record of a batch."""
        size: cython.Py_ssize_t = self.record_size(row, 0, self.time(row))
        return _varint_size(size) + size

    def write(
        self,
        rows: cython.const[cython.int][::1],
        first: cython.Py_ssize_t,
        target: cython.uchar[::1],
        position: cython.Py_ssize_t,
        batch: tuple,
    ) -> tuple[int, int, int, int]:
        """Adds the records of these rows, from `first` on, to a batch, as far as the target has room for them.

        Args:
            rows: Which rows, in order.
            first: The first of them that is not in the batch yet.
            target: Where the records lie.
            position: Where the next one goes.
            batch: How many records the batch has, and its base and greatest timestamp, which count from one on.

        Returns:
            The first of the rows that had no room, the position behind the records, base and greatest timestamp.
        """
        delta: cython.longlong = batch[0]
        base_time: cython.longlong = batch[1]
        max_time: cython.longlong = batch[2]
        index: cython.Py_ssize_t = first
        row: cython.Py_ssize_t
        size: cython.Py_ssize_t
        room: cython.Py_ssize_t = len(target)
        header: cython.Py_ssize_t
        headers: cython.longlong
        time: cython.longlong
        count: cython.Py_ssize_t = len(rows)
        with cython.nogil:
            if delta == 0 and index < count:
                base_time = max_time = self.time(rows[index])
            while index < count:
                row = rows[index]
                size = self.record_size(row, delta, base_time)
                if position + _varint_size(size) + size > room:
                    break
                time = self.time(row)
                if time > max_time:
                    max_time = time
                position = _write_varint(target, position, size)
                target[position] = 0
                position = _write_varint(target, position + 1, time - base_time)
                position = _write_varint(target, position, delta)
                position = self.keys.write(target, position, row)
                position = self.values.write(target, position, row)
                headers = self.header_count(row)
                position = _write_varint(target, position, headers)
                if headers > 0:
                    for header in range(self.list_offsets[row], self.list_offsets[row + 1]):
                        position = self.header_names.write(target, position, header)
                        position = self.header_values.write(target, position, header)
                index += 1
                delta += 1
        return index, position, base_time, max_time


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(
    data: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> cython.ulonglong:
    """The hash that `barnabas.client.partitioner` describes."""
    value: cython.ulonglong = _SEED ^ cython.cast(cython.ulonglong, length)
    word: cython.ulonglong
    end: cython.Py_ssize_t = position + (length & ~3)
    rest: cython.Py_ssize_t = length & 3
    while position < end:
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        word |= cython.cast(cython.ulonglong, data[position + 3]) << 24
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
        position += 4
    if rest > 0:
        word = data[position]
        if rest > 1:
            word |= cython.cast(cython.ulonglong, data[position + 1]) << 8
        if rest > 2:
            word |= cython.cast(cython.ulonglong, data[position + 2]) << 16
        value = (value ^ word) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_keys(keys: BytesColumn, partition_count: cython.longlong, partitions: cython.int[::1]) -> None:
    """Writes the partition of each key, and -1 for a key that is null."""
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(partitions)
    with cython.nogil:
        for row in range(count):
            if keys.length(row) < 0:
                partitions[row] = -1
            else:
                partitions[row] = (
                    cython.cast(cython.longlong, _murmur2(keys.data, keys.offsets[row], keys.length(row)) & 0x7FFFFFFF)
                    % partition_count
                )


def sort_rows(partitions: cython.const[cython.int][::1], starts: cython.int[::1], rows: cython.int[::1]) -> None:
    """Writes the rows of partition 0 in order, then those of partition 1, and so on; `starts` says where each begins.

    Args:
        partitions: The partition of each row.
        starts: Room for one number a partition and one more, all 0.
        rows: Room for one number a row.
    """
    index: cython.Py_ssize_t
    partition: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(partitions)
    last: cython.Py_ssize_t = len(starts) - 1
    with cython.nogil:
        for index in range(count):
            starts[partitions[index] + 1] += 1
        for partition in range(last):
            starts[partition + 1] += starts[partition]
        for index in range(count):
            partition = partitions[index]
            rows[starts[partition]] = index
            starts[partition] += 1
        # Every start has moved to the start of the next partition.
        for partition in range(last, 0, -1):
            starts[partition] = starts[partition - 1]
        starts[0] = 0
