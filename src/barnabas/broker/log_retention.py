"""LogRetention: takes out of the logs of a broker what retention lets go, a few segments a turn of the loop.

    start, schedule, roll, a full disk --> request --> a run, in slices:
        every log by its own rules --> topics that are too large --> disks that are too full
    storage/retention.py decides, Log.delete_old_segments takes out, LogManager removes the files later

Rule 1: only partitions that the metadata knows are touched: without its settings nobody knows what a log may lose.
Rule 2: a run never begins inside of an append, and never holds the loop for longer than a slice takes.
Rule 3: whoever waits for records of a log that lost some is woken. Where a log starts needs no checkpoint then: it is
the start of its first segment.
Rule 4: a disk that fails goes offline with its partitions; one that is full only ends the run for that log.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.partition import Partition
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import Scheduler
from barnabas.clock import Clock
from barnabas.model import TopicPartition
from barnabas.storage.files import PASSING_ERRORS
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory, parse_folder
from barnabas.storage.log_manager import LogManager
from barnabas.storage.retention import (
    LogFacts,
    Quota,
    Reason,
    SegmentFacts,
    Verdict,
    choose_oldest,
    judge,
    with_quota,
)
from barnabas.storage.segment import LogSegment

logger = logging.getLogger(__name__)

SLICE = 64
"""So many segments are taken out, or logs looked at, in one turn of the loop."""

SKEW_MS = 60_000
"""Clocks of producers go before ours by this much without that being news."""

Decide = Callable[[LogSegment, int], Reason | None]
"""Tells of the segments of a log with their end offsets, oldest first, why each goes, or None when it stays."""


class ExplainedSegment(NamedTuple):
    """A segment with why it is still there."""

    facts: SegmentFacts
    verdict: Verdict
    created_ms: int


class _Report:
    """What a run took out of one log."""

    def __init__(self) -> None:
        self.reasons: Counter[Reason] = Counter()
        self.size_bytes = 0


class LogRetention:
    """Runs retention over the partitions of one broker."""

    def __init__(
        self,
        logs: LogManager,
        replica_manager: ReplicaManager,
        clock: Clock,
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self._logs = logs
        self._replica_manager = replica_manager
        self._clock = clock
        self._guard = guard
        self.is_held: Callable[[TopicPartition], bool] = lambda name: False
        """Tells whether a log is being cleaned: what is read for that stays, unless the disk is full."""
        self._scheduler: Scheduler | None = None
        self._disk_percent = -1
        # What was asked for and has not begun: topics, or all of them.
        self._topics: set[str] = set()
        self._is_all = False
        self._run: Iterator[None] | None = None
        self._left = SLICE
        self._reports: dict[Partition, _Report] = {}
        # Segments whose largest timestamp tells no age, with that timestamp, and when that was first noticed of it.
        # By their paths, which the cleaner gives to what it makes of them.
        self._noticed: dict[str, tuple[int, int]] = {}
        self._reported: set[str] = set()
        self._too_full: set[str] = set()
        # Folders whose files are removed at once, until the next run over everything has ended.
        self._without_room: set[LogDirectory] = set()

    def start(self, scheduler: Scheduler, disk_percent: int) -> None:
        """Begin to take requests; until then none has an effect."""
        self._scheduler = scheduler
        self._disk_percent = disk_percent

    # Requests.

    def request(self, topics: Collection[str] | None = None) -> None:
        """Run soon, over these topics or over everything."""
        if self._scheduler is None:
            return
        is_idle = self._run is None and not self._topics and not self._is_all
        if topics is None:
            self._is_all = True
        else:
            self._topics.update(topics)
        if is_idle and (self._is_all or self._topics):
            self._scheduler.loop.call_soon(self._turn)

    def on_roll(self, log: Log) -> None:
        """Run over the topic of a log that has one more sealed segment, and over all when its disk is too full."""
        if self._scheduler is None:
            return
        folder = parse_folder(os.path.basename(log.directory))
        if folder is not None:
            self.request([folder.partition.topic])
            managed = self._logs.current_logs.get(folder.partition)
            if managed is not None and self._disk_percent > 0 and not self._is_all:
                self._scheduler.loop.call_soon(self._check_disk, managed.directory)

    def _check_disk(self, directory: LogDirectory) -> None:
        if not self._is_all and any(over > 0 for over, disk in self._disks() if directory in disk):
            self.request()

    def make_room(self, directory: LogDirectory) -> None:
        """Run over everything soon, and let what goes from this folder be removed without delay."""
        self._without_room.add(directory)
        self.request()

    @property
    def is_running(self) -> bool:
        """Whether there is anything left to do of what was asked for."""
        return self._run is not None or self._is_all or bool(self._topics)

    # The run.

    def _turn(self) -> None:
        assert self._scheduler is not None
        if self._run is None:
            topics = None if self._is_all else self._topics
            self._is_all, self._topics = False, set()
            self._run = self._begin(topics)
        self._left = SLICE
        try:
            next(self._run)
        except StopIteration:
            self._run = None
        except BaseException:
            self._run = None
            raise
        finally:
            if self.is_running:
                self._scheduler.loop.call_soon(self._turn)

    def _begin(self, topics: Collection[str] | None) -> Iterator[None]:
        hurried = set(self._without_room)
        by_topic: dict[str, list[Partition]] = {}
        for (topic, _), partition in self._replica_manager.partitions.items():
            if topics is None or topic in topics:
                by_topic.setdefault(topic, []).append(partition)
        try:
            for partitions in by_topic.values():
                for partition in partitions:
                    yield from self._cut(partition, partial(self._own_rules, partition))
                yield from self._cut_topic(partitions)
            if topics is None:
                yield from self._cut_disks()
                self._forget_gone()
                self._without_room -= hurried
        finally:
            self._tell()

    def _own_rules(self, partition: Partition) -> Decide:
        now_ms = self._clock.now_ms()
        verdicts = judge(self._log_facts(partition), self._segments(partition.log, now_ms), now_ms)

        def decide(segment: LogSegment, end_offset: int) -> Reason | None:
            verdict = next(verdicts)
            assert verdict.segment.base_offset == segment.base_offset
            return verdict.reason if verdict.goes else None

        return decide

    def _cut_topic(self, partitions: Sequence[Partition]) -> Iterator[None]:
        quota = self._topic_quota(partitions, [partition.log.size_bytes for partition in partitions])
        if quota is not None:
            yield from self._cut_by_quota(partitions, quota)

    def _topic_quota(self, partitions: Sequence[Partition], sizes: Sequence[int]) -> Quota | None:
        """Return what a topic has too much, given what its logs have without what goes anyway."""
        limit = partitions[0].log.config.retention_topic_bytes
        if limit < 0 or partitions[0].topic_partition.topic in INTERNAL_TOPICS or sum(sizes) <= limit:
            return None
        return Quota(Reason.TOPIC_BYTES, sum(sizes) - limit)

    def _cut_disks(self) -> Iterator[None]:
        for over, disk in self._disks():
            if over > 0:
                quota = Quota(Reason.DISK_PERCENT, over)
                yield from self._cut_by_quota(self._partitions_in(disk), quota)
        for over, disk in self._disks():
            self._tell_too_full(over, disk)

    def _disks(self) -> list[tuple[int, list[LogDirectory]]]:
        """Return how many bytes each disk is used above its share, with the log directories on it.

        What is removed soon counts as free.
        """
        disks: dict[int, list[LogDirectory]] = {}
        spaces: dict[int, tuple[int, int]] = {}
        for directory in self._logs.directories if self._disk_percent > 0 else ():
            if directory.failure is None:
                try:
                    device = self._logs.device(directory)
                    if device not in spaces:
                        spaces[device] = self._logs.disk_space(directory)
                except OSError as error:
                    self._fail(directory, error)
                    continue
                disks.setdefault(device, []).append(directory)
        found = []
        for device, disk in disks.items():
            total, free = spaces[device]
            used = total - free - self._logs.removals.leaving_bytes(disk)
            found.append((used - total * self._disk_percent // 100, disk))
        return found

    def _partitions_in(self, disk: Collection[LogDirectory]) -> list[Partition]:
        current = self._logs.current_logs
        return [
            partition
            for partition in self._replica_manager.partitions.values()
            if partition.topic_partition in current and current[partition.topic_partition].directory in disk
        ]

    def _cut_by_quota(self, partitions: Sequence[Partition], quota: Quota) -> Iterator[None]:
        now_ms = self._clock.now_ms()
        logs = [(self._log_facts(partition), self._segments(partition.log, now_ms)) for partition in partitions]
        chosen: list[tuple[Partition, int]] = []
        for partition, count in zip(partitions, choose_oldest(logs, quota, now_ms), strict=True):
            if count:
                rest = list(partition.log.segments)[count:]
                chosen.append((partition, rest[0].base_offset if rest else partition.log.log_end_offset))
        # Offsets say what goes: by the time that it does, the cleaner may have made one segment of several.
        for partition, up_to in chosen:
            yield from self._cut(partition, partial(_up_to, up_to, quota.reason))

    def _cut(self, partition: Partition, decision: Callable[[], Decide]) -> Iterator[None]:
        """Take segments out of a log as long as they go, and yield whenever a slice is full.

        Between slices anything may happen to the log, so that each has a decision of its own.
        """
        is_done = False
        while not is_done:
            self._left -= 1
            if not partition.log.is_closed and not self._is_held_back(partition.topic_partition):
                is_done = self._cut_slice(partition, decision())
            else:
                is_done = True
            if self._left <= 0:
                yield

    def _is_held_back(self, name: TopicPartition) -> bool:
        if not self.is_held(name):
            return False
        managed = self._logs.current_logs.get(name)
        return managed is None or managed.directory not in self._without_room

    def _cut_slice(self, partition: Partition, decide: Decide) -> bool:
        """Take out what fits into this slice, and tell whether that was all."""
        reasons: list[Reason] = []
        is_done = False

        def is_deletable(segment: LogSegment, end_offset: int) -> bool:
            nonlocal is_done
            if len(reasons) > max(0, self._left):
                return False
            reason = decide(segment, end_offset)
            if reason is None:
                is_done = True
                return False
            reasons.append(reason)
            return True

        try:
            taken = partition.log.delete_old_segments(is_deletable)
        except OSError as error:
            self._fail(self._logs.directory_of(partition.topic_partition), error)
            return True
        self._left -= len(taken)
        if taken:
            self._took(partition, taken, reasons)
        # Fewer than were let go is a disk without room, or a part above the high watermark.
        return is_done or len(taken) < len(reasons) or not taken

    def _took(self, partition: Partition, taken: Sequence[LogSegment], reasons: Sequence[Reason]) -> None:
        name = partition.topic_partition
        at_once = reasons[0] is Reason.DISK_PERCENT or self._logs.directory_of(name) in self._without_room
        self._logs.delete_segments(name, taken, at_once=at_once)
        report = self._reports.setdefault(partition, _Report())
        report.reasons.update(reasons[: len(taken)])
        report.size_bytes += sum(segment.size for segment in taken)
        self._replica_manager.on_change(partition)

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        if error.errno in PASSING_ERRORS:
            logger.warning("%s has no room to delete segments for now: %s", directory.path, error)
        else:
            self._guard(lambda: self._logs.fail_directory(directory, error))

    # What is said of it.

    def _tell(self) -> None:
        reports, self._reports = self._reports, {}
        for partition, report in reports.items():
            logger.info(
                "%s: %d segments with %d bytes are deleted (%s), and it starts at %d now",
                partition.topic_partition,
                report.reasons.total(),
                report.size_bytes,
                ", ".join(f"{count} by {reason.value}" for reason, count in report.reasons.items()),
                partition.log.log_start_offset,
            )

    def _tell_too_full(self, over: int, disk: Sequence[LogDirectory]) -> None:
        for directory in disk:
            if over > 0 and directory.path not in self._too_full:
                percent = self._disk_percent
                message = "%s: the disk is used above log.retention.disk.percent=%d, and no segment is left to delete"
                logger.warning(message, directory.path, percent)
            (self._too_full.add if over > 0 else self._too_full.discard)(directory.path)

    def _forget_gone(self) -> None:
        if self._noticed:
            partitions = self._replica_manager.partitions.values()
            there = {segment.path for partition in partitions for segment in partition.log.segments}
            self._noticed = {path: noticed for path, noticed in self._noticed.items() if path in there}
            self._reported &= there

    # Facts.

    def _log_facts(self, partition: Partition) -> LogFacts:
        log = partition.log
        return LogFacts(
            config=log.config,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark.message_offset,
            size_bytes=log.size_bytes,
            is_internal=partition.topic_partition.topic in INTERNAL_TOPICS,
            disk_percent=self._disk_percent,
        )

    def _segments(self, log: Log, now_ms: int, *, with_modified: bool = False) -> Iterator[SegmentFacts]:
        """Yield the facts of the segments of a log, each found out when it is asked for."""
        segments = list(log.segments)
        is_noticed = False
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            timestamp = segment.largest.timestamp
            is_untold = not 0 <= timestamp <= now_ms
            if is_untold and not is_noticed:
                # All at once: each would otherwise wait for the one before it to go before its own time begins.
                is_noticed = True
                for other in segments:
                    if not 0 <= other.largest.timestamp <= now_ms:
                        self._notice(other, now_ms)
            yield SegmentFacts(
                segment.base_offset,
                log.log_end_offset if following is None else following.base_offset,
                segment.size,
                timestamp,
                segment.modified_ms() if is_untold or with_modified else None,
                self._notice(segment, now_ms) if is_untold else None,
                following is None,
            )

    def _notice(self, segment: LogSegment, now_ms: int) -> int:
        """Return when it was first seen that the timestamps of a segment do not tell its age, and report the odd."""
        timestamp = segment.largest.timestamp
        if timestamp > now_ms + SKEW_MS and segment.path not in self._reported:
            self._reported.add(segment.path)
            logger.warning(
                "%s has a record with timestamp %d, which is after now; the age of the segment counts from when its "
                "file was last written",
                segment.path,
                timestamp,
            )
        known, noticed_ms = self._noticed.get(segment.path, (timestamp, now_ms))
        if known != timestamp or noticed_ms > now_ms:
            noticed_ms = now_ms
        self._noticed[segment.path] = (timestamp, noticed_ms)
        return noticed_ms

    # Explanations.

    def explain(self, topic: str) -> dict[int, list[ExplainedSegment]]:
        """Return why each segment of a topic is still there, by partition."""
        now_ms = self._clock.now_ms()
        partitions = [it for it in self._replica_manager.partitions.values() if it.topic_partition.topic == topic]
        facts = [(self._log_facts(it), list(self._segments(it.log, now_ms, with_modified=True))) for it in partitions]
        verdicts = [list(judge(log, segments, now_ms)) for log, segments in facts]
        left = [_staying(log_verdicts) for log_verdicts in verdicts]
        if partitions:
            quota = self._topic_quota(partitions, [sum(segment.size_bytes for segment in one) for one in left])
            if quota is not None:
                logs = [(log, one) for (log, _), one in zip(facts, left, strict=True)]
                for number, count in enumerate(choose_oldest(logs, quota, now_ms)):
                    verdicts[number] = with_quota(verdicts[number], count, quota.reason, now_ms)
        self._explain_disks(partitions, verdicts, now_ms)
        return {
            partition.topic_partition.partition: [
                ExplainedSegment(verdict.segment, verdict, segment.created_ms)
                for segment, verdict in zip(partition.log.segments, log_verdicts, strict=True)
            ]
            for partition, log_verdicts in zip(partitions, verdicts, strict=True)
        }

    def _explain_disks(self, partitions: Sequence[Partition], verdicts: list[list[Verdict]], now_ms: int) -> None:
        """Mark what goes because a disk is too full, which all logs on that disk have a part in."""
        numbers = {partition: number for number, partition in enumerate(partitions)}
        for over, disk in self._disks():
            if over <= 0:
                continue
            there = self._partitions_in(disk)
            logs = []
            for it in there:
                known = verdicts[numbers[it]] if it in numbers else None
                log = self._log_facts(it)
                found = known if known is not None else list(judge(log, self._segments(it.log, now_ms), now_ms))
                over -= sum(verdict.segment.size_bytes for verdict in found if verdict.goes)
                logs.append((log, _staying(found)))
            for it, count in zip(there, choose_oldest(logs, Quota(Reason.DISK_PERCENT, over), now_ms), strict=True):
                if it in numbers:
                    number = numbers[it]
                    verdicts[number] = with_quota(verdicts[number], count, Reason.DISK_PERCENT, now_ms)


def _up_to(offset: int, reason: Reason) -> Decide:
    """Let the segments go that end at an offset or before."""
    return lambda _, end_offset: reason if end_offset <= offset else None


def _staying(verdicts: Sequence[Verdict]) -> list[SegmentFacts]:
    return [verdict.segment for verdict in verdicts if not verdict.goes]
