"""aiokafka as a member of a group."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any

# aiokafka carries no type information.
import aiokafka  # type: ignore[import-untyped]
from aiokafka.abc import ConsumerRebalanceListener  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]

from tests.compat.drivers.aiokafka_common import Loop, record_of
from tests.compat.model import CommittedOffset, MemberOptions, Polled, isolation_level

POLL_MS = 100
RECORDS_A_POLL = 50


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts rebalances. aiokafka rebalances in a task of its own, which has to wait while records are committed."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self.rebalances = 0

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.rebalances += bool(assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self._lock:
            self.rebalances += bool(revoked)


class AiokafkaMember:
    """A subscribed consumer of aiokafka."""

    def __init__(self, loop: Loop, servers: str, options: MemberOptions) -> None:
        self._loop = loop
        self._topic = options.topic
        self.group = options.group
        self._lock, self._listener, self._consumer = loop.run(self._start(servers, options))

    @staticmethod
    async def _start(
        servers: str, options: MemberOptions
    ) -> tuple[asyncio.Lock, RebalanceListener, aiokafka.AIOKafkaConsumer]:
        lock = asyncio.Lock()
        listener = RebalanceListener(lock)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=options.group,
            group_instance_id=options.instance_id,
            enable_auto_commit=False,
            auto_offset_reset=options.reset,
            isolation_level=isolation_level(options.read_committed),
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
        )
        consumer.subscribe([options.topic], listener=listener)
        await consumer.start()
        return lock, listener, consumer

    def __enter__(self) -> "AiokafkaMember":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._consumer.stop())

    def poll(self, *, commit: bool) -> Polled:
        return self._loop.run(self._poll(commit))

    async def _poll(self, commit: bool) -> Polled:
        # Not under the lock, because it waits for a rebalance. What it returns is ours, and nothing else runs before
        # the lock is taken.
        polled = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_A_POLL)
        records = [record_of(each) for batch in polled.values() for each in batch]
        offsets = {record.partition: CommittedOffset(offset=record.offset + 1) for record in records}
        async with self._lock:
            if offsets and commit:
                await self._commit(offsets)
        assignment = frozenset(partition.partition for partition in self._consumer.assignment())
        return Polled(records=records, assignment=assignment, rebalances=self._listener.rebalances)

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        self._loop.run(self._commit(offsets))

    async def _commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        asked = {
            aiokafka.TopicPartition(self._topic, partition): (each.offset, each.metadata)
            for partition, each in offsets.items()
        }
        await self._consumer.commit(asked)
