"""Whatever clients do in whatever order: what must be true of classic groups and their offsets.

- All members of a generation hear of the same leader and the same protocol, and it is one that each of them speaks.
- Nobody is answered twice, and nobody waits for ever.
- The log, compacted, gives the same coordinator: members, generation, protocol and assignments of a group as it last
  was Stable or Empty, and all offsets.
- What was committed is there until it is deleted, and what a transaction wrote is there when it has committed.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.group_coordinator import GroupCoordinator
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import JoinGroupResponse, MemberIdentity
from tests.coordination.group_world import GROUP, TOPIC, World, settled_state, subscription

CLIENTS = st.sampled_from(["a", "b", "c", "d"])
PARTITIONS = st.integers(0, 1)
PRODUCERS = st.integers(1, 2)
PROTOCOLS = st.sampled_from(
    [
        {"range": subscription(TOPIC), "sticky": b"1"},
        {"sticky": b"1", "range": subscription(TOPIC)},
        {"range": subscription("sports")},
    ]
)
RARELY = st.sampled_from([False, False, False, True])
NEVER_STABLE: object = (ClassicState.EMPTY, 0, None, None, None, {})
A_DAY_MS = 86_400_000


class GroupMachine(RuleBasedStateMachine):
    """Four clients of one group, two of them static, and two producers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(config=GroupConfig(max_size=3))
        self.member_ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.joins: dict[int, tuple[str, dict[str, bytes]]] = {}
        self.committed: dict[int, int] = {}
        self.pending: list[tuple[int, int, int]] = []
        self.next_offset = 0

    def instance_of(self, client: str) -> str | None:
        return client if client in "cd" else None

    # What clients do.

    @rule(
        client=CLIENTS,
        protocols=PROTOCOLS,
        version=st.sampled_from([3, 5, 9]),
        rebalance_ms=st.sampled_from([0, 7_000, 60_000, 60_000]),
        is_anew=RARELY,
    )
    def join(self, client: str, protocols: dict[str, bytes], version: int, rebalance_ms: int, is_anew: bool) -> None:
        ticket = self.world.send_join(
            client,
            "" if is_anew else self.member_ids.get(client, ""),
            instance_id=self.instance_of(client),
            protocols=protocols,
            version=version,
            rebalance_ms=rebalance_ms,
        )
        self.joins[ticket] = (client, protocols)
        self.learn()

    @initialize(clients=st.sets(CLIENTS, max_size=3), protocols=PROTOCOLS)
    def begin_with_members(self, clients: set[str], protocols: dict[str, bytes]) -> None:
        for client in sorted(clients):
            self.join(client, protocols, 3, 60_000, True)
        self.time_goes_by(9_000)
        self.all_sync()

    @rule()
    def all_sync(self) -> None:
        for client in sorted(self.member_ids):
            self.sync(client, True, False)

    @rule()
    def all_come_back(self) -> None:
        for client in sorted(self.generations):
            self.join(client, {"range": subscription(TOPIC), "sticky": b"1"}, 5, 60_000, False)

    @rule(client=CLIENTS, is_leader=st.booleans(), is_old=RARELY)
    def sync(self, client: str, is_leader: bool, is_old: bool) -> None:
        members = list(self.world.group().members) if GROUP in self.world.coordinator.groups else []
        self.world.send_sync(
            self.member_ids.get(client, "nobody"),
            self.generations.get(client, 0) - is_old,
            {member_id: f"for {member_id}".encode() for member_id in members} if is_leader else None,
            instance_id=self.instance_of(client),
        )
        self.learn()

    @rule(client=CLIENTS)
    def heartbeat(self, client: str) -> None:
        self.world.heartbeat(self.member_ids.get(client, "nobody"), self.generations.get(client, 0))
        self.learn()

    @rule(client=CLIENTS, by_instance=st.booleans())
    def leave(self, client: str, by_instance: bool) -> None:
        instance = self.instance_of(client)
        member_id = "" if by_instance else self.member_ids.get(client, "nobody")
        self.world.leave(MemberIdentity(member_id=member_id, group_instance_id=instance))
        self.learn()

    @rule()
    def time_goes_by_with_heartbeats(self) -> None:
        for client in sorted(self.member_ids):
            self.heartbeat(client)
        self.time_goes_by(7_000)

    @rule(ms=st.sampled_from([1, 2_000, 3_000, 7_000, 10_000]))
    def time_goes_by(self, ms: int) -> None:
        self.world.advance(ms)
        self.learn()

    # Offsets.

    @rule(client=CLIENTS, partition=PARTITIONS, is_member=st.booleans())
    def commit(self, client: str, partition: int, is_member: bool) -> None:
        self.next_offset += 1
        member_id = self.member_ids.get(client, "") if is_member else ""
        generation = self.generations.get(client, -1) if is_member else -1
        (error,) = self.world.commit({partition: self.next_offset}, member_id, generation)
        if error == ErrorCode.NONE:
            self.committed[partition] = self.next_offset

    @rule(producer=PRODUCERS, partition=PARTITIONS)
    def commit_in_transaction(self, producer: int, partition: int) -> None:
        self.next_offset += 1
        (error,) = self.world.commit_in_transaction(producer, {partition: self.next_offset})
        assert error == ErrorCode.NONE
        self.pending.append((producer, partition, self.next_offset))

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        self.world.end_transaction(producer, is_commit)
        for whose, partition, offset in self.pending:
            # Offsets are counted up in the order in which they are written.
            if whose == producer and is_commit:
                self.committed[partition] = max(offset, self.committed.get(partition, -1))
        self.pending = [entry for entry in self.pending if entry[0] != producer]

    @rule()
    def delete_group(self) -> None:
        error, step = self.world.coordinator.delete_group(GROUP, self.world.now_ms)
        self.world.perform(step)
        if error == ErrorCode.NONE:
            self.committed.clear()
            self.pending.clear()

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.learn()

    # What they hear.

    def learn(self) -> None:
        """Let clients take note of the answers to their joins."""
        for ticket in [ticket for ticket in self.joins if ticket in self.world.answers]:
            client, protocols = self.joins.pop(ticket)
            response = self.world.answer(ticket)
            assert isinstance(response, JoinGroupResponse)
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_ids[client] = response.member_id
            if response.error_code == ErrorCode.NONE:
                self.generations[client] = response.generation_id
                assert response.protocol_name in protocols
                assert bool(response.members) <= (response.leader == response.member_id)

    @invariant()
    def a_generation_has_one_leader_and_one_protocol(self) -> None:
        group = self.world.coordinator.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.members:
            assert group.leader_id in group.members
            assert group.joins_waiting == sum(member.join_ticket is not None for member in group.members.values())
            assert group.pending_syncs <= set(group.members)
            assert group.pending_joins.isdisjoint(group.members)
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                assert all(group.protocol_name in member.protocols for member in group.members.values())

    @invariant()
    def the_log_tells_everything(self) -> None:
        loaded = self.world.restarted()
        group = loaded.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        expected = self.world.settled.get(GROUP, NEVER_STABLE)
        assert (NEVER_STABLE if group is None else settled_state(group)) == expected
        assert self.offsets_of(loaded) == self.offsets_of(self.world.coordinator)

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        assert [self.world.offset(partition) for partition in range(2)] == [
            self.committed.get(partition, -1) for partition in range(2)
        ]
        unstable = [partition.error_code for partition in self.world.fetch(range(2), require_stable=True)]
        waiting = {partition for _, partition, _ in self.pending}
        assert [code == ErrorCode.UNSTABLE_OFFSET_COMMIT for code in unstable] == [
            partition in waiting for partition in range(2)
        ]

    def offsets_of(self, coordinator: GroupCoordinator) -> Any:
        offsets = coordinator.offsets
        return [
            (offsets.get(GROUP, TOPIC, partition), offsets.is_pending(GROUP, TOPIC, partition))
            for partition in range(2)
        ]

    def teardown(self) -> None:
        self.world.advance(A_DAY_MS)
        assert self.world.waiting == set(), "somebody waits for ever"
        self.the_log_tells_everything()


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
