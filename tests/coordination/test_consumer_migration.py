"""Groups that change their protocol: upgrade, downgrade, and empty groups."""

import pytest

from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    write_assignment,
)
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from tests.coordination.consumer_world import (
    ClassicConsumer,
    Consumer,
    consumer_group,
    consumers,
    settle,
    state_of,
    world_of,
)
from tests.coordination.group_world import GROUP, World

KIND = "GroupMetadataKey"


def assigned(*partitions: int, user_data: bytes | None = None) -> bytes:
    topics = [TopicPartition(topic="news", partitions=list(partitions))]
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), 1)


def classic(world: World, *assignments: bytes, instance_id: str | None = None) -> list[ClassicConsumer]:
    """A stable classic group, of which the first member leads."""
    members = [ClassicConsumer(world, f"old{number}", instance_id=instance_id) for number in range(len(assignments))]
    tickets = [member.join() for member in members]
    world.advance(6_000)
    for member, ticket in zip(members, tickets, strict=True):
        member.hear_join(ticket)
    given = {member.member_id: data for member, data in zip(members, assignments, strict=True)}
    for member in members:
        member.sync(given)
    return members


def keys_written(world: World, since: int) -> set[tuple[str, bool]]:
    entries = [entry.record for entry in world.log[since:] if entry.record is not None]
    return {(type(record.key).__name__, record.value is None) for record in entries}


# Upgrade.


def test_a_classic_group_is_upgraded_by_the_first_consumer_and_all_go_on() -> None:
    world = world_of(news=4)
    a, b = classic(world, assigned(0, 1), assigned(2, 3))
    world.commit({0: 5}, a.member_id, a.generation)
    since = len(world.log)
    new = Consumer(world, "new")
    response = new.join()
    assert (response.error_code, new.epoch, new.partitions) == (ErrorCode.NONE, 2, [])
    assert (KIND, True) in keys_written(world, since)
    assert consumer_group(world).members[b.member_id].member_epoch == 1
    assert state_of(world.restarted()) == state_of(world.coordinator)
    for _ in range(4):
        for member in (a, b):
            if member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                member.rejoin()
        new.send()
    assert sorted(a.partitions + b.partitions + new.partitions) == ["news-0", "news-1", "news-2", "news-3"]
    assert len(new.partitions) == 1
    assert world.offset() == 5, "offsets stay"
    assert consumer_group(world).state_name == "Stable"


def test_whoever_waits_in_a_rebalance_is_told_to_join_again() -> None:
    world = world_of(news=4)
    a, b = classic(world, assigned(0, 1), assigned(2, 3))
    a.topics = ["news", "sports"]
    joining = a.send_join()
    assert joining in world.waiting
    Consumer(world, "new").join()
    assert world.answer(joining).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    a.rejoin()
    b.rejoin()
    assert a.generation == b.generation or b.generation == 1


def test_a_group_in_its_first_rebalance_is_upgraded_too() -> None:
    world = world_of(news=4)
    a = ClassicConsumer(world, "old")
    ticket = a.join()
    new = Consumer(world, "new")
    new.join()
    assert world.answer(ticket).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    a.rejoin()
    assert (len(a.partitions), len(new.partitions)) == (2, 2)


def test_the_sessions_of_classic_members_go_on() -> None:
    world = world_of(news=4)
    classic(world, assigned(0, 1), assigned(2, 3))
    new = Consumer(world, "new")
    new.join()
    world.advance(10_000)
    assert list(consumer_group(world).members) == ["new"]
    new.send()
    assert len(new.partitions) == 4


def test_a_leader_that_gave_a_partition_twice_does_no_harm() -> None:
    world = world_of(news=4)
    a, b = classic(world, assigned(0, 1), assigned(1, 2, 3, 9))
    new = Consumer(world, "new")
    new.join()
    for _ in range(4):
        for member in (a, b):
            if member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                member.rejoin()
        new.send()
    assert sorted(a.partitions + b.partitions + new.partitions) == ["news-0", "news-1", "news-2", "news-3"]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_that_is_not_allowed(policy: str) -> None:
    world = world_of(GroupConfig(consumer_migration_policy=policy), news=4)
    (a,) = classic(world, assigned(0))
    since = len(world.log)
    response = Consumer(world, "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message == (
        f"Cannot upgrade classic group {GROUP} to consumer group because online upgrade is disabled."
    )
    assert len(world.log) == since
    assert a.heartbeat() == ErrorCode.NONE


def test_groups_that_can_not_be_upgraded() -> None:
    world = world_of(news=4)
    classic(world, assigned(0, user_data=b"custom"))
    response = Consumer(world, "new").join()
    assert (response.error_code, "custom assignor" in (response.error_message or "")) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        True,
    )
    world = world_of(news=4)
    (a,) = classic(world, assigned(0))
    world.group().members[a.member_id].assignment = b"\x00\x00\x7f"
    assert "malformed" in (Consumer(world, "new").join().error_message or "")
    world = world_of(GroupConfig(consumer_max_size=1), news=4)
    classic(world, assigned(0), assigned(1))
    assert "maximum size" in (Consumer(world, "new").join().error_message or "")
    world = world_of(news=4)
    world.send_join(member_id="", protocol_type="connect", version=3)
    assert "embedded protocol" in (Consumer(world, "new").join().error_message or "")


def test_a_refused_consumer_leaves_a_classic_group_as_it_is() -> None:
    world = world_of(news=4)
    (a,) = classic(world, assigned(0))
    since = len(world.log)
    assert Consumer(world, "new", topics=None, regex="(").join().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert isinstance(world.coordinator.groups[GROUP], ClassicGroup)
    assert len(world.log) == since
    assert a.heartbeat() == ErrorCode.NONE


def test_a_heartbeat_of_no_consumer_upgrades_nothing() -> None:
    world = world_of(news=4)
    classic(world, assigned(0))
    new = Consumer(world, "new", epoch=3)
    assert new.send().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert new.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_classic_member_is_replaced_by_a_consumer() -> None:
    world = world_of(news=4)
    (a,) = classic(world, assigned(0, 1, 2, 3), instance_id="i")
    new = Consumer(world, "new", instance_id="i")
    new.join()
    assert new.partitions == ["news-0", "news-1", "news-2", "news-3"]
    assert list(consumer_group(world).members) == ["new"]
    assert a.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert state_of(world.restarted()) == state_of(world.coordinator)


# Downgrade.


def upgraded(world: World) -> tuple[ClassicConsumer, ClassicConsumer, Consumer]:
    a, b = classic(world, assigned(0, 1), assigned(2, 3))
    new = Consumer(world, "new")
    new.join()
    for _ in range(4):
        for member in (a, b):
            if member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                member.rejoin()
        new.send()
    return a, b, new


@pytest.mark.parametrize("how", ["leaves", "crashes"])
def test_when_the_last_consumer_is_gone_the_group_is_a_classic_one_that_rebalances(how: str) -> None:
    world = world_of(news=4)
    a, b, new = upgraded(world)
    epoch = consumer_group(world).group_epoch
    since = len(world.log)
    if how == "leaves":
        new.leave()
    else:
        for _ in range(8):
            world.advance(6_000)
            a.heartbeat()
            b.heartbeat()
    group = world.group()
    assert (group.state_name, group.generation_id) == ("PreparingRebalance", epoch)
    assert {(KIND, False), ("ConsumerGroupMetadataKey", True)} <= keys_written(world, since)
    assert state_of(world.restarted()) == {}
    loaded = world.restarted().groups[GROUP]
    assert isinstance(loaded, ClassicGroup)
    assert set(loaded.members) == {a.member_id, b.member_id}
    # The members come back as they would in any classic group.
    assert a.heartbeat() == b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [a.send_join(), b.send_join()]
    for member, ticket in zip((a, b), tickets, strict=True):
        assert member.hear_join(ticket).generation_id == epoch + 1


@pytest.mark.parametrize("config", [{"consumer_migration_policy": "upgrade"}, {"max_size": 2}])
def test_without_leave_to_downgrade_classic_members_go_on_alone(config: dict[str, object]) -> None:
    world = world_of(news=4)
    a, b, new = upgraded(world)
    third = ClassicConsumer(world, "third")
    third.join()
    world.coordinator.config = GroupConfig(**config)  # type: ignore[arg-type]
    new.leave()
    for _ in range(4):
        for member in (a, b, third):
            if member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                member.rejoin()
    assert consumer_group(world).state_name == "Stable"
    assert sorted(a.partitions + b.partitions + third.partitions) == ["news-0", "news-1", "news-2", "news-3"]


@pytest.mark.parametrize("topics", [["news"], ["news", "sports"]])
def test_the_last_static_consumer_that_comes_back_as_classic_member_downgrades_the_group(topics: list[str]) -> None:
    world = world_of(news=4, sports=1)
    (new,) = consumers(world, "new", instance_id="i")
    old = ClassicConsumer(world, "old")
    assert old.join().error_code == ErrorCode.NONE
    old.sync()
    settle(new)
    old.rejoin()
    back = ClassicConsumer(world, "back", instance_id="i", topics=topics)
    assert back.join().error_code == ErrorCode.NONE
    assert isinstance(world.coordinator.groups[GROUP], ClassicGroup)
    if topics == ["news"]:
        assert world.group().state_name == "Stable"
        assert back.sync().error_code == ErrorCode.NONE
        assert back.partitions == new.partitions
    else:
        assert world.group().state_name == "PreparingRebalance"


# Empty groups.


@pytest.mark.parametrize("policy", ["disabled", "bidirectional"])
def test_an_empty_group_becomes_what_its_first_member_is(policy: str) -> None:
    world = world_of(GroupConfig(consumer_migration_policy=policy), news=4)
    (a,) = consumers(world, "a")
    a.leave()
    classic(world, assigned(0))
    assert world.group().state_name == "Stable"
    assert state_of(world.restarted()) == {}
    world.advance(11_000)
    assert world.group().state_name == "Empty"
    since = len(world.log)
    assert a.join().error_code == ErrorCode.NONE
    assert a.partitions == ["news-0", "news-1", "news-2", "news-3"]
    assert (KIND, True) in keys_written(world, since)
    assert state_of(world.restarted()) == state_of(world.coordinator)
