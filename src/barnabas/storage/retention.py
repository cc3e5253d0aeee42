"""Retention: which segments of a log go, why the others stay, and until when. Facts in, verdicts out; no disk or clock.

    log [0, 40) [40, 70) [70, 90) active [90, 95)     judge(log, segments, now) --> goes, goes, stays until ..., stays

Whoever has a log tells its facts here (broker/log_retention.py), takes out what goes, and shows the verdicts to people.

Rule 1: what goes is a prefix of the log. The first segment that stays keeps all that come after it.
Rule 2: nothing above the high watermark goes, and an empty active segment is the least that a log has.
Rule 3: a segment is as old as its newest record. A timestamp after now tells nothing of the age: then it is as old as
its file, and where the file is from the future too, as long ago as that was first noticed.
Rule 4: logs that are only compacted lose nothing but what lies before the log start offset.
Rule 5: the sizes of a topic and of a disk are not Kafka's limits. They take the oldest segments of all logs concerned,
never of internal topics; the disk takes no active segment, so that whatever else fills it never empties a log.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

from barnabas.config import LONG_MAX, LogConfig


class Reason(Enum):
    """Why a segment goes, or what keeps it."""

    LOG_START_OFFSET = "log.start.offset"
    RETENTION_MS = "retention.ms"
    RETENTION_BYTES = "retention.bytes"
    TOPIC_BYTES = "retention.topic.bytes"
    DISK_PERCENT = "log.retention.disk.percent"
    WITHIN_LIMITS = "within-limits"
    NO_LIMIT = "no-limit"
    COMPACTED = "compacted"
    BEHIND_ANOTHER = "behind-another"
    HIGH_WATERMARK = "high-watermark"
    EMPTY = "empty"


GOING = frozenset(
    {
        Reason.LOG_START_OFFSET,
        Reason.RETENTION_MS,
        Reason.RETENTION_BYTES,
        Reason.TOPIC_BYTES,
        Reason.DISK_PERCENT,
    }
)
"""The reasons with which a segment goes now."""


class SegmentFacts(NamedTuple):
    """What is known of a segment. Offsets are those of its records, the end exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    """-1 where no record has a timestamp."""
    modified_ms: int | None = None
    """When the file was last written; needed only where the largest timestamp does not tell the age."""
    noticed_ms: int | None = None
    """When the broker first saw that the segment is from the future, or None."""
    is_active: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What is known of a log."""

    config: LogConfig
    log_start_offset: int
    high_watermark: int
    size_bytes: int
    is_internal: bool = False
    disk_percent: int = -1

    @property
    def is_deleted_from(self) -> bool:
        """Whether the policy lets old segments go at all."""
        return "delete" in self.config.cleanup_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a segment goes now, why, and from when on it may; all in `sentence` too."""

    reason: Reason
    due_ms: int | None = None
    """The first moment at which it goes if nothing is written; None where time alone does not let it go."""
    log: LogFacts
    segment: SegmentFacts
    is_from_future: bool = False

    @property
    def goes(self) -> bool:
        """Whether it goes now."""
        return self.reason in GOING

    @property
    def sentence(self) -> str:
        """Say why it goes or stays."""
        return _SENTENCES[self.reason](self) + (_FUTURE if self.is_from_future else "")


def newest_ms(segment: SegmentFacts, now_ms: int) -> int:
    """Return the time that the age of a segment is counted from, which is never after now."""
    for time_ms in (segment.largest_timestamp, segment.modified_ms, segment.noticed_ms):
        if time_ms is not None and 0 <= time_ms <= now_ms:
            return time_ms
    return now_ms


def is_out_of_time(config: LogConfig, newest_ms: int, now_ms: int) -> bool:
    """Tell whether a segment whose newest record has such a time goes by its age."""
    return "delete" in config.cleanup_policy and 0 <= config.retention_ms < now_ms - newest_ms


def judge(log: LogFacts, segments: Iterable[SegmentFacts], now_ms: int) -> Iterator[Verdict]:
    """Yield a verdict for each segment, oldest first, by the rules that look at one log only.

    Facts are asked for one by one, so that whoever only wants what goes can stop at the first that stays.
    """
    left_bytes = log.size_bytes
    before: Verdict | None = None
    for segment in segments:
        verdict = _judge_alone(log, segment, left_bytes, now_ms)
        if before is not None and not before.goes:
            verdict = _behind(verdict, before)
        yield verdict
        before = verdict
        left_bytes -= segment.size_bytes


def _judge_alone(log: LogFacts, segment: SegmentFacts, left_bytes: int, now_ms: int) -> Verdict:
    """Judge a segment as if it were the first; `left_bytes` is the size of the log from it on."""
    config = log.config
    from_future = segment.largest_timestamp > now_ms
    due_ms: int | None = now_ms
    if segment.is_active and not segment.size_bytes:
        return Verdict(reason=Reason.EMPTY, log=log, segment=segment)
    if segment.end_offset <= log.log_start_offset:
        reason = Reason.LOG_START_OFFSET
    elif not log.is_deleted_from:
        return Verdict(reason=Reason.COMPACTED, log=log, segment=segment)
    elif is_out_of_time(config, newest_ms(segment, now_ms), now_ms):
        reason = Reason.RETENTION_MS
    elif config.retention_bytes >= 0 and left_bytes - segment.size_bytes >= config.retention_bytes:
        reason = Reason.RETENTION_BYTES
    else:
        reason = Reason.WITHIN_LIMITS if _limits(log) else Reason.NO_LIMIT
        due_ms = None
        if config.retention_ms >= 0 and segment.end_offset <= log.high_watermark:
            due_ms = newest_ms(segment, now_ms) + config.retention_ms + 1
            due_ms = due_ms if due_ms <= LONG_MAX else None
    if reason in GOING and segment.end_offset > log.high_watermark:
        reason, due_ms = Reason.HIGH_WATERMARK, None
    return Verdict(reason=reason, due_ms=due_ms, log=log, segment=segment, is_from_future=from_future)


def _behind(verdict: Verdict, before: Verdict) -> Verdict:
    """Return the verdict of a segment that can not go before the one before it."""
    reason = Reason.BEHIND_ANOTHER if verdict.goes else verdict.reason
    due_ms = None
    if verdict.due_ms is not None and before.due_ms is not None:
        due_ms = max(verdict.due_ms, before.due_ms)
    return replace(verdict, reason=reason, due_ms=due_ms)


class Quota(NamedTuple):
    """Bytes that several logs have too much of together, and by which limit."""

    reason: Reason
    size_bytes: int

    def allows(self, freed_bytes: int, segment: SegmentFacts) -> bool:
        """Tell whether one more segment goes after so many bytes.

        A disk is freed until it is below its share. A topic keeps at least its limit, as a partition does in Kafka.
        """
        if self.reason is Reason.DISK_PERCENT:
            return freed_bytes < self.size_bytes
        return freed_bytes + segment.size_bytes <= self.size_bytes

    def concerns(self, log: LogFacts, segment: SegmentFacts) -> bool:
        """Tell whether a segment may go by this limit."""
        if not log.is_deleted_from or log.is_internal or segment.end_offset > log.high_watermark:
            return False
        if segment.is_active:
            return segment.size_bytes > 0 and self.reason is not Reason.DISK_PERCENT
        return True


def choose_oldest(logs: Sequence[tuple[LogFacts, Iterable[SegmentFacts]]], quota: Quota, now_ms: int) -> Sequence[int]:
    """Return how many of the first segments of each log go, the oldest of all first, until the quota is used up."""
    counts = [0] * len(logs)
    walks = [iter(segments) for _, segments in logs]
    heads: list[tuple[int, int, SegmentFacts]] = []

    def show_next(number: int) -> None:
        segment = next(walks[number], None)
        if segment is not None and quota.concerns(logs[number][0], segment):
            heappush(heads, (newest_ms(segment, now_ms), number, segment))

    for number in range(len(logs)):
        show_next(number)
    freed_bytes = 0
    while heads:
        _, number, segment = heappop(heads)
        if not quota.allows(freed_bytes, segment):
            break
        counts[number] += 1
        freed_bytes += segment.size_bytes
        show_next(number)
    return counts


def with_quota(verdicts: Sequence[Verdict], count: int, reason: Reason, now_ms: int) -> list[Verdict]:
    """Return the verdicts of a log after a quota took `count` segments more than its own rules."""
    own = sum(1 for verdict in verdicts if verdict.goes)
    return [
        replace(verdict, reason=reason, due_ms=now_ms) if own <= number < own + count else verdict
        for number, verdict in enumerate(verdicts)
    ]


# The sentences, all in one place.


def _limits(log: LogFacts) -> list[str]:
    """Return in words what would let a segment of a log go."""
    config, words = log.config, []
    if config.retention_ms >= 0:
        words.append(f"its newest record is older than retention.ms={config.retention_ms}")
    if config.retention_bytes >= 0:
        words.append(f"the partition has retention.bytes={config.retention_bytes} without it")
    if config.retention_topic_bytes >= 0 and not log.is_internal:
        words.append(f"the topic has retention.topic.bytes={config.retention_topic_bytes} without it")
    if log.disk_percent > 0 and not log.is_internal:
        words.append(f"the disk is used above log.retention.disk.percent={log.disk_percent}")
    return words


def _within_limits(verdict: Verdict) -> str:
    writing = "is still written to, and " if verdict.segment.is_active else ""
    return f"{writing}goes when {', or '.join(_limits(verdict.log))}"


_FUTURE = "; it has a record with a timestamp after now, so its age counts from when its file was last written"

_SENTENCES: dict[Reason, Callable[[Verdict], str]] = {
    Reason.LOG_START_OFFSET: lambda it: f"goes now: the log starts at {it.log.log_start_offset}, after all its records",
    Reason.RETENTION_MS: lambda it: (
        f"goes now: its newest record is older than retention.ms={it.log.config.retention_ms}"
    ),
    Reason.RETENTION_BYTES: lambda it: (
        f"goes now: the partition has retention.bytes={it.log.config.retention_bytes} without it"
    ),
    Reason.TOPIC_BYTES: lambda it: (
        f"goes now: it is the oldest, and the topic has retention.topic.bytes={it.log.config.retention_topic_bytes} "
        "without it"
    ),
    Reason.DISK_PERCENT: lambda it: (
        f"goes now: it is the oldest, and the disk is used above log.retention.disk.percent={it.log.disk_percent}"
    ),
    Reason.WITHIN_LIMITS: _within_limits,
    Reason.NO_LIMIT: lambda it: "stays: no limit of time or size is set",
    Reason.COMPACTED: lambda it: "stays: the topic is compacted, and only the cleaner removes its records",
    Reason.BEHIND_ANOTHER: lambda it: "could go, but an older segment stays, and a log has no holes",
    Reason.HIGH_WATERMARK: lambda it: (
        f"could go, but has records from the high watermark {it.log.high_watermark} on, which nobody has read yet"
    ),
    Reason.EMPTY: lambda it: "stays: it is empty, and the next record goes into it",
}
assert set(_SENTENCES) == set(Reason)
