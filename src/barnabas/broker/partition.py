"""Partition: one partition that this broker has a replica of, and whether it leads it.

It stands between requests, which know topics and clients, and the Log, which knows batches and files.

Rule 1: only the leader appends for clients; whoever asks with an old or a future leader epoch is told so.
Rule 2: the high watermark is the least log end of the in-sync replicas, and never goes back. Where `flush.messages`
asks for the disk, this broker's own part of it is what was flushed, so that nothing is read or acknowledged that a
power cut can take back.
Rule 3: an OSError of the log becomes an answer here and nowhere else: a full disk refuses this append, any other error
takes the log directory offline. While a directory is full, appends of clients are refused before they are tried.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from barnabas.broker.metrics import TopicStats
from barnabas.config import LONG_MAX
from barnabas.model import NO_LEADER_EPOCH, LogOffsetMetadata, TopicPartition
from barnabas.records.builder import OwnBatch
from barnabas.storage.disk_room import FULL_ERRORS
from barnabas.storage.files import PASSING_ERRORS
from barnabas.storage.log import Log
from barnabas.storage.log_types import LogAppendInfo
from barnabas.wire.errors import ApiError, ErrorCode

ACKS_ALL = -1

READ_COMMITTED = 1

# Who may write, by the room in the log directory: everybody, only this broker's coordinators, or nobody.
ROOM_FOR_ALL = 0
ROOM_FOR_OWN = 1
ROOM_FOR_NONE = 2


class Partition:
    """A replica of a partition."""

    __slots__ = (
        "_on_storage_error",
        "in_sync_replicas",
        "is_leader",
        "leader",
        "leader_epoch",
        "log",
        "replicas",
        "room",
        "stats",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        stats: TopicStats,
        on_storage_error: Callable[[TopicPartition, OSError], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.stats = stats
        self._on_storage_error = on_storage_error
        self.is_leader = False
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.replicas: Sequence[int] = ()
        self.in_sync_replicas: Sequence[int] = ()
        self.room = ROOM_FOR_ALL

    def make_leader(self, leader: int, leader_epoch: int, replicas: Sequence[int], isr: Sequence[int]) -> None:
        """Lead the partition in an epoch. What this replica has is what the others will have."""
        self.leader, self.is_leader = leader, True
        self.replicas, self.in_sync_replicas = replicas, isr
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            if leader_epoch > self.log.leader_epochs.latest:
                self.log.leader_epochs.assign(leader_epoch, self.log.log_end_offset)
        self.maybe_increment_high_watermark()

    # Append.

    def append_records_to_leader(self, records: memoryview, acks: int, *, is_client: bool = True) -> LogAppendInfo:
        """Append what a client sent; raises ApiError with its answer."""
        log = self.log
        if (
            self.room
            or not self.is_leader
            or (acks == ACKS_ALL and len(self.in_sync_replicas) < log.config.min_insync_replicas)
        ):
            self._check_append(acks, ROOM_FOR_ALL)
        try:
            info = log.append_as_leader(records, self.leader_epoch, is_client=is_client)
        except OSError as error:
            raise self.storage_error(error) from error
        stats = self.stats
        stats.bytes_in += info.size_bytes
        stats.messages_in += info.record_count
        self.maybe_increment_high_watermark()
        return info

    def append_own(self, own: OwnBatch) -> int:
        """Append what a coordinator of this broker decided, for all in-sync replicas; return the offset behind it.

        Raises ApiError.
        """
        self._check_append(ACKS_ALL, ROOM_FOR_OWN)
        log, stats = self.log, self.stats
        try:
            stats.bytes_in += log.append_own(own, self.leader_epoch)
        except OSError as error:
            raise self.storage_error(error) from error
        stats.messages_in += len(own.records)
        self.maybe_increment_high_watermark()
        return log.end_offset

    def _check_append(self, acks: int, room: int) -> None:
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")
        if acks == ACKS_ALL and len(self.in_sync_replicas) < self.log.config.min_insync_replicas:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, self._too_few_replicas())
        if self.room > room:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.topic_partition} is full")

    def _too_few_replicas(self) -> str:
        return (
            f"{self.topic_partition} has {len(self.in_sync_replicas)} in-sync replicas, "
            f"but min.insync.replicas is {self.log.config.min_insync_replicas}"
        )

    def storage_error(self, error: OSError) -> ApiError:
        """Return the answer to an error of the disk, after telling whoever takes the directory offline."""
        if error.errno not in PASSING_ERRORS or error.errno in FULL_ERRORS:
            self._on_storage_error(self.topic_partition, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error.strerror or error}")

    def maybe_increment_high_watermark(self) -> bool:
        """Move the high watermark to what all in-sync replicas have, and tell whether it moved."""
        log = self.log
        # Followers of the partition come in here, each with the log end offset it last fetched from.
        end_offset = log.end_offset
        if end_offset - log.recovery_point >= log.config.flush_messages:
            if log.recovery_point <= log.high_watermark_offset:
                return False
            log.update_high_watermark(log.recovery_point)
        elif end_offset <= log.high_watermark_offset:
            return False
        else:
            log.high_watermark_to_end()
        return True

    @property
    def is_flush_due(self) -> bool:
        """Whether the last appends wait for the disk."""
        return self.log.is_flush_due

    @property
    def acknowledges_at_once(self) -> bool:
        """Whether every append is acknowledged when it is in the log: no disk and no other replica is waited for."""
        return len(self.in_sync_replicas) == 1 and self.log.config.flush_messages == LONG_MAX

    def acknowledgement(self, end_offset: int, acks: int) -> ErrorCode | None:
        """Return how a produce up to `end_offset` is answered, or None while that is not known."""
        log = self.log
        if log.is_closed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.is_flush_due and log.recovery_point < end_offset:
            return None
        if acks != ACKS_ALL:
            return ErrorCode.NONE
        if log.high_watermark.message_offset < end_offset:
            return None
        if len(self.in_sync_replicas) < log.config.min_insync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # Read.

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise ApiError unless this broker leads, in the epoch that the client believes in (-1: any)."""
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            is_old = current_leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"the leader epoch is {self.leader_epoch}, not {current_leader_epoch}")

    def fetch_limit(self, isolation_level: int) -> LogOffsetMetadata:
        """Return up to where a consumer may read."""
        return self.log.last_stable if isolation_level == READ_COMMITTED else self.log.high_watermark

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset` (-1: at the high watermark), and return where it starts now."""
        self.check_leader()
        if "delete" not in self.log.config.cleanup_policy:
            message = f"{self.topic_partition} is compacted only, so that its records can not be deleted"
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        wanted = self.log.high_watermark.message_offset if offset == -1 else offset
        return self.log.delete_records(wanted)
