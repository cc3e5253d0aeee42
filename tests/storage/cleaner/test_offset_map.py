"""OffsetMap: bounded memory, and what it answers when that is full."""

import pytest

from barnabas.records import kernel
from barnabas.records.batch import CorruptRecordError
from barnabas.storage.cleaner.offset_map import OffsetMap


def body_of(*keys: bytes) -> memoryview:
    return memoryview(kernel.encode_records([(0, index, key, b"v", ()) for index, key in enumerate(keys)]))


def test_the_last_offset_of_a_key_counts() -> None:
    offsets = OffsetMap(24 * 100, 0.9)
    assert offsets.put_records(body_of(b"a", b"b", b"a"), 3, 100, 0) is None
    assert (offsets.find(b"a"), offsets.find(b"b"), offsets.find(b"c")) == (102, 101, -1)
    assert offsets.put(b"b", 200)
    assert offsets.find(b"b") == 200
    assert offsets.count == 2


def test_a_full_map_says_which_record_found_no_room() -> None:
    offsets = OffsetMap(24 * 10, 0.3)
    assert offsets.limit == 3
    assert offsets.put_records(body_of(b"a", b"b", b"a", b"c", b"d", b"a"), 6, 100, 0) == 104
    assert offsets.find(b"a") == 102
    assert not offsets.put(b"d", 104)
    assert offsets.put(b"a", 105)


@pytest.mark.parametrize(("size", "factor", "limit"), [(0, 0.9, 7), (24 * 1000, 1.0, 999), (24 * 1000, 0.0, 1)])
def test_there_is_always_room_for_a_key_and_to_search(size: int, factor: float, limit: int) -> None:
    assert OffsetMap(size, factor).limit == limit


def test_maps_are_seeded_anew() -> None:
    assert OffsetMap(0, 0.9).seeds != OffsetMap(0, 0.9).seeds


def test_damage_is_an_error() -> None:
    with pytest.raises(CorruptRecordError, match="missing"):
        OffsetMap(240, 0.9).put_records(body_of(b"a"), 2, 0, 0)
