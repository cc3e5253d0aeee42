"""Records to columns and back, compiled and not: what the columns hold is what `decode_records` gives."""

import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.partitioner import partition_of_key
from barnabas.records import columns, kernel
from tests.records.conftest import load_fallback
from tests.records.strategies import Row, rows

MODULES = [columns, load_fallback("columns")]
ROOM = 1 << 14
INT64_MAX = 2**63 - 1

each_module = pytest.mark.parametrize("module", MODULES, ids=["as installed", "interpreted"])
nullable = st.none() | st.binary(max_size=20)


def numbers(kind: str, room: int = ROOM) -> memoryview:
    return memoryview(bytearray(8 * room)).cast(kind)  # type: ignore[call-overload, no-any-return]


def column_of(module: ModuleType, values: list[bytes | None]) -> Any:
    """A column as Arrow would lay it out."""
    offsets, bits = numbers("i", len(values) + 1), bytearray(len(values) // 8 + 1)
    data = b"".join(value or b"" for value in values)
    for row, value in enumerate(values):
        offsets[row + 1] = offsets[row] + len(value or b"")
        bits[row >> 3] |= (value is not None) << (row & 7)
    return module.BytesColumn(offsets, data or b"\0", None if None not in values else bits)


def values_of(buffers: Sequence[memoryview], rows: int) -> list[bytes | None]:
    offsets, data, bits = buffers
    return [
        bytes(data[offsets[row] : offsets[row + 1]]) if bits[row >> 3] >> (row & 7) & 1 else None for row in range(rows)
    ]


def test_it_is_compiled_on_ci() -> None:
    """Elsewhere there may be no compiler."""
    assert columns.COMPILED or os.environ.get("CI") != "true"


@each_module
@given(batches=st.lists(rows(), max_size=3), skipped=st.integers(0, 4), left_out=st.integers(0, 4))
def test_columns_have_what_the_records_have(
    module: ModuleType, batches: list[list[Row]], skipped: int, left_out: int
) -> None:
    buffers = tuple(map(numbers, "iBBiBBqq"))
    header_buffers = tuple(map(numbers, "iBiBiBB"))
    records, headers = module.RecordColumns(), module.HeaderColumns()
    expected: list[tuple[int, int, bytes | None, bytes | None, tuple[Any, ...]]] = []
    for batch in batches:
        body = bytes(kernel.encode_records(batch))
        deltas = [0, *(row[1] for row in batch), 1 << 30]
        wanted = (1000, 1000 + deltas[skipped % len(deltas)], 1000 + deltas[-1 - left_out % len(deltas)])
        records.fill(body, len(batch), (5, None), wanted, buffers)
        headers.fill(body, len(batch), wanted, header_buffers)
        expected += [row for row in kernel.decode_records(body, len(batch)) if wanted[1] <= row[1] + 1000 < wanted[2]]
    count, _, key_nulls, _, value_nulls = records.filled()
    assert count == len(expected)
    assert values_of(buffers[:3], count) == [row[2] for row in expected]
    assert values_of(buffers[3:6], count) == [row[3] for row in expected]
    assert (key_nulls, value_nulls) == tuple(sum(row[place] is None for row in expected) for place in (2, 3))
    assert buffers[6].tolist()[:count] == [1000 + row[1] for row in expected]
    limit = INT64_MAX // 1000
    assert buffers[7].tolist()[:count] == [
        max(-limit, min(limit, 5 + max(-limit, min(limit, row[0])))) * 1000 for row in expected
    ]
    list_offsets, list_bits, name_offsets, names, *header_values = header_buffers
    row_count, row_nulls, header_count, *_ = headers.filled()
    values = values_of(header_values, header_count)
    found = [
        tuple(
            (bytes(names[name_offsets[header] : name_offsets[header + 1]]), values[header])
            for header in range(list_offsets[row], list_offsets[row + 1])
        )
        for row in range(row_count)
    ]
    assert found == [row[4] for row in expected]
    assert row_nulls == found.count(())
    assert [bool(list_bits[row >> 3] >> (row & 7) & 1) for row in range(row_count)] == [bool(each) for each in found]


@each_module
def test_log_append_time_is_the_time_of_every_record(module: ModuleType) -> None:
    buffers = tuple(map(numbers, "iBBiBBqq"))
    records = module.RecordColumns()
    body = bytes(kernel.encode_records([(7, 0, None, b"a", ()), (9, 1, None, b"b", ())]))
    records.fill(body, 2, (5, 77), (0, 0, 2), buffers)
    assert buffers[7].tolist()[:2] == [77_000, 77_000]
    records.clear()
    assert records.filled() == (0, 0, 0, 0, 0)


@each_module
@given(
    rows=st.lists(
        st.tuples(
            nullable,
            nullable,
            st.none() | st.integers(0, 2**52),
            st.none() | st.lists(st.tuples(st.binary(max_size=5), nullable), max_size=3),
        ),
        min_size=1,
        max_size=12,
    ),
    room=st.integers(1, 300),
    data=st.data(),
)
def test_rows_become_the_records_they_are(module: ModuleType, rows: list[Any], room: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    indexes = numbers("i", len(chosen))[: len(chosen)]
    for place, row in enumerate(chosen):
        indexes[place] = row
    time_bits, list_bits = bytearray(8), bytearray(8)
    micros, lists = numbers("q"), numbers("i")
    pairs: list[tuple[bytes, bytes | None]] = []
    for row, (_, _, time, headers) in enumerate(rows):
        micros[row] = 0 if time is None else time * 1000 + row
        time_bits[row >> 3] |= (time is not None) << (row & 7)
        list_bits[row >> 3] |= (headers is not None) << (row & 7)
        pairs += headers or []
        lists[row + 1] = len(pairs)
    names = column_of(module, [name for name, _ in pairs])
    values = column_of(module, [value for _, value in pairs])
    keys, payloads = (column_of(module, [row[place] for row in rows]) for place in (0, 1))
    columns = module.RowColumns(keys, payloads, (micros, time_bits), (lists, list_bits, names, values), 42)
    found: list[Any] = []
    first = 0
    while first < len(chosen):
        body = bytearray(max(room, columns.first_size(indexes[first])))
        # A batch grows in two steps, as it does where rows come in several pieces.
        some = data.draw(st.integers(first + 1, len(chosen)))
        last, end, base, greatest = columns.write(indexes[:some], first, body, 0, (0, -7, -7))
        assert last > first
        last, end, base, greatest = columns.write(indexes, last, body, end, (last - first, base, greatest))
        if last < len(chosen):
            assert columns.write(indexes, last, body, end, (last - first, base, greatest))[:2] == (last, end)
        count, records = last - first, bytes(body[:end])
        assert kernel.check_records(records, count, True, count - 1)[0] == 0
        decoded = kernel.decode_records(records, count)
        found += [(base + time, key, value, headers) for time, _, key, value, headers in decoded]
        assert greatest == max(base + record[0] for record in decoded)
        first = last
    expected = [rows[row] for row in chosen]
    assert found == [
        (42 if time is None else time, key, value, tuple(headers or ())) for key, value, time, headers in expected
    ]


@each_module
@given(keys=st.lists(nullable), partition_count=st.integers(1, 1000))
def test_keys_go_where_the_client_puts_them(module: ModuleType, keys: list[bytes | None], partition_count: int) -> None:
    partitions = numbers("i", len(keys))[: len(keys)]
    module.partition_keys(column_of(module, keys), partition_count, partitions)
    assert partitions.tolist() == [-1 if key is None else partition_of_key(key, partition_count) for key in keys]


@each_module
@given(partitions=st.lists(st.integers(0, 5)))
def test_rows_are_sorted_by_partition_and_stay_in_order(module: ModuleType, partitions: list[int]) -> None:
    given_partitions, rows = numbers("i", len(partitions)), numbers("i", len(partitions))
    given_partitions, rows = given_partitions[: len(partitions)], rows[: len(partitions)]
    for row, partition in enumerate(partitions):
        given_partitions[row] = partition
    starts = numbers("i", 7)[:7]
    module.sort_rows(given_partitions, starts, rows)
    expected = [[row for row, each in enumerate(partitions) if each == partition] for partition in range(6)]
    assert rows.tolist() == [row for each in expected for row in each]
    assert starts.tolist() == [sum(map(len, expected[:partition])) for partition in range(7)]
