"""A member of a consumer group (KIP-848), and the steps by which it comes to own what the target gives it.

    STABLE                 has what the target of its epoch gives it
    UNREVOKED_PARTITIONS   is asked to give partitions up, and has not said yet that it did; keeps its epoch
    UNRELEASED_PARTITIONS  is in the target's epoch, and waits for partitions that others have not given up yet

Rule 1: a partition that a member is asked to give up is its own until it says that it has done so: until then it is in
`pending_revocation`, and nobody else gets it.
Rule 2: members are not changed, but replaced by changed ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from barnabas.coordination.assignors import Partitions
from barnabas.coordination.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    OwnedPartitions,
)
from barnabas.wire.messages.consumer_groups import TopicPartitions

LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""The epoch of a static member that left and may come back, until its session ends."""

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""The epochs in which partitions were assigned to their owner, by topic id and partition (KIP-1251)."""

NOTHING: Owned = {}
NO_METADATA = ConsumerGroupMemberMetadataValue()
"""What a member has of which, while a log is read, only the assignment has come so far."""


class MemberState(IntEnum):
    """How far a member has come; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A state of a later Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """One member."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue = field(default_factory=lambda: NO_METADATA)
    """What it said of itself, in the form of its record; never changed, but replaced."""
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=lambda: NOTHING)
    pending_revocation: Owned = field(default_factory=lambda: NOTHING)

    @property
    def instance_id(self) -> str | None:
        """Return the name of a static member."""
        return self.metadata.instance_id

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it is a member of the old protocol that lives in a consumer group."""
        return self.metadata.classic_member_metadata is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has what the target of an epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def owns_no_more_than_assigned(self, owned: Iterable[TopicPartitions] | None) -> bool:
        """Whether what a member says it has is what it may have."""
        if owned is None:
            return False
        for topic in owned:
            assigned = self.assigned.get(topic.topic_id)
            if assigned is None or not assigned.keys() >= set(topic.partitions):
                return False
        return True

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the record of what the member has."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=_as_records(self.assigned),
            partitions_pending_revocation=_as_records(self.pending_revocation),
        )

    def with_assignment_value(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerGroupMember":
        """Return the member with what a record says that it has."""
        known = value.state in MemberState.__members__.values()
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_from_records(value.assigned_partitions, value.member_epoch),
            pending_revocation=_from_records(value.partitions_pending_revocation, value.member_epoch),
        )

    def _moved(
        self, state: MemberState, member_epoch: int, assigned: Owned, pending_revocation: Owned
    ) -> "ConsumerGroupMember":
        return replace(
            self,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )


def _as_records(owned: Owned) -> list[OwnedPartitions]:
    records = []
    for topic_id in sorted(owned):
        partitions = sorted(owned[topic_id])
        epochs = [owned[topic_id][partition] for partition in partitions]
        records.append(OwnedPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return records


def _from_records(records: Iterable[OwnedPartitions], member_epoch: int) -> Owned:
    owned = {}
    for record in records:
        # Before 4.3 Kafka did not note the epochs of assignments: then they are the member's.
        epochs = record.assignment_epochs or [member_epoch] * len(record.partitions)
        owned[record.topic_id] = dict(zip(record.partitions, epochs, strict=True))
    return owned


class Reconciliation:
    """One step of a member towards its target; as Kafka's CurrentAssignmentBuilder."""

    def __init__(
        self,
        member: ConsumerGroupMember,
        *,
        assignment_epoch: int,
        target: Partitions,
        subscribed_topic_ids: frozenset[bytes],
        owners: Mapping[bytes, Mapping[int, str]],
        owned: Iterable[TopicPartitions] | None,
    ) -> None:
        self._member = member
        self._assignment_epoch = assignment_epoch
        self._target = target
        self._subscribed_topic_ids = subscribed_topic_ids
        self._owners = owners
        self._owned = owned

    def next(self, has_subscription_changed: bool) -> ConsumerGroupMember:
        """Return the member as it is after the step, or the same if it can do none."""
        member = self._member
        match member.state:
            case MemberState.STABLE if member.member_epoch == self._assignment_epoch:
                return self._without_unsubscribed() if has_subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS if self._still_owns(member.pending_revocation):
                return self._without_unsubscribed() if has_subscription_changed else member
            case _:
                # A state that is not known here is left in the same way: what the member has is kept or revoked.
                return self._towards_target()

    def _still_owns(self, pending_revocation: Owned) -> bool:
        """Whether the member has not said that it gave all of them up."""
        if self._owned is None:
            return True
        return any(
            partition in pending_revocation.get(topic.topic_id, {})
            for topic in self._owned
            for partition in topic.partitions
        )

    def _without_unsubscribed(self) -> ConsumerGroupMember:
        """Take away topics that the member does not want any more; the rest of the target comes with its epoch."""
        member = self._member
        unwanted = {topic_id: epochs for topic_id, epochs in member.assigned.items() if not self._wants(topic_id)}
        if not unwanted:
            return member
        assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in unwanted}
        pending_revocation = dict(member.pending_revocation)
        for topic_id, epochs in unwanted.items():
            pending_revocation[topic_id] = {**pending_revocation.get(topic_id, {}), **epochs}
        if self._still_owns(pending_revocation):
            return member._moved(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending_revocation)
        # It said that it has none of them, so they are given up already.
        return member._moved(member.state, member.member_epoch, assigned, member.pending_revocation)

    def _towards_target(self) -> ConsumerGroupMember:
        member = self._member
        assigned: dict[bytes, Mapping[int, int]] = {}
        to_revoke: dict[bytes, Mapping[int, int]] = {}
        to_assign: dict[bytes, set[int]] = {}
        has_unreleased = False
        for topic_id in member.assigned.keys() | self._target.keys():
            current = member.assigned.get(topic_id, {})
            target = self._target.get(topic_id, frozenset()) if self._wants(topic_id) else frozenset()
            kept = {partition: epoch for partition, epoch in current.items() if partition in target}
            if kept:
                assigned[topic_id] = kept
            if len(kept) < len(current):
                to_revoke[topic_id] = {partition: current[partition] for partition in current.keys() - kept.keys()}
            missing = target - kept.keys()
            free = self._released(topic_id, missing)
            has_unreleased = has_unreleased or len(free) < len(missing)
            if free:
                to_assign[topic_id] = free
        if to_revoke and self._still_owns(to_revoke):
            return member._moved(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, to_revoke)
        for topic_id, partitions in to_assign.items():
            assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(partitions, self._assignment_epoch)}
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member._moved(state, self._assignment_epoch, assigned, NOTHING)

    def _released(self, topic_id: bytes, partitions: Iterable[int]) -> set[int]:
        """Return those that no other member has. What the member itself was to give up, it can just as well keep."""
        owners = self._owners.get(topic_id, {})
        return {partition for partition in partitions if owners.get(partition) in (None, self._member.member_id)}

    def _wants(self, topic_id: bytes) -> bool:
        return topic_id in self._subscribed_topic_ids
