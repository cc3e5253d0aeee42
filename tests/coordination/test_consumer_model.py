"""Consumer groups with clients that come, go, crash and miss answers, among topics that change, over restarts.

Invariants: what a client has is its own at the coordinator, so never another's; epochs only go up; a coordinator that
is loaded from the log is the one that wrote it. And when all is quiet, every partition that is wanted has one reader.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from tests.coordination.consumer_world import Consumer, change_topics, consumer_group, state_of, topics_of, world_of
from tests.coordination.group_world import GROUP

NAMES = ("news", "nature", "sports")
INSTANCES = ("i", "j")
subscriptions = st.one_of(
    st.tuples(st.lists(st.sampled_from(NAMES), unique=True), st.none()),
    st.tuples(st.none(), st.sampled_from(["n.*", ".*", "none"])),
)


class ConsumerGroupMachine(RuleBasedStateMachine):
    """One group."""

    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        # An empty group is not forgotten meanwhile, which would begin its epochs anew.
        self.world = world_of(GroupConfig(offsets_retention_check_interval_ms=1 << 50), news=3, sports=2)
        self.alive: list[Consumer] = []
        self.joined = 0
        self.group_epoch = 0
        self.member_epochs: dict[str, int] = {}

    # Clients.

    @rule(
        target=clients,
        subscription=subscriptions,
        instance=st.sampled_from([None, None, *INSTANCES]),
        late=st.booleans(),
    )
    def join(self, subscription: tuple[list[str] | None, str | None], instance: str | None, late: bool) -> Consumer:
        self.joined += 1
        topics, regex = subscription
        client = Consumer(
            self.world,
            f"m{self.joined}",
            topics=topics,
            regex=regex,
            instance_id=instance,
            assignor="range" if late else None,
            rebalance_ms=10_000 if late else 60_000,
        )
        response = client.join()
        assert response.error_code in (ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID)
        self.alive.append(client)
        return client

    @rule(client=clients, is_full=st.booleans(), is_lost=st.booleans(), is_busy=st.booleans())
    def send(self, client: Consumer, is_full: bool, is_lost: bool, is_busy: bool) -> None:
        response = client.send(is_full=is_full, is_lost=is_lost, is_busy=is_busy)
        assert response.error_code in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
        if response.error_code == ErrorCode.FENCED_INSTANCE_ID:
            client.owned = set()

    @rule(client=clients, times=st.integers(1, 4))
    def send_often(self, client: Consumer, times: int) -> None:
        for _ in range(times):
            self.send(client, False, False, False)

    @rule(client=clients, subscription=subscriptions)
    def change_subscription(self, client: Consumer, subscription: tuple[list[str] | None, str | None]) -> None:
        topics, regex = subscription
        client.topics = topics or []
        client.regex = regex or ""
        self.send(client, True, False, False)

    @rule(client=consumes(clients))
    def leave(self, client: Consumer) -> None:
        client.leave()
        self.alive.remove(client)

    @rule(client=consumes(clients))
    def crash(self, client: Consumer) -> None:
        self.alive.remove(client)

    @rule(target=clients, client=consumes(clients))
    def bounce(self, client: Consumer) -> Consumer:
        """Stop and start a program; a static member is back under a new member id."""
        client.leave(-1 if client.instance_id is None else -2)
        self.joined += 1
        client.member_id = f"m{self.joined}"
        client.join()
        return client

    # The world.

    @rule(ms=st.sampled_from([100, 3_000, 11_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(0, 5))
    def change_topic(self, name: str, partitions: int) -> None:
        known = topics_of(self.world).by_name(name)
        if partitions > (known.partition_count if known else 0) or (known and partitions == 0):
            change_topics(self.world, **{name: partitions})

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def be_quiet(self) -> None:
        """Whoever lives goes on until nothing changes any more."""
        self.world.advance(46_000)  # Who crashed is out.
        for _ in range(6):
            self.world.advance(1_000)
            for client in self.alive:
                if client.send().error_code != ErrorCode.NONE:
                    client.join()
        group = self.world.coordinator.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup) or not group.members:
            return
        members = [client for client in self.alive if client.member_id in group.members]
        assert group.state_name == "Stable"
        assert {member.member_id for member in members} == set(group.members)
        had = sorted(partition for member in members for partition in member.owned)
        assert had == sorted(
            (topic.topic_id.hex(), partition)
            for name in group.subscribed_topic_names
            if (topic := topics_of(self.world).by_name(name)) is not None
            for partition in range(topic.partition_count)
        )

    # What is always so.

    @invariant()
    def what_a_client_has_is_its_own(self) -> None:
        group = self.world.coordinator.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        for client in self.alive:
            if client.member_id in group.members:
                for topic_id, partition in client.owned:
                    assert group.owners[bytes.fromhex(topic_id)][partition] == client.member_id
        owned = [
            (topic_id, partition)
            for member in group.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic_id, numbers in partitions.items()
            for partition in numbers
        ]
        assert len(owned) == len(set(owned))
        assert set(owned) == {(topic_id, number) for topic_id, numbers in group.owners.items() for number in numbers}

    @invariant()
    def epochs_only_go_up(self) -> None:
        if GROUP not in self.world.coordinator.groups:
            return
        group = consumer_group(self.world)
        assert group.assignment_epoch <= group.group_epoch
        assert group.group_epoch >= self.group_epoch
        self.group_epoch = group.group_epoch
        for member in group.members.values():
            assert member.member_epoch <= group.assignment_epoch
            if member.member_epoch != -2:
                assert member.member_epoch >= self.member_epochs.get(member.member_id, 0)
                self.member_epochs[member.member_id] = member.member_epoch

    @invariant()
    def a_restarted_coordinator_is_the_same(self) -> None:
        assert state_of(self.world.restarted()) == state_of(self.world.coordinator)


ConsumerGroupMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestConsumerGroups = ConsumerGroupMachine.TestCase
