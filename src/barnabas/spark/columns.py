"""Batches of records to Arrow and back, through the compiled kernel: no Python object is made for a record.

    RowBuilder      batches of one partition, as they were fetched or lie in a segment  ->  RecordBatches to yield
    OpenBatch       rows of key, value, ...  ->  one sealed batch after the other, as a segment takes them
    BatchEncoder    RecordBatches of key, value, ...  ->  sealed batches, as a Sender takes them

Rule 1: a buffer belongs to one RecordBatch. The next one gets buffers of its own, from Arrow's pool, which gives memory
again that was used before: touching fresh memory takes longer than decoding.
"""

from array import array as packed
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.fetched import FetchedBatch
from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP, TopicPartition
from barnabas.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    read_header,
)
from barnabas.records.builder import build_batch, seal_batch, seal_in_place
from barnabas.records.codecs import Codec
from barnabas.records.columns import BytesColumn, HeaderColumns, RecordColumns, RowColumns, partition_keys, sort_rows
from barnabas.records.legacy import CREATE_TIME_TYPE, LOG_APPEND_TIME_TYPE, message_header
from barnabas.records.record import check_body, records_body
from barnabas.spark.errors import PipelineError
from barnabas.spark.schema import arrow_schema

_WIDTHS = {"i": 4, "q": 8, "B": 1}
_ROOM_MIN = 4096
_HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS_TYPE = pa.list_(_HEADER_TYPE)
# The time of a record that has none is -1 ms, and comes back as that.
_NO_TIME_MICROS = -1000


class _Buffers:
    """Buffers that grow, each with the view that the kernel writes through.

    Their kinds are letters: i and q for numbers of 4 and 8 bytes, B for bytes, v for bits of validity.
    """

    def __init__(self, kinds: str) -> None:
        self._kinds = kinds
        self._rooms = [_ROOM_MIN] * len(kinds)
        self._buffers: list[pa.Buffer | None] = [None] * len(kinds)
        self._views = [memoryview(b"")] * len(kinds)

    @property
    def views(self) -> tuple[memoryview, ...]:
        """What the kernel writes to."""
        return tuple(self._views)

    def reserve(self, needs: Sequence[int]) -> None:
        """Make room for so many items in each."""
        for index, need in enumerate(needs):
            if self._buffers[index] is None or need > self._rooms[index]:
                self._rooms[index] = max(need, self._rooms[index] if self._buffers[index] is None else 2 * need)
                self._allocate(index)

    def _allocate(self, index: int) -> None:
        kind, room = self._kinds[index], self._rooms[index]
        grown = pa.allocate_buffer(room // 8 + 1 if kind == "v" else room * _WIDTHS[kind])
        view = memoryview(grown).cast("B")
        old = self._buffers[index]
        if old is not None:
            view[: old.size] = memoryview(old).cast("B")
        self._buffers[index] = grown
        self._views[index] = view.cast("i") if kind == "i" else view.cast("q") if kind == "q" else view

    def release(self, sizes: Sequence[int]) -> list[pa.Buffer]:
        """Give the buffers away, each with so many items, and have none until room is asked for again."""
        released = [
            buffer.slice(0, (size + 7) // 8 if kind == "v" else size * _WIDTHS[kind])
            for buffer, kind, size in zip(self._buffers, self._kinds, sizes, strict=True)
            if buffer is not None
        ]
        self._buffers = [None] * len(self._kinds)
        self._views = [memoryview(b"")] * len(self._kinds)
        return released


class RowBuilder:
    """Collects batches of one partition until there are enough rows for a RecordBatch."""

    def __init__(self, partition: TopicPartition, *, include_headers: bool) -> None:
        self._partition = partition
        self._schema = arrow_schema(include_headers=include_headers)
        self._records = RecordColumns()
        self._buffers = _Buffers("iBviBvqq")
        self._headers = HeaderColumns() if include_headers else None
        self._header_buffers = _Buffers("iviBiBv")
        # How many rows in a run have which type of timestamp.
        self._timestamp_types: list[tuple[int, int]] = []

    @property
    def rows(self) -> int:
        """How many rows were added since the last `take`."""
        return self._records.filled()[0]

    @property
    def bytes(self) -> int:
        """How many bytes of keys, values and headers they have."""
        _, key_bytes, _, value_bytes, _ = self._records.filled()
        if self._headers is None:
            return key_bytes + value_bytes
        _, _, _, name_bytes, header_bytes, _ = self._headers.filled()
        return key_bytes + value_bytes + name_bytes + header_bytes

    def add(self, batch: FetchedBatch, start_offset: int, end_offset: int) -> None:
        """Add the records of a batch with start_offset <= offset < end_offset; raises CorruptRecordError."""
        header, data, timestamp_type = batch.header, batch.data, CREATE_TIME_TYPE
        if header is None:
            header, data, timestamp_type = _as_current_format(batch)
        elif header.is_log_append_time:
            timestamp_type = LOG_APPEND_TIME_TYPE
        body = records_body(data, header)
        check_body(body, header)
        rows, key_bytes, _, value_bytes, _ = self._records.filled()
        rows_most, size = rows + header.count + 1, len(body)
        keys_most, values_most = key_bytes + size, value_bytes + size
        self._buffers.reserve(
            (rows_most, keys_most, rows_most, rows_most, values_most, rows_most, rows_most, rows_most)
        )
        offsets = (header.base_offset, start_offset, end_offset)
        append_time = header.max_timestamp if header.is_log_append_time else None
        times = (header.base_timestamp, append_time)
        self._records.fill(body, header.count, times, offsets, self._buffers.views)
        if self._headers is not None:
            self._add_headers(self._headers, body, header.count, offsets)
        self._timestamp_types.append((timestamp_type, self._records.filled()[0] - rows))

    def _add_headers(self, headers: HeaderColumns, body: memoryview, count: int, offsets: tuple[int, int, int]) -> None:
        rows, _, filled, name_bytes, value_bytes, _ = headers.filled()
        # A header takes two bytes at least: the lengths of its name and of its value.
        rows_most, most, size = rows + count + 1, filled + len(body) // 2 + 1, len(body)
        names_most, values_most = name_bytes + size, value_bytes + size
        self._header_buffers.reserve((rows_most, rows_most, most, names_most, most, values_most, most))
        headers.fill(body, count, offsets, self._header_buffers.views)

    def take(self) -> pa.RecordBatch:
        """Return what was added, with the schema of `arrow_schema`, and begin anew; there must be a row."""
        rows, key_bytes, key_nulls, value_bytes, value_nulls = self._records.filled()
        assert rows, "there is nothing to take"
        sizes = (rows + 1, key_bytes, rows, rows + 1, value_bytes, rows, rows, rows)
        key_offsets, keys, key_bits, value_offsets, values, value_bits, offsets, times = self._buffers.release(sizes)
        timestamp_type = self._schema.field("timestamp").type
        columns = [
            _bytes_array(pa.binary(), rows, (key_offsets, keys, key_bits), key_nulls),
            _bytes_array(pa.binary(), rows, (value_offsets, values, value_bits), value_nulls),
            _constant(self._partition.topic, pa.string(), rows),
            _constant(self._partition.partition, pa.int32(), rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, offsets]),
            pa.Array.from_buffers(timestamp_type, rows, [None, times]),
            self._take_timestamp_types(),
        ]
        if self._headers is not None:
            columns.append(self._take_headers(self._headers))
        self._records.clear()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _take_timestamp_types(self) -> pa.Array:
        runs, self._timestamp_types = self._timestamp_types, []
        if len({timestamp_type for timestamp_type, _ in runs}) == 1:
            return _constant(runs[0][0], pa.int32(), sum(rows for _, rows in runs))
        return pa.concat_arrays([_constant(timestamp_type, pa.int32(), rows) for timestamp_type, rows in runs])

    def _take_headers(self, headers: HeaderColumns) -> pa.Array:
        rows, row_nulls, filled, name_bytes, value_bytes, value_nulls = headers.filled()
        headers.clear()
        sizes = (rows + 1, rows, filled + 1, name_bytes, filled + 1, value_bytes, filled)
        lists, list_bits, name_offsets, names, value_offsets, values, value_bits = self._header_buffers.release(sizes)
        pairs = pa.StructArray.from_arrays(
            [
                _bytes_array(pa.string(), filled, (name_offsets, names, value_bits), 0),
                _bytes_array(pa.binary(), filled, (value_offsets, values, value_bits), value_nulls),
            ],
            fields=list(_HEADER_TYPE),
        )
        kind = self._schema.field("headers").type
        validity = list_bits if row_nulls else None
        return pa.Array.from_buffers(kind, rows, [validity, lists], row_nulls, children=[pairs])


def _as_current_format(batch: FetchedBatch) -> tuple[BatchHeader, memoryview, int]:
    """Return a message of format 0 or 1, with those compressed inside it, as a batch of format 2."""
    records = batch.records()
    data = build_batch(records, base_offset=records[0].offset if records else batch.last_offset)
    return read_header(data), memoryview(data), message_header(batch.data, 0).timestamp_type


def _bytes_array(kind: pa.DataType, rows: int, buffers: tuple[pa.Buffer, ...], nulls: int) -> pa.Array:
    offsets, data, validity = buffers
    return pa.Array.from_buffers(kind, rows, [validity if nulls else None, offsets, data], nulls)


@lru_cache(maxsize=64)
def _constants(value: str | int, kind: pa.DataType, room: int) -> pa.Array:
    # Of buffers: to make an array of Python's objects, Arrow imports pandas first, a third of a second.
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, room, [None, pa.py_buffer(packed("i", [value]) * room)])
    data = value.encode()
    offsets = packed("i", range(0, len(data) * room + 1, len(data)))
    return pa.Array.from_buffers(kind, room, [None, pa.py_buffer(offsets), pa.py_buffer(data * room)])


def _constant(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column that has the same value in all rows; those of up to a power of two share one array."""
    return _constants(value, kind, 1 << (rows - 1).bit_length()).slice(0, rows)


class OpenBatch:
    """A batch that rows are added to until it is full.

    Records are written where they are to lie, behind room for the header. The memory is asked for at once, but the
    system gives it only as it is written to.
    """

    def __init__(self, *, codec: Codec = Codec.NONE, level: int | None = None, batch_size: int = 512 * 1024) -> None:
        self._codec = codec
        self._level = level
        self._room = HEADER_SIZE + batch_size
        self._buffer = bytearray()
        self.touched = 0
        """How many bytes of memory it has written to, now or for a batch before."""
        self._begin()

    def _begin(self) -> None:
        self._count, self._end, self._base_timestamp, self._max_timestamp = 0, HEADER_SIZE, NO_TIMESTAMP, NO_TIMESTAMP

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to seal."""
        return self._count == 0

    def add(self, columns: RowColumns, chosen: memoryview, first: int) -> int:
        """Add chosen rows, from `first` on, and return the first that is too many; an empty batch takes one always."""
        if self._count == 0:
            room = max(self._room, HEADER_SIZE + columns.first_size(chosen[first]))
            if len(self._buffer) != room:
                self._buffer = bytearray(room)
        batch = (self._count, self._base_timestamp, self._max_timestamp)
        last, self._end, self._base_timestamp, self._max_timestamp = columns.write(
            chosen, first, self._buffer, self._end, batch
        )
        self._count += last - first
        self.touched = max(self.touched, self._end)
        return last

    def seal(self) -> memoryview:
        """Return the finished batch, which is good until a row is added to the next one."""
        batch = memoryview(self._buffer)[: self._end]
        header = self._header()
        if self._codec == Codec.NONE:
            seal_in_place(header, batch)
        else:
            batch = memoryview(seal_batch(header, batch[HEADER_SIZE:], self._level))
        self._begin()
        return batch

    def take(self) -> bytearray:
        """Return the finished batch in memory of its own."""
        header, batch = self._header(), self._buffer
        if self._codec == Codec.NONE:
            del batch[self._end :]
            seal_in_place(header, batch)
            self._buffer = bytearray()
        else:
            batch = seal_batch(header, memoryview(batch)[HEADER_SIZE : self._end], self._level)
        self._begin()
        return batch

    def _header(self) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=int(self._codec),
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            count=self._count,
        )


class BatchEncoder:
    """Turns rows into batches. Keys and values are binary or text; key, timestamp and headers may be missing."""

    def __init__(self, *, codec: Codec = Codec.NONE, level: int | None = None, batch_size: int = 512 * 1024) -> None:
        self._batch = partial(OpenBatch, codec=codec, level=level, batch_size=batch_size)

    def batches(self, rows: pa.RecordBatch, indexes: pa.Int32Array | None, timestamp_ms: int) -> Iterator[bytearray]:
        """Yield sealed batches of about `batch_size` bytes with these rows, in this order; all rows where None.

        Args:
            rows: The rows; columns with other names are left alone.
            indexes: Which rows.
            timestamp_ms: The time of rows that have none.

        Raises:
            PipelineError: A time is before 1970, or a header has no name.
        """
        chosen = chosen_rows(rows, indexes)
        if len(chosen) == 0:
            return
        columns = row_columns(rows, timestamp_ms)
        batch = self._batch()
        first = 0
        while first < len(chosen):
            first = batch.add(columns, chosen, first)
            yield batch.take()


def partitions_of_keys(keys: pa.Array, partition_count: int) -> pa.Int32Array:
    """Return the partition of each key as Kafka's default partitioner chooses it; null for a null key."""
    room = pa.allocate_buffer(max(4 * len(keys), 4))
    partition_keys(_bytes_column(keys), partition_count, memoryview(room).cast("B").cast("i")[: len(keys)])
    chosen = pa.Array.from_buffers(pa.int32(), len(keys), [None, room])
    return pc.replace_with_mask(chosen, pc.less(chosen, 0), pa.scalar(None, pa.int32())) if keys.null_count else chosen


def rows_by_partition(partitions: pa.Int32Array, partition_count: int) -> Sequence[tuple[int, pa.Int32Array]]:
    """Return (partition, indexes of its rows in order) for every partition that has rows; no partition may be null.

    Every partition must be below `partition_count`; the caller has looked.
    """
    if len(partitions) == 0:
        return []
    assert partitions.null_count == 0
    least_and_most = pc.min_max(partitions).as_py()
    assert 0 <= least_and_most["min"] <= least_and_most["max"] < partition_count
    room = pa.allocate_buffer(4 * len(partitions))
    starts = memoryview(bytearray(4 * (partition_count + 1))).cast("i")
    sort_rows(_numbers(partitions), starts, memoryview(room).cast("B").cast("i")[: len(partitions)])
    rows = pa.Array.from_buffers(pa.int32(), len(partitions), [None, room])
    bounds = starts.tolist()
    return [
        (partition, rows.slice(start, end - start))
        for partition, (start, end) in enumerate(pairwise(bounds))
        if end > start
    ]


def chosen_rows(rows: pa.RecordBatch, indexes: pa.Int32Array | None) -> memoryview:
    """Return the numbers of rows as a batch takes them; those of all rows where None."""
    if indexes is not None:
        return _numbers(indexes)
    return _first_numbers(1 << rows.num_rows.bit_length())[: rows.num_rows]


@lru_cache(maxsize=8)
def _first_numbers(count: int) -> memoryview:
    return memoryview(packed("i", range(count)))


def _numbers(array: pa.Int32Array) -> memoryview:
    """Return the numbers of an array that has no nulls, also of a slice of one."""
    return _view(array.buffers()[1], "i")[array.offset : array.offset + len(array)]


def _whole(array: pa.Array) -> pa.Array:
    """Return the same values in an array that begins where its buffers begin."""
    return array if array.offset == 0 else array.take(pa.array(range(len(array)), pa.int32()))


def _view(buffer: pa.Buffer | None, kind: Literal["B", "i", "q"] = "B") -> memoryview:
    """Return what the kernel reads; Arrow leaves buffers of no bytes out, and the kernel wants one."""
    if buffer is None or buffer.size == 0:
        return memoryview(bytes(8)).cast(kind)
    view = memoryview(buffer).cast("B")
    return view if kind == "B" else view[: len(view) // _WIDTHS[kind] * _WIDTHS[kind]].cast(kind)


def _bytes_column(array: pa.Array) -> BytesColumn:
    if array.type not in (pa.binary(), pa.string()):
        try:
            array = array.cast(pa.binary())
        except pa.ArrowException:
            raise PipelineError(f"a column of {array.type} can not be written: bytes or text is needed") from None
    validity, offsets, data = _whole(array).buffers()
    return BytesColumn(_view(offsets, "i"), _view(data), None if array.null_count == 0 else _view(validity))


def row_columns(rows: pa.RecordBatch, timestamp_ms: int) -> RowColumns:
    """Return the columns of rows that records are made of."""
    names = rows.schema.names
    keys = rows.column("key") if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    times = headers = None
    if "timestamp" in names:
        array = _whole(rows.column("timestamp").cast(pa.timestamp("us", "UTC")))
        if (pc.min(array.view(pa.int64())).as_py() or 0) < _NO_TIME_MICROS:
            raise PipelineError("a row has a timestamp before 1970, which no record can have")
        validity, micros = array.buffers()
        times = (_view(micros, "q"), None if array.null_count == 0 else _view(validity))
    if "headers" in names:
        array = rows.column("headers")
        if array.type != _HEADERS_TYPE:
            try:
                array = array.cast(_HEADERS_TYPE)
            except pa.ArrowException:
                raise PipelineError(f"headers of {array.type} can not be written: {_HEADERS_TYPE} is needed") from None
        array = _whole(array)
        pairs = array.values
        header_names, header_values = pairs.field(0), pairs.field(1)
        if header_names.null_count or pairs.null_count:
            raise PipelineError("a row has a header without a name, which no record can have")
        bits = None if array.null_count == 0 else _view(array.buffers()[0])
        columns = _bytes_column(header_names), _bytes_column(header_values)
        headers = (_view(array.buffers()[1], "i"), bits, *columns)
    return RowColumns(_bytes_column(keys), _bytes_column(rows.column("value")), times, headers, timestamp_ms)
