"""Words for tests of consumer groups: clients that remember who they are and what they have."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    read_assignment,
    write_subscription,
)
from barnabas.coordination.group_coordinator import GroupCoordinator
from barnabas.coordination.step import Client, TopicDescription
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordination.group_world import GROUP, FakeTopics, World

HOST = "/127.0.0.1"
Owned = set[tuple[str, int]]


class ChangingTopics(FakeTopics):
    """Topics of which each gets an id of its own, also one with the name of one that was deleted."""

    def __init__(self, **partition_counts: int) -> None:
        super().__init__()
        self._numbers = count(1)
        for name, partitions in partition_counts.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> None:
        self._topics[name] = TopicDescription(name, next(self._numbers).to_bytes(16, "big"), partitions)

    def extend(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name]._replace(partition_count=partitions)

    def id_of(self, name: str) -> bytes:
        return self._topics[name].topic_id


def world_of(config: GroupConfig | None = None, **partition_counts: int) -> World:
    """A shard among topics."""
    return World(config or GroupConfig(), ChangingTopics(**partition_counts))


def topics_of(world: World) -> ChangingTopics:
    assert isinstance(world.topics, ChangingTopics)
    return world.topics


def change_topics(world: World, **partition_counts: int) -> None:
    """Create topics, extend them or, with none, delete them; and tell the coordinator."""
    topics = topics_of(world)
    for name, partitions in partition_counts.items():
        if partitions == 0:
            topics.delete(name)
        elif topics.by_name(name) is None:
            topics.create(name, partitions)
        else:
            topics.extend(name, partitions)
    world.perform(world.coordinator.on_topics_changed(list(partition_counts), world.now_ms))


def consumer_group(world: World, group_id: str = GROUP) -> ConsumerGroup:
    group = world.coordinator.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    return group


def heartbeat(world: World, client_id: str = "c", version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    """Send a request as it is."""
    request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
    ticket = world.ticket()
    client = Client(client_id, HOST)
    world.perform(world.coordinator.consumer_group_heartbeat(ticket, client, version, request, world.now_ms))
    response = world.answer(ticket)
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


@dataclass(eq=False)
class Consumer:
    """A member of the consumer protocol."""

    world: World
    member_id: str
    topics: list[str] | None = field(default_factory=lambda: ["news"])
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_ms: int = 60_000
    epoch: int = 0
    owned: Owned = field(default_factory=set)
    must_send_all: bool = False

    def join(self) -> ConsumerGroupHeartbeatResponse:
        """Give all up and begin anew."""
        self.epoch = 0
        self.owned = set()
        return self.send(is_full=True)

    def send(
        self, *, is_full: bool = False, is_lost: bool = False, is_busy: bool = False
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; a busy client gives nothing up yet, and a lost answer is not heard."""
        is_full = is_full or self.must_send_all or self.epoch == 0
        response = heartbeat(
            self.world,
            self.member_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=self.reported(),
            rebalance_timeout_ms=self.rebalance_ms if is_full else -1,
            subscribed_topic_names=self.topics if is_full else None,
            subscribed_topic_regex=self.regex if is_full else None,
            server_assignor=self.assignor if is_full else None,
        )
        self.must_send_all = is_lost
        if not is_lost:
            self._hear(response, is_busy)
        return response

    def reported(self) -> list[TopicPartitions]:
        """Return what it has, as the next heartbeat says it."""
        found: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(self.owned):
            found.setdefault(bytes.fromhex(topic_id), []).append(partition)
        return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in found.items()]

    def _hear(self, response: ConsumerGroupHeartbeatResponse, is_busy: bool) -> None:
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = 0
            self.owned = set()
        elif response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                assigned = {
                    (topic.topic_id.hex(), partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                }
                if is_busy and not assigned >= self.owned:
                    self.must_send_all = True  # Then it is told again.
                else:
                    self.owned = assigned

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.owned = set()
        return heartbeat(
            self.world,
            self.member_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )

    @property
    def partitions(self) -> list[str]:
        """What it has, in words: news-0."""
        by_id = {topics_of(self.world).id_of(name).hex(): name for name in self.world.topics.names()}
        return sorted(f"{by_id.get(topic_id, 'deleted')}-{partition}" for topic_id, partition in self.owned)


def consumers(world: World, *member_ids: str, **options: Any) -> list[Consumer]:
    """Let members join, one after the other, and go on until all have what they are to have."""
    members = [Consumer(world, member_id, **options) for member_id in member_ids]
    for member in members:
        assert member.join().error_code == ErrorCode.NONE
    settle(*members)
    return members


def settle(*members: Consumer, rounds: int = 5) -> None:
    """Let everyone send heartbeats until nothing can change any more."""
    for _ in range(rounds):
        for member in members:
            response = member.send()
            assert response.error_code == ErrorCode.NONE, response


@dataclass(eq=False)
class ClassicConsumer:
    """A member of the classic protocol with a cooperative assignor: it keeps what it has while it joins again."""

    world: World
    name: str
    topics: list[str] = field(default_factory=lambda: ["news"])
    instance_id: str | None = None
    protocol: str = "cooperative-sticky"
    member_id: str = ""
    generation: int = -1
    owned: list[TopicPartition] = field(default_factory=list)

    def join(self) -> Any:
        """Send a join, and another one if a member id is required; return the answer, if there is one."""
        ticket = self.send_join()
        if ticket in self.world.answers:
            response = self.world.answer(ticket)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                ticket = self.send_join()
        return self.hear_join(ticket)

    def send_join(self) -> int:
        subscription = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=self.owned)
        return self.world.send_join(
            self.name,
            self.member_id,
            instance_id=self.instance_id,
            protocols={self.protocol: write_subscription(subscription, 2)},
        )

    def hear_join(self, ticket: int) -> Any:
        if ticket not in self.world.answers:
            return ticket
        response = self.world.answer(ticket)
        if response.error_code == ErrorCode.NONE:
            self.member_id = response.member_id
            self.generation = response.generation_id
        return response

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        response = self.world.answer(self.send_sync(assignments))
        if response.error_code == ErrorCode.NONE:
            self.owned = read_assignment(response.assignment).assigned_partitions
        return response

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> int:
        return self.world.send_sync(self.member_id, self.generation, assignments, instance_id=self.instance_id)

    def heartbeat(self) -> ErrorCode:
        return self.world.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)

    def rejoin(self) -> None:
        """Join and sync, as after REBALANCE_IN_PROGRESS."""
        assert self.join().error_code == ErrorCode.NONE
        assert self.sync().error_code == ErrorCode.NONE

    @property
    def partitions(self) -> list[str]:
        return sorted(f"{topic.topic}-{partition}" for topic in self.owned for partition in topic.partitions)


def state_of(coordinator: GroupCoordinator) -> dict[str, object]:
    """What must be the same after a crash, of all consumer groups."""
    return {
        group.group_id: (
            group.group_epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.assignment_timestamp_ms,
            {member_id: group.members[member_id] for member_id in sorted(group.members)},
            group.static_members,
            {member_id: dict(group.targets[member_id]) for member_id in sorted(group.targets)},
            group.owners,
            group.regexes,
        )
        for group in coordinator.groups.values()
        if isinstance(group, ConsumerGroup)
    }
