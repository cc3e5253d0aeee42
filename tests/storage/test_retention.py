"""Retention: each reason to go and to stay, and the rules that hold for all logs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import LONG_MAX, LogConfig
from barnabas.storage.retention import (
    GOING,
    LogFacts,
    Quota,
    Reason,
    SegmentFacts,
    Verdict,
    choose_oldest,
    judge,
    newest_ms,
    with_quota,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
KEEP = LogConfig(retention_ms=-1)


def segment(base: int, count: int = 10, *, size: int = 100, age: int = 0, active: bool = False) -> SegmentFacts:
    return SegmentFacts(base, base + count, size, NOW - age, is_active=active)


def segments(*ages: int, size: int = 100) -> list[SegmentFacts]:
    """Segments of ten records each, so many milliseconds old; the last one is active."""
    return [segment(10 * number, size=size, age=age, active=number == len(ages) - 1) for number, age in enumerate(ages)]


def verdicts(
    config: LogConfig, found: Sequence[SegmentFacts], *, start: int = 0, high_watermark: int | None = None
) -> list[Verdict]:
    log = LogFacts(
        config=config,
        log_start_offset=start,
        high_watermark=found[-1].end_offset if high_watermark is None else high_watermark,
        size_bytes=sum(one.size_bytes for one in found),
    )
    return list(judge(log, found, NOW))


def reasons(config: LogConfig, found: Sequence[SegmentFacts], **facts: int) -> list[Reason]:
    return [verdict.reason for verdict in verdicts(config, found, **facts)]


# Each reason.


def test_old_segments_go_and_the_others_are_told_when() -> None:
    config = LogConfig(retention_ms=2 * HOUR)
    found = verdicts(config, segments(3 * HOUR, 2 * HOUR, HOUR, 0))
    assert [it.reason for it in found] == [Reason.RETENTION_MS, *[Reason.WITHIN_LIMITS] * 3]
    assert [it.due_ms for it in found] == [NOW, NOW + 1, NOW + HOUR + 1, NOW + 2 * HOUR + 1]
    assert "older than retention.ms=7200000" in found[0].sentence
    assert found[1].sentence.startswith("goes when its newest record is older than retention.ms=7200000")
    assert found[3].sentence.startswith("is still written to, and goes when")


def test_the_active_segment_goes_too_when_it_is_old() -> None:
    assert reasons(LogConfig(retention_ms=0), segments(2, 1)) == [Reason.RETENTION_MS] * 2


def test_a_segment_goes_by_size_while_the_rest_has_the_limit() -> None:
    for limit, going in ((0, 3), (100, 2), (101, 1), (200, 1), (201, 0), (-1, 0)):
        found = reasons(LogConfig(retention_ms=-1, retention_bytes=limit), segments(3, 2, 1))
        assert found[:going] == [Reason.RETENTION_BYTES] * going
        assert not set(found[going:]) & GOING


def test_what_lies_before_the_log_start_goes_under_every_policy() -> None:
    for policy in (("delete",), ("compact",), ("compact", "delete")):
        config = LogConfig(retention_ms=-1, cleanup_policy=policy)
        found = verdicts(config, segments(3, 2, 1), start=19)
        assert [it.goes for it in found] == [True, False, False]
        assert found[0].reason is Reason.LOG_START_OFFSET
        assert "starts at 19" in found[0].sentence


def test_a_compacted_log_loses_nothing_to_time_and_size() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    found = verdicts(config, segments(3 * HOUR, 2 * HOUR))
    assert [it.reason for it in found] == [Reason.COMPACTED] * 2
    assert "only the cleaner" in found[0].sentence
    both = replace(config, cleanup_policy=("compact", "delete"))
    assert reasons(both, segments(3 * HOUR, 2 * HOUR)) == [Reason.RETENTION_MS] * 2


def test_without_limits_everything_stays() -> None:
    found = verdicts(KEEP, segments(3 * HOUR, 0))
    assert [(it.reason, it.due_ms) for it in found] == [(Reason.NO_LIMIT, None)] * 2
    assert "no limit" in found[0].sentence


def test_the_first_that_stays_keeps_those_behind_it() -> None:
    found = verdicts(LogConfig(retention_ms=HOUR), segments(3 * HOUR, 0, 3 * HOUR, 0))
    assert [it.reason for it in found] == [
        Reason.RETENTION_MS,
        Reason.WITHIN_LIMITS,
        Reason.BEHIND_ANOTHER,
        Reason.WITHIN_LIMITS,
    ]
    assert found[2].due_ms == found[1].due_ms == NOW + HOUR + 1
    assert "an older segment stays" in found[2].sentence


def test_nothing_goes_from_the_high_watermark_on() -> None:
    found = verdicts(LogConfig(retention_ms=HOUR), segments(3 * HOUR, 2 * HOUR, 2 * HOUR), high_watermark=15)
    assert [it.reason for it in found] == [Reason.RETENTION_MS, Reason.HIGH_WATERMARK, Reason.HIGH_WATERMARK]
    assert "high watermark 15" in found[1].sentence
    assert found[1].due_ms is None
    assert found[2].due_ms is None


def test_an_empty_active_segment_is_the_least_that_a_log_has() -> None:
    found = verdicts(
        LogConfig(retention_ms=0, retention_bytes=0), [segment(0, age=5), segment(10, 0, size=0, active=True)]
    )
    assert [it.reason for it in found] == [Reason.RETENTION_MS, Reason.EMPTY]
    assert "empty" in found[1].sentence


def test_a_limit_beyond_all_times_has_no_moment() -> None:
    assert verdicts(LogConfig(retention_ms=LONG_MAX), segments(0))[0].due_ms is None


def test_the_sentence_names_every_limit() -> None:
    config = LogConfig(retention_ms=HOUR, retention_bytes=999, retention_topic_bytes=888)
    log = LogFacts(config=config, log_start_offset=0, high_watermark=10, size_bytes=100, disk_percent=77)
    (found,) = judge(log, segments(0), NOW)
    for words in ("retention.ms=3600000", "retention.bytes=999", "retention.topic.bytes=888", "disk.percent=77"):
        assert words in found.sentence
    (internal,) = judge(replace(log, is_internal=True), segments(0), NOW)
    assert "topic.bytes" not in internal.sentence
    assert "disk.percent" not in internal.sentence


# The future.


def test_a_record_from_the_future_counts_as_its_file_does() -> None:
    config = LogConfig(retention_ms=HOUR)
    old = segment(0)._replace(largest_timestamp=NOW + 9 * HOUR, modified_ms=NOW - 2 * HOUR)
    young = segment(10)._replace(largest_timestamp=NOW + 9 * HOUR, modified_ms=NOW - HOUR // 2)
    found = verdicts(config, [old, young])
    assert [it.reason for it in found] == [Reason.RETENTION_MS, Reason.WITHIN_LIMITS]
    assert found[1].due_ms == NOW + HOUR // 2 + 1
    assert all("a timestamp after now" in it.sentence for it in found)


def test_a_file_from_the_future_counts_from_when_that_was_noticed() -> None:
    lost = segment(0)._replace(largest_timestamp=NOW + HOUR, modified_ms=NOW + HOUR, noticed_ms=NOW - 5)
    assert newest_ms(lost, NOW) == NOW - 5
    assert newest_ms(lost._replace(noticed_ms=NOW + 1), NOW) == NOW
    assert newest_ms(lost._replace(noticed_ms=None), NOW) == NOW


def test_without_timestamps_the_file_tells_the_age() -> None:
    nameless = segment(0)._replace(largest_timestamp=-1, modified_ms=NOW - 2 * HOUR)
    (found,) = verdicts(LogConfig(retention_ms=HOUR), [nameless])
    assert found.reason is Reason.RETENTION_MS
    assert "after now" not in found.sentence


# Several logs.


def log_facts(found: Sequence[SegmentFacts], config: LogConfig = KEEP, **facts: bool) -> LogFacts:
    size = sum(one.size_bytes for one in found)
    return LogFacts(config=config, log_start_offset=0, high_watermark=found[-1].end_offset, size_bytes=size, **facts)


def test_a_topic_gives_up_the_oldest_of_all_its_partitions() -> None:
    first, second = segments(50, 20, 1), segments(40, 30, 2)
    logs = [(log_facts(first), first), (log_facts(second), second)]
    for over, counts in ((99, [0, 0]), (100, [1, 0]), (250, [1, 1]), (300, [1, 2]), (400, [2, 2]), (600, [3, 3])):
        assert choose_oldest(logs, Quota(Reason.TOPIC_BYTES, over), NOW) == counts


def test_a_disk_is_freed_until_it_is_below_its_share_and_keeps_active_segments() -> None:
    first, second = segments(50, 20, 1), segments(40, 30, 2)
    logs = [(log_facts(first), first), (log_facts(second), second)]
    for over, counts in ((0, [0, 0]), (1, [1, 0]), (101, [1, 1]), (9999, [2, 2])):
        assert choose_oldest(logs, Quota(Reason.DISK_PERCENT, over), NOW) == counts


@pytest.mark.parametrize("reason", [Reason.TOPIC_BYTES, Reason.DISK_PERCENT])
def test_internal_and_compacted_logs_are_never_cut_by_a_quota(reason: Reason) -> None:
    found = segments(50, 20, 1)
    compacted = LogConfig(cleanup_policy=("compact",))
    logs = [(log_facts(found, is_internal=True), found), (log_facts(found, compacted), found)]
    assert choose_oldest(logs, Quota(reason, 9999), NOW) == [0, 0]


def test_the_verdicts_after_a_quota_say_so() -> None:
    config = LogConfig(retention_ms=HOUR, retention_topic_bytes=1)
    own = verdicts(config, segments(2 * HOUR, 3, 2, 1))
    found = with_quota(own, 2, Reason.TOPIC_BYTES, NOW)
    assert [it.reason for it in found] == [
        Reason.RETENTION_MS,
        Reason.TOPIC_BYTES,
        Reason.TOPIC_BYTES,
        Reason.WITHIN_LIMITS,
    ]
    assert "retention.topic.bytes=1" in found[1].sentence
    assert "disk.percent=-1" in with_quota(own, 1, Reason.DISK_PERCENT, NOW)[1].sentence


# For all logs.

AGES = st.integers(-3 * HOUR, 5 * HOUR)
LIMITS = st.sampled_from([-1, 0, 1, HOUR, 2 * HOUR])
SIZES = st.sampled_from([-1, 0, 1, 100, 250, 10_000])


@st.composite
def logs(draw: st.DrawFn) -> tuple[LogFacts, list[SegmentFacts]]:
    found, offset = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(0, 10))
        timestamp = NOW - draw(AGES)
        times = draw(st.tuples(st.sampled_from([timestamp, -1]), AGES, AGES))
        size = draw(st.integers(1, 200)) if count else 0
        found.append(SegmentFacts(offset, offset + count, size, times[0], NOW - times[1], NOW - times[2]))
        offset += count
    found[-1] = found[-1]._replace(is_active=True)
    config = LogConfig(
        cleanup_policy=draw(st.sampled_from([("delete",), ("compact",), ("compact", "delete")])),
        retention_ms=draw(LIMITS),
        retention_bytes=draw(SIZES),
    )
    log = LogFacts(
        config=config,
        log_start_offset=draw(st.integers(0, offset)),
        high_watermark=draw(st.integers(0, offset)),
        size_bytes=sum(one.size_bytes for one in found),
        is_internal=draw(st.booleans()),
    )
    return log, found


@given(logs())
def test_what_goes_is_a_prefix_and_for_a_reason_that_holds(given_log: tuple[LogFacts, list[SegmentFacts]]) -> None:
    log, found = given_log
    judged = list(judge(log, found, NOW))
    assert len(judged) == len(found)
    going = [it.goes for it in judged]
    assert going == sorted(going, reverse=True)
    left = log.size_bytes
    for verdict, one in zip(judged, found, strict=True):
        left -= one.size_bytes
        assert verdict.sentence
        if not verdict.goes:
            continue
        assert verdict.due_ms == NOW
        assert one.end_offset <= log.high_watermark
        assert one.size_bytes or not one.is_active
        match verdict.reason:
            case Reason.LOG_START_OFFSET:
                assert one.end_offset <= log.log_start_offset
            case Reason.RETENTION_MS:
                assert 0 <= log.config.retention_ms < NOW - newest_ms(one, NOW)
                assert log.is_deleted_from
            case Reason.RETENTION_BYTES:
                assert left >= log.config.retention_bytes >= 0
                assert log.is_deleted_from
            case reason:
                raise AssertionError(reason)


@given(logs())
def test_a_segment_goes_at_its_moment_and_not_before(given_log: tuple[LogFacts, list[SegmentFacts]]) -> None:
    log, found = given_log
    # What is from the future has its age counted otherwise when the future comes; without that time only passes.
    found = [one._replace(largest_timestamp=min(one.largest_timestamp, NOW)) for one in found]
    found = [one._replace(modified_ms=min(one.modified_ms or 0, NOW)) for one in found]
    for number, verdict in enumerate(judge(log, found, NOW)):
        if verdict.due_ms is None or verdict.goes:
            continue
        assert verdict.due_ms > NOW
        assert list(judge(log, found, verdict.due_ms))[number].goes
        assert not list(judge(log, found, verdict.due_ms - 1))[number].goes


@given(logs(), st.integers(0, 10 * HOUR))
def test_a_clock_that_is_set_back_lets_nothing_more_go(
    given_log: tuple[LogFacts, list[SegmentFacts]], back_ms: int
) -> None:
    log, found = given_log
    found = [one._replace(largest_timestamp=min(one.largest_timestamp, NOW), noticed_ms=None) for one in found]
    found = [one._replace(modified_ms=NOW) for one in found]
    now = [it.goes for it in judge(log, found, NOW)]
    back = [it.goes for it in judge(log, found, NOW - back_ms)]
    assert all(later or not earlier for earlier, later in zip(back, now, strict=True))


@given(
    st.lists(logs(), min_size=1, max_size=4),
    st.sampled_from([Reason.TOPIC_BYTES, Reason.DISK_PERCENT]),
    st.integers(0, 900),
)
def test_a_quota_takes_prefixes_and_no_more_than_it_needs(
    given_logs: list[tuple[LogFacts, list[SegmentFacts]]], reason: Reason, over: int
) -> None:
    quota = Quota(reason, over)
    counts = choose_oldest(given_logs, quota, NOW)
    taken = [one for (_, found), count in zip(given_logs, counts, strict=True) for one in found[:count]]
    freed = sum(one.size_bytes for one in taken)
    for (log, found), count in zip(given_logs, counts, strict=True):
        assert all(quota.concerns(log, one) for one in found[:count])
    if reason is Reason.TOPIC_BYTES:
        assert freed <= over
    elif taken:
        assert min(freed - one.size_bytes for one in taken) < over
