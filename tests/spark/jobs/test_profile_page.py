"""The page: well formed, complete without anything else, and with sentences for what stands out."""

from dataclasses import replace
from html.parser import HTMLParser

from barnabas.spark.jobs.profile_page import notes, page
from barnabas.spark.jobs.profile_result import (
    KeyFigures,
    PartitionFigures,
    ProfileFigures,
    SizeBin,
    SizeFigures,
    TimeFigures,
    figures,
)
from barnabas.spark.jobs.summary import Summary

VOID = {"meta", "rect", "line", "br"}


class Nesting(HTMLParser):
    """Fails when an element is not closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def sized(*bins: SizeBin) -> SizeFigures:
    records = sum(each.records for each in bins)
    return SizeFigures(records=records, smallest=1, average=3.5, p50=3, p90=7, p99=7, largest=7, bins=bins)


def partition(number: int, records: int) -> PartitionFigures:
    return PartitionFigures(
        partition=number,
        records=records,
        size_bytes=10 * records,
        start_offset=0,
        end_offset=records + 2,
        offsets_without_record=2,
        out_of_order=0,
    )


BUSY = replace(
    figures("a<b>&c", Summary(), {"cleanup.policy": "compact", "retention.ms": "-1", "segment.bytes": "1048576"}),
    records=100,
    size_bytes=1000,
    key_bytes=100,
    value_bytes=900,
    distinct_keys=50,
    distinct_keys_are_exact=False,
    records_without_key=3,
    out_of_order=7,
    skew=1.8,
    records_outside_times=1,
    top_keys=(
        KeyFigures(key="<k>", is_hexadecimal=False, records=40),
        KeyFigures(key="ff", is_hexadecimal=True, records=2),
    ),
    top_keys_error=2,
    partitions=(partition(0, 90), partition(1, 10), partition(2, 0)),
    times=tuple(TimeFigures(timestamp_ms=1000 * each, records=each, size_bytes=10 * each) for each in range(10)),
    interval_ms=1000,
    value_sizes=sized(SizeBin(smallest=1, largest=1, records=4), SizeBin(smallest=2, largest=3, records=96)),
)


def checked(seen: ProfileFigures) -> str:
    text = page(seen)
    nesting = Nesting()
    nesting.feed(text)
    assert nesting.open == []
    return text


def test_a_page_is_well_formed_and_escaped() -> None:
    text = checked(BUSY)
    assert "<title>Topic a&lt;b&gt;&amp;c</title>" in text
    assert text.count("<b>") == text.count("<k>") == 0
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text
    assert "about 50" in text
    assert "at least 40" in text
    assert "0xff" in text
    assert "1048576 (1 MiB)" in text
    assert "no limit" in text
    # Two charts over time and one of sizes; keys have none, because no key has a size here.
    assert text.count('<svg role="img"') == text.count("The numbers as a table") + 1 == 3


def test_what_stands_out_is_said() -> None:
    said = " ".join(notes(BUSY))
    for words in (
        "1 of 3 partitions have no record",
        "Partition 0 has 90 % of all records",
        "One key alone has 40 %",
        "7 records (7 %) have an earlier timestamp",
        "1 record has a timestamp far",
        "6 offsets have no record",
        "compacted, but has records without a key",
    ):
        assert words in said


def test_a_page_about_nothing() -> None:
    nothing = figures("orders", Summary(), {})
    assert notes(nothing) == []
    assert "There is no record in it." in checked(nothing)
