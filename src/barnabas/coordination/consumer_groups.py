"""What consumer groups do (KIP-848): ConsumerGroupHeartbeat, by which members join, go on and leave; and what follows.

    ConsumerGroups --+-- Membership        how members come in, go on, and are put out
                     +-- ClassicMembers    members that speak the classic protocol
                     +-- Migration         from and to classic groups

ConsumerGroupHeartbeat 0-1: with member epoch 0 a member joins, with -1 it leaves, with -2 a static member leaves for a
while. From version 1 on members make their ids themselves (KIP-1082). In an answer there is an assignment if it
changed, or if the request was a full one: so a member that missed an answer can ask for it.

Rule 1: a member that speaks of the epoch before its own missed an answer, and is heard if it has no more than it
should; any other epoch than its own is an old life of the member or another one's, and is fenced.

Differences from Kafka's GroupMetadataManager: a static member that joins again under the same member id is let in, as
it missed the answer to its join; Kafka tells it that its instance id is unreleased. Expressions are matched at once and
not some time later. A commit of offsets in an older epoch is refused also if the partitions did not move since
(KIP-1251). Errors of classic members in their subscription are INCONSISTENT_GROUP_PROTOCOL, not UNKNOWN_SERVER_ERROR.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from barnabas.coordination.assignors import EMPTY
from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.consumer_classic import ClassicMembers, raise_if_full, static_member_or_raise
from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.consumer_member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NOTHING,
    ConsumerGroupMember,
    MemberState,
    Owned,
)
from barnabas.coordination.consumer_membership import REBALANCE, Membership
from barnabas.coordination.consumer_migration import Upgrade
from barnabas.coordination.group import Shard
from barnabas.coordination.group_records import ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey
from barnabas.coordination.step import Client, CoordinatorRecord, Reply, Step
from barnabas.coordination.timers import TimerKey
from barnabas.coordination.topic_patterns import validate_pattern
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages import group_admin
from barnabas.wire.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
)

HEARTBEAT_VERSION_OF_MEMBERS_OWN_ID = 1

CLASSIC_MEMBER_TYPE = 0
CONSUMER_MEMBER_TYPE = 1


class ConsumerGroups:
    """The consumer groups of a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._membership = Membership(shard)
        self._classic_members = ClassicMembers(shard, self._membership)

    # ConsumerGroupHeartbeat.

    def heartbeat(
        self, ticket: Any, client: Client, version: int, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Step:
        """Let a member join, go on or leave."""
        group = self._shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            member = group.members.get(request.member_id)
            if member is not None and _has_nothing_new(group, member, client, request):
                refresh_ms = group.regexes_refreshed_ms + self._shard.config.consumer_regex_refresh_interval_ms
                if not group.regexes or now_ms < refresh_ms:
                    self._membership.restart_session(group, member, now_ms)
                    return Step([], [Reply(ticket, self._answer(member))])
        try:
            _validate_heartbeat(request, version, self._shard.config)
            if request.member_epoch < 0:
                return self._leave_for_itself(ticket, request, now_ms)
            return self._join_or_go_on(ticket, client, request, now_ms)
        except ApiError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            return Step(replies=[Reply(ticket, response)])

    def _join_or_go_on(self, ticket: Any, client: Client, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Step:
        is_joining = request.member_epoch == 0
        group, upgrade = self._group_of(request.group_id, is_joining)
        raise_if_full(group, request.member_id, self._shard.config.consumer_max_size)
        member_id = request.member_id or self._shard.new_id()
        existing = _existing_member(group, member_id, request)
        before = existing or ConsumerGroupMember(member_id=member_id)
        if before.member_id != member_id:
            # A static member is back, and takes the place that it had under its old id.
            before = replace(before, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        member = replace(before, metadata=_updated_metadata(before.metadata, client, request))
        regex = member.metadata.subscribed_topic_regex
        if regex and regex != before.metadata.subscribed_topic_regex:
            validate_pattern(regex)

        # From here on nothing is refused.
        step = Step()
        if upgrade is not None:
            self._membership.migration.carry_out(upgrade, step)
            for classic_member in group.members.values():
                self._membership.restart_session(group, classic_member, now_ms)
        self._shard.groups[request.group_id] = group
        if existing is not None and (before.member_id != existing.member_id or before.uses_classic_protocol):
            self._membership.cancel_timers_of(group.group_id, existing.member_id)
        if existing is not None and before.member_id != existing.member_id:
            step.records += group.replace_static_member(existing.member_id, before)
        member = self._membership.admit(group, before, member, request.topic_partitions, now_ms, step)
        self._membership.restart_session(group, member, now_ms)
        response = self._answer(member)
        if is_joining or _is_full(request) or member.assigned != before.assigned:
            response.assignment = Assignment(topic_partitions=_topic_partitions(member.assigned))
        step.replies.append(Reply(ticket, response))
        return step

    def _group_of(self, group_id: str, is_joining: bool) -> tuple[ConsumerGroup, Upgrade | None]:
        """Return a group; for one who joins also one that is made new, or of a classic one."""
        group = self._shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if group is None and is_joining:
            return ConsumerGroup(group_id), None
        if is_joining and isinstance(group, ClassicGroup):
            upgrade = self._membership.migration.prepare_upgrade(group)
            return upgrade.group, upgrade
        what = "not found" if group is None else "not a consumer group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} {what}.")

    def _answer(self, member: ConsumerGroupMember) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._shard.config.consumer_heartbeat_interval_ms,
        )

    def _leave_for_itself(self, ticket: Any, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Step:
        group, _ = self._group_of(request.group_id, False)
        if request.instance_id is None:
            member = group.member_or_raise(request.member_id)
        else:
            member = static_member_or_raise(group, request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            # It comes back before its session ends, or it is put out then. Until then it keeps what it has.
            left = replace(member, member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH, pending_revocation=NOTHING)
            step = Step(records=[group.put_current(left)])
            self._shard.timers.cancel(TimerKey(REBALANCE, group.group_id, member.member_id))
        else:
            step = self._membership.fence(group, [member.member_id], now_ms)
        response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        step.replies.append(Reply(ticket, response))
        return step

    # Members of the classic protocol.

    def join(
        self, ticket: Any, client: Client, version: int, group: ConsumerGroup, request: JoinGroupRequest, now_ms: int
    ) -> Step:
        """Answer JoinGroup to a group that has members."""
        return self._classic_members.join(ticket, client, version, group, request, now_ms)

    def sync(self, ticket: Any, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Step:
        """Answer SyncGroup."""
        return self._classic_members.sync(ticket, group, request, now_ms)

    def classic_heartbeat(self, ticket: Any, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Step:
        """Answer Heartbeat."""
        return self._classic_members.heartbeat(ticket, group, request, now_ms)

    def leave(
        self, group: ConsumerGroup, identities: list[MemberIdentity], now_ms: int, step: Step
    ) -> list[MemberResponse]:
        """Do what LeaveGroup asks for."""
        return self._classic_members.leave(group, identities, now_ms, step)

    # Operators.

    def describe(self, group: ConsumerGroup) -> group_admin.DescribedConsumerGroup:
        """Answer ConsumerGroupDescribe."""
        return group_admin.DescribedConsumerGroup(
            group_id=group.group_id,
            group_state=group.state_name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=self._membership.assignor_of(group),
            members=[self._described(group, member) for member in group.members.values()],
        )

    def _described(self, group: ConsumerGroup, member: ConsumerGroupMember) -> group_admin.Member:
        metadata = member.metadata
        return group_admin.Member(
            member_id=member.member_id,
            instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            member_epoch=member.member_epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=metadata.subscribed_topic_names,
            subscribed_topic_regex=metadata.subscribed_topic_regex,
            assignment=self._described_assignment(member.assigned),
            target_assignment=self._described_assignment(group.targets.get(member.member_id, EMPTY)),
            member_type=CLASSIC_MEMBER_TYPE if member.uses_classic_protocol else CONSUMER_MEMBER_TYPE,
        )

    def _described_assignment(self, partitions: Any) -> group_admin.Assignment:
        described = []
        for topic_id in sorted(partitions):
            topic = self._shard.topics.by_id(topic_id)
            if topic is not None:
                described.append(
                    group_admin.TopicPartitions(
                        topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id])
                    )
                )
        return group_admin.Assignment(topic_partitions=described)

    # Topics, time, and the log.

    def on_topics_changed(self, names: Collection[str], now_ms: int) -> Step:
        """Take note of topics that came, went or grew; groups look at them with the next heartbeat."""
        changed = set(names)
        for group in self._shard.groups.values():
            if isinstance(group, ConsumerGroup):
                group.are_regexes_stale = True
                if not changed.isdisjoint(group.subscribed_topic_names):
                    group.is_metadata_stale = True
        return Step()

    def expire(self, key: TimerKey, now_ms: int) -> Step:
        """Put a member out that let a deadline pass."""
        group = self._shard.groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup) or key.member_id not in group.members:
            return Step()
        return self._membership.fence(group, [key.member_id], now_ms)

    def replay(self, record: CoordinatorRecord) -> None:
        """Take in a record of a consumer group."""
        group_id: str = record.key.group_id
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self._shard.groups[group_id] = ConsumerGroup(group_id)
        group.replay(record)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self._shard.groups[group_id]

    def finish_loading(self, now_ms: int) -> Step:
        """Begin the sessions of the members that were loaded."""
        for group in self._shard.groups.values():
            if isinstance(group, ConsumerGroup):
                group.finish_loading()
                for member in group.members.values():
                    self._membership.restart_session(group, member, now_ms)
                    if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
                        deadline_ms = now_ms + member.metadata.rebalance_timeout_ms
                        self._shard.timers.set(TimerKey(REBALANCE, group.group_id, member.member_id), deadline_ms)
        return Step()


def _has_nothing_new(
    group: ConsumerGroup, member: ConsumerGroupMember, client: Client, request: ConsumerGroupHeartbeatRequest
) -> bool:
    """Whether a heartbeat only says that the member is alive, and there is nothing to tell it either."""
    metadata = member.metadata
    return (
        request.member_epoch == member.member_epoch == group.group_epoch == group.assignment_epoch
        and member.state is MemberState.STABLE
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == metadata.instance_id)
        and not group.is_metadata_stale
        and not (group.are_regexes_stale and group.regexes)
        and client.client_id == metadata.client_id
        and client.client_host == metadata.client_host
        and metadata.classic_member_metadata is None
    )


def _validate_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> None:
    """Raise an ApiError for a request that makes no sense, in the order in which Kafka looks."""
    epoch = request.member_epoch
    must_have_id = version >= HEARTBEAT_VERSION_OF_MEMBERS_OWN_ID or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH
    if must_have_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    for value, name in (
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.consumer_assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(config.consumer_assignors)}.",
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _existing_member(
    group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupMember | None:
    """Return the member that a heartbeat is of, or whose place it takes; None for a new one."""
    is_joining = request.member_epoch == 0
    if request.instance_id is None:
        member = group.members.get(member_id) if is_joining else group.member_or_raise(member_id)
    elif is_joining:
        member = group.static_member(request.instance_id)
        if member is None:
            member = group.members.get(member_id)
        elif member.member_id != member_id:
            _raise_if_unreleased(member, member_id, request.instance_id)
            return member
    else:
        member = static_member_or_raise(group, member_id, request.instance_id)
    if member is not None:
        _raise_if_epoch_is_invalid(member, request)
    return member


def _raise_if_unreleased(member: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    """Only who left for a while is replaced; but a classic member never says that, so it is replaced in any case."""
    if member.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH and not member.uses_classic_protocol:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {member.member_id} member.",
        )


def _raise_if_epoch_is_invalid(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    received = request.member_epoch
    if received == 0:
        return
    if received > member.member_epoch:
        difference = "greater"
    elif received < member.member_epoch and not (
        # The answer with the new epoch may have been lost.
        received == member.previous_member_epoch and member.owns_no_more_than_assigned(request.topic_partitions)
    ):
        difference = "smaller"
    elif member.state is MemberState.UNKNOWN:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    else:
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {difference} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _updated_metadata(
    before: ConsumerGroupMemberMetadataValue, client: Client, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupMemberMetadataValue:
    """Return what a member says of itself; what it does not mention stays as it was."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=(before.subscribed_topic_regex or "") if regex is None else regex,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a request has all fields, as after an error: then the member wants to hear all too."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _topic_partitions(assigned: Owned) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id])) for topic_id in sorted(assigned)]
