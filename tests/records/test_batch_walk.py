"""The walk over plain batches: what it takes, where it ends, and that the source uncompiled gives the same answers.

tests/storage/test_recovery.py compares what recovery makes of it with looking at each batch.
"""

import struct
from array import array
from types import ModuleType
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import batch_walk
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from tests.records.conftest import load_fallback
from tests.records.message_sets import build_message, build_message_set
from tests.records.strategies import Mutation, mutated, mutations, new_records
from tests.storage.builders import batch_of, marker_of, sent_by

FALLBACK = load_fallback("batch_walk")
MODULES = [batch_walk, FALLBACK]


def walk(
    module: ModuleType, chunk: bytes, *, room: int = 100, size_max: int = 1 << 20, count: int = 64
) -> tuple[Any, ...]:
    """Everything that a walk over a chunk at position 500 of a segment from offset 10 on leaves behind."""
    state = array("q", bytes(8 * batch_walk.STATE_SIZE))
    state[batch_walk.NEXT_OFFSET] = 10
    state[batch_walk.LARGEST_TIMESTAMP] = state[batch_walk.TIME_INDEX_TIMESTAMP] = -1
    state[batch_walk.ROOM] = room
    state[batch_walk.LEADER_EPOCH] = -1
    offset_entries, time_entries, notable = bytearray(8 * count), bytearray(12 * count), array("q", bytes(8 * count))
    walked = module.walk_batches(
        memoryview(chunk), array("q", (10, 500, 100, size_max, 2**31 - 1)), state, offset_entries, time_entries, notable
    )
    found = notable[: state[batch_walk.NOTABLE]].tolist()
    return walked, state.tolist(), bytes(offset_entries), bytes(time_entries), found


def plain(count: int) -> list[bytes]:
    return [bytes(batch_of(1, base_offset=10 + number, leader_epoch=0)) for number in range(count)]


@pytest.mark.parametrize("module", MODULES)
def test_plain_batches_are_walked_to_the_end(module: ModuleType) -> None:
    chunk = b"".join(plain(5))
    walked, state, offset_entries, _, notable = walk(module, chunk)
    assert walked == len(chunk)
    assert state[batch_walk.NEXT_OFFSET] == 15
    assert notable == [0]  # The first has a new leader epoch.
    size = len(chunk) // 5
    # An entry for every second batch, since one has less than the 100 bytes of the interval, and two have more.
    assert offset_entries[:16] == b"".join(
        number.to_bytes(4, "big") for number in (2, 500 + 2 * size, 4, 500 + 4 * size)
    )


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "odd",
    [
        bytes(marker_of(7, commit=True, base_offset=12)),
        bytes(batch_of(1, base_offset=12, size=5000)),
        bytes(batch_of(1, base_offset=11)),
        bytes(batch_of(1, base_offset=10 + 2**31)),
        bytes(sent_by(2**63 - 1, 0, base_offset=12)),
        bytes(batch_of(1, base_offset=12))[:-1],
        bytes(batch_of(1, base_offset=12))[:-1] + b"!",
    ],
)
def test_the_walk_ends_before_what_is_not_plain(module: ModuleType, odd: bytes) -> None:
    before = b"".join(plain(2))
    assert walk(module, before + odd, size_max=1000)[0] == len(before)


@pytest.mark.parametrize("module", MODULES)
def test_only_the_batches_that_a_producer_state_remembers_are_told_of(module: ModuleType) -> None:
    batches = [bytes(sent_by(7, number, base_offset=10 + number, leader_epoch=0)) for number in range(12)]
    batches[4] = bytes(sent_by(7, 4, base_offset=14, leader_epoch=0, transactional=True))
    batches[6] = bytes(sent_by(7, 6, base_offset=16, leader_epoch=1))
    found = walk(module, b"".join(batches))[4]
    size = len(batches[0])
    assert found == [number * size for number in (0, 4, 6, 7, 8, 9, 10, 11)]


@pytest.mark.parametrize("module", MODULES)
def test_the_walk_ends_when_an_index_or_its_memory_is_full(module: ModuleType) -> None:
    chunk = b"".join(plain(20))
    size = len(chunk) // 20
    assert walk(module, chunk, room=2)[0] == 5 * size
    assert walk(module, chunk, count=3)[0] == 3 * size
    assert walk(module, chunk, room=0)[0] == len(chunk)


def test_the_checksum_is_the_one_of_every_length() -> None:
    for size in range(200):
        batch = bytes(batch_of(1, base_offset=10, size=size))
        assert int.from_bytes(batch[17:21], "big") == crc32c.crc32c(batch[21:])
        assert walk(FALLBACK, batch)[0] == walk(batch_walk, batch)[0] == len(batch)


@given(changes=mutations)
def test_compiled_or_not_the_answer_is_the_same(changes: list[Mutation]) -> None:
    batches = [
        sent_by(number % 3, number, base_offset=10 + number, leader_epoch=number // 4)
        if number % 2
        else batch_of(1, base_offset=10 + number, leader_epoch=1)
        for number in range(8)
    ]
    chunk = mutated(b"".join(batches), changes)
    assert walk(batch_walk, chunk) == walk(FALLBACK, chunk)


def test_the_walk_is_compiled(compiled: ModuleType) -> None:
    assert batch_walk.COMPILED


# The batch that has an offset.


def mixed_log() -> tuple[bytes, list[tuple[int, int]]]:
    """Messages and batches of all three magics, and (position, last offset) of each."""
    pieces = [
        (build_message(0, 0, -1, b"k", b"v"), 0),
        (build_message_set(1, [(1, 10, None, b"a"), (2, 11, None, b"b")], codec=Codec.GZIP), 2),
        (bytes(build_batch([(5, None, b"x", ())] * 3, base_offset=3)), 5),
        (bytes(build_batch([(5, None, b"x" * 500, ())], base_offset=10)), 10),
        (bytes(build_batch([], base_offset=11)), 11),
    ]
    places = []
    log = b""
    for data, last_offset in pieces:
        places.append((len(log), last_offset))
        log += data
    return log, places


@pytest.mark.parametrize("module", MODULES)
def test_the_batch_of_an_offset_is_found(module: ModuleType) -> None:
    log, places = mixed_log()
    for target in range(-1, 12):
        expected = next(place for place in places if place[1] >= target)
        assert module.find_batch(log, target) == expected
        assert module.find_batch(bytearray(log), target) == expected
        assert module.find_batch(memoryview(log), target) == expected
    assert module.find_batch(log, 12) == (len(log), -1)
    assert module.find_batch(b"", 0) == (0, -1)


@pytest.mark.parametrize("module", MODULES)
def test_a_walk_stops_where_the_next_header_is_not_complete(module: ModuleType) -> None:
    first = bytes(build_batch([(5, None, b"x" * 100, ())], base_offset=0))
    second = bytes(build_batch([(5, None, b"x", ())], base_offset=1))
    for size in range(len(first), len(first) + 27):
        assert module.find_batch((first + second)[:size], 1) == (len(first), -1)
    # The body of the batch that is found need not be there, and one that is skipped may end behind the buffer.
    assert module.find_batch((first + second)[: len(first) + 27], 1) == (len(first), 1)
    assert module.find_batch(first[:27], 1) == (len(first), -1)
    assert module.find_batch(first[:26], 1) == (0, -1)
    message = build_message(1, 0, 0, None, b"x" * 100)
    assert module.find_batch(message[:17], 0) == (0, 0)
    assert module.find_batch(message[:17], 1) == (len(message), -1)
    assert module.find_batch(message[:16], 1) == (0, -1)


@pytest.mark.parametrize(
    ("layout", "position", "value"),
    [
        (">i", 8, 48),
        (">i", 8, 0),
        (">i", 8, -1),
        (">i", 8, -(2**31)),
        (">b", 16, 3),
        (">b", 16, -1),
        (">q", 0, -1),
        (">q", 0, -(2**63)),
        (">q", 0, 2**63 - 1),
        (">i", 23, -1),
    ],
)
@pytest.mark.parametrize("module", MODULES)
def test_a_walk_stops_at_a_header_that_cannot_be_right(
    module: ModuleType, layout: str, position: int, value: int
) -> None:
    first = build_batch([(5, None, b"x", ())], base_offset=0)
    second = build_batch([(5, None, b"x", ())] * 2, base_offset=1)
    struct.pack_into(layout, second, position, value)
    assert module.find_batch(bytes(first + second), 1) == (len(first), -2)


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (1, 21)])
@pytest.mark.parametrize("module", MODULES)
def test_a_walk_stops_at_a_message_that_is_too_small(module: ModuleType, magic: int, size: int) -> None:
    message = bytearray(build_message(magic, 0, 0, None, None))
    assert module.find_batch(bytes(message), 5) == (len(message), -1)
    struct.pack_into(">i", message, 8, size)
    assert module.find_batch(bytes(message), 5) == (0, -2)


@given(records=new_records, changes=mutations, target=st.integers(-1, 40) | st.integers(0, 2**63 - 1))
def test_compiled_or_not_the_same_batch_is_found_in_damaged_logs(
    records: list[Any], changes: list[Mutation], target: int
) -> None:
    log = mixed_log()[0] + build_batch(records, base_offset=12) + build_batch(records, base_offset=2**62)
    data = mutated(log, changes)
    assert batch_walk.find_batch(data, target) == FALLBACK.find_batch(data, target)


@given(data=st.binary(max_size=200), target=st.integers(0, 5))
def test_compiled_or_not_the_same_batch_is_found_in_nonsense(data: bytes, target: int) -> None:
    assert batch_walk.find_batch(data, target) == FALLBACK.find_batch(data, target)
