"""kafka-python as a member of a group."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import kafka
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

from tests.compat.drivers.kafka_python_common import record_of, translated
from tests.compat.model import (
    REBALANCING,
    Assignor,
    ClientError,
    CommittedOffset,
    MemberOptions,
    Polled,
    isolation_level,
)

POLL_MS = 100
RECORDS_A_POLL = 50
ASSIGNORS: dict[Assignor, Any] = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class RebalanceListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts rebalances, and commits before a partition is taken away."""

    def __init__(self, member: "KafkaPythonMember") -> None:
        self._member = member
        self.rebalances = 0

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.rebalances += bool(assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.rebalances += bool(revoked)
        self._member.commit_polled()

    def on_partitions_lost(self, lost: Any) -> None:
        self.rebalances += 1
        self._member.forget_polled()


class KafkaPythonMember:
    """A subscribed consumer of kafka-python."""

    def __init__(self, servers: str, options: MemberOptions) -> None:
        settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": options.group,
            "group_instance_id": options.instance_id,
            "enable_auto_commit": False,
            "auto_offset_reset": options.reset,
            "isolation_level": isolation_level(options.read_committed),
            "partition_assignment_strategy": [ASSIGNORS[options.assignor]],
            "session_timeout_ms": options.session_timeout_ms,
            "heartbeat_interval_ms": 200,
            "fetch_max_wait_ms": 100,
            "reconnect_backoff_max_ms": 500,
        }
        self._topic = options.topic
        self._commits = False
        # The next offsets of records that are polled and not committed.
        self._uncommitted: dict[int, int] = {}
        self._listener = RebalanceListener(self)
        with translated():
            self.consumer = kafka.KafkaConsumer(**settings)
            # One that joins before it knows the topic joins again when it does, and if a poll ends just then, it
            # forgets what it was given and sends no more heartbeats.
            self.consumer.partitions_for_topic(options.topic)
            self.consumer.subscribe([options.topic], listener=self._listener)

    def __enter__(self) -> "KafkaPythonMember":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.consumer.close()

    def poll(self, *, commit: bool) -> Polled:
        self._commits = commit
        with translated():
            polled = self.consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_A_POLL)
        records = [record_of(each) for batch in polled.values() for each in batch]
        self._uncommitted |= {record.partition: record.offset + 1 for record in records}
        self.commit_polled()
        assignment = frozenset(partition.partition for partition in self.consumer.assignment())
        return Polled(records=records, assignment=assignment, rebalances=self._listener.rebalances)

    def commit_polled(self) -> None:
        if self._uncommitted and self._commits:
            offsets = {partition: CommittedOffset(offset=offset) for partition, offset in self._uncommitted.items()}
            try:
                self.commit(offsets)
            except ClientError as error:
                if error.name not in REBALANCING:
                    raise
                return
        self._uncommitted.clear()

    def forget_polled(self) -> None:
        self._uncommitted.clear()

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        asked = {
            kafka.TopicPartition(self._topic, partition): OffsetAndMetadata(each.offset, each.metadata, -1)
            for partition, each in offsets.items()
        }
        with translated():
            self.consumer.commit(asked)
