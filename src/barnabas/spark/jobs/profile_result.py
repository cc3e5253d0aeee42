"""The figures of a profile, as the page shows them and as `--json` prints them, made from a Summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.spark.jobs.sketches import SizeHistogram, TimeBuckets
from barnabas.spark.jobs.summary import PartitionSummary, Summary
from barnabas.spark.jobs.topic import Span

COLUMNS_MAX = 96
TOP_KEYS = 20
# So small a share of the records at both ends of time may be left out of the chart, so that a few records with a
# strange timestamp do not push all others into one column.
OUTSIDE_SHARE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBin:
    """How many records have a size from `smallest` to `largest`, both among them."""

    smallest: int
    largest: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFigures:
    """Sizes in bytes; percentiles are exact below 128 bytes and up to 1.6 % too large above."""

    records: int
    smallest: int
    average: float
    p50: int
    p90: int
    p99: int
    largest: int
    bins: tuple[SizeBin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFigures:
    """What arrived in one interval."""

    timestamp_ms: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """What one partition has. Offsets are from `start_offset` to before `end_offset`."""

    partition: int
    records: int
    size_bytes: int
    start_offset: int
    end_offset: int
    offsets_without_record: int
    out_of_order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigures:
    """A frequent key: how it begins, as text or as hexadecimal digits, and how often it comes at least."""

    key: str
    is_hexadecimal: bool
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFigures:
    """All of it. Times are milliseconds since 1970."""

    topic: str
    records: int
    size_bytes: int
    key_bytes: int
    value_bytes: int
    header_bytes: int
    distinct_keys: int
    distinct_keys_are_exact: bool
    records_without_key: int
    tombstones: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    records_per_second: float
    peak_records_per_second: float
    peak_interval_ms: int
    out_of_order: int
    skew: float
    """How many times the average the largest partition has."""
    key_sizes: SizeFigures
    value_sizes: SizeFigures
    interval_ms: int
    times: tuple[TimeFigures, ...]
    records_outside_times: int
    """Records whose timestamps are so far from all others that the chart leaves them out."""
    partitions: tuple[PartitionFigures, ...]
    top_keys: tuple[KeyFigures, ...]
    top_keys_error: int
    """By how much the counts of the frequent keys may be too small."""
    settings: Mapping[str, str]
    """How long the topic keeps records, as far as it was asked."""


_SHOWN_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "compression.type")


def figures(
    topic: str, summary: Summary, settings: Mapping[str, str], spans: Mapping[int, Span] | None = None
) -> ProfileFigures:
    """Return the figures of a topic; with `spans` also those of partitions without records."""
    total = summary.total()
    interval_ms, times, outside = _times(summary)
    span_ms = total.last_timestamp_ms - total.first_timestamp_ms
    partitions = _partitions(summary, spans or {})
    size = total.key_bytes + total.value_bytes + total.header_bytes
    peak, peak_interval = _peak(summary.times)
    return ProfileFigures(
        topic=topic,
        records=total.records,
        size_bytes=size,
        key_bytes=total.key_bytes,
        value_bytes=total.value_bytes,
        header_bytes=total.header_bytes,
        distinct_keys=summary.distinct.estimate(),
        distinct_keys_are_exact=summary.distinct.is_exact,
        records_without_key=total.without_key,
        tombstones=total.tombstones,
        first_timestamp_ms=total.first_timestamp_ms,
        last_timestamp_ms=total.last_timestamp_ms,
        records_per_second=total.records * 1000 / max(span_ms, 1000) if total.records else 0.0,
        peak_records_per_second=peak * 1000 / peak_interval,
        peak_interval_ms=peak_interval,
        out_of_order=total.out_of_order,
        skew=max((each.records for each in partitions), default=0) * len(partitions) / max(total.records, 1),
        key_sizes=_sizes(summary.key_sizes),
        value_sizes=_sizes(summary.value_sizes),
        interval_ms=interval_ms,
        times=times,
        records_outside_times=outside,
        partitions=partitions,
        top_keys=tuple(_key(head, count) for head, count in summary.top.top(TOP_KEYS)),
        top_keys_error=summary.top.error,
        settings={name: settings[name] for name in _SHOWN_SETTINGS if name in settings},
    )


def _peak(times: TimeBuckets) -> tuple[int, int]:
    """Return the most records of an interval, and how long it is: in less than a second a batch looks like a flood."""
    if times.interval_ms >= 1000:
        return times.peak(), times.interval_ms
    by_second: dict[int, int] = {}
    for bucket, (records, _) in times.counts.items():
        second = bucket * times.interval_ms // 1000
        by_second[second] = by_second.get(second, 0) + records
    return max(by_second.values(), default=0), 1000


def _times(summary: Summary) -> tuple[int, tuple[TimeFigures, ...], int]:
    if not summary.times.counts:
        return summary.times.interval_ms, (), 0
    buckets = summary.times.counts
    first_ms = min(buckets) * summary.times.interval_ms
    last_ms = (max(buckets) + 1) * summary.times.interval_ms - 1
    middle_first, middle_last = summary.times.middle(OUTSIDE_SHARE)
    # Only where it makes the chart much clearer is anything left out of it.
    if last_ms - first_ms > 10 * (middle_last - middle_first + 1):
        first_ms, last_ms = middle_first, middle_last
    interval_ms, columns = summary.times.columns(first_ms, last_ms, COLUMNS_MAX)
    times = tuple(
        TimeFigures(timestamp_ms=timestamp, records=records, size_bytes=size) for timestamp, records, size in columns
    )
    total = sum(records for records, _ in buckets.values())
    return interval_ms, times, total - sum(each.records for each in times)


def _sizes(histogram: SizeHistogram) -> SizeFigures:
    return SizeFigures(
        records=histogram.count,
        smallest=histogram.smallest,
        average=histogram.total / max(histogram.count, 1),
        p50=histogram.percentile(0.5),
        p90=histogram.percentile(0.9),
        p99=histogram.percentile(0.99),
        largest=histogram.largest,
        bins=tuple(
            SizeBin(smallest=smallest, largest=largest, records=count)
            for smallest, largest, count in histogram.powers_of_two()
        ),
    )


def _partitions(summary: Summary, spans: Mapping[int, Span]) -> tuple[PartitionFigures, ...]:
    found = []
    for partition in sorted({*summary.partitions, *spans}):
        part = summary.partitions.get(partition, PartitionSummary())
        if part.runs:
            start, end = part.runs[0].first_offset, part.runs[0].last_offset + 1
        else:
            start = end = spans[partition].end
        found.append(
            PartitionFigures(
                partition=partition,
                records=part.records,
                size_bytes=part.key_bytes + part.value_bytes + part.header_bytes,
                start_offset=start,
                end_offset=end,
                offsets_without_record=end - start - part.records,
                out_of_order=part.out_of_order,
            )
        )
    return tuple(found)


def _key(head: bytes, count: int) -> KeyFigures:
    try:
        # A head may end in the middle of a character, which is then left out.
        text = head.decode() if len(head) < 60 else _text_of_cut(head)
        if text.isprintable():
            return KeyFigures(key=text, is_hexadecimal=False, records=count)
    except UnicodeDecodeError:
        pass
    return KeyFigures(key=head.hex(), is_hexadecimal=True, records=count)


def _text_of_cut(head: bytes) -> str:
    for left_out in range(4):
        try:
            return head[: len(head) - left_out].decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                raise
    return head.decode()
