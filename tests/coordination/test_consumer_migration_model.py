"""A group whose members speak both protocols, come and go, so that it changes its kind again and again.

Classic members here are eager: they give all up before they join again. As leader of a classic group one shares the
partitions out in turn.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    read_assignment,
    write_assignment,
)
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import JoinGroupResponse, MemberIdentity
from tests.coordination.consumer_world import Consumer, change_topics, state_of, topics_of, world_of
from tests.coordination.group_world import GROUP, World, subscription


@dataclass(eq=False)
class EagerConsumer:
    """A classic client: whatever it hears, it knows what to do next."""

    world: World
    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: set[tuple[str, int]] = field(default_factory=set)
    joining: int | None = None
    syncing: int | None = None

    def poll(self) -> None:
        if self.joining is not None:
            if self.joining in self.world.answers:
                self._hear_join(self.world.answer(self.joining))
        elif self.syncing is not None:
            if self.syncing in self.world.answers:
                self._hear_sync(self.world.answer(self.syncing))
        else:
            self._hear_error(self.world.heartbeat(self.member_id, self.generation, instance_id=self.instance_id))

    def join(self) -> None:
        self.owned = set()
        self.syncing = None
        self.joining = self.world.send_join(
            self.name,
            self.member_id,
            instance_id=self.instance_id,
            protocols={"range": subscription("news")},
            rebalance_ms=20_000,
        )

    def _hear_error(self, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        if code != ErrorCode.NONE:
            self.join()

    def _hear_join(self, response: JoinGroupResponse) -> None:
        self.joining = None
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if response.error_code != ErrorCode.NONE:
            self._hear_error(response.error_code)
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        shares: dict[str, bytes] = {}
        if response.leader == self.member_id:
            names = [member.member_id for member in response.members]
            for index, name in enumerate(names):
                mine = list(range(partition_count(self.world)))[index :: len(names)]
                topics = [TopicPartition(topic="news", partitions=mine)] if mine else []
                shares[name] = write_assignment(ConsumerProtocolAssignment(assigned_partitions=topics), 1)
        self.syncing = self.world.send_sync(self.member_id, self.generation, shares, instance_id=self.instance_id)

    def _hear_sync(self, response: Any) -> None:
        self.syncing = None
        if response.error_code != ErrorCode.NONE:
            self._hear_error(response.error_code)
            return
        self.owned = {
            (topics_of(self.world).id_of(topic.topic).hex(), partition)
            for topic in read_assignment(response.assignment).assigned_partitions
            for partition in topic.partitions
        }

    def leave(self) -> None:
        self.world.leave(MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id))


def partition_count(world: World) -> int:
    topic = world.topics.by_name("news")
    assert topic is not None
    return topic.partition_count


class MigrationMachine(RuleBasedStateMachine):
    """One group of both kinds of members."""

    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        self.world = world_of(GroupConfig(offsets_retention_check_interval_ms=1 << 50), news=4)
        self.alive: list[Consumer | EagerConsumer] = []
        self.joined = 0

    @rule(target=clients, is_classic=st.booleans(), instance=st.sampled_from([None, None, "i"]))
    def join(self, is_classic: bool, instance: str | None) -> Consumer | EagerConsumer:
        """Start a program; two that live at a time do not have the same instance id."""
        if instance is not None:
            self.alive = [client for client in self.alive if client.instance_id != instance]
        self.joined += 1
        name = f"m{self.joined}"
        client: Consumer | EagerConsumer
        if is_classic:
            client = EagerConsumer(self.world, name, instance)
            client.join()
        else:
            client = Consumer(self.world, name, instance_id=instance, rebalance_ms=20_000)
            client.join()
        self.alive.append(client)
        return client

    @rule(client=clients, times=st.integers(1, 4))
    def send(self, client: Consumer | EagerConsumer, times: int) -> None:
        for _ in range(times if client in self.alive else 0):
            if isinstance(client, EagerConsumer):
                client.poll()
            elif client.send().error_code != ErrorCode.NONE:
                client.join()

    @rule(client=consumes(clients))
    def leave(self, client: Consumer | EagerConsumer) -> None:
        if client in self.alive:
            client.leave()
            self.alive.remove(client)

    @rule(client=consumes(clients))
    def crash(self, client: Consumer | EagerConsumer) -> None:
        if client in self.alive:
            self.alive.remove(client)

    @rule(ms=st.sampled_from([500, 4_000, 21_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def extend_topic(self) -> None:
        if partition_count(self.world) < 8:
            change_topics(self.world, news=partition_count(self.world) + 1)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def be_quiet(self) -> None:
        """Whoever lives goes on until nothing changes any more."""
        for _ in range(30):
            self.world.advance(3_000)
            for client in self.alive:
                self.send(client, 3)
        group = self.world.coordinator.groups.get(GROUP)
        if group is None or group.is_empty:
            return
        assert group.state_name == "Stable"
        assert isinstance(group, ConsumerGroup | ClassicGroup)
        members = [client for client in self.alive if client.member_id in group.members]
        assert {client.member_id for client in members} == set(group.members)
        had = sorted(partition for client in members for partition in client.owned)
        if isinstance(group, ConsumerGroup):
            # In a classic group it is the leader who has to notice that there are more.
            topic_id = topics_of(self.world).id_of("news").hex()
            assert had == [(topic_id, partition) for partition in range(partition_count(self.world))]
        is_mixed = any(isinstance(client, Consumer) for client in members)
        assert isinstance(group, ConsumerGroup) == is_mixed

    @invariant()
    def what_a_client_has_is_its_own(self) -> None:
        group = self.world.coordinator.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            for client in self.alive:
                if client.member_id in group.members:
                    for topic_id, partition in client.owned:
                        assert group.owners[bytes.fromhex(topic_id)][partition] == client.member_id

    @invariant()
    def a_restarted_coordinator_is_the_same(self) -> None:
        assert state_of(self.world.restarted()) == state_of(self.world.coordinator)


MigrationMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMigration = MigrationMachine.TestCase
