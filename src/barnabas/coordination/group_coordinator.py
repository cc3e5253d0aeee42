"""The coordinator of all groups of one shard, that is one partition of `__consumer_offsets`.

    GroupCoordinator --+-- ClassicGroups    what classic groups do
                       +-- ConsumerGroups   what consumer groups (KIP-848) do
                       +-- OffsetRequests   what is asked about offsets
                       +-- GroupOffsets     the offsets
                       +-- Timers           of all of them

It is a machine in the sense of coordination/step.py. Whoever runs it replays the partition's records, calls
`finish_loading`, passes requests in, and calls `tick` when `next_deadline_ms` has come. The records of one Step go into
one batch; those of `commit_transactional_offsets` into a batch of that transaction.

Rule 1: a request goes to the kind of group that there is, and no request but a join or a consumer group's heartbeat
changes a group's kind.
Rule 2: group ids are checked here: only offsets can be committed, fetched and deleted with an empty one.
"""

from collections.abc import Callable, Collection
from typing import Any

from barnabas.coordination import group_admin
from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.classic_groups import ClassicGroups, join_error
from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.consumer_groups import ConsumerGroups
from barnabas.coordination.group import Group
from barnabas.coordination.group_offsets import GroupOffsets
from barnabas.coordination.group_records import GroupMetadataKey, OffsetCommitKey
from barnabas.coordination.offset_requests import OffsetRequests
from barnabas.coordination.step import Client, CoordinatorRecord, Reply, Step, Topics
from barnabas.coordination.timers import TimerKey, Timers
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.group_admin import DescribedConsumerGroup, DescribedGroup, ListedGroup
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from barnabas.wire.messages.transactions import TxnOffsetCommitRequest

EXPIRY_KEY = TimerKey("offsets", "")
MINUTE_MS = 60_000

SYNC_VERSION_OF_MANDATORY_PROTOCOL = 5
LEAVE_VERSION_OF_MANY = 3


class GroupCoordinator:
    """One shard."""

    def __init__(self, config: GroupConfig, topics: Topics, new_id: Callable[[], str]) -> None:
        self.config = config
        self.topics = topics
        self.new_id = new_id
        self.groups: dict[str, Group] = {}
        self.timers = Timers()
        self.offsets = GroupOffsets()
        self.classic = ClassicGroups(self)
        self._consumer = ConsumerGroups(self)
        self._offset_requests = OffsetRequests(self, self.offsets, self.classic)

    # Members.

    def join_group(self, ticket: Any, client: Client, version: int, request: JoinGroupRequest, now_ms: int) -> Step:
        """Answer JoinGroup, now or when the generation begins."""
        shortest, longest = self.config.min_session_timeout_ms, self.config.max_session_timeout_ms
        if not request.group_id:
            return _answer(ticket, join_error(request.member_id, ErrorCode.INVALID_GROUP_ID))
        if not shortest <= request.session_timeout_ms <= longest:
            return _answer(ticket, join_error(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
        group = self.groups.get(request.group_id)
        step = Step()
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return self._consumer.join(ticket, client, version, group, request, now_ms)
            if request.member_id:
                return _answer(ticket, join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
            # Nobody is there whom it would disturb if the group becomes a classic one.
            step.records += group.tombstones()
            self.groups[request.group_id] = ClassicGroup(request.group_id, now_ms)
        step.add(self.classic.join(ticket, client, version, request, now_ms))
        return step

    def sync_group(self, ticket: Any, request: SyncGroupRequest, now_ms: int, version: int) -> Step:
        """Answer SyncGroup, now or when the leader has sent the assignments."""
        group = self.groups.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif version >= SYNC_VERSION_OF_MANDATORY_PROTOCOL and None in (request.protocol_type, request.protocol_name):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif isinstance(group, ClassicGroup):
            return self.classic.sync(ticket, group, request, now_ms)
        elif isinstance(group, ConsumerGroup):
            return self._consumer.sync(ticket, group, request, now_ms)
        else:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        return _answer(ticket, SyncGroupResponse(error_code=error))

    def heartbeat(self, ticket: Any, request: HeartbeatRequest, now_ms: int) -> Step:
        """Answer Heartbeat of a member that speaks the classic protocol."""
        error = ErrorCode.NONE
        group = self.groups.get(request.group_id)
        try:
            if not request.group_id:
                error = ErrorCode.INVALID_GROUP_ID
            elif isinstance(group, ClassicGroup):
                self.classic.heartbeat(group, request, now_ms)
            elif isinstance(group, ConsumerGroup):
                return self._consumer.classic_heartbeat(ticket, group, request, now_ms)
            else:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        except ApiError as refused:
            error = refused.code
        return _answer(ticket, HeartbeatResponse(error_code=error))

    def leave_group(self, ticket: Any, version: int, request: LeaveGroupRequest, now_ms: int) -> Step:
        """Answer LeaveGroup: until version 2 of the one who asks, then of many."""
        if not request.group_id:
            return _answer(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        identities = request.members
        if version < LEAVE_VERSION_OF_MANY:
            identities = [MemberIdentity(member_id=request.member_id)]
        step = Step()
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            responses = self.classic.leave(group, identities, now_ms, step)
        elif isinstance(group, ConsumerGroup):
            responses = self._consumer.leave(group, identities, now_ms, step)
        else:
            responses = [
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for identity in identities
            ]
        if version < LEAVE_VERSION_OF_MANY:
            response = LeaveGroupResponse(error_code=responses[0].error_code)
        else:
            response = LeaveGroupResponse(members=responses)
        step.replies.append(Reply(ticket, response))
        return step

    def consumer_group_heartbeat(
        self, ticket: Any, client: Client, version: int, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Step:
        """Answer ConsumerGroupHeartbeat (KIP-848), which may make a consumer group of a classic one."""
        return self._consumer.heartbeat(ticket, client, version, request, now_ms)

    # Offsets.

    def commit_offsets(self, ticket: Any, version: int, request: OffsetCommitRequest, now_ms: int) -> Step:
        """Answer OffsetCommit; names of topics that came as ids are filled in."""
        return self._offset_requests.commit(ticket, version, request, now_ms)

    def commit_plain_offsets(
        self, version: int, request: OffsetCommitRequest, now_ms: int
    ) -> list[CoordinatorRecord] | None:
        """Commit offsets that nothing is wrong with, and return what to persist; None, and nothing done, for others."""
        return self._offset_requests.commit_plain(version, request, now_ms)

    def commit_transactional_offsets(
        self, ticket: Any, version: int, request: TxnOffsetCommitRequest, now_ms: int
    ) -> Step:
        """Answer TxnOffsetCommit; the records belong to the transaction, and show when it commits."""
        return self._offset_requests.commit_transactional(ticket, version, request, now_ms)

    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Note that the marker of a transaction was appended to this partition."""
        self.offsets.complete_transaction(producer_id, is_commit)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, require_stable: bool, now_ms: int
    ) -> OffsetFetchResponseGroup:
        """Answer OffsetFetch for one group. An error is the group's; older versions want it in each partition."""
        return self._offset_requests.fetch(request, require_stable)

    def delete_offsets(self, ticket: Any, request: OffsetDeleteRequest, now_ms: int) -> Step:
        """Answer OffsetDelete."""
        return self._offset_requests.delete(ticket, request)

    # Operators.

    def list_groups(self, states_filter: Collection[str], types_filter: Collection[str]) -> list[ListedGroup]:
        """Return the groups of this shard; empty filters let all through."""
        return group_admin.list_groups(self.groups.values(), states_filter, types_filter)

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        """Answer DescribeGroups for one group, which is of classic groups."""
        return group_admin.describe_group(group_id, self.groups.get(group_id), version)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """Answer ConsumerGroupDescribe for one group."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer.describe(group)
        return group_admin.no_consumer_group(group_id, group)

    def delete_group(self, group_id: str, now_ms: int) -> tuple[ErrorCode, Step]:
        """Answer DeleteGroups for one group."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, Step()
        try:
            group.validate_delete()
        except ApiError as refused:
            return refused.code, Step()
        return ErrorCode.NONE, Step(records=self.offsets.remove_group(group_id) + self._drop(group))

    def _drop(self, group: Group) -> list[CoordinatorRecord]:
        if isinstance(group, ClassicGroup):
            self.classic.forget(group)
        del self.groups[group.group_id]
        return group.tombstones()

    # The world.

    def on_topics_changed(self, names: Collection[str], now_ms: int) -> Step:
        """Take note of topics that were created, were deleted, or have more partitions now."""
        deleted = [name for name in names if self.topics.by_name(name) is None]
        step = Step(records=self.offsets.remove_topics(deleted) if deleted else [])
        step.add(self._consumer.on_topics_changed(names, now_ms))
        return step

    def tick(self, now_ms: int) -> Step:
        """Do everything whose time has come."""
        step = Step()
        for key in self.timers.due(now_ms):
            if key == EXPIRY_KEY:
                step.records += self._expire(now_ms)
            elif key.kind.startswith("consumer-"):
                step.add(self._consumer.expire(key, now_ms))
            else:
                group = self.groups.get(key.group_id)
                if isinstance(group, ClassicGroup):
                    step.add(self.classic.expire(group, key, now_ms))
        return step

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` wants to be called; None if there is nothing to wait for."""
        return self.timers.next_deadline_ms

    @property
    def armings(self) -> int:
        """As `Timers.armings`."""
        return self.timers.armings

    def _expire(self, now_ms: int) -> list[CoordinatorRecord]:
        """Delete offsets that nobody needs any more, and then groups that have neither members nor offsets."""
        self.timers.set(EXPIRY_KEY, now_ms + self.config.offsets_retention_check_interval_ms)
        retention_ms = self.config.offsets_retention_minutes * MINUTE_MS
        records = []
        for group in list(self.groups.values()):
            records += self.offsets.expire(group, retention_ms, now_ms)
            is_joined = isinstance(group, ClassicGroup) and bool(group.pending_joins)
            if group.is_empty and not is_joined and not self.offsets.has_any(group.group_id):
                records += self._drop(group)
        return records

    # Loading and unloading.

    def replay(self, record: CoordinatorRecord) -> None:
        """Take in a record of the log.

        Only the last record of a key matters, and keys may come in any order, with one exception: the offsets of a
        partition must be in the order of the log where transactions are between, tombstones included.
        """
        match record.key:
            case OffsetCommitKey():
                self.offsets.replay(record)
            case GroupMetadataKey(group=group_id):
                if record.value is not None:
                    self.groups[group_id] = ClassicGroup.from_record(group_id, record.value)
                elif isinstance(self.groups.get(group_id), ClassicGroup):
                    del self.groups[group_id]
            case _:
                self._consumer.replay(record)

    def replay_transactional(self, producer_id: int, record: CoordinatorRecord) -> None:
        """Take in a record of a transaction; `complete_transaction` follows when its marker does."""
        if isinstance(record.key, OffsetCommitKey):
            self.offsets.replay_transactional(producer_id, record)

    def finish_loading(self, now_ms: int) -> Step:
        """Begin to serve: sessions start, and offsets without a group get one. Also called if there was no record."""
        step = Step()
        for group_id in self.offsets.group_ids():
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, now_ms)
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                step.add(self.classic.loaded(group, now_ms))
        step.add(self._consumer.finish_loading(now_ms))
        self.timers.set(EXPIRY_KEY, now_ms + self.config.offsets_retention_check_interval_ms)
        return step

    def waiting_replies(self, error: ErrorCode) -> list[Reply]:
        """Return an error for each ticket that still waits; the coordinator is thrown away after that."""
        return [
            reply
            for group in self.groups.values()
            if isinstance(group, ClassicGroup)
            for reply in self.classic.waiting_replies(group, error)
        ]


def _answer(ticket: Any, message: Any) -> Step:
    return Step(replies=[Reply(ticket, message)])
