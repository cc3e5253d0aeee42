"""A broker on a disk that is really full: it refuses records, serves what it has, and goes on when there is room."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import until
from tests.faults.small_disks import MEGABYTE, SmallDisk, small_disk
from tests.storage.builders import batch_of

SETTINGS = {"log.retention.ms": -1, "log.segment.bytes": MEGABYTE, "log.segment.delete.delay.ms": 0}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 24) as disk:
        yield disk


def now_batch(size: int = 10) -> bytearray:
    return batch_of(1, timestamp=SystemClock().now_ms(), size=size)


def produce_until_full(connection: Any, topic: str) -> int:
    """Write until the broker refuses, and return how many records it took."""
    count = 0
    while (code := produce(connection, topic, now_batch(100_000)).error_code) == ErrorCode.NONE:
        count += 1
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    return count


def all_offsets(connection: Any, topic: str, end: int) -> list[int]:
    found: list[int] = []
    while len(found) < end:
        found += offsets_of(fetch(connection, topic, len(found)))
    return found


def takes_records(connection: Any, topic: str) -> bool:
    return produce(connection, topic, now_batch()).error_code == ErrorCode.NONE


def test_a_full_disk_refuses_records_until_there_is_room(disk: SmallDisk) -> None:
    data = disk.path / "data"
    with Broker(data=data, settings=SETTINGS) as broker, connected(broker) as connection:
        for name in ("orders", "other"):
            create_topic(connection, name)
        for _ in range(80):
            assert produce(connection, "other", now_batch(100_000)).error_code == ErrorCode.NONE
        count = produce_until_full(connection, "orders")
        assert count > 50
        for _ in range(20):
            assert produce(connection, "orders", now_batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert all_offsets(connection, "orders", count) == list(range(count))
        # A topic can be deleted, which makes room, and with that the broker goes on by itself.
        answer = connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="other")]), 6)
        assert answer.responses[0].error_code == ErrorCode.NONE
        until(lambda: takes_records(connection, "orders"))
        assert all_offsets(connection, "orders", count + 1)[-1] == count
        assert broker.log.count("is full, and takes no records") == 1
        assert broker.log.count("has room again") == 1
        assert (data / ".barnabas-reserve").stat().st_size == 4 * MEGABYTE
    assert main(["verify", str(data)]) == 0


@pytest.mark.parametrize("reserve", [4 * MEGABYTE, 0])
@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_a_broker_starts_on_a_full_disk_and_takes_records_when_there_is_room(
    disk: SmallDisk, reserve: int, stop: str
) -> None:
    data = disk.path / "data"
    settings = {**SETTINGS, "barnabas.log.dirs.reserve.bytes": reserve}
    with Broker(data=data, settings=settings) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
            for _ in range(30):
                assert produce(connection, "orders", now_batch(100_000)).error_code == ErrorCode.NONE
        if stop == "kill":
            broker.kill()
        else:
            broker.stop()
        disk.fill()
        broker.start()
        with connected(broker) as connection:
            assert all_offsets(connection, "orders", 30) == list(range(30))
            assert produce(connection, "orders", now_batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            disk.empty()
            until(lambda: takes_records(connection, "orders"))
            assert all_offsets(connection, "orders", 31) == list(range(31))
    assert main(["verify", str(data)]) == 0


def test_a_folder_that_was_made_read_only_is_offline_alone(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24) as disk:
        folders = [tmp_path / "data", disk.path / "data"]
        with Broker(data=",".join(map(str, folders)), settings=SETTINGS) as broker:
            with connected(broker) as connection:
                create_topic(connection, "orders", 2)
                for index in range(2):
                    assert produce(connection, "orders", now_batch(), index).error_code == ErrorCode.NONE
            lost = 0 if (folders[1] / "orders-0").exists() else 1
            broker.kill()
            disk.remount("ro")
            broker.start()
            with connected(broker) as connection:
                assert produce(connection, "orders", now_batch(), 1 - lost).base_offset == 1
                assert produce(connection, "orders", now_batch(), lost).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.log.count("failed and is offline until a restart, with 1 logs") == 1
            broker.kill()
            disk.remount("rw")
            broker.start()
            with connected(broker) as connection:
                assert produce(connection, "orders", now_batch(), lost).base_offset == 1
