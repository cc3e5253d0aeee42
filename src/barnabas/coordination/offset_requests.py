"""Answers to OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete.

Rule 1: errors are told partition by partition, as far as the responses allow; what is wrong with one partition does not
keep the others from being committed.
Rule 2: a commit by somebody who is in no group makes a group, a simple one: it is empty, has no protocol type, and is
there as long as its offsets are. It is not persisted, as the offsets tell of it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.classic_groups import ClassicGroups
from barnabas.coordination.group import Group, PartitionCheck, Shard
from barnabas.coordination.group_offsets import GroupOffsets
from barnabas.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from barnabas.coordination.records import is_too_long
from barnabas.coordination.step import CoordinatorRecord, Reply, Step, TopicDescription
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.schema import ZERO_UUID

COMMIT_VERSION_OF_UNKNOWN_GROUP = 9
COMMIT_VERSION_OF_TOPIC_IDS = 10
NO_OFFSET = -1
DEFAULT_RETENTION = -1

Put = Callable[[str, str, int, OffsetCommitValue], None]


class OffsetRequests:
    """What is asked about offsets."""

    def __init__(self, shard: Shard, offsets: GroupOffsets, classic: ClassicGroups) -> None:
        self._shard = shard
        self._offsets = offsets
        self._classic = classic

    # Commit.

    def commit(self, ticket: Any, version: int, request: OffsetCommitRequest, now_ms: int) -> Step:
        """Commit offsets of a group. Versions 2 to 4 say themselves how long the offsets are kept."""
        error = ErrorCode.NONE
        check: PartitionCheck | None = None
        try:
            group, check = self._validate_commit(version, request)
            if isinstance(group, ClassicGroup):
                self._classic.offsets_committed(group, request.member_id, now_ms)
        except ApiError as refused:
            error = refused.code
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if version >= COMMIT_VERSION_OF_TOPIC_IDS:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        expire_ms = -1 if request.retention_time_ms == DEFAULT_RETENTION else now_ms + request.retention_time_ms
        step = Step()
        response = OffsetCommitResponse()
        put = self._offsets.put
        commit = _Commit(self._shard, request.group_id, error, check, unknown, now_ms, expire_ms, put, step)
        for topic in request.topics:
            results = [
                OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                for one, code in zip(
                    topic.partitions, commit.take(topic.name, topic.topic_id, topic.partitions), strict=True
                )
            ]
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
            )
        self._ensure_group(request.group_id, step, now_ms)
        step.replies.append(Reply(ticket, response))
        return step

    def commit_plain(self, version: int, request: OffsetCommitRequest, now_ms: int) -> list[CoordinatorRecord] | None:
        """Commit offsets that nothing is wrong with, and return what to persist; None if `commit` has to look.

        Nothing has changed then, and whoever asked has no answer yet.
        """
        group = self._shard.groups.get(request.group_id)
        if group is None or request.retention_time_ms != DEFAULT_RETENTION:
            return None
        try:
            check = group.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, version, False
            )
        except ApiError:
            return None
        committed = None if check is not None else self._plain(request, now_ms)
        if not committed:
            return None
        for key, value in committed:
            self._offsets.put(key.group, key.topic, key.partition, value)
        if isinstance(group, ClassicGroup):
            self._classic.offsets_committed(group, request.member_id, now_ms)
        return [CoordinatorRecord(key, value) for key, value in committed]

    def _plain(
        self, request: OffsetCommitRequest, now_ms: int
    ) -> list[tuple[OffsetCommitKey, OffsetCommitValue]] | None:
        """Return what a request commits, or None if there is an error in any of its partitions."""
        group_id, metadata_max = request.group_id, self._shard.config.offset_metadata_max_bytes
        committed: list[tuple[OffsetCommitKey, OffsetCommitValue]] = []
        for topic in request.topics:
            known = self._shard.topics.by_name(topic.name)
            if known is None:
                return None
            for one in topic.partitions:
                if not 0 <= one.partition_index < known.partition_count:
                    return None
                if one.committed_metadata and _is_too_large(one.committed_metadata, metadata_max):
                    return None
                key = OffsetCommitKey(group=group_id, topic=known.name, partition=one.partition_index)
                committed.append((key, _committed(one, topic.topic_id, now_ms)))
        return committed

    def _validate_commit(
        self, version: int, request: OffsetCommitRequest
    ) -> tuple[Group | None, PartitionCheck | None]:
        check: PartitionCheck | None = None
        group = self._shard.groups.get(request.group_id)
        if group is not None:
            check = group.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, version, False
            )
        elif request.generation_id_or_member_epoch >= 0:
            code = ErrorCode.ILLEGAL_GENERATION
            if version >= COMMIT_VERSION_OF_UNKNOWN_GROUP:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            raise ApiError(code, f"there is no group {request.group_id}")
        return group, check

    def commit_transactional(self, ticket: Any, version: int, request: TxnOffsetCommitRequest, now_ms: int) -> Step:
        """Write offsets that become visible when the transaction commits."""
        error = ErrorCode.NONE
        check: PartitionCheck | None = None
        try:
            check = self._validate_transactional_commit(version, request)
        except ApiError as refused:
            error = refused.code

        def put(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
            self._offsets.put_pending(request.producer_id, group_id, topic, partition, value)

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        step = Step()
        response = TxnOffsetCommitResponse()
        commit = _Commit(self._shard, request.group_id, error, check, unknown, now_ms, -1, put, step)
        for topic in request.topics:
            results = [
                TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=_as_generation(code))
                for one, code in zip(
                    topic.partitions, commit.take(topic.name, ZERO_UUID, topic.partitions), strict=True
                )
            ]
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
        self._ensure_group(request.group_id, step, now_ms)
        step.replies.append(Reply(ticket, response))
        return step

    def _validate_transactional_commit(self, version: int, request: TxnOffsetCommitRequest) -> PartitionCheck | None:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a transaction commits the offsets of a group with a name")
        group = self._shard.groups.get(request.group_id)
        if group is not None:
            return group.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id, version, True
            )
        if request.generation_id >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id}")
        return None

    def _ensure_group(self, group_id: str, step: Step, now_ms: int) -> None:
        if step.records and group_id not in self._shard.groups:
            self._shard.groups[group_id] = ClassicGroup(group_id, now_ms)

    # Fetch.

    def fetch(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return committed offsets; -1 where there are none. An unknown group has none, which is no error."""
        response = OffsetFetchResponseGroup(group_id=request.group_id)
        group = self._shard.groups.get(request.group_id)
        try:
            if group is not None:
                group.validate_offset_fetch(request.member_id, request.member_epoch)
        except ApiError as refused:
            if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
                response.error_code = refused.code
                return response
        for topic in self._all_topics(request.group_id) if request.topics is None else request.topics:
            partitions = [
                self._fetch_one(request.group_id, topic.name, topic.topic_id, partition, require_stable)
                for partition in topic.partition_indexes
            ]
            response.topics.append(
                OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return response

    def _all_topics(self, group_id: str) -> Iterator[OffsetFetchRequestTopics]:
        for name, partitions in self._offsets.partitions_of(group_id):
            topic = self._shard.topics.by_name(name)
            yield OffsetFetchRequestTopics(
                name=name, topic_id=ZERO_UUID if topic is None else topic.topic_id, partition_indexes=partitions
            )

    def _fetch_one(
        self, group_id: str, topic: str, topic_id: bytes, partition: int, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._offsets.is_pending(group_id, topic, partition):
            return OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
            )
        value = self._offsets.get_of_topic(group_id, topic, topic_id, partition)
        if value is None:
            return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET)
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
        )

    # Delete.

    def delete(self, ticket: Any, request: OffsetDeleteRequest) -> Step:
        """Delete offsets of topics that no member reads."""
        step = Step()
        response = OffsetDeleteResponse()
        try:
            group = self._group_to_delete_from(request.group_id)
        except ApiError as refused:
            response.error_code = refused.code
            step.replies.append(Reply(ticket, response))
            return step
        for topic in request.topics:
            known = self._shard.topics.by_name(topic.name)
            count = 0 if known is None else known.partition_count
            is_subscribed = group.is_subscribed_to(topic.name)
            answered = OffsetDeleteResponseTopic(name=topic.name)
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
                if not 0 <= index < count:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answered.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
                tombstone = None if code else self._offsets.remove(request.group_id, topic.name, index)
                if tombstone is not None:
                    step.records.append(tombstone)
            response.topics.append(answered)
        step.replies.append(Reply(ticket, response))
        return step

    def _group_to_delete_from(self, group_id: str) -> Group:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "offsets are deleted from a group with a name")
        group = self._shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        group.validate_offset_delete()
        return group


def _as_generation(code: ErrorCode) -> ErrorCode:
    """Return an error in the words of producers, which do not know of epochs."""
    return ErrorCode.ILLEGAL_GENERATION if code == ErrorCode.STALE_MEMBER_EPOCH else code


def _is_too_large(metadata: str, size_max: int) -> bool:
    """Tell whether metadata is longer than the setting allows, or than a record can hold."""
    return len(metadata) > size_max or is_too_long(metadata)


def _committed(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now_ms: int,
    expire_ms: int = -1,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


class _Commit:
    """One request's commits: plain ones and transactional ones differ in where they are put."""

    __slots__ = (
        "_check",
        "_error",
        "_expire_ms",
        "_group_id",
        "_metadata_max",
        "_now_ms",
        "_put",
        "_records",
        "_topics",
        "_unknown",
    )

    def __init__(
        self,
        shard: Shard,
        group_id: str,
        error: ErrorCode,
        check: PartitionCheck | None,
        unknown: ErrorCode,
        now_ms: int,
        expire_ms: int,
        put: Put,
        step: Step,
    ) -> None:
        self._topics = shard.topics
        self._metadata_max = shard.config.offset_metadata_max_bytes
        self._group_id = group_id
        self._error = error
        self._check = check
        self._unknown = unknown
        self._now_ms = now_ms
        self._expire_ms = expire_ms
        self._put = put
        self._records = step.records

    def take(
        self,
        name: str,
        topic_id: bytes,
        partitions: Iterable[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition],
    ) -> list[ErrorCode]:
        """Commit partitions of a topic; returns each one's error."""
        topic = self._topics.by_name(name)
        if topic is None:
            return [self._unknown for _ in partitions]
        return [self._take(topic, topic_id, partition) for partition in partitions]

    def _take(
        self,
        topic: TopicDescription,
        topic_id: bytes,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    ) -> ErrorCode:
        index = partition.partition_index
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._error or self._check is not None:
            error = self._error or self._error_of(topic, index)
            if error:
                return error
        if _is_too_large(partition.committed_metadata or "", self._metadata_max):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        value = _committed(partition, topic_id, self._now_ms, self._expire_ms)
        self._put(self._group_id, topic.name, index, value)
        key = OffsetCommitKey(group=self._group_id, topic=topic.name, partition=index)
        self._records.append(CoordinatorRecord(key, value))
        return ErrorCode.NONE

    def _error_of(self, topic: TopicDescription, partition: int) -> ErrorCode:
        if self._check is not None:
            try:
                self._check(topic.topic_id, partition)
            except ApiError as refused:
                return refused.code
        return ErrorCode.NONE
