"""What classic groups do: members join, get assignments, send heartbeats, leave, and are late.

    join a --+                               +-- sync a (leader, with all assignments) --+
    join b --+-- all are here, or time is up +-- sync b ---------------------------------+-- Stable, all are answered
    join c --+   (generation + 1)            +-- sync c ---------------------------------+

Timers of a group (coordination/timers.py):

    session <member>   no heartbeat for too long; also a name that was given out and not used
    join               PreparingRebalance: until when members may come back
    sync               CompletingRebalance and after: until when each must have asked for its assignment

Rule 1: who is removed is answered first, so nobody waits for a group that does not know him any more.
Rule 2: whoever asks again while he waits, as clients do on a new connection, waits under the new ticket; the old one is
answered with REBALANCE_IN_PROGRESS, which no client takes for more than a reason to try again.

Differences from Kafka's GroupMetadataManager: Kafka leaves the replies of Rule 2, and that of a member which is removed
while it waits for its assignment, unanswered. It also writes a record when a group is created, because it must be able
to take that back; here a group begins with its first generation.
"""

from typing import Any

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.classic_member import ClassicMember, protocols_of, session_key
from barnabas.coordination.group import Shard
from barnabas.coordination.step import Client, Reply, Step
from barnabas.coordination.timers import TimerKey
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a new member waits in a join before it is taken for gone: it has no name yet to send heartbeats under."""

ABSENT_MEMBERS_PAUSE_MS_MIN = 1_000
"""How long it is waited at least for static members, also if they ask for no time: else it would be no waiting."""

JOIN_VERSION_OF_REQUIRED_ID = 4
JOIN_VERSION_OF_SKIPPED_ASSIGNMENT = 9


class ClassicGroups:
    """The classic groups of a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    # Join.

    def join(self, ticket: Any, client: Client, version: int, request: JoinGroupRequest, now_ms: int) -> Step:
        """Take a member into its group, which may not exist yet."""
        step = Step()
        group = self._shard.groups.get(request.group_id)
        if group is None and not request.member_id:
            group = ClassicGroup(request.group_id, now_ms)
        if version < 1:
            request.rebalance_timeout_ms = request.session_timeout_ms
        try:
            if not isinstance(group, ClassicGroup):
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id}")
            self._join_group(group, ticket, client, version, request, now_ms, step)
        except ApiError as error:
            # Who finds no place is not a member any more either.
            member_id = "" if error.code == ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            step.replies.append(Reply(ticket, join_error(member_id, error.code)))
        else:
            if group.members or group.pending_joins:
                self._shard.groups[request.group_id] = group
        return step

    def _join_group(
        self,
        group: ClassicGroup,
        ticket: Any,
        client: Client,
        version: int,
        request: JoinGroupRequest,
        now_ms: int,
        step: Step,
    ) -> None:
        self._make_room(group, request, step)
        protocols = protocols_of(request.protocols)
        if not group.supports(request.protocol_type, protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the members have no such protocol in common")
        member_id = request.member_id
        if member_id and not (member_id in group.pending_joins and request.group_instance_id is None):
            self._join_existing(group, ticket, request, protocols, now_ms, step)
            return
        if not member_id and request.group_instance_id is not None:
            member_id = f"{request.group_instance_id}-{self._shard.new_id()}"
            existing = group.static_members.get(request.group_instance_id)
            if existing is not None:
                member = group.members[existing]
                self._replace_static(group, member, member_id, ticket, version, request, protocols, now_ms, step)
                return
        elif not member_id:
            member_id = f"{client.client_id}-{self._shard.new_id()}"
            if version >= JOIN_VERSION_OF_REQUIRED_ID:
                group.pending_joins.add(member_id)
                self._shard.timers.set(session_key(group.group_id, member_id), now_ms + request.session_timeout_ms)
                step.replies.append(Reply(ticket, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)))
                return
        self._add_member(group, member_id, ticket, client, request, protocols, now_ms, step)

    def _make_room(self, group: ClassicGroup, request: JoinGroupRequest, step: Step) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if there is no place.

        While members come back it is counted who is back: so the last to come are out if the maximum was lowered.
        """
        maximum = self._shard.config.max_size
        member = group.members.get(request.member_id)
        match group.state:
            case ClassicState.EMPTY:
                return
            case ClassicState.PREPARING_REBALANCE:
                is_known = member is not None and member.join_ticket is not None
                count = group.joins_waiting
            case _:
                is_known = member is not None
                count = len(group.members)
        if is_known or count < maximum:
            return
        self._remove_member(group, request.member_id, step)
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {count} members already")

    def _add_member(
        self,
        group: ClassicGroup,
        member_id: str,
        ticket: Any,
        client: Client,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        now_ms: int,
        step: Step,
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=protocols,
            session_key=session_key(group.group_id, member_id),
            is_new=True,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.initial_delay_ms is not None:
            group.has_new_member = True
        group.add(member, ticket)
        self._shard.timers.set(member.session_key, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete_join(group, now_ms, step)

    def _join_existing(
        self,
        group: ClassicGroup,
        ticket: Any,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        now_ms: int,
        step: Step,
    ) -> None:
        group.validate_member(request.member_id, request.group_instance_id)
        member = group.members[request.member_id]
        has_changed = not member.matches(protocols)
        # In Stable a leader may have reasons to rebalance that do not show in what it sends: partitions were added.
        forces = group.state is ClassicState.STABLE and group.leader_id == member.member_id
        if group.state is not ClassicState.PREPARING_REBALANCE and not has_changed and not forces:
            # It missed the answer to its last join, and can go on in the generation that there is.
            step.replies.append(Reply(ticket, self._joined(group, member)))
            return
        self._answer_superseded(member, step)
        group.update(member, protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        group.wait_for_join(member, ticket)
        self._rebalance_or_complete_join(group, now_ms, step)

    def _replace_static(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        new_id: str,
        ticket: Any,
        version: int,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        now_ms: int,
        step: Step,
    ) -> None:
        """A static member is back with no name: it gets a new one, and keeps everything else (KIP-345)."""
        was_leader_id = group.leader_id
        self._answer_waiting(group, member, ErrorCode.FENCED_INSTANCE_ID, step)
        self._shard.timers.cancel(member.session_key)
        group.rename_static_member(member, new_id)
        group.update(member, protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        self._restart_session(member, now_ms)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
            # No rebalance, but the new name must be as safe as the old one was.
            step.records.append(group.record())
            response = self._joined(group, member)
            if version >= JOIN_VERSION_OF_SKIPPED_ASSIGNMENT:
                response.skip_assignment = group.leader_id == new_id  # KIP-814
            else:
                # A leader of that version would compute assignments anew, so it is not told that it leads.
                assert was_leader_id is not None
                response.leader = was_leader_id
                response.members = []
            step.replies.append(Reply(ticket, response))
            return
        group.wait_for_join(member, ticket)
        # In CompletingRebalance the leader computes an assignment for the old name: so it begins anew.
        self._rebalance_or_complete_join(group, now_ms, step)

    # Rebalance.

    def _rebalance_or_complete_join(self, group: ClassicGroup, now_ms: int, step: Step) -> None:
        if group.state is not ClassicState.PREPARING_REBALANCE:
            self.prepare_rebalance(group, now_ms, step)
        elif group.initial_delay_ms is None and group.has_all_members_joined:
            self._complete_join(group, now_ms, step)

    def prepare_rebalance(self, group: ClassicGroup, now_ms: int, step: Step) -> None:
        """Ask all members to join again, by the answers to what they wait for and to their next heartbeats."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), now_ms, step)
        group.pending_syncs.clear()
        self._shard.timers.cancel(group.sync_key)
        is_initial = group.is_empty
        group.transition_to(ClassicState.PREPARING_REBALANCE, now_ms)
        if is_initial:
            # A group that begins gets its members one after the other: one rebalance for all is better than many.
            delay = self._shard.config.initial_rebalance_delay_ms
            group.has_new_member = False
            self._delay_initial(group, delay, max(group.rebalance_timeout_ms - delay, 0), now_ms, step)
        elif group.has_all_members_joined:
            self._complete_join(group, now_ms, step)
        else:
            self._shard.timers.set(group.join_key, now_ms + group.rebalance_timeout_ms)

    def _delay_initial(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int, step: Step) -> None:
        if delay_ms == 0:
            self._complete_join(group, now_ms, step)
            return
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = remaining_ms
        self._shard.timers.set(group.join_key, now_ms + delay_ms)

    def _join_time_is_up(self, group: ClassicGroup, now_ms: int, step: Step) -> None:
        assert group.state is ClassicState.PREPARING_REBALANCE, "the timer is canceled when all have joined"
        delay = group.initial_delay_ms
        remaining = group.initial_remaining_ms
        if delay is not None and group.has_new_member and remaining > 0:
            # More came, and more may come.
            group.has_new_member = False
            longer = min(self._shard.config.initial_rebalance_delay_ms, remaining)
            self._delay_initial(group, longer, max(remaining - delay, 0), now_ms, step)
        else:
            self._complete_join(group, now_ms, step)

    def _complete_join(self, group: ClassicGroup, now_ms: int, step: Step) -> None:
        """Begin a generation of those who are here. Static members are kept also if they are not: they come back."""
        self._shard.timers.cancel(group.join_key)
        group.initial_delay_ms = None
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self._remove_member(group, member.member_id, step)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none is here; their sessions end some time.
            pause_ms = max(group.rebalance_timeout_ms, ABSENT_MEMBERS_PAUSE_MS_MIN)
            self._shard.timers.set(group.join_key, now_ms + pause_ms)
            return
        group.start_generation(now_ms)
        if group.is_empty:
            step.records.append(group.record())
            return
        for member in group.members.values():
            if member.join_ticket is not None:
                step.replies.append(Reply(member.join_ticket, self._joined(group, member)))
                group.wait_for_join(member, None)
            member.is_new = False
            self._restart_session(member, now_ms)
            group.pending_syncs.add(member.member_id)
        self._shard.timers.set(group.sync_key, now_ms + group.rebalance_timeout_ms)

    def _joined(self, group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
        assert group.leader_id is not None
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id,
            member_id=member.member_id,
            members=group.metadata_for_leader() if group.leader_id == member.member_id else [],
        )

    # Sync.

    def sync(self, ticket: Any, group: ClassicGroup, request: SyncGroupRequest, now_ms: int) -> Step:
        """Give a member its assignment; the leader brings all of them."""
        step = Step()
        try:
            self._sync_group(ticket, group, request, now_ms, step)
        except ApiError as error:
            step.replies.append(Reply(ticket, SyncGroupResponse(error_code=error.code)))
        return step

    def _sync_group(self, ticket: Any, group: ClassicGroup, request: SyncGroupRequest, now_ms: int, step: Step) -> None:
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {group.generation_id}")
        for said, actual in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if said is not None and actual is not None and said != actual:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group speaks {actual}, not {said}")
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the members are joining again")
        group.pending_syncs.discard(request.member_id)
        if not group.pending_syncs:
            self._shard.timers.cancel(group.sync_key)
        member = group.members[request.member_id]
        if group.state is ClassicState.STABLE:
            step.replies.append(Reply(ticket, self._synced(group, member)))
            return
        self._answer_superseded(member, step)
        member.sync_ticket = ticket
        if group.leader_id == member.member_id:
            assignments = {assignment.member_id: assignment.assignment for assignment in request.assignments}
            self._assign(group, assignments, now_ms, step)

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int, step: Step) -> None:
        """The generation is complete: who waits gets the assignment, who has not asked yet gets it then."""
        group.transition_to(ClassicState.STABLE, now_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(member, self._synced(group, member), now_ms, step)
        step.records.append(group.record())

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    # Heartbeats and farewells.

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> None:
        """Prolong a session; raises an ApiError if the member has to know something."""
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {group.generation_id}")
        self._restart_session(group.members[request.member_id], now_ms)
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the members are joining again")

    def offsets_committed(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """Prolong the session of who commits offsets, if it is a member."""
        member = group.members.get(member_id)
        if member is not None and group.state is not ClassicState.COMPLETING_REBALANCE:
            self._restart_session(member, now_ms)

    def leave(
        self, group: ClassicGroup, identities: list[MemberIdentity], now_ms: int, step: Step
    ) -> list[MemberResponse]:
        """Remove members, each by itself, and rebalance once for all of them."""
        responses = []
        for identity in identities:
            error = ErrorCode.NONE
            try:
                self._leave_one(group, identity, step)
            except ApiError as refused:
                error = refused.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        if not group.is_empty and any(response.error_code == ErrorCode.NONE for response in responses):
            self._rebalance_or_complete_join(group, now_ms, step)
        return responses

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, step: Step) -> None:
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            # An operator removes a static member, whose name he need not know.
            member_id = group.static_members.get(identity.group_instance_id, "")
        if member_id not in group.pending_joins:
            group.validate_member(member_id, identity.group_instance_id)
        self._remove_member(group, member_id, step)

    # Time.

    def expire(self, group: ClassicGroup, key: TimerKey, now_ms: int) -> Step:
        """Do what is due when a timer of a group has run out."""
        step = Step()
        match key.kind:
            case "session":
                self._session_is_over(group, key.member_id, now_ms, step)
            case "join":
                self._join_time_is_up(group, now_ms, step)
            case "sync":
                self._sync_time_is_up(group, now_ms, step)
        return step

    def _session_is_over(self, group: ClassicGroup, member_id: str, now_ms: int, step: Step) -> None:
        member = group.members.get(member_id)
        if member is not None and member.has_satisfied_heartbeat:
            return  # The session begins anew when the answer is sent.
        self._remove_member(group, member_id, step)
        if member is not None and group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self.prepare_rebalance(group, now_ms, step)
        elif group.state is ClassicState.PREPARING_REBALANCE and group.has_all_members_joined:
            self._complete_join(group, now_ms, step)

    def _sync_time_is_up(self, group: ClassicGroup, now_ms: int, step: Step) -> None:
        if not group.pending_syncs:
            return  # The last of them was a static member, and came back under another name.
        for member_id in sorted(group.pending_syncs):
            self._remove_member(group, member_id, step)
        self.prepare_rebalance(group, now_ms, step)

    def _restart_session(self, member: ClassicMember, now_ms: int) -> None:
        self._shard.timers.set(member.session_key, now_ms + member.session_timeout_ms)

    # Loading and unloading.

    def loaded(self, group: ClassicGroup, now_ms: int) -> Step:
        """Begin the sessions of the members that were loaded."""
        step = Step()
        for member in group.members.values():
            self._restart_session(member, now_ms)
        if len(group.members) > self._shard.config.max_size:
            self.prepare_rebalance(group, now_ms, step)  # The maximum was lowered.
        return step

    def forget(self, group: ClassicGroup) -> None:
        """Cancel the timers of a group that is deleted, or that becomes another kind of group."""
        timers = self._shard.timers
        timers.cancel(group.join_key)
        timers.cancel(group.sync_key)
        for member_id in [*group.members, *group.pending_joins]:
            timers.cancel(session_key(group.group_id, member_id))

    def waiting_replies(self, group: ClassicGroup, error: ErrorCode) -> list[Reply]:
        """Return errors for all who wait, which a group that is not here any more owes them."""
        return [
            Reply(
                ticket, join_error(member.member_id, error) if kind == "join" else SyncGroupResponse(error_code=error)
            )
            for kind, member, ticket in group.waiting_tickets()
        ]

    # Who waits.

    def _remove_member(self, group: ClassicGroup, member_id: str, step: Step) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._answer_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID, step)
        group.remove(member_id)
        self._shard.timers.cancel(session_key(group.group_id, member_id))

    def _answer_waiting(self, group: ClassicGroup, member: ClassicMember, error: ErrorCode, step: Step) -> None:
        if member.join_ticket is not None:
            member_id = member.member_id if error == ErrorCode.FENCED_INSTANCE_ID else ""
            step.replies.append(Reply(member.join_ticket, join_error(member_id, error)))
            group.wait_for_join(member, None)
        if member.sync_ticket is not None:
            step.replies.append(Reply(member.sync_ticket, SyncGroupResponse(error_code=error)))
            member.sync_ticket = None

    def _answer_superseded(self, member: ClassicMember, step: Step) -> None:
        error = ErrorCode.REBALANCE_IN_PROGRESS
        if member.join_ticket is not None:
            step.replies.append(Reply(member.join_ticket, join_error(member.member_id, error)))
        if member.sync_ticket is not None:
            step.replies.append(Reply(member.sync_ticket, SyncGroupResponse(error_code=error)))
            member.sync_ticket = None

    def _answer_sync(self, member: ClassicMember, response: SyncGroupResponse, now_ms: int, step: Step) -> None:
        if member.sync_ticket is not None:
            step.replies.append(Reply(member.sync_ticket, response))
            member.sync_ticket = None
            self._restart_session(member, now_ms)


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """Return the answer to a join that did not succeed."""
    return JoinGroupResponse(member_id=member_id, error_code=error)
