"""A consumer group (KIP-848): its members, the target of each, and who has which partition now.

    group epoch       counts every change of members, subscriptions and topics
    assignment epoch  for which group epoch the target was computed; Assigning while it is behind
    member epoch      which target a member has come to; Reconciling while one is behind

Rule 1: whatever changes what is persisted returns the record of it, and the other way round `replay` takes records in.
So a group that is read from its log is the group that wrote it.
Rule 2: a partition has one owner at most: a member to which it is assigned or from which it is being revoked.
Rule 3: records come from a log in any order of their keys, each with its last value; see `finish_loading`.
"""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Literal, NamedTuple

from barnabas.coordination.assignors import EMPTY, Partitions
from barnabas.coordination.consumer_member import NO_METADATA, NOTHING, ConsumerGroupMember, Owned
from barnabas.coordination.group import CONSUMER_PROTOCOL_TYPE, PartitionCheck
from barnabas.coordination.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetPartitions,
)
from barnabas.coordination.step import CoordinatorRecord, TopicDescription, Topics
from barnabas.wire.errors import ApiError, ErrorCode


class ResolvedRegularExpression(NamedTuple):
    """The topics that an expression matched, and when it was looked."""

    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroup:
    """One consumer group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """The ids of static members by their instance ids."""
        self.targets: dict[str, Partitions] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        self.regexes: dict[str, ResolvedRegularExpression] = {}
        # Not persisted: whether topics may have changed since the group looked at them, as after a start.
        self.is_metadata_stale = True
        self.are_regexes_stale = True
        self.regexes_refreshed_ms = 0
        self._subscribed_topic_names: frozenset[str] | None = None

    # What all groups have, see coordination/group.py.

    @property
    def group_type(self) -> Literal["classic", "consumer"]:
        """Return which protocol the group speaks."""
        return "consumer"

    @property
    def protocol_type(self) -> str | None:
        """Return what the members are."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        """Return the state as it is shown."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""
        return not self.members

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation_or_epoch: int, version: int, is_transactional: bool
    ) -> PartitionCheck | None:
        """Raise an ApiError if a member may not commit offsets; with a negative epoch it is an operator's commit.

        A member that has not heard of its new epoch may commit what it had before and still has (KIP-1251).
        """
        if generation_or_epoch < 0 and not self.members:
            return None
        if is_transactional and generation_or_epoch == -1 and not member_id and instance_id is None:
            # A producer that does not know of members (before KIP-447).
            return None
        member = self.member_or_raise(member_id)
        if version < 9 and not is_transactional and not member.uses_classic_protocol:
            # Clients of the older versions do not know what to do when they hear that their epoch is an old one.
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "members of a consumer group commit by OffsetCommit 9 on")
        if generation_or_epoch < member.member_epoch:
            return lambda topic_id, partition: _validate_assignment_epoch(
                member, generation_or_epoch, topic_id, partition
            )
        _validate_epoch(member, generation_or_epoch)
        return None

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise an ApiError if a member may not fetch offsets; with no member and epoch -1 it is an operator's."""
        if member_id is None and member_epoch < 0:
            return
        _validate_epoch(self.member_or_raise(member_id or ""), member_epoch)

    def validate_offset_delete(self) -> None:
        """Allow it: of each topic it is known whether it is read, see `is_subscribed_to`."""

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if there are members."""
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group {self.group_id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return topic in self.subscribed_topic_names

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets of topics that nobody reads grow old."""
        return True

    @property
    def empty_since_ms(self) -> int | None:
        """Return None: the age of offsets is counted from their commit."""
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that delete the group, in Kafka's order."""
        group_id = self.group_id
        keys: list[object] = []
        for member_id in self.members:
            keys.append(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))
        for member_id in self.targets:
            keys.append(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
        for member_id in self.members:
            keys.append(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))
        for regex in self.regexes:
            keys.append(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))
        keys.append(ConsumerGroupMetadataKey(group_id=group_id))
        return [CoordinatorRecord(key, None) for key in keys]

    # What is asked about members and topics.

    def member_or_raise(self, member_id: str) -> ConsumerGroupMember:
        """Return a member, or raise UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """Return the member that has an instance id."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """The topics that any member reads, whether they exist or not."""
        if self._subscribed_topic_names is None:
            names: set[str] = set()
            for member in self.members.values():
                names.update(member.metadata.subscribed_topic_names)
            for resolved in self.regexes.values():
                names |= resolved.topics
            self._subscribed_topic_names = frozenset(names)
        return self._subscribed_topic_names

    def subscription_of(self, metadata: ConsumerGroupMemberMetadataValue) -> frozenset[str]:
        """Return the topics that one member reads."""
        resolved = self.regexes.get(metadata.subscribed_topic_regex or "")
        names = frozenset(metadata.subscribed_topic_names)
        return names if resolved is None else names | resolved.topics

    def used_regexes(self) -> set[str]:
        """Return the expressions that members subscribe by."""
        regexes = (member.metadata.subscribed_topic_regex for member in self.members.values())
        return {regex for regex in regexes if regex}

    def is_waiting_for_unreleased(self, member: ConsumerGroupMember) -> bool:
        """Whether a partition that a member is to have is still another's."""
        for topic_id, partitions in self.targets.get(member.member_id, EMPTY).items():
            assigned = member.assigned.get(topic_id, {})
            owners = self.owners.get(topic_id, {})
            if any(partition in owners for partition in partitions if partition not in assigned):
                return True
        return False

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member could be in one classic group with those that are here."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        spoken = [
            {protocol.name for protocol in classic.supported_protocols}
            for member in self.members.values()
            if (classic := member.metadata.classic_member_metadata) is not None
        ]
        return any(all(name in of_member for of_member in spoken) for name in names)

    # Changes, each with its record.

    def put_member(self, member: ConsumerGroupMember) -> CoordinatorRecord:
        """Take in what a member says of itself."""
        self._replace(member)
        key = ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=member.member_id)
        return CoordinatorRecord(key, member.metadata)

    def put_current(self, member: ConsumerGroupMember) -> CoordinatorRecord:
        """Take in what a member has."""
        self._replace(member)
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member.member_id)
        return CoordinatorRecord(key, member.assignment_value())

    def put_target(self, member_id: str, partitions: Partitions) -> CoordinatorRecord:
        """Take in what a member is to have."""
        self.targets[member_id] = partitions
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id)
        topics = [
            TargetPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
        ]
        return CoordinatorRecord(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))

    def put_epoch(self, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
        """Take in the group epoch, and what the topics are that it stands for."""
        self.group_epoch = group_epoch
        self.metadata_hash = metadata_hash
        value = ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
        return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=self.group_id), value)

    def put_assignment_epoch(self, assignment_epoch: int, now_ms: int) -> CoordinatorRecord:
        """Take in for which group epoch the target is."""
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp_ms = now_ms
        value = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=assignment_epoch, assignment_timestamp=now_ms
        )
        return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), value)

    def put_regex(self, regex: str, resolved: ResolvedRegularExpression) -> CoordinatorRecord:
        """Take in which topics an expression matches."""
        self.regexes[regex] = resolved
        self._subscribed_topic_names = None
        key = ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        # Kafka notes which version of its metadata it looked at. There is none here: 0 makes Kafka look again.
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=0, timestamp=resolved.timestamp_ms
        )
        return CoordinatorRecord(key, value)

    def drop_regex(self, regex: str) -> CoordinatorRecord:
        """Forget an expression."""
        del self.regexes[regex]
        self._subscribed_topic_names = None
        key = ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        return CoordinatorRecord(key, None)

    def drop_member(self, member_id: str) -> list[CoordinatorRecord]:
        """Strike a member; what it had is free."""
        self._remove(member_id)
        self.targets.pop(member_id, None)
        group_id = self.group_id
        return [
            CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
            CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
            CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
        ]

    def replace_static_member(self, member_id: str, new: ConsumerGroupMember) -> list[CoordinatorRecord]:
        """Put a static member that came back in the place of the one that left."""
        target = self.targets.get(member_id, EMPTY)
        records = self.drop_member(member_id)
        records.append(self.put_member(new))
        records.append(self.put_target(new.member_id, target))
        records.append(self.put_current(new))
        return records

    def records(self) -> list[CoordinatorRecord]:
        """Return the records of all that is here, for a group that was made from a classic one."""
        records = [self.put_member(member) for member in self.members.values()]
        records.append(self.put_epoch(self.group_epoch, self.metadata_hash))
        records += [self.put_target(member_id, target) for member_id, target in self.targets.items()]
        records.append(self.put_assignment_epoch(self.assignment_epoch, self.assignment_timestamp_ms))
        records += [self.put_current(member) for member in self.members.values()]
        return records

    def _replace(self, member: ConsumerGroupMember) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is not None and before.instance_id != member.instance_id:
            self._forget_instance(before)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if before is None or before.metadata is not member.metadata:
            self._subscribed_topic_names = None
        if (
            before is None
            or before.assigned is not member.assigned
            or (before.pending_revocation is not member.pending_revocation)
        ):
            if before is not None:
                self._release(before)
            self._own(member.member_id, member.assigned)
            self._own(member.member_id, member.pending_revocation)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        self._subscribed_topic_names = None
        self._forget_instance(member)

    def _forget_instance(self, member: ConsumerGroupMember) -> None:
        # While a log is read, the member that took the place may be here already.
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _own(self, member_id: str, owned: Owned) -> None:
        for topic_id, partitions in owned.items():
            owners = self.owners.setdefault(topic_id, {})
            for partition in partitions:
                assert owners.get(partition, member_id) == member_id, f"partition {partition} has two owners"
                owners[partition] = member_id

    def _release(self, member: ConsumerGroupMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    owners.pop(partition, None)
                if not owners:
                    self.owners.pop(topic_id, None)

    # Reading a log.

    def replay(self, record: CoordinatorRecord) -> None:
        """Take in a record of this group; one without a value takes away what its key names."""
        key, value = record
        match key:
            case ConsumerGroupMetadataKey():
                self.group_epoch, self.metadata_hash = (0, 0) if value is None else (value.epoch, value.metadata_hash)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = 0 if value is None else value.assignment_epoch
                self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                self._replay_metadata(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                member = self.members.get(member_id, ConsumerGroupMember(member_id=member_id))
                if value is not None:
                    self._replace(member.with_assignment_value(value))
                elif member_id in self.members:
                    self._replace(replace(member, assigned=NOTHING, pending_revocation=NOTHING))
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self.targets.pop(member_id, None)
                if value is not None:
                    topics = value.topic_partitions
                    self.targets[member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in topics}
            case ConsumerGroupRegularExpressionKey(regular_expression=regex):
                self.regexes.pop(regex, None)
                if value is not None:
                    self.regexes[regex] = ResolvedRegularExpression(frozenset(value.topics), value.timestamp)
                self._subscribed_topic_names = None
            case _:
                raise AssertionError(f"{key} is no key of a consumer group")

    def _replay_metadata(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self._remove(member_id)
        else:
            member = self.members.get(member_id, ConsumerGroupMember(member_id=member_id))
            self._replace(replace(member, metadata=value))

    def finish_loading(self) -> None:
        """Forget members of which there is no more than an assignment: they are no members, whatever left it."""
        for member in list(self.members.values()):
            if member.metadata is NO_METADATA:
                self._remove(member.member_id)
        for member_id in list(self.targets):
            if member_id not in self.members:
                del self.targets[member_id]


def _validate_epoch(member: ConsumerGroupMember, received: int) -> None:
    """Raise an ApiError if an epoch is not the member's. Classic members call it their generation."""
    if received == member.member_epoch:
        return
    if member.uses_classic_protocol:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {received} does not match the expected member epoch {member.member_epoch}.",
        )
    raise ApiError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {received} does not match the expected member epoch {member.member_epoch}.",
    )


def _validate_assignment_epoch(member: ConsumerGroupMember, received: int, topic_id: bytes, partition: int) -> None:
    """Raise an ApiError if a member did not have a partition in this epoch of its own, or has it no more."""
    epoch = member.assigned.get(topic_id, {}).get(partition)
    if epoch is None:
        epoch = member.pending_revocation.get(topic_id, {}).get(partition)
    if epoch is None or received < epoch:
        code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
        raise ApiError(code, f"the epoch {received} is older than the assignment of partition {partition}: {epoch}")


def described_topics(topics: Topics, names: Iterable[str]) -> list[TopicDescription]:
    """Return those topics that exist, in the order of their names."""
    found = (topics.by_name(name) for name in sorted(names))
    return [topic for topic in found if topic is not None]


def metadata_hash(topics: Iterable[TopicDescription]) -> int:
    """Return a number that changes when a topic is made, is deleted or gets partitions; 0 if there is none.

    Kafka hashes names, ids, partitions and racks in its own way. The numbers need not be the same: a coordinator that
    finds another one than it computes lets the group rebalance once, and nothing moves.
    """
    content = blake2b(digest_size=8)
    count = 0
    for topic in topics:
        name = topic.name.encode()
        content.update(len(name).to_bytes(4, "big") + name + topic.topic_id + topic.partition_count.to_bytes(4, "big"))
        count += 1
    return int.from_bytes(content.digest(), "big", signed=True) if count else 0


def topic_ids_of(
    topics: Topics, names: Iterable[str], cache: dict[frozenset[str], frozenset[bytes]]
) -> frozenset[bytes]:
    """Return the ids of those topics that exist; the same names give the same object."""
    key = frozenset(names)
    ids = cache.get(key)
    if ids is None:
        ids = cache[key] = frozenset(topic.topic_id for topic in described_topics(topics, key))
    return ids
