"""Running groups that change their protocol (KIP-848): from classic to consumer, and back.

    upgrade     a member of the consumer protocol joins a classic group of consumers
    downgrade   the last member of the consumer protocol leaves a group in which classic members live
    empty       a group without members becomes what the first member is; that is always allowed

The classic members of a consumer group go on as before, see coordination/consumer_classic.py: they only see that there
was a rebalance.

Rule 1: an upgrade that may still be refused changes nothing: it is prepared first, and carried out when all is checked.
Rule 2: the old group's records are deleted in the batch in which the new group's are written. Offsets stay.
"""

from collections.abc import Collection
from dataclasses import dataclass

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.classic_groups import ClassicGroups
from barnabas.coordination.classic_member import ClassicMember, session_key
from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.consumer_member import ConsumerGroupMember, Owned
from barnabas.coordination.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from barnabas.coordination.group import CONSUMER_PROTOCOL_TYPE, Shard
from barnabas.coordination.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.coordination.step import CoordinatorRecord, Step
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import DecodeError


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What a classic group would be as a consumer group."""

    classic: ClassicGroup
    group: ConsumerGroup
    records: list[CoordinatorRecord]


class Migration:
    """The changes of protocol in a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._classic = ClassicGroups(shard)

    # From classic to consumer.

    def prepare_upgrade(self, classic: ClassicGroup) -> Upgrade:
        """Return what a classic group would be; raises GROUP_ID_NOT_FOUND, as Kafka does, if it can not be upgraded."""
        if classic.is_empty:
            return Upgrade(classic, ConsumerGroup(classic.group_id), classic.tombstones())
        if self._shard.config.consumer_migration_policy not in ("bidirectional", "upgrade"):
            raise _not_upgradable(classic, "online upgrade is disabled")
        if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _not_upgradable(classic, "the group does not use the consumer embedded protocol")
        if len(classic.members) > self._shard.config.consumer_max_size:
            raise _not_upgradable(classic, "the group size exceeds the consumer group maximum size")
        try:
            group = self._consumer_group_of(classic)
        except DecodeError:
            raise _not_upgradable(classic, "the embedded consumer protocol is malformed") from None
        return Upgrade(classic, group, classic.tombstones() + group.records())

    def carry_out(self, upgrade: Upgrade, step: Step) -> None:
        """Put the consumer group in the place of the classic one; who waits is told to join again."""
        step.replies += self._classic.waiting_replies(upgrade.classic, ErrorCode.REBALANCE_IN_PROGRESS)
        self._classic.forget(upgrade.classic)
        self._shard.groups[upgrade.group.group_id] = upgrade.group
        step.records += upgrade.records

    def _consumer_group_of(self, classic: ClassicGroup) -> ConsumerGroup:
        group = ConsumerGroup(classic.group_id)
        group.group_epoch = group.assignment_epoch = classic.generation_id
        for member in classic.members.values():
            assigned = self._assigned_of(classic, group, member)
            epochs = {
                topic_id: dict.fromkeys(partitions, classic.generation_id) for topic_id, partitions in assigned.items()
            }
            group.put_member(
                ConsumerGroupMember(
                    member_id=member.member_id,
                    metadata=_metadata_of(member, classic.protocol_name),
                    member_epoch=classic.generation_id,
                    previous_member_epoch=classic.generation_id,
                    assigned=epochs,
                )
            )
            group.targets[member.member_id] = assigned
        return group

    def _assigned_of(
        self, classic: ClassicGroup, group: ConsumerGroup, member: ClassicMember
    ) -> dict[bytes, frozenset[int]]:
        """Return what a classic member was assigned, without what another one has: a leader may have erred."""
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _not_upgradable(
                classic,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        assigned = {}
        for assigned_topic in assignment.assigned_partitions:
            topic = self._shard.topics.by_name(assigned_topic.topic)
            if topic is not None:
                owners = group.owners.get(topic.topic_id, {})
                partitions = frozenset(number for number in assigned_topic.partitions if number not in owners)
                if partitions:
                    assigned[topic.topic_id] = partitions
        return assigned

    # From consumer to classic.

    def can_downgrade(self, group: ConsumerGroup, without: Collection[str]) -> bool:
        """Whether a group becomes a classic one when these members are gone."""
        remaining = [member for member in group.members.values() if member.member_id not in without]
        config = self._shard.config
        return (
            bool(remaining)
            and all(member.uses_classic_protocol for member in remaining)
            and config.consumer_migration_policy in ("bidirectional", "downgrade")
            and len(remaining) <= config.max_size
        )

    def downgrade(self, group: ConsumerGroup, without: Collection[str], rebalance: bool, now_ms: int) -> Step:
        """Put a classic group of the remaining members in the place of the consumer group."""
        classic = ClassicGroup(group.group_id, now_ms)
        classic.generation_id = group.group_epoch
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        topics: set[str] = set()
        for member in group.members.values():
            if member.member_id not in without:
                classic.add(self._classic_member_of(group.group_id, member), None)
                topics.update(member.metadata.subscribed_topic_names)
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = topics
        classic.transition_to(ClassicState.STABLE, now_ms)
        step = Step(records=[*group.tombstones(), classic.record()])
        self._shard.groups[group.group_id] = classic
        step.add(self._classic.loaded(classic, now_ms))
        if rebalance:
            self._classic.prepare_rebalance(classic, now_ms, step)
        return step

    def _classic_member_of(self, group_id: str, member: ConsumerGroupMember) -> ClassicMember:
        metadata = member.metadata
        classic = metadata.classic_member_metadata
        assert classic is not None, "only members of the classic protocol are left"
        return ClassicMember(
            member_id=member.member_id,
            instance_id=metadata.instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            session_timeout_ms=classic.session_timeout_ms,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            protocols={protocol.name: protocol.metadata for protocol in classic.supported_protocols},
            session_key=session_key(group_id, member.member_id),
            assignment=self.assignment_of(member),
        )

    def assignment_of(self, member: ConsumerGroupMember) -> bytes:
        """Return what a classic member has, as SyncGroup brings it; in the version of its subscription."""
        classic = member.metadata.classic_member_metadata
        assert classic is not None
        version = read_version(classic.supported_protocols[0].metadata)
        return write_assignment(ConsumerProtocolAssignment(assigned_partitions=self._by_name(member.assigned)), version)

    def _by_name(self, assigned: Owned) -> list[TopicPartition]:
        partitions = []
        for topic_id in sorted(assigned):
            topic = self._shard.topics.by_id(topic_id)
            if topic is not None:
                partitions.append(TopicPartition(topic=topic.name, partitions=sorted(assigned[topic_id])))
        return partitions


def _not_upgradable(classic: ClassicGroup, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _metadata_of(member: ClassicMember, protocol_name: str | None) -> ConsumerGroupMemberMetadataValue:
    """Return what a classic member said of itself; all its protocols carry the same subscription."""
    chosen = member.protocols.get(protocol_name or "")
    subscription = read_subscription(next(iter(member.protocols.values())) if chosen is None else chosen)
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        subscribed_topic_regex="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols.items()
            ],
        ),
    )
