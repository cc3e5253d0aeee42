"""confluent-kafka as a member of a group."""

import time
from collections.abc import Mapping
from types import TracebackType

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from tests.compat.drivers.confluent_common import client_error, record_of, translated
from tests.compat.model import REBALANCING, ClientError, CommittedOffset, MemberOptions, Polled, Record, isolation_level

POLL_S = 0.1
RECORDS_A_POLL = 50
# What librdkafka tells of and goes on by itself.
PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def settings_of(servers: str, options: MemberOptions) -> dict[str, str | int | float | bool]:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": servers,
        "group.id": options.group,
        "group.protocol": options.protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "error" if options.reset == "none" else options.reset,
        "isolation.level": isolation_level(options.read_committed),
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if options.protocol == "classic":
        settings |= {
            "partition.assignment.strategy": options.assignor,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": 200,
        }
    if options.instance_id is not None:
        settings["group.instance.id"] = options.instance_id
    return settings


class ConfluentMember:
    """A subscribed consumer of librdkafka."""

    def __init__(self, servers: str, options: MemberOptions) -> None:
        self._topic = options.topic
        self._rebalances = 0
        # The next offsets of records that are polled and not committed.
        self._uncommitted: dict[int, int] = {}
        self._commits = False
        self.consumer = confluent_kafka.Consumer(settings_of(servers, options))
        self.consumer.subscribe(
            [options.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _on_assign(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        # An incremental rebalance may change nothing.
        self._rebalances += bool(partitions)

    def _on_revoke(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += bool(partitions)
        self._commit_polled()

    def _on_lost(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._uncommitted.clear()

    def __enter__(self) -> "ConfluentMember":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.consumer.close()

    def poll(self, *, commit: bool) -> Polled:
        self._commits = commit
        records: list[Record] = []
        deadline = time.monotonic() + POLL_S
        while len(records) < RECORDS_A_POLL:
            message = self.consumer.poll(0 if records else max(0.0, deadline - time.monotonic()))
            if message is None:
                break
            error = message.error()
            if error is None:
                record = record_of(message)
                records.append(record)
                self._uncommitted[record.partition] = record.offset + 1
            elif not (error.retriable() or error.code() in PASSING):
                raise client_error(error)
        self._commit_polled()
        with translated():
            assignment = frozenset(partition.partition for partition in self.consumer.assignment())
        return Polled(records=records, assignment=assignment, rebalances=self._rebalances)

    def _commit_polled(self) -> None:
        if self._uncommitted and self._commits:
            offsets = {partition: CommittedOffset(offset=offset) for partition, offset in self._uncommitted.items()}
            try:
                self.commit(offsets)
            except ClientError as error:
                if error.name not in REBALANCING:
                    raise
                return
        self._uncommitted.clear()

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        asked = [
            TopicPartition(self._topic, partition, committed.offset, committed.metadata)
            for partition, committed in offsets.items()
        ]
        with translated():
            answers = self.consumer.commit(offsets=asked, asynchronous=False)
        for answer in answers or []:
            if answer.error is not None:
                raise client_error(answer.error)
