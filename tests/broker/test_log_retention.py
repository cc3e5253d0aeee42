"""LogRetention: what goes from the logs of a running broker, when, and what is said of it."""

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import log_retention
from barnabas.broker.log_retention import SLICE
from barnabas.clock import ManualClock
from barnabas.storage.files import OsFiles
from barnabas.storage.retention import Quota, Reason
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.asking import connected, fetch, offsets_of
from tests.broker.retaining import CHECK_MS, HOUR_MS, bases, checked, fill, log_of, retaining, settled, topic_of
from tests.broker.turning import on_loop, until, until_on_loop


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_old_segments_go_on_schedule_and_one_line_says_so(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.broker.log_retention")
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 3, timestamp=clock.now_ms() - HOUR_MS // 2)
        fill(broker, "orders", 2, timestamp=clock.now_ms())
        checked(broker, clock)
        assert bases(broker, "orders") == [0, 1, 2, 3, 4]
        clock.advance(HOUR_MS // 2)
        settled(broker)
        assert bases(broker, "orders") == [3, 4]
        with connected(broker) as connection:
            assert fetch(connection, "orders", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert offsets_of(fetch(connection, "orders", 3)) == [3]
        size = on_loop(broker, lambda: log_of(broker, "orders").segments.first.size)
    # The loop itself says so when a busy machine makes it slow.
    said = [record.message for record in caplog.records if record.name != "asyncio"]
    assert said == [
        f"orders-0: 3 segments with {3 * size} bytes are deleted (3 by retention.ms), and it starts at 3 now"
    ]


def test_the_active_segment_goes_too_and_the_log_goes_on(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 2, timestamp=clock.now_ms())
        clock.advance(2 * HOUR_MS)
        settled(broker)
        assert bases(broker, "orders") == [2]
        fill(broker, "orders", 1, timestamp=clock.now_ms())
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "orders", 2)) == [2]


def test_a_roll_is_enough_for_what_is_too_much(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_bytes=200)
        fill(broker, "orders", 20, timestamp=clock.now_ms())
        settled(broker)
        size = on_loop(broker, lambda: log_of(broker, "orders").size_bytes)
        assert bases(broker, "orders")[-1] == 19
        assert 200 <= size < 300


def test_retention_runs_at_the_start_without_waiting(tmp_path: Path, clock: ManualClock) -> None:
    with retaining(clock, data=tmp_path) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 3, timestamp=clock.now_ms())
        broker.stop()
        clock.advance(2 * HOUR_MS)
        broker.start()
        settled(broker)
        assert bases(broker, "orders") == [3]


def test_a_fetch_that_waits_is_told_when_its_records_go(clock: ManualClock) -> None:
    with retaining(clock) as broker, connected(broker) as connection:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 1, timestamp=clock.now_ms())
        answers: list[Any] = []
        question = {"max_wait_ms": 2**31 - 1, "min_bytes": 1 << 20}
        waiting = threading.Thread(target=lambda: answers.append(fetch(connection, "orders", 0, **question)))
        waiting.start()
        manager = broker.server.services.replica_manager
        until_on_loop(broker, lambda: manager.delayed_fetch.is_watching(("orders", 0)))
        clock.advance(2 * HOUR_MS)
        waiting.join(60)
        assert [answer.error_code for answer in answers] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_deleted_records_take_their_segments_with_them(clock: ManualClock) -> None:
    with retaining(clock) as broker, connected(broker) as connection:
        topic_of(broker, "orders", retention_ms=-1)
        fill(broker, "orders", 5, timestamp=clock.now_ms())
        settled(broker)  # The last roll asked for a run.
        partitions = [DeleteRecordsPartition(partition_index=0, offset=3)]
        connection.request(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=partitions)]))
        assert bases(broker, "orders") == [0, 1, 2, 3, 4]
        checked(broker, clock)
        assert bases(broker, "orders") == [3, 4]
        waiting = [name for name in os.listdir(broker.data / "orders-0") if name.endswith(".deleted")]
        assert len(waiting) == 3
        clock.advance(60_000)
        until(lambda: not [name for name in os.listdir(broker.data / "orders-0") if name.endswith(".deleted")])
        until(lambda: f"{2:020d}.snapshot" not in os.listdir(broker.data / "orders-0"))


def test_compacted_topics_stay_whole(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "state", cleanup_policy="compact", retention_ms=1, retention_bytes=1)
        fill(broker, "state", 3, timestamp=clock.now_ms())
        clock.advance(2 * HOUR_MS)
        settled(broker)
        assert bases(broker, "state")[0] == 0


def test_a_topic_that_is_too_large_loses_its_oldest_segments(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "orders", 2, retention_ms=-1)
        now = clock.now_ms()
        for partition, start in ((0, now - 100), (1, now - 50), (0, now - 20), (1, now - 10)):
            fill(broker, "orders", 3, timestamp=start, partition=partition)
        size = on_loop(broker, lambda: log_of(broker, "orders").segments.first.size)

        def limit() -> None:
            for name in ((("orders", 0)), ("orders", 1)):
                log = broker.server.services.replica_manager.partitions[name].log
                log.update_config(type(log.config)(segment_bytes=100, retention_ms=-1, retention_topic_bytes=7 * size))

        on_loop(broker, limit)
        explained = on_loop(broker, lambda: broker.server.services.log_retention.explain("orders"))
        going = {index: [it.verdict.reason for it in rows if it.verdict.goes] for index, rows in explained.items()}
        assert going == {0: [Reason.TOPIC_BYTES] * 3, 1: [Reason.TOPIC_BYTES] * 2}
        checked(broker, clock)
        assert bases(broker, "orders", 0) == [3, 4, 5]
        assert bases(broker, "orders", 1) == [2, 3, 4, 5]


def test_what_changes_a_log_in_the_middle_of_a_run_does_not_let_more_go_than_was_chosen(clock: ManualClock) -> None:
    """Segments are counted once, for all logs; what is there of them later must not be counted the same way."""
    with retaining(clock) as broker:
        topic_of(broker, "orders", 2, retention_ms=-1)
        fill(broker, "orders", 2 * SLICE, timestamp=clock.now_ms() - HOUR_MS)
        fill(broker, "orders", 2 * SLICE, timestamp=clock.now_ms() - HOUR_MS, partition=1)
        settled(broker)
        retention = broker.server.services.log_retention
        partitions = [broker.server.services.replica_manager.partitions["orders", index] for index in (0, 1)]
        size = log_of(broker, "orders").segments.first.size

        def run() -> int:
            cutting = retention._cut_by_quota(partitions, Quota(Reason.TOPIC_BYTES, 160 * size))
            next(cutting)
            chosen = log_of(broker, "orders", 1)
            chosen.delete_old_segments(lambda _, end_offset: end_offset <= 30)
            for _ in cutting:
                retention._left = SLICE
            return chosen.log_start_offset

        assert on_loop(broker, run) == 80


class BusyDisk(OsFiles):
    """A disk that somebody else writes to, so that every look finds a little less room."""

    def __init__(self) -> None:
        self.looks = 0

    def disk_space(self, path: str) -> tuple[int, int]:
        self.looks += 1
        return 1_000_000, 499_000 - self.looks


def test_two_folders_of_one_disk_do_not_both_give_up_what_is_too_much(tmp_path: Path, clock: ManualClock) -> None:
    settings = {"log.retention.disk.percent": 50}
    with retaining(clock, data=f"{tmp_path}/a,{tmp_path}/b", files=BusyDisk(), settings=settings) as broker:
        retention = broker.server.services.log_retention
        ((over, disk),) = on_loop(broker, retention._disks)
        assert 1_000 < over < 2_000
        assert len(disk) == 2


class SmallDisk(OsFiles):
    """A disk of a size of its own, used by nothing but segments; renames can be made to fail."""

    def __init__(self, folder: Path, total: int) -> None:
        self.folder, self.total = folder, total
        self.rename_error: int | None = None
        self.failed = 0

    def disk_space(self, path: str) -> tuple[int, int]:
        used = sum(file.stat().st_size for file in self.folder.glob("*/*.log*"))
        return self.total, self.total - used

    def rename(self, source: str, target: str) -> None:
        if self.rename_error is not None and target.endswith(".log.deleted"):
            self.failed += 1
            raise OSError(self.rename_error, os.strerror(self.rename_error), source)
        super().rename(source, target)


def test_a_disk_that_is_too_full_loses_the_oldest_segments_of_all_topics(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SmallDisk(tmp_path, 1 << 40)
    with retaining(clock, data=tmp_path, files=disk, settings={"log.retention.disk.percent": 50}) as broker:
        now = clock.now_ms()
        topic_of(broker, "old", retention_ms=-1)
        topic_of(broker, "new", retention_ms=-1)
        topic_of(broker, "state", cleanup_policy="compact")
        fill(broker, "old", 5, timestamp=now - 1000)
        fill(broker, "new", 5, timestamp=now)
        fill(broker, "state", 5, timestamp=now - 2000)
        size = on_loop(broker, lambda: log_of(broker, "old").segments.first.size)
        disk.total = 20 * size  # Of which 15 are used, and 10 may be.
        explained = on_loop(broker, lambda: broker.server.services.log_retention.explain("old"))
        assert [it.verdict.goes for it in explained[0]] == [True] * 4 + [False]
        explained = on_loop(broker, lambda: broker.server.services.log_retention.explain("new"))
        assert [it.verdict.reason for it in explained[0]][:2] == [Reason.DISK_PERCENT, Reason.WITHIN_LIMITS]
        checked(broker, clock)
        assert bases(broker, "old") == [4]
        assert bases(broker, "new") == [1, 2, 3, 4]
        assert bases(broker, "state") == [0, 1, 2, 3, 4]
        clock.advance(1_000)
        until(lambda: not list(tmp_path.glob("*/*.deleted")))  # Long before file.delete.delay.ms.
        disk.total = 2 * size
        checked(broker, clock)
        assert bases(broker, "new") == [4]
        checked(broker, clock)
    told = [record.message for record in caplog.records if "no segment is left to delete" in record.message]
    assert len(told) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_only_ends_the_run_of_that_log(tmp_path: Path, clock: ManualClock, code: int) -> None:
    disk = SmallDisk(tmp_path, 1 << 40)
    with retaining(clock, data=tmp_path, files=disk) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 3, timestamp=clock.now_ms())
        disk.rename_error = code
        clock.advance(2 * HOUR_MS)
        until(lambda: disk.failed)
        settled(broker)
        assert bases(broker, "orders")[:3] == [0, 1, 2]
        disk.rename_error = None
        checked(broker, clock)
        assert bases(broker, "orders") == [3]


def test_a_disk_that_fails_goes_offline(tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    disk = SmallDisk(tmp_path, 1 << 40)
    with retaining(clock, data=tmp_path, files=disk) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 3, timestamp=clock.now_ms())
        disk.rename_error = errno.EIO
        clock.advance(2 * HOUR_MS)
        until(lambda: not broker.is_running)  # It was the only one.
    assert any("no log directory is left" in record.message for record in caplog.records)


def test_a_run_leaves_the_loop_to_others(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_retention, "SLICE", 4)
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 40, timestamp=clock.now_ms())
        left: list[int] = []
        retention, loop = broker.server.services.log_retention, broker.server.services.scheduler.loop

        def watch() -> None:
            left.append(len(log_of(broker, "orders").segments))
            if retention.is_running:
                loop.call_soon(watch)

        def begin() -> None:
            clock.jump_to(clock.now_ms() + 2 * HOUR_MS)
            retention.request()
            loop.call_soon(watch)

        on_loop(broker, begin)
        settled(broker)
        assert bases(broker, "orders") == [40]
        assert max(before - after for before, after in zip([40, *left], left, strict=False)) <= 5
        assert len(left) >= 8


# The clock.


def test_a_clock_that_is_set_back_deletes_nothing(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 3, timestamp=clock.now_ms())
        clock.jump_to(clock.now_ms() - 10 * HOUR_MS)
        checked(broker, clock)
        assert bases(broker, "orders") == [0, 1, 2]


def test_a_clock_that_is_set_forward_deletes_by_the_rules_and_what_it_stamped_is_not_kept_for_ever(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    start = clock.now_ms()
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS, message_timestamp_type="LogAppendTime")
        fill(broker, "orders", 2, timestamp=start)
        clock.jump_to(start + 1000 * HOUR_MS)
        fill(broker, "orders", 2, timestamp=start)
        checked(broker, clock)
        assert bases(broker, "orders") == [2, 3]
        clock.jump_to(start)
        for _ in range(3):
            checked(broker, clock)
            assert bases(broker, "orders") == [2, 3]
        explained = on_loop(broker, lambda: broker.server.services.log_retention.explain("orders"))[0]
        assert "a timestamp after now" in explained[0].verdict.sentence
        due_ms = explained[0].verdict.due_ms
        assert due_ms is not None
        assert due_ms <= start + CHECK_MS + HOUR_MS + 1
        clock.advance(HOUR_MS)
        settled(broker)
        assert bases(broker, "orders") == [4]
    told = [record.message for record in caplog.records if "which is after now" in record.message]
    assert len(told) == 2
    assert len({message.split()[0] for message in told}) == 2
