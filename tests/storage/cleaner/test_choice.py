"""Which part of a log is cleaned, and the sentence that says why not."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from barnabas.config import LogConfig
from barnabas.storage.cleaner.choice import Cleanable, LogView, cleanable_part, first_dirty_offset, why_not

NOW_MS = 1_000_000


@dataclass
class Sealed:
    """A segment of 100 bytes."""

    base_offset: int
    timestamp: int = 0
    size: int = 100

    def newest_ms(self) -> int:
        return self.timestamp + 5

    def first_timestamp(self) -> int:
        return self.timestamp


def view_of(*segments: Sealed, config: Any = None, **fields: Any) -> LogView:
    view = LogView(
        segments=segments or [Sealed(base) for base in range(0, 50, 10)],
        log_start_offset=0,
        last_stable_offset=100,
        recovery_point=100,
        first_dirty_offset=-1,
        config=config or LogConfig(cleanup_policy=("compact",)),
    )
    return replace(view, **fields)


def part_of(view: LogView) -> Cleanable:
    return cleanable_part(view, NOW_MS)


def test_all_but_the_active_segment_is_cleaned() -> None:
    part = part_of(view_of())
    assert (part.segment_count, part.first_dirty_offset, part.end_offset) == (4, 0, 40)
    assert (part.clean_bytes, part.dirty_bytes, part.dirty_ratio) == (0, 400, 1.0)
    assert why_not(view_of(), part) is None


@pytest.mark.parametrize(
    ("fields", "end_offset", "words"),
    [
        ({"last_stable_offset": 29}, 20, "from offset 20 on transactions are open"),
        ({"last_stable_offset": 30}, 30, "from offset 30 on transactions are open"),
        ({"recovery_point": 15}, 10, "from offset 10 on the log is not flushed"),
        ({}, 40, "the active segment, which starts at offset 40, is kept"),
    ],
)
def test_what_is_not_settled_is_not_cleaned(fields: dict[str, int], end_offset: int, words: str) -> None:
    part = part_of(view_of(**fields))
    assert part.end_offset == end_offset
    assert words in part.limited_by


def test_young_records_wait() -> None:
    config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=1_000)
    segments = [Sealed(0, NOW_MS - 2_000), Sealed(10, NOW_MS - 1_005), Sealed(20, NOW_MS - 1_004), Sealed(30)]
    part = part_of(view_of(*segments, config=config))
    assert part.end_offset == 20
    assert "from offset 20 on records are younger than min.compaction.lag.ms" in part.limited_by


@pytest.mark.parametrize(
    ("checkpoint", "start", "expected"), [(-1, 0, 0), (-1, 5, 5), (25, 0, 25), (25, 30, 30), (40, 0, 40), (41, 7, 7)]
)
def test_where_the_dirty_part_starts(checkpoint: int, start: int, expected: int) -> None:
    """A checkpoint below the log start, or past the active segment's, says nothing."""
    assert first_dirty_offset(view_of(first_dirty_offset=checkpoint, log_start_offset=start)) == expected


def test_a_clean_log_waits_until_enough_is_dirty() -> None:
    view = view_of(first_dirty_offset=30)
    part = part_of(view)
    assert (part.clean_bytes, part.dirty_bytes, part.dirty_ratio) == (300, 100, 0.25)
    reason = why_not(view, part)
    assert reason is not None
    assert reason.startswith("its dirty ratio is 0.250, below min.cleanable.dirty.ratio 0.5")


def test_a_segment_that_is_cleaned_in_part_is_dirty() -> None:
    assert part_of(view_of(first_dirty_offset=25)).dirty_bytes == 200


def test_a_clean_log_has_nothing_to_clean() -> None:
    view = view_of(first_dirty_offset=40)
    reason = why_not(view, part_of(view))
    assert reason == (
        "there is nothing to clean from offset 40 on: the active segment, which starts at offset 40, is kept"
    )


def test_a_record_that_waits_too_long_is_cleaned_whatever_the_ratio() -> None:
    config = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1_000)
    old = view_of(*[Sealed(base, NOW_MS - 1_001) for base in range(0, 50, 10)], first_dirty_offset=30, config=config)
    assert part_of(old).is_overdue
    assert why_not(old, part_of(old)) is None
    young = view_of(*[Sealed(base, NOW_MS - 1_000) for base in range(0, 50, 10)], first_dirty_offset=30, config=config)
    assert not part_of(young).is_overdue
    assert why_not(young, part_of(young)) is not None


def test_other_logs_are_never_cleaned() -> None:
    view = view_of(config=LogConfig(cleanup_policy=("delete",)))
    assert why_not(view, part_of(view)) == "it is not compacted: cleanup.policy is delete"


def test_an_empty_log_has_no_ratio() -> None:
    part = part_of(view_of(Sealed(0)))
    assert (part.segment_count, part.end_offset, part.dirty_ratio) == (0, 0, 0.0)
