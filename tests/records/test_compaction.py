"""The loops of compaction, compiled and not: what they keep is what plain dictionaries would keep."""

import os
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import compaction, kernel
from tests.records.conftest import load_fallback

MODULES = [compaction, load_fallback("compaction")]
SEEDS = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
KEYS = st.none() | st.binary(max_size=20) | st.sampled_from([b"a", b"b", b"a" * 8, b"a" * 16])
ROWS = st.lists(st.tuples(st.integers(-(2**40), 2**40), KEYS, st.none() | st.binary(max_size=5)), max_size=20)


def table_of(slots: int) -> memoryview:
    return memoryview(bytearray(slots * compaction.SLOT_BYTES)).cast("Q")


def hashes_of(count: int) -> memoryview:
    return memoryview(bytearray(8 * (3 * count + 1))).cast("Q")


def body_of(rows: list[tuple[int, bytes | None, bytes | None]]) -> bytearray:
    return kernel.encode_records([(time, 2 * index, key, value, ()) for index, (time, key, value) in enumerate(rows)])


def test_what_is_installed_is_compiled() -> None:
    assert compaction.COMPILED or os.environ.get("CI") != "true"
    assert not MODULES[1].COMPILED


@given(ROWS, st.integers(0, 45), st.integers(1, 12))
def test_a_map_has_the_last_offset_of_every_key_until_it_is_full(
    rows: list[tuple[int, bytes | None, bytes | None]], start: int, limit: int
) -> None:
    tables = []
    for module in MODULES:
        table = table_of(13)
        fault, known, full_at = module.put_keys(
            table, SEEDS, 0, limit, hashes_of(len(rows)), body_of(rows), len(rows), 5, start
        )
        expected: dict[bytes, int] = {}
        expected_full = -1
        for index, (_, key, _) in enumerate(rows):
            offset = 5 + 2 * index
            if key is None or offset < start:
                continue
            if key not in expected and len(expected) == limit:
                expected_full = offset
                break
            expected[key] = offset
        assert (fault, known, full_at) == (0, len(expected), expected_full)
        for key in {key for _, key, _ in rows if key is not None}:
            assert module.find_key(table, SEEDS, key) == expected.get(key, -1)
        tables.append(bytes(table))
    assert tables[0] == tables[1], "compiled or not, the hashes are the same"


@given(ROWS, st.dictionaries(st.binary(max_size=3), st.integers(0, 60), max_size=9), st.integers(0, 60), st.booleans())
def test_what_is_kept_is_what_the_map_and_the_rules_say(
    rows: list[tuple[int, bytes | None, bytes | None]], known: dict[bytes, int], end: int, drop: bool
) -> None:
    for module in MODULES:
        table = table_of(16)
        count = 0
        for known_key, offset in known.items():
            count = module.put_key(table, SEEDS, count, 15, known_key, offset)
        assert count == len(known)
        body, out = body_of(rows), bytearray(2000)
        answer = module.filter_records(table, SEEDS, hashes_of(len(rows)), body, len(rows), 3, end, drop, out)
        kept, tombstones, keyless = [], 0, 0
        for index, (time, key, value) in enumerate(rows):
            offset = 3 + 2 * index
            if offset < end:
                if key is None:
                    keyless += 1
                    continue
                if known.get(key, -1) > offset or (value is None and drop):
                    continue
                tombstones += value is None
            kept.append((time, 2 * index, key, value, ()))
        expected = kernel.encode_records(kept)
        times = [row[0] for row in kept]
        assert answer == (0, len(kept), len(expected), max(times, default=0), tombstones, keyless)
        assert out[: len(expected)] == expected


@given(ROWS, st.integers(-(2**62), 2**62))
def test_timestamps_are_shifted_and_nothing_else(
    rows: list[tuple[int, bytes | None, bytes | None]], shift: int
) -> None:
    shifted = body_of([(time + shift, key, value) for time, key, value in rows])
    for module in MODULES:
        out = bytearray(len(body_of(rows)) + 14 * len(rows))
        assert module.shift_timestamps(body_of(rows), len(rows), shift, out) == (0, len(shifted))
        assert out[: len(shifted)] == shifted


@pytest.mark.parametrize("module", MODULES)
def test_a_delta_beyond_64_bits_wraps_around(module: ModuleType) -> None:
    out = bytearray(100)
    fault, size = module.shift_timestamps(body_of([(2**63 - 1, b"k", b"v")]), 1, 1, out)
    assert fault == 0
    assert kernel.decode_records(out[:size], 1)[0][0] == -(2**63)


@pytest.mark.parametrize("module", MODULES)
def test_bad_bytes_are_an_answer(module: ModuleType) -> None:
    body = body_of([(0, b"k", b"v")])[:-1]
    table, hashes = table_of(4), hashes_of(1)
    faults = [
        module.put_keys(table, SEEDS, 0, 2, hashes, body, 1, 0, 0)[0],
        module.filter_records(table, SEEDS, hashes, body, 1, 0, 9, False, bytearray(100))[0],
        module.shift_timestamps(body, 1, 1, bytearray(100))[0],
    ]
    assert faults == [kernel.FAULTS.index("runs past the end of the records")] * 3


@pytest.mark.parametrize("module", MODULES)
def test_a_buffer_that_is_too_small_is_refused(module: ModuleType) -> None:
    body = body_of([(0, b"k", b"v"), (0, b"l", b"v")])
    table = table_of(4)
    with pytest.raises(AssertionError, match="free slot"):
        module.put_keys(table, SEEDS, 0, 4, hashes_of(2), body, 2, 0, 0)
    with pytest.raises(AssertionError, match="free slot"):
        module.put_key(table, SEEDS, 0, 4, b"k", 0)
    with pytest.raises(AssertionError, match="three words"):
        module.put_keys(table, SEEDS, 0, 2, hashes_of(1), body, 2, 0, 0)
    with pytest.raises(AssertionError, match="three words"):
        module.filter_records(table, SEEDS, hashes_of(1), body, 2, 0, 9, False, bytearray(100))
    with pytest.raises(AssertionError, match="as much room"):
        module.filter_records(table, SEEDS, hashes_of(2), body, 2, 0, 9, False, bytearray(3))
    with pytest.raises(AssertionError, match="more room"):
        module.shift_timestamps(body, 2, 1, bytearray(len(body)))


@pytest.mark.parametrize("module", MODULES)
def test_a_full_map_refuses_new_keys_and_updates_known_ones(module: ModuleType) -> None:
    table = table_of(3)
    assert module.put_key(table, SEEDS, 0, 1, b"a", 4) == 1
    assert module.put_key(table, SEEDS, 1, 1, b"b", 5) == -1
    assert module.put_key(table, SEEDS, 1, 1, b"a", 6) == 1
    assert module.find_key(table, SEEDS, b"a") == 6
    assert module.find_key(table, SEEDS, b"b") == -1
