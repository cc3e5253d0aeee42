"""Neighbours are grouped as long as they would fit into one segment."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.cleaner.grouping import group_segments
from barnabas.storage.cleaner.job import SourceSegment


def bases(groups: list[list[SourceSegment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_by_bytes() -> None:
    segments = [SourceSegment(base, size, 0, 0) for base, size in [(0, 40), (10, 60), (20, 1), (30, 99), (40, 100)]]
    assert bases(group_segments(segments, 50, 100, 100)) == [[0, 10], [20, 30], [40]]


def test_by_each_index() -> None:
    offset_indexes = [SourceSegment(0, 1, 60, 1), SourceSegment(10, 1, 60, 1)]
    time_indexes = [SourceSegment(0, 1, 1, 60), SourceSegment(10, 1, 1, 60)]
    assert bases(group_segments(offset_indexes, 20, 100, 100)) == [[0], [10]]
    assert bases(group_segments(time_indexes, 20, 100, 100)) == [[0], [10]]


def test_by_the_offsets_that_fit_into_an_index() -> None:
    segments = [SourceSegment(0, 1, 0, 0), SourceSegment(10, 1, 0, 0)]
    assert bases(group_segments(segments, 2**31, 100, 100)) == [[0, 10]]
    assert bases(group_segments(segments, 2**31 + 1, 100, 100)) == [[0], [10]]


def test_a_segment_that_is_too_large_is_a_group_of_its_own() -> None:
    segments = [SourceSegment(0, 500, 500, 500), SourceSegment(10, 0, 0, 0)]
    assert bases(group_segments(segments, 20, 100, 100)) == [[0], [10]]


@given(st.lists(st.integers(0, 120), max_size=20))
def test_every_segment_is_in_one_group_and_in_order(sizes: list[int]) -> None:
    segments = [SourceSegment(index, size, 0, 0) for index, size in enumerate(sizes)]
    groups = group_segments(segments, len(sizes), 100, 100)
    assert [segment for group in groups for segment in group] == segments
    assert all(len(group) == 1 or sum(one.size for one in group) <= 100 for group in groups)
