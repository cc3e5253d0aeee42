"""A classic group: its members, its state, and the protocol that the members have in common.

    Empty ---> PreparingRebalance ---> CompletingRebalance ---> Stable
      ^          |     ^     ^                 |                  |
      |          |     |     +-----------------+                  |
      +----------+     +------------------------------------------+

    PreparingRebalance    members join; whoever is not back in time is out
    CompletingRebalance   the generation is settled; its leader computes the assignments, the others wait for them
    Stable                every member has its assignment

Dead is a group that is not there.

Rule 1: here is what a group is, and what it allows; what it does when members come, go and are late is in
coordination/classic_groups.py.
Rule 2: at least one protocol is spoken by all members, always: whoever would leave none is turned away.
Rule 3: what is persisted of a group is what it was when it last became Stable or Empty. After a crash it goes on from
there: members find that their generation is an old one, and join again.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Literal

from barnabas.coordination.classic_member import ClassicMember, session_key, subscribed_topics
from barnabas.coordination.group import CONSUMER_PROTOCOL_TYPE, PartitionCheck
from barnabas.coordination.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordination.timers import TimerKey
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.groups import JoinGroupResponseMember


class ClassicState(Enum):
    """The states, by the names that operators see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """One classic group."""

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.EMPTY
        self.state_since_ms: int | None = now_ms
        """None in groups that a very old Kafka wrote, which did not know it."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """The names of static members by their instance ids."""
        self.pending_joins: set[str] = set()
        """Names that were given out with MEMBER_ID_REQUIRED (KIP-394), and not used yet."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.subscribed_topics: set[str] | None = None
        """What all members read together; None if that is not known."""
        # The delay before a first rebalance: how long this one is, and how much more there may be. See classic_groups.
        self.initial_delay_ms: int | None = None
        self.initial_remaining_ms = 0
        self.has_new_member = False
        self.join_key = TimerKey("join", group_id)
        self.sync_key = TimerKey("sync", group_id)
        # How many members speak each protocol.
        self._speakers: dict[str, int] = {}
        # Invariant: it is the number of members with a join ticket.
        self._joins_waiting = 0

    # What all groups have, see coordination/group.py.

    @property
    def group_type(self) -> Literal["classic", "consumer"]:
        """Return which protocol the group speaks."""
        return "classic"

    @property
    def state_name(self) -> str:
        """Return the state as it is shown."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether the group is in state Empty; members that are about to join do not count."""
        return self.state is ClassicState.EMPTY

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation_or_epoch: int, version: int, is_transactional: bool
    ) -> PartitionCheck | None:
        """Raise an ApiError if offsets may not be committed.

        With generation -1 it is an operator's commit or a lone consumer's, which only an empty group takes. Old
        transactional producers say nothing of themselves, and are believed.
        """
        if generation_or_epoch < 0 and self.is_empty:
            return None
        if generation_or_epoch >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            if generation_or_epoch != self.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {self.generation_id}")
        elif not is_transactional:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and only they commit offsets")
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            # The member knows the generation, but not yet what is its own; it is told to ask again.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the group waits for its assignments")
        return None

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow it: who fetches offsets of a classic group is not asked for a name."""

    def validate_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if it can not be known which topics the members read."""
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group {self.group_id} has members")

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if there are members."""
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the group {self.group_id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic; of consumers of which it is not known it is assumed."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets grow old (KIP-211): without members, or while consumers read other topics in peace."""
        if self.is_empty or self.protocol_type is None:
            return True
        return self.state is ClassicState.STABLE and self.subscribed_topics is not None

    @property
    def empty_since_ms(self) -> int | None:
        """When the last member left; None for a group that never had any."""
        return self.state_since_ms if self.is_empty and self.protocol_type is not None else None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the record that deletes the group."""
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    # Members.

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise an ApiError for who is no member, or was replaced as static member by another."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
            if existing != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"the instance id {instance_id} is another member's now")
        if member_id not in self.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of the group")

    def add(self, member: ClassicMember, ticket: Any | None) -> None:
        """Take in a member that `supports` was asked about; the first one leads."""
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self.wait_for_join(member, ticket)
        self.pending_joins.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Strike a member or a pending name from all lists; whoever waits under it was answered before."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert member.sync_ticket is None
        assert member.join_ticket is None
        self._count_protocols(member.protocols, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: ClassicMember, protocols: dict[str, bytes], session_ms: int, rebalance_ms: int) -> None:
        """Note what a member says on joining again."""
        self._count_protocols(member.protocols, -1)
        self._count_protocols(protocols, 1)
        member.protocols = protocols
        member.session_timeout_ms = session_ms
        member.rebalance_timeout_ms = rebalance_ms

    def rename_static_member(self, member: ClassicMember, new_id: str) -> None:
        """Give a static member that came back the new name; whoever waits under the old one was answered before."""
        assert member.instance_id is not None
        del self.members[member.member_id]
        self.pending_syncs.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = new_id
        member.member_id = new_id
        member.session_key = session_key(self.group_id, new_id)
        self.members[new_id] = member
        self.static_members[member.instance_id] = new_id

    def wait_for_join(self, member: ClassicMember, ticket: Any | None) -> None:
        """Note under which ticket a member waits; None if it waits no longer."""
        self._joins_waiting += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    @property
    def joins_waiting(self) -> int:
        """How many members wait for the answer to a join."""
        return self._joins_waiting

    @property
    def has_all_members_joined(self) -> bool:
        """Whether nobody is missing, neither old members nor those that got a name."""
        return self._joins_waiting == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to come back: as long as the slowest wants."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one who has joined; return False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_ticket is not None), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def metadata_for_leader(self) -> list[JoinGroupResponseMember]:
        """Return what the members told with the chosen protocol, from which the leader computes assignments."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.protocols[self.protocol_name],
            )
            for member in self.members.values()
        ]

    # Protocols and generations.

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether members that speak these protocols can be in this group."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._speakers.get(name, 0) == count for name in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members speak; the first of equals."""
        count = len(self.members)
        candidates = {name for name, speakers in self._speakers.items() if speakers == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def transition_to(self, state: ClassicState, now_ms: int) -> None:
        """Change the state."""
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def start_generation(self, now_ms: int) -> None:
        """Count one up and choose the protocol, or become empty."""
        self.generation_id += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(ClassicState.EMPTY, now_ms)
        self.subscribed_topics = self._compute_subscribed_topics()

    def _compute_subscribed_topics(self) -> set[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            of_member = subscribed_topics(member.protocols.get(self.protocol_name or "", b""))
            if of_member is None:
                return None
            topics |= of_member
        return topics

    def _count_protocols(self, names: Iterable[str], change: int) -> None:
        for name in names:
            self._speakers[name] = self._speakers.get(name, 0) + change
            if not self._speakers[name]:
                del self._speakers[name]

    # Persistence, and those who wait.

    def record(self) -> CoordinatorRecord:
        """Return the record of a group that has become Stable or Empty."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols.get(self.protocol_name or "", b""),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value)

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """Return the group that a record tells of."""
        since = value.current_state_timestamp
        group = cls(group_id, None if since == -1 else since)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        for loaded in value.members:
            member = ClassicMember(
                member_id=loaded.member_id,
                instance_id=loaded.group_instance_id,
                client_id=loaded.client_id,
                client_host=loaded.client_host,
                session_timeout_ms=loaded.session_timeout,
                # Records of the first version did not have it.
                rebalance_timeout_ms=(
                    loaded.session_timeout if loaded.rebalance_timeout == -1 else loaded.rebalance_timeout
                ),
                protocols={value.protocol or "": loaded.subscription},
                session_key=session_key(group_id, loaded.member_id),
                assignment=loaded.assignment,
            )
            group.add(member, None)
        if group.members:
            group.state = ClassicState.STABLE
            if group.leader_id not in group.members:
                group.leader_id = next(iter(group.members))
        else:
            group.leader_id = None
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    def waiting_tickets(self) -> Iterator[tuple[Literal["join", "sync"], ClassicMember, Any]]:
        """Return who waits, and for which kind of answer."""
        for member in self.members.values():
            if member.join_ticket is not None:
                yield "join", member, member.join_ticket
            if member.sync_ticket is not None:
                yield "sync", member, member.sync_ticket
