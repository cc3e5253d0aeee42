"""Which offsets come from where, in plain numbers."""

import pytest

from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.snapshot_spans import check_ends, parts, whole
from barnabas.spark.jobs.topic import Span


def span(start: int, end: int) -> Span:
    return Span(start=start, end=end)


def test_what_both_have_is_read_from_the_archive() -> None:
    archived, live = {0: span(0, 70)}, {0: span(50, 100), 1: span(5, 9)}
    assert whole(archived, live) == {0: span(0, 100), 1: span(5, 9)}
    first, second = parts(archived, live, {0: 90, 1: 9})
    assert (first.archived, first.live, first.start, first.end) == (span(0, 70), span(70, 90), 0, 90)
    assert (second.archived.size, second.live, second.start, second.end) == (0, span(5, 9), 5, 9)


@pytest.mark.parametrize(
    ("archived", "live", "end", "expected"),
    [
        (span(0, 70), span(50, 100), 30, ((0, 30), (0, 0))),
        (span(0, 70), span(70, 100), 70, ((0, 70), (0, 0))),
        (span(0, 70), None, 60, ((0, 60), (0, 0))),
        (None, span(3, 9), 9, ((0, 0), (3, 9))),
        # An archive that was begun later than the topic: the topic has all of it.
        (span(20, 70), span(10, 100), 100, ((0, 0), (10, 100))),
        (span(20, 70), span(20, 100), 100, ((20, 70), (70, 100))),
    ],
)
def test_every_offset_is_read_once(
    archived: Span | None, live: Span | None, end: int, expected: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    (part,) = parts({0: archived} if archived else {}, {0: live} if live else {}, {0: end})
    read = [(each.start, each.end) if each.size else (0, 0) for each in (part.archived, part.live)]
    assert tuple(read) == expected
    assert part.end == end


def test_a_hole_between_archive_and_topic_is_an_error() -> None:
    with pytest.raises(DataLossError, match="records of partition 3 from offset 7 to 9 are gone"):
        whole({3: span(0, 7)}, {3: span(9, 12)})


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ({0: 5}, "must name every partition, but 1 is not in it"),
        ({0: 5, 1: 5, 2: 5}, "an offset of partition 2: there is none"),
        ({0: 11, 1: 5}, "can not end at offset 11 of partition 0, which has 2 to 10"),
        ({0: 1, 1: 5}, "can not end at offset 1 of partition 0, which has 2 to 10"),
    ],
)
def test_offsets_that_are_not_there_are_refused(ends: dict[int, int], reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        check_ends(ends, {0: span(2, 10), 1: span(0, 5)})
