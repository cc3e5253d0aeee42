"""LogUpkeep: what happens to logs by itself, when it begins, and what a full disk hastens."""

import errno
import os
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.broker.retaining import HOUR_MS, bases, fill, log_of, retaining, settled, topic_of
from tests.broker.turning import on_loop, until, until_on_loop
from tests.storage.memory_files import MemoryFiles


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def deleted_files(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".deleted"))


def test_the_first_run_on_schedule_waits_for_its_time(clock: ManualClock) -> None:
    settings = {"log.initial.task.delay.ms": 5_000, "log.retention.check.interval.ms": 60_000}
    with retaining(clock, settings=settings) as broker:
        topic_of(broker, "orders", retention_ms=1)
        settled(broker)
        fill(broker, "orders", 1, timestamp=clock.now_ms() - 10)
        clock.advance(4_999)
        assert bases(broker, "orders") == [0]
        clock.advance(1)
        until_on_loop(broker, lambda: log_of(broker, "orders").log_start_offset == 1)
        fill(broker, "orders", 1, timestamp=clock.now_ms() - 10)
        clock.advance(60_000)
        until_on_loop(broker, lambda: log_of(broker, "orders").log_start_offset == 2)


def test_files_are_removed_after_their_delay(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS, file_delete_delay_ms=10_000)
        fill(broker, "orders", 3, timestamp=clock.now_ms() - 2 * HOUR_MS)
        on_loop(broker, broker.server.services.log_retention.request)
        settled(broker)
        assert len(deleted_files(broker.data / "orders-0")) == 3
        clock.advance(9_000)
        on_loop(broker, lambda: None)
        assert len(deleted_files(broker.data / "orders-0")) == 3
        clock.advance(1_000)
        until(lambda: not deleted_files(broker.data / "orders-0"))


def test_room_is_made_at_once_where_it_is_needed(clock: ManualClock) -> None:
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", 2, timestamp=clock.now_ms() - 2 * HOUR_MS)
        on_loop(broker, broker.server.services.log_retention.request)
        settled(broker)
        assert deleted_files(broker.data / "orders-0")
        fill(broker, "orders", 2, timestamp=clock.now_ms() - 2 * HOUR_MS)
        manager = broker.server.services.log_manager
        directory = manager.directories[0]
        assert on_loop(broker, lambda: manager.removals.leaving_bytes([directory])) > 0
        on_loop(broker, lambda: broker.server._log_upkeep.make_room(directory))
        settled(broker)
        assert bases(broker, "orders") == [4]
        clock.advance(1_000)
        until(lambda: not deleted_files(broker.data / "orders-0"))
        until_on_loop(broker, lambda: manager.removals.leaving_bytes([directory]) == 0)


def test_checkpoints_are_written_on_schedule(clock: ManualClock) -> None:
    with retaining(clock, settings={"log.initial.task.delay.ms": 0}) as broker:
        topic_of(broker, "orders")
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            (broker.data / name).unlink(missing_ok=True)
        clock.advance(60_000)
        until(lambda: (broker.data / RECOVERY_POINT_CHECKPOINT).exists())
        until(lambda: (broker.data / LOG_START_OFFSET_CHECKPOINT).exists())


def test_a_disk_that_fails_when_files_are_removed_is_offline(clock: ManualClock, tmp_path: Path) -> None:
    """The thread that removes them only tells of it: whoever owns the logs takes the partitions out of service."""
    disk = MemoryFiles()
    (tmp_path / "a").mkdir()  # SQLite sees the real disk.
    with retaining(clock, files=disk, data=f"{tmp_path}/a,{tmp_path}/b") as broker:
        topic_of(broker, "orders", 2, retention_ms=HOUR_MS, file_delete_delay_ms=10_000)
        fill(broker, "orders", 3, timestamp=clock.now_ms() - 2 * HOUR_MS)
        on_loop(broker, broker.server.services.log_retention.request)
        settled(broker)
        disk.fail("remove", code=errno.EIO, under=log_of(broker, "orders").directory, once=False)
        clock.advance(10_000)
        partitions = broker.server.services.replica_manager.partitions
        until_on_loop(broker, lambda: ("orders", 0) not in partitions)
        assert ("orders", 1) in partitions
        assert [name.partition for name in broker.server.services.log_manager.offline_partitions] == [0]
        disk.heal()
