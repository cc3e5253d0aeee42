"""Figures from summaries that no topic has brought; those of topics are in test_profile."""

import numpy
import pytest

from barnabas.spark.jobs.profile_result import COLUMNS_MAX, figures
from barnabas.spark.jobs.summary import PartitionSummary, Run, Summary
from barnabas.spark.jobs.topic import Span


def test_nothing_has_figures_too() -> None:
    seen = figures("orders", Summary(), {"retention.ms": "5", "unheard.of": "1"}, {0: Span(start=3, end=3)})
    assert (seen.records, seen.size_bytes, seen.skew, seen.peak_records_per_second, seen.times) == (0, 0, 0, 0, ())
    assert [(each.start_offset, each.end_offset) for each in seen.partitions] == [(3, 3)]
    assert seen.settings == {"retention.ms": "5"}


def test_times_far_away_do_not_squeeze_the_chart() -> None:
    summary = Summary()
    times = numpy.array([0, *range(10**12, 10**12 + 5000)], dtype=numpy.int64)
    summary.times.add(times, numpy.ones(5001, dtype=numpy.int64))
    part = PartitionSummary(records=5001, first_timestamp_ms=0, last_timestamp_ms=10**12 + 4999)
    part.runs = [Run(0, 0, 5000, 10**12 + 4999)]
    summary.partitions[0] = part
    seen = figures("orders", summary, {})
    assert seen.records_outside_times == 1
    assert 10 < len(seen.times) <= COLUMNS_MAX
    assert sum(each.records for each in seen.times) == 5000


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        (b"plain", ("plain", False)),
        (b"\xff", ("ff", True)),
        (b"a\nb", ("610a62", True)),
        ("ä".encode() * 31 + b"x\xc3", ("ä" * 31 + "x", False)),
        (b"\xff" * 64, ("ff" * 64, True)),
        (b"a" * 60 + b"\xff\xff\xff\xff", ("61" * 60 + "ffffffff", True)),
    ],
)
def test_keys_are_shown_as_text_where_they_are(head: bytes, shown: tuple[str, bool]) -> None:
    summary = Summary()
    import pyarrow as pa

    summary.top.add(numpy.array([1], dtype=numpy.int64), pa.array([head], pa.binary()))
    (key,) = figures("orders", summary, {}).top_keys
    assert (key.key, key.is_hexadecimal) == shown
