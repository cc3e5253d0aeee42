"""Walks over a segment's file: every magic, every place a batch can lie in, and damage with its position."""

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import BatchHeader, CorruptRecordError
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from barnabas.storage import batches
from barnabas.storage.batches import (
    CHUNK_BYTES,
    ENTRY_SIZE_MIN,
    HEADER_CHUNK_BYTES,
    CorruptLogError,
    LogFile,
    read_any_header,
    records_of,
    scan_batches,
    scan_headers,
)
from barnabas.storage.files import write_whole
from tests.records.message_sets import build_message, build_message_set
from tests.records.strategies import Mutation, mutated, mutations
from tests.storage.builders import NOW_MS, batch_of, marker_of, with_body, with_fields
from tests.storage.memory_files import MemoryFiles

PATH = "/data/00000000000000000000.log"

# Position and last offset of a batch.
Place = tuple[int, int]


def log_file(content: bytes | bytearray, size: int | None = None) -> LogFile:
    """A file with this content, of which the first `size` bytes count."""
    files = MemoryFiles()
    files.make_directory("/data")
    write_whole(files, PATH, content)
    return LogFile(files.open(PATH), PATH, len(content) if size is None else size)


def both_walks(log: LogFile, start: int = 0) -> Iterator[list[Place]]:
    """What either walk finds."""
    yield [(position, header.last_offset) for position, header in scan_headers(log, start)]
    yield [(position, header.last_offset) for position, header, _ in scan_batches(log, start)]


def run_of(*sizes: int) -> tuple[bytearray, list[Place]]:
    """Batches with values of these sizes, and where they are."""
    content, places = bytearray(), []
    for offset, size in enumerate(sizes):
        places.append((len(content), offset))
        content += batch_of(1, size=size, base_offset=offset)
    return content, places


# Every magic.


def mixed() -> tuple[bytes, list[Place]]:
    """Old messages, plain and wrapped, and new batches behind them."""
    parts = [
        (build_message(0, 0, -1, b"a", b"1"), 0),
        (build_message(1, 1, NOW_MS, None, None), 1),
        (build_message_set(0, [(2, -1, b"b", b"2"), (3, -1, b"c", b"3")], codec=Codec.GZIP), 3),
        (build_message_set(1, [(4, NOW_MS, b"d", b"4"), (5, NOW_MS, b"e", b"5")], codec=Codec.LZ4), 5),
        (bytes(batch_of(3, base_offset=6)), 8),
        (bytes(marker_of(1, commit=True, base_offset=9)), 9),
        (bytes(with_body(batch_of(4, base_offset=10), b"", count=0)), 13),
        (bytes(batch_of(2, base_offset=20, codec=Codec.ZSTD)), 21),
    ]
    content, places = b"", []
    for part, last_offset in parts:
        places.append((len(content), last_offset))
        content += part
    return content, places


def test_messages_and_batches_of_every_magic_are_found() -> None:
    content, places = mixed()
    for found in both_walks(log_file(content)):
        assert found == places


def test_a_walk_starts_at_any_batch() -> None:
    content, places = mixed()
    for number, (position, _) in enumerate(places):
        for found in both_walks(log_file(content), position):
            assert found == places[number:]
    for found in both_walks(log_file(content), len(content)):
        assert found == []


def test_only_the_bytes_that_count_are_looked_at() -> None:
    content, places = mixed()
    for found in both_walks(log_file(content + b"not yet written", len(content))):
        assert found == places


def test_an_empty_file_has_no_batches() -> None:
    for found in both_walks(log_file(b"")):
        assert found == []


def test_whole_batches_come_with_their_bytes() -> None:
    content, places = mixed()
    ends = [position for position, _ in places[1:]] + [len(content)]
    for (position, header, view), end in zip(scan_batches(log_file(content)), ends, strict=True):
        assert bytes(view) == content[position:end]
        assert header.size == len(view)


def test_records_of_every_magic_are_read() -> None:
    content, _ = mixed()
    found: list[Record] = []
    for _, header, view in scan_batches(log_file(content)):
        if not header.is_control:
            found += records_of(view, header, 1 << 20)
    assert [record.offset for record in found] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 21]
    assert found[:4] == [
        Record(0, -1, b"a", b"1", ()),
        Record(1, NOW_MS, None, None, ()),
        Record(2, -1, b"b", b"2", ()),
        Record(3, -1, b"c", b"3", ()),
    ]


# The borders of what is read at once.


@pytest.mark.parametrize("distance", [*range(-62, 3), 13, 61])
def test_a_header_may_lie_across_the_border_of_a_chunk(distance: int) -> None:
    overhead = len(batch_of(1, size=2000)) - 2000
    content, places = run_of(HEADER_CHUNK_BYTES - overhead + distance, 10, 10)
    assert places[1][0] == HEADER_CHUNK_BYTES + distance
    for found in both_walks(log_file(content)):
        assert found == places


@pytest.mark.parametrize("distance", [-62, -61, -60, -17, -16, -9, -8, -1, 0, 1, 25, 26, 60])
def test_a_batch_may_lie_across_the_border_of_the_buffer(monkeypatch: pytest.MonkeyPatch, distance: int) -> None:
    monkeypatch.setattr(batches, "CHUNK_BYTES", 1000)
    overhead = len(batch_of(1, size=900)) - 900
    content, places = run_of(1000 - overhead + distance, 300, 5, 700, 1)
    for found in both_walks(log_file(content)):
        assert found == places


@pytest.mark.parametrize("sizes", [(3000,), (10, 3000, 10), (3000, 999, 3001, 1), (5000, 4000, 3000)])
def test_a_batch_may_be_larger_than_the_buffer(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]) -> None:
    monkeypatch.setattr(batches, "CHUNK_BYTES", 1000)
    content, places = run_of(*sizes)
    for found in both_walks(log_file(content)):
        assert found == places
    for (position, _, view), (_, offset) in zip(scan_batches(log_file(content)), places, strict=True):
        assert bytes(view) == bytes(batch_of(1, size=sizes[offset], base_offset=offset)), position


def test_a_batch_may_be_larger_than_the_buffer_that_is_really_used() -> None:
    content, places = run_of(10, CHUNK_BYTES + 5, 10)
    for found in both_walks(log_file(content)):
        assert found == places


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(30, 700))
def test_sizes_and_buffers_of_all_kinds(sizes: list[int], chunk_bytes: int) -> None:
    content, places = run_of(*sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(batches, "HEADER_CHUNK_BYTES", max(61, chunk_bytes))
        for found in both_walks(log_file(content)):
            assert found == places


# Damage.


def until_damage(log: LogFile) -> Iterator[tuple[list[Place], CorruptLogError]]:
    """What either walk finds before it stops, and why it stops."""
    headers: list[Place] = []
    with pytest.raises(CorruptLogError) as caught:
        for position, header in scan_headers(log, 0):
            headers.append((position, header.last_offset))
    yield headers, caught.value
    yield from until_bad_batch(log)


def until_bad_batch(log: LogFile) -> Iterator[tuple[list[Place], CorruptLogError]]:
    """As `until_damage`, for damage that only a walk over whole batches sees."""
    found: list[Place] = []
    with pytest.raises(CorruptLogError) as caught:
        for position, header, _ in scan_batches(log):
            found.append((position, header.last_offset))
    yield found, caught.value


def check_damage(content: bytes | bytearray, places: list[Place], *, in_header: bool = True) -> None:
    """The batches at `places` are good, and what follows them is not."""
    log = log_file(content)
    position = scan_end(log, places)
    for found, error in until_damage(log) if in_header else until_bad_batch(log):
        assert found == places
        assert (error.path, error.position) == (PATH, position)
        assert str(error).startswith(f"{PATH}, position {position}: ")


def scan_end(log: LogFile, places: list[Place]) -> int:
    """Where the last of some batches ends."""
    if not places:
        return 0
    last = places[-1][0]
    return last + read_any_header(log.file.read_at(1000, last), 0).size


GOOD, GOOD_PLACES = run_of(10, 20, 30)
NEXT = batch_of(3, base_offset=3)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48, 2**31 - 1])
def test_a_bad_length_is_damage(length: int) -> None:
    check_damage(GOOD + with_fields(NEXT, batch_length=length) + GOOD, GOOD_PLACES)
    check_damage(with_fields(NEXT, batch_length=length), [])


def test_a_tail_of_any_length_that_is_no_whole_batch_is_damage() -> None:
    for size in range(1, len(NEXT)):
        check_damage(GOOD + NEXT[:size], GOOD_PLACES)
        check_damage(NEXT[:size], [])


@pytest.mark.parametrize("size", [1, 11, 25, 26, 61, 200, 5000])
def test_zeros_behind_the_batches_are_damage(size: int) -> None:
    check_damage(GOOD + bytes(size), GOOD_PLACES)


@pytest.mark.parametrize("size", [1, 26, 61, 200])
def test_ones_behind_the_batches_are_damage(size: int) -> None:
    check_damage(GOOD + b"\xff" * size, GOOD_PLACES)


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 3},
        {"magic": -1},
        {"attributes": 5},
        {"last_offset_delta": -1},
        {"count": 4},
        {"count": -1},
    ],
)
def test_a_bad_header_under_a_right_checksum_is_damage(fields: dict[str, int]) -> None:
    check_damage(GOOD + with_fields(NEXT, **fields) + GOOD, GOOD_PLACES)


@pytest.mark.parametrize("place", [17, 22, 30, 50, 61, -1])
def test_a_changed_byte_is_seen_where_checksums_are_looked_at(place: int) -> None:
    bad = bytearray(NEXT)
    bad[place] ^= 1
    check_damage(GOOD + bad + GOOD, GOOD_PLACES, in_header=False)


def test_a_damaged_old_message_is_damage() -> None:
    first = build_message(1, 0, NOW_MS, b"key", b"value")
    bad = bytearray(build_message(1, 1, NOW_MS, b"key", b"value"))
    bad[-1] ^= 1
    check_damage(first + bad, [(0, 0)], in_header=False)
    short = build_message(1, 1, NOW_MS, b"key", b"value")
    check_damage(first + short[:8] + b"\x00\x00\x00\x0d" + short[12:], [(0, 0)])
    check_damage(first + short[:-1], [(0, 0)])


def test_a_file_that_is_shorter_than_it_should_be_is_damage() -> None:
    log = log_file(GOOD, len(GOOD) + 100)
    for found, error in until_damage(log):
        assert found == GOOD_PLACES
        assert error.position == len(GOOD)


@pytest.mark.parametrize("length", [2**31 - 1, 2**30])
def test_nothing_is_allocated_for_a_length_that_the_file_does_not_have(length: int) -> None:
    log = log_file(GOOD + with_fields(NEXT, batch_length=length))
    tracemalloc.start()
    try:
        for _ in until_damage(log):
            pass
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@given(mutations)
def test_whatever_happens_to_a_file_what_lies_before_it_is_kept(changes: list[Mutation]) -> None:
    content, places = mixed()
    changed = mutated(content, changes)
    same = next((place for place, (a, b) in enumerate(zip(content, changed, strict=False)) if a != b), None)
    if same is None:
        same = min(len(content), len(changed))
    ends = [position for position, _ in places[1:]] + [len(content)]
    untouched = [place for place, end in zip(places, ends, strict=True) if end <= same]
    log = log_file(changed)
    found: list[Place] = []
    try:
        for position, header, view in scan_batches(log):
            found.append((position, header.last_offset))
            records_of_anything(view, header)
    except CorruptLogError as error:
        assert (error.path, error.position) == (PATH, scan_end(log, found))
    assert found[: len(untouched)] == untouched
    try:
        list(scan_headers(log, 0))
    except CorruptLogError as error:
        assert error.path == PATH


def records_of_anything(view: memoryview, header: BatchHeader) -> None:
    try:
        records_of(view, header, 1 << 20)
    except CorruptRecordError:
        pass


def test_the_least_entry_is_a_message_of_magic_0_without_key_and_value() -> None:
    assert len(build_message(0, 0, -1, None, None)) == ENTRY_SIZE_MIN
