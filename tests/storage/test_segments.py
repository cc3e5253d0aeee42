"""LogSegments against a sorted dictionary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.segment import LogSegment, OpenSegments, SegmentOptions
from barnabas.storage.segments import LogSegments
from tests.storage.memory_files import MemoryFiles


def segment_at(base_offset: int) -> LogSegment:
    """A segment without files."""
    return LogSegment(SegmentOptions(MemoryFiles(), "/data", OpenSegments(), 1000, 1000), base_offset, 0)


def segments_at(*base_offsets: int) -> LogSegments:
    segments = LogSegments()
    for base_offset in base_offsets:
        segments.add(segment_at(base_offset))
    return segments


def bases(segments: list[LogSegment] | LogSegments) -> list[int]:
    return [segment.base_offset for segment in segments]


def base_of(segment: LogSegment | None) -> int | None:
    return None if segment is None else segment.base_offset


def test_segments_are_in_order_whatever_order_they_were_added_in() -> None:
    segments = segments_at(100, 0, 50)
    assert bases(segments) == [0, 50, 100]
    assert (segments.first.base_offset, segments.last.base_offset, len(segments)) == (0, 100, 3)


def test_there_may_be_none() -> None:
    segments = segments_at()
    assert bases(segments) == bases(segments.from_offset(0)) == []
    assert segments.floor(10) is None
    assert segments.higher(10) is None
    assert 0 not in segments


@pytest.mark.parametrize(
    ("offset", "floor", "higher", "following"),
    [
        (9, None, 10, [10, 50, 100]),
        (10, 10, 50, [10, 50, 100]),
        (49, 10, 50, [10, 50, 100]),
        (50, 50, 100, [50, 100]),
        (100, 100, None, [100]),
        (2**62, 100, None, [100]),
    ],
)
def test_an_offset_is_found(offset: int, floor: int | None, higher: int | None, following: list[int]) -> None:
    segments = segments_at(10, 50, 100)
    assert base_of(segments.floor(offset)) == floor
    assert base_of(segments.higher(offset)) == higher
    assert bases(segments.from_offset(offset)) == following
    assert (offset in segments) is (offset in (10, 50, 100))


def test_a_segment_with_the_same_base_is_replaced() -> None:
    segments = segments_at(0, 50)
    new = segment_at(50)
    segments.add(new)
    assert len(segments) == 2
    assert segments.floor(50) is new


def test_a_segment_may_be_removed_while_they_are_walked() -> None:
    segments = segments_at(0, 50, 100)
    for segment in segments:
        segments.remove(segment)
    assert len(segments) == 0


def test_only_the_segment_that_is_there_can_be_removed() -> None:
    segments = segments_at(0, 50)
    with pytest.raises(AssertionError):
        segments.remove(segment_at(50))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=40), st.integers(-1, 31))
def test_segments_agree_with_a_dictionary(changes: list[tuple[bool, int]], offset: int) -> None:
    segments = LogSegments()
    model: dict[int, LogSegment] = {}
    for is_added, base_offset in changes:
        if is_added:
            model[base_offset] = segment_at(base_offset)
            segments.add(model[base_offset])
        elif base_offset in model:
            segments.remove(model.pop(base_offset))
    ordered = sorted(model)
    assert list(segments) == [model[base_offset] for base_offset in ordered]
    below = [base_offset for base_offset in ordered if base_offset <= offset]
    above = [base_offset for base_offset in ordered if base_offset > offset]
    assert base_of(segments.floor(offset)) == (below[-1] if below else None)
    assert base_of(segments.higher(offset)) == (above[0] if above else None)
    assert bases(segments.from_offset(offset)) == [*below[-1:], *above]
    assert (offset in segments) is (offset in model)
