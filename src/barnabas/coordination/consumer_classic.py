"""Members of the classic protocol that live in a consumer group (KIP-848): JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

    Heartbeat: REBALANCE_IN_PROGRESS --> JoinGroup, with what it has --> SyncGroup: what it has from now on

To such a member its epoch is the generation, and it never leads: the coordinator assigns. A join is answered at once.
As the member keeps what it has over a join, it goes through the same states as a member of the consumer protocol: it is
told to join again to give partitions up, and again to get those that others gave up.
"""

from dataclasses import replace
from typing import Any

from barnabas.coordination.classic_groups import JOIN_VERSION_OF_REQUIRED_ID, join_error
from barnabas.coordination.classic_member import protocols_of
from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.consumer_member import ConsumerGroupMember, MemberState
from barnabas.coordination.consumer_membership import JOIN, SYNC, Membership
from barnabas.coordination.consumer_protocol import ConsumerProtocolSubscription, read_subscription
from barnabas.coordination.group import CONSUMER_PROTOCOL_TYPE, Shard
from barnabas.coordination.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.coordination.step import Client, Reply, Step
from barnabas.coordination.timers import TimerKey
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.consumer_groups import TopicPartitions
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.primitives import DecodeError


class ClassicMembers:
    """The classic members of the consumer groups of a shard."""

    def __init__(self, shard: Shard, membership: Membership) -> None:
        self._shard = shard
        self._membership = membership

    # Join.

    def join(
        self, ticket: Any, client: Client, version: int, group: ConsumerGroup, request: JoinGroupRequest, now_ms: int
    ) -> Step:
        """Take a classic member into a group that has members."""
        if version < 1:
            request.rebalance_timeout_ms = request.session_timeout_ms
        try:
            return self._join(group, ticket, client, version, request, now_ms)
        except ApiError as error:
            member_id = "" if error.code == ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            return Step(replies=[Reply(ticket, join_error(member_id, error.code))])

    def _join(
        self, group: ConsumerGroup, ticket: Any, client: Client, version: int, request: JoinGroupRequest, now_ms: int
    ) -> Step:
        member_id = request.member_id or self._shard.new_id()
        raise_if_full(group, member_id, self._shard.config.consumer_max_size)
        protocols = protocols_of(request.protocols)
        if not group.supports_classic_protocols(request.protocol_type, protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")
        if version >= JOIN_VERSION_OF_REQUIRED_ID and not request.member_id and request.group_instance_id is None:
            return Step(replies=[Reply(ticket, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))])
        existing = self._existing(group, request)
        before = existing or ConsumerGroupMember(member_id=member_id)
        if before.member_id != member_id:
            # A static member came back with no name, and gets a new one.
            before = replace(before, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        subscription = _subscription_of(protocols)
        member = replace(before, metadata=_metadata_of(before.metadata, client, request, protocols, subscription))

        step = Step()
        if existing is not None and existing.member_id != member_id:
            self._membership.cancel_timers_of(group.group_id, existing.member_id)
            step.records += group.replace_static_member(existing.member_id, before)
        was_mixed = any(not other.uses_classic_protocol for other in group.members.values())
        member = self._membership.admit(group, before, member, self._owned(subscription), now_ms, step)
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=next(iter(protocols)),
        )
        self._membership.cancel_timers_of(group.group_id, member_id)
        if was_mixed and self._membership.migration.can_downgrade(group, ()):
            # The last member of the consumer protocol came back as a classic one.
            has_changed = member.metadata.subscribed_topic_names != before.metadata.subscribed_topic_names
            self._membership.cancel_timers(group)
            step.add(self._membership.migration.downgrade(group, (), has_changed, now_ms))
        else:
            self._membership.restart_session(group, member, now_ms)
            self._shard.timers.set(TimerKey(SYNC, group.group_id, member_id), now_ms + request.rebalance_timeout_ms)
        step.replies.append(Reply(ticket, response))
        return step

    def _existing(self, group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerGroupMember | None:
        if request.group_instance_id is None:
            return group.members.get(request.member_id)
        if request.member_id:
            return static_member_or_raise(group, request.member_id, request.group_instance_id)
        return group.static_member(request.group_instance_id)

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
        owned = []
        for owned_topic in subscription.owned_partitions:
            topic = self._shard.topics.by_name(owned_topic.topic)
            if topic is not None:
                owned.append(TopicPartitions(topic_id=topic.topic_id, partitions=owned_topic.partitions))
        return owned

    # Sync and heartbeat.

    def sync(self, ticket: Any, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Step:
        """Give a classic member what it has since its join."""
        try:
            member = _classic_member_or_raise(group, request.member_id, request.group_instance_id)
            _raise_if_generation_differs(member, request.generation_id)
            _raise_if_protocol_differs(member, request)
            if group.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(group, member, now_ms)
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"member {member.member_id} should join again")
        except ApiError as error:
            return Step(replies=[Reply(ticket, SyncGroupResponse(error_code=error.code))])
        self._shard.timers.cancel(TimerKey(SYNC, group.group_id, member.member_id))
        self._membership.restart_session(group, member, now_ms)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=self._membership.migration.assignment_of(member),
        )
        return Step(replies=[Reply(ticket, response)])

    def heartbeat(self, ticket: Any, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Step:
        """Prolong the session of a classic member, and tell it if it should join again."""
        error = ErrorCode.NONE
        try:
            member = _classic_member_or_raise(group, request.member_id, request.group_instance_id)
            _raise_if_generation_differs(member, request.generation_id)
        except ApiError as refused:
            return Step(replies=[Reply(ticket, HeartbeatResponse(error_code=refused.code))])
        self._membership.restart_session(group, member, now_ms)
        if _should_rejoin(group, member):
            self._expect_join(group, member, now_ms)
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return Step(replies=[Reply(ticket, HeartbeatResponse(error_code=error))])

    def _expect_join(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> None:
        key = TimerKey(JOIN, group.group_id, member.member_id)
        if self._shard.timers.deadline_of(key) is None:
            self._shard.timers.set(key, now_ms + member.metadata.rebalance_timeout_ms)

    # Leave.

    def leave(
        self, group: ConsumerGroup, identities: list[MemberIdentity], now_ms: int, step: Step
    ) -> list[MemberResponse]:
        """Put members out; an operator may name members of either protocol."""
        leaving = []
        responses = []
        for identity in identities:
            error = ErrorCode.NONE
            try:
                leaving.append(_leaving_member(group, identity).member_id)
            except ApiError as refused:
                error = refused.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        step.add(self._membership.fence(group, leaving, now_ms))
        return responses


def raise_if_full(group: ConsumerGroup, member_id: str, members_max: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if a member is new and there is no place."""
    if len(group.members) >= members_max and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {members_max} members.",
        )


def static_member_or_raise(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """Return a static member, or raise UNKNOWN_MEMBER_ID or, if another one took its place, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _classic_member_or_raise(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    if instance_id is None:
        member = group.member_or_raise(member_id)
    else:
        member = static_member_or_raise(group, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    if identity.group_instance_id is None:
        return group.member_or_raise(identity.member_id)
    # An operator removes a static member, whose name he need not know.
    named = group.static_members.get(identity.group_instance_id, "")
    return static_member_or_raise(group, identity.member_id or named, identity.group_instance_id)


def _raise_if_generation_differs(member: ConsumerGroupMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} of "
            f"member {member.member_id}.",
        )


def _raise_if_protocol_differs(member: ConsumerGroupMember, request: SyncGroupRequest) -> None:
    classic = member.metadata.classic_member_metadata
    assert classic is not None
    protocol_name = classic.supported_protocols[0].name
    for said, actual in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, protocol_name),
    ):
        if said is not None and said != actual:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the join was answered with {actual}, not {said}")


def _should_rejoin(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Whether there is a new epoch, something to give up, or something to get."""
    if member.member_epoch < group.group_epoch:
        return True
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_unreleased(member)


def _subscription_of(protocols: dict[str, bytes]) -> ConsumerProtocolSubscription:
    """Read the subscription of the first protocol; all carry the same."""
    try:
        return read_subscription(next(iter(protocols.values())))
    except DecodeError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription can not be read: {error}") from None


def _metadata_of(
    before: ConsumerGroupMemberMetadataValue,
    client: Client,
    request: JoinGroupRequest,
    protocols: dict[str, bytes],
    subscription: ConsumerProtocolSubscription,
) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        subscribed_topic_regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=before.server_assignor,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in protocols.items()],
        ),
    )
