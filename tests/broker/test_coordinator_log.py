"""Reading the log of a coordinator: the last value of every key, what transactions decided, and what is damaged."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.coordinator_log import CoordinatorLog, LiveRecord
from barnabas.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from barnabas.coordination.records import GROUP_KINDS, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.embedded import Broker
from barnabas.records.builder import build_batch, end_transaction_marker
from tests.broker.asking import connected, create_topic
from tests.broker.turning import append, on_loop, until

NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker; every test has a topic of its own."""
    with Broker(in_process=True) as broker:
        yield broker


class Topic:
    """A topic that a test writes records of groups to, and reads as a coordinator does."""

    def __init__(self, broker: Broker, name: str, config: dict[str, object] | None = None) -> None:
        self._broker = broker
        self.name = name
        with connected(broker) as connection:
            create_topic(connection, name, 1, config)

    def write(self, *records: CoordinatorRecord, producer_id: int = -1) -> None:
        rows = [(NOW, *encode(record), ()) for record in records]
        epoch = 0 if producer_id >= 0 else -1
        batch = build_batch(rows, producer_id=producer_id, producer_epoch=epoch, transactional=producer_id >= 0)
        append(self._broker, self.name, batch, is_client=False)

    def write_raw(self, key: bytes, value: bytes | None) -> None:
        append(self._broker, self.name, build_batch([(NOW, key, value, ())]), is_client=False)

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = end_transaction_marker(
            commit=commit, timestamp=NOW, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
        )
        append(self._broker, self.name, marker, is_client=False)

    def load(self) -> list[LiveRecord]:
        found: list[Iterator[LiveRecord] | Exception] = []
        services = self._broker.server.services
        partition = services.replica_manager.partitions[self.name, 0]
        on_loop(self._broker, lambda: CoordinatorLog(partition, services.pool, GROUP_KINDS).load(found.append))
        until(lambda: found)
        assert not isinstance(found[0], Exception), found[0]
        return list(found[0])


def commit(offset: int | None, partition: int = 0, group: str = "g") -> CoordinatorRecord:
    """A commit of an offset, or with None what deletes it."""
    key = OffsetCommitKey(group=group, topic="t", partition=partition)
    return CoordinatorRecord(key, None if offset is None else OffsetCommitValue(offset=offset, commit_timestamp=NOW))


def offsets(found: list[LiveRecord]) -> list[tuple[int, int, int]]:
    """(producer id, partition, offset) of every record, in order."""
    values: list[Any] = [one.record.value for one in found]
    return [(one.producer_id, one.record.key.partition, value.offset) for one, value in zip(found, values, strict=True)]


def test_an_empty_log_has_nothing(broker: Broker) -> None:
    assert Topic(broker, "empty").load() == []


def test_the_last_value_of_each_key_counts_in_the_order_of_the_log(broker: Broker) -> None:
    topic = Topic(broker, "last")
    topic.write(commit(1), commit(2, 1), commit(3, 2))
    topic.write(commit(4))
    topic.write(commit(None, 2))
    assert offsets(topic.load()) == [(-1, 1, 2), (-1, 0, 4)]


def test_a_log_is_read_over_many_chunks_and_segments(broker: Broker) -> None:
    topic = Topic(broker, "long", {"segment.bytes": 1 << 20})
    for base in range(0, 12_000, 400):
        topic.write(*(commit(base + one, one % 7, "g" * 200) for one in range(400)))
    assert sorted(offset for _, _, offset in offsets(topic.load())) == list(range(11_993, 12_000))


def test_a_chunk_may_end_anywhere_in_a_batch(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once could not be read when it ended inside the header of one, and no transaction went on from there."""
    topic = Topic(broker, "chunks")
    for offset in range(4):
        topic.write(commit(offset, offset))
    for chunk_bytes in range(1, 450, 7):
        monkeypatch.setattr("barnabas.broker.coordinator_log.CHUNK_BYTES", chunk_bytes)
        assert [offset for _, _, offset in offsets(topic.load())] == [0, 1, 2, 3], chunk_bytes


def test_what_a_transaction_wrote_counts_from_its_commit_on(broker: Broker) -> None:
    topic = Topic(broker, "committed")
    topic.write(commit(5), producer_id=7)
    assert offsets(topic.load()) == [(7, 0, 5)]
    topic.end(7, commit=True)
    assert offsets(topic.load()) == [(-1, 0, 5)]


def test_what_an_aborted_transaction_wrote_never_counts(broker: Broker) -> None:
    topic = Topic(broker, "aborted")
    topic.write(commit(1))
    topic.write(commit(5), producer_id=7)
    topic.end(7, commit=False)
    topic.write(commit(6, 1), producer_id=7)
    assert offsets(topic.load()) == [(-1, 0, 1), (7, 1, 6)]


def test_a_later_plain_commit_is_not_overwritten_by_an_older_one_of_a_transaction(broker: Broker) -> None:
    topic = Topic(broker, "order")
    topic.write(commit(5), producer_id=7)
    topic.write(commit(9))
    topic.end(7, commit=True)
    assert offsets(topic.load()) == [(-1, 0, 9)]


def test_a_deletion_after_a_pending_commit_is_told_of(broker: Broker) -> None:
    topic = Topic(broker, "deleted")
    topic.write(commit(5), producer_id=7)
    topic.write(commit(None))
    pending, deletion = topic.load()
    assert (pending.producer_id, deletion.producer_id, deletion.record.value) == (7, -1, None)
    topic.end(7, commit=True)
    assert topic.load() == [], "the deletion is later than the commit"


def test_records_of_a_later_kafka_and_damaged_ones_are_left_out(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(broker, "strange")
    topic.write(commit(1))
    topic.write_raw(b"\0\x63later", b"\0\0")
    topic.write_raw(b"\0\1\0\1g\0\1t\0\0\0\5", b"\0\3short")
    assert offsets(topic.load()) == [(-1, 0, 1)]
    assert "offset 2 of strange-0 is left out" in caplog.text
