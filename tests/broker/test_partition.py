"""Partition: who may append and read, how far, and what an error of the disk becomes."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from barnabas.broker.metrics import TopicStats
from barnabas.broker.partition import READ_COMMITTED, ROOM_FOR_ALL, ROOM_FOR_OWN, Partition
from barnabas.config import LONG_MAX, LogConfig
from barnabas.model import TopicPartition
from barnabas.records.builder import OwnBatch
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import batch_of, log_options, refused, sent_by
from tests.storage.memory_files import MemoryFiles

NAME = TopicPartition("orders", 0)


class Setting:
    """A partition of this broker, number 1, on a disk in memory."""

    def __init__(self, **settings: Any) -> None:
        self.disk = MemoryFiles()
        self.errors: list[tuple[TopicPartition, int | None]] = []
        options = log_options(self.disk, "/data/orders-0", LogConfig(**settings))
        # In a broker a thread does it; here it is done when a test says so.
        self.log: Log = load_log(replace(options, on_flush_due=lambda log: None), LastKnown())
        self.stats = TopicStats()
        self.partition = Partition(
            NAME, uuid4(), self.log, self.stats, lambda name, error: self.errors.append((name, error.errno))
        )

    def lead(self, epoch: int = 0, isr: tuple[int, ...] = (1,)) -> Partition:
        self.partition.make_leader(1, epoch, (1, 2), isr)
        return self.partition


@pytest.fixture
def setting() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    setting.log.abandon()


def batch(count: int = 1) -> memoryview:
    return memoryview(batch_of(count))


def test_who_does_not_lead_neither_appends_nor_answers(setting: Setting) -> None:
    for refused_call in (
        lambda: setting.partition.append_records_to_leader(batch(), 1),
        lambda: setting.partition.append_own(OwnBatch([(b"k", b"v")], 1)),
        lambda: setting.partition.check_leader(),
        lambda: setting.partition.delete_records(0),
    ):
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0"):
            refused_call()
    assert setting.partition.acknowledgement(0, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_leader_appends_counts_and_moves_the_high_watermark(setting: Setting) -> None:
    partition = setting.lead()
    info = partition.append_records_to_leader(batch(3), -1)
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert setting.log.high_watermark.message_offset == 3
    assert (setting.stats.messages_in, setting.stats.bytes_in) == (3, info.size_bytes)
    assert partition.acknowledgement(3, -1) is ErrorCode.NONE
    assert partition.acknowledgement(4, -1) is None


def test_what_a_coordinator_appends_is_counted_and_moves_the_high_watermark(setting: Setting) -> None:
    partition = setting.lead()
    for end_offset in (1, 2, 3):
        assert partition.append_own(OwnBatch([(b"k", b"v")], 1_700_000_000_000)) == end_offset
        assert setting.log.high_watermark.message_offset == end_offset
        assert (setting.stats.messages_in, setting.stats.bytes_in) == (end_offset, setting.log.size_bytes)


def test_batches_carry_the_epoch_they_were_led_in(setting: Setting) -> None:
    partition = setting.lead(epoch=3)
    partition.append_records_to_leader(batch(2), 1)
    setting.lead(epoch=5)
    partition.append_records_to_leader(batch(2), 1)
    assert list(setting.log.leader_epochs.entries) == [(3, 0), (5, 2)]
    setting.lead(epoch=5)
    setting.lead(epoch=4)  # An old one changes nothing.
    assert partition.leader_epoch == 5


@pytest.mark.parametrize(
    ("believed", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_who_believes_in_another_epoch_is_told(setting: Setting, believed: int, code: ErrorCode) -> None:
    partition = setting.lead(epoch=5)
    partition.check_leader(5)
    partition.check_leader(-1)
    with refused(code, "the leader epoch is 5"):
        partition.check_leader(believed)


def test_too_few_in_sync_replicas_refuse_acks_all(setting: Setting) -> None:
    setting = Setting(min_insync_replicas=2)
    partition = setting.lead(isr=(1,))
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS, "has 1 in-sync replicas, but min.insync.replicas is 2"):
        partition.append_records_to_leader(batch(), -1)
    assert setting.log.log_end_offset == 0
    partition.append_records_to_leader(batch(), 1)
    # The replicas went while a produce waited.
    assert partition.acknowledgement(1, -1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    setting.log.abandon()


def test_with_flush_messages_nothing_is_seen_before_it_is_on_the_disk() -> None:
    setting = Setting(flush_messages=1)
    partition = setting.lead()
    assert not partition.acknowledges_at_once
    partition.append_records_to_leader(batch(3), 1)
    assert setting.log.high_watermark.message_offset == 0
    assert partition.acknowledgement(3, 1) is None
    assert partition.acknowledgement(3, -1) is None
    setting.log.flush()
    assert partition.maybe_increment_high_watermark()
    assert not partition.maybe_increment_high_watermark()
    assert setting.log.high_watermark.message_offset == 3
    assert partition.acknowledgement(3, 1) is ErrorCode.NONE
    assert partition.acknowledgement(3, -1) is ErrorCode.NONE
    setting.log.abandon()


def test_with_flush_messages_3_the_first_two_are_acknowledged_at_once() -> None:
    setting = Setting(flush_messages=3)
    partition = setting.lead()
    partition.append_records_to_leader(batch(2), 1)
    assert partition.acknowledgement(2, 1) is ErrorCode.NONE
    assert setting.log.high_watermark.message_offset == 2
    partition.append_records_to_leader(batch(1), 1)
    assert partition.acknowledgement(3, 1) is None
    assert setting.log.high_watermark.message_offset == 2  # It does not go back.
    setting.log.abandon()


def test_a_full_disk_refuses_the_append_and_nothing_else(setting: Setting) -> None:
    partition = setting.lead()
    setting.disk.fail_next_write(errno.ENOSPC)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "No space left"):
        partition.append_records_to_leader(batch(), 1)
    assert setting.errors == [(NAME, errno.ENOSPC)]  # Whoever is told refuses the next ones before they are tried.
    partition.room = ROOM_FOR_OWN
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory of orders-0 is full"):
        partition.append_records_to_leader(batch(), 1)
    partition.room = ROOM_FOR_ALL
    assert partition.append_records_to_leader(batch(), 1).first_offset == 0


def test_another_error_of_the_disk_is_told_to_who_takes_it_offline(setting: Setting) -> None:
    partition = setting.lead()
    setting.disk.fail_next_write(errno.EIO)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"):
        partition.append_records_to_leader(batch(), 1)
    assert setting.errors == [(NAME, errno.EIO)]


def test_a_log_that_was_closed_while_a_produce_waited_is_a_storage_error(setting: Setting) -> None:
    partition = setting.lead()
    setting.log.abandon()
    assert partition.acknowledgement(1, -1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_read_committed_stops_before_an_open_transaction(setting: Setting) -> None:
    partition = setting.lead()
    partition.append_records_to_leader(batch(2), 1)
    partition.append_records_to_leader(memoryview(sent_by(7, 0, transactional=True)), 1)
    assert partition.fetch_limit(0).message_offset == 3
    assert partition.fetch_limit(READ_COMMITTED).message_offset == 2


def test_records_are_deleted_up_to_the_high_watermark(setting: Setting) -> None:
    partition = setting.lead()
    partition.append_records_to_leader(batch(5), 1)
    assert partition.delete_records(2) == 2
    assert partition.delete_records(1) == 2
    for offset in (6, -2):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            partition.delete_records(offset)
    assert partition.delete_records(-1) == 5


def test_records_of_a_compacted_partition_are_not_deleted() -> None:
    setting = Setting(cleanup_policy=("compact",))
    partition = setting.lead()
    partition.append_records_to_leader(batch(5), 1)
    with refused(ErrorCode.POLICY_VIOLATION):
        partition.delete_records(2)
    assert setting.log.log_start_offset == 0
    setting.log.abandon()


def test_a_partition_of_one_replica_and_no_flush_is_acknowledged_at_once(setting: Setting) -> None:
    partition = setting.lead()
    assert setting.log.config.flush_messages == LONG_MAX
    assert partition.acknowledges_at_once
    assert not setting.lead(isr=(1, 2)).acknowledges_at_once
