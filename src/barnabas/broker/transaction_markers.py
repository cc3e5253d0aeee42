"""Writes the markers that end transactions into the logs of their partitions, and tries again until all are there.

    TransactionCoordinator: PrepareCommit --> write --> a control batch in each partition --> markers_written

Rule 1: a marker is written when the decision is safe, and counts as written when the marker is.
Rule 2: a partition that is gone needs no marker. One that can not take it now gets it later; the transaction stays
undecided for readers until then.
Rule 3: a partition of `__consumer_offsets` tells the group coordinator, whose pending offsets the marker decides.
Rule 4: nothing is tried again for a coordinator that is gone. The one after it writes the same markers, and a client
without KIP-890 may be in its next transaction under the same epoch by then: a late marker would end that one.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.broker.groups import Groups
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.partition import ACKS_ALL, Partition
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.clock import Clock
from barnabas.model import TopicPartition
from barnabas.records.builder import OwnBatch, own_marker
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

RETRY_MS = 100
WAIT_MS = 30_000

# The partition is gone, or has a newer producer, whose start ended the transaction there.
_NEEDS_NO_MARKER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)


class EndMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


Written = Callable[[TopicPartition, ErrorCode], None]
"""Told when the marker is in a partition, or why it is not."""
Done = Callable[[Sequence[TopicPartition]], None]
"""Told of partitions that have their marker, or need none."""


class TransactionMarkers:
    """Writes markers on this broker."""

    def __init__(self, replica_manager: ReplicaManager, groups: Groups, clock: Clock) -> None:
        self._manager = replica_manager
        self._groups = groups
        self._clock = clock

    def write(self, marker: EndMarker, name: TopicPartition, written: Written) -> None:
        """Write a marker into a partition, and call back when it is safe, or with the error."""
        code = self._write(marker, self._batch(marker), name, written)
        if code is not None:
            written(name, code)

    def _batch(self, marker: EndMarker) -> OwnBatch:
        return own_marker(
            commit=marker.is_commit,
            timestamp=self._clock.now_ms(),
            producer=(marker.producer_id, marker.producer_epoch),
            coordinator_epoch=marker.coordinator_epoch,
        )

    def _write(self, marker: EndMarker, batch: OwnBatch, name: TopicPartition, later: Written) -> ErrorCode | None:
        """Write a marker and return what came of it, or None if that is not known yet and `later` is told."""
        manager = self._manager
        try:
            partition = manager.partitions.get(name) or manager.partition(*name)
            end_offset = partition.append_own(batch)
        except ApiError as error:
            return error.code
        manager.on_change(partition)
        if name.topic == GROUP_TOPIC:
            self._groups.complete_transaction(name.partition, marker.producer_id, marker.is_commit)
        code = partition.acknowledgement(end_offset, ACKS_ALL)
        if code is None:
            manager.delayed_produce.watch(_DelayedMarker(partition, end_offset, later), [name], WAIT_MS)
        return code

    def write_until_done(
        self, marker: EndMarker, names: Sequence[TopicPartition], done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Write a marker into partitions, however long it takes, unless a partition needs none any more.

        Those that are written at once are told of together, the others one by one.

        Args:
            is_wanted: whether the coordinator that decided is still there; asked before every further attempt.
        """

        def written(name: TopicPartition, code: ErrorCode) -> None:
            if needs_no_more(name, code):
                done([name])

        def needs_no_more(name: TopicPartition, code: ErrorCode) -> bool:
            if code is ErrorCode.NONE:
                return True
            if code in _NEEDS_NO_MARKER:
                logger.warning("%s needs no marker of producer %d: %s", name, marker.producer_id, code.name)
                return True
            self._manager.scheduler.call_later(RETRY_MS, lambda: try_again(name))
            return False

        def try_again(name: TopicPartition) -> None:
            if is_wanted():
                self.write(marker, name, written)

        batch = self._batch(marker)
        at_once = []
        for name in names:
            code = self._write(marker, batch, name, written)
            if code is not None and needs_no_more(name, code):
                at_once.append(name)
        if at_once:
            done(at_once)


class _DelayedMarker:
    """A marker that is appended and not yet safe."""

    def __init__(self, partition: Partition, end_offset: int, written: Written) -> None:
        self._partition = partition
        self._end_offset = end_offset
        self._written = written

    def try_complete(self) -> bool:
        """Tell, if it is known."""
        code = self._partition.acknowledgement(self._end_offset, ACKS_ALL)
        if code is not None:
            self._written(self._partition.topic_partition, code)
        return code is not None

    def on_expiration(self) -> None:
        """Let it be written again; a second marker of the same transaction does nothing."""
        self._written(self._partition.topic_partition, ErrorCode.REQUEST_TIMED_OUT)
