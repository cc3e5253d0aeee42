"""Hypothesis strategies for records, and for the ways in which bytes go bad."""

from collections.abc import Callable

from hypothesis import strategies as st

from barnabas.records.record import Header

NewRecord = tuple[int, bytes | None, bytes | None, tuple[Header, ...]]
Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]

nullable_bytes = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=300)
headers = st.lists(st.tuples(st.binary(max_size=8), nullable_bytes), max_size=3).map(tuple)

# Times of a real log, and a few far ones that need long varints.
timestamps = st.integers(0, 2**42) | st.integers(-1, 2**62)
new_records: st.SearchStrategy[list[NewRecord]] = st.lists(
    st.tuples(timestamps, nullable_bytes, nullable_bytes, headers), max_size=12
)

int64s = st.integers(-100, 100) | st.integers(-(2**63), 2**63 - 1)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Records as the kernel takes them, with offset deltas that ascend, mostly without holes."""
    result: list[Row] = []
    delta = -1
    for _ in range(draw(st.integers(0, 8))):
        delta += draw(st.just(1) | st.integers(1, 2**20))
        result.append((draw(int64s), delta, draw(nullable_bytes), draw(nullable_bytes), draw(headers)))
    return result


Mutation = Callable[[bytearray], None]


def _flip(place: int, value: int) -> Mutation:
    def mutate(data: bytearray) -> None:
        if data:
            data[place % len(data)] ^= value

    return mutate


def _insert(place: int, value: bytes) -> Mutation:
    def mutate(data: bytearray) -> None:
        place_now = place % (len(data) + 1)
        data[place_now:place_now] = value

    return mutate


def _delete(place: int, count: int) -> Mutation:
    def mutate(data: bytearray) -> None:
        if data:
            start = place % len(data)
            del data[start : start + count]

    return mutate


def _truncate(place: int) -> Mutation:
    def mutate(data: bytearray) -> None:
        if data:
            del data[place % len(data) :]

    return mutate


_places = st.integers(0, 4000)
mutations: st.SearchStrategy[list[Mutation]] = st.lists(
    st.builds(_flip, _places, st.integers(1, 255))
    | st.builds(_insert, _places, st.binary(min_size=1, max_size=4))
    | st.builds(_insert, _places, st.integers(1, 11).map(lambda count: b"\xff" * count))
    | st.builds(_delete, _places, st.integers(1, 8))
    | st.builds(_truncate, _places),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes | bytearray, changes: list[Mutation]) -> bytes:
    result = bytearray(data)
    for change in changes:
        change(result)
    return bytes(result)
