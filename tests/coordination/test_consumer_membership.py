"""The part of consumer groups that both protocols share: which timers run, who chooses the assignor."""

from barnabas.coordination.consumer_membership import JOIN, REBALANCE, SESSION, SYNC
from barnabas.coordination.timers import TimerKey
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from tests.coordination.consumer_world import ClassicConsumer, Consumer, consumer_group, consumers, world_of
from tests.coordination.group_world import GROUP, World


def timers_of(world: World, member_id: str) -> set[str]:
    timers = world.coordinator.timers
    kinds = (SESSION, REBALANCE, JOIN, SYNC)
    return {kind for kind in kinds if timers.deadline_of(TimerKey(kind, GROUP, member_id)) is not None}


def test_which_deadlines_a_consumer_has() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a")
    assert timers_of(world, "a") == {SESSION}
    Consumer(world, "b").join()
    a.send()
    assert timers_of(world, "a") == {SESSION, REBALANCE}
    world.restart()
    assert timers_of(world, "a") == {SESSION, REBALANCE}
    a.send()
    assert timers_of(world, "a") == {SESSION}
    a.leave()
    assert timers_of(world, "a") == set()


def test_a_static_member_that_left_for_a_while_owes_nothing_but_to_come_back() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a", instance_id="i")
    Consumer(world, "b").join()
    a.send(is_busy=True)
    assert timers_of(world, "a") == {SESSION, REBALANCE}
    a.leave(-2)
    assert timers_of(world, "a") == {SESSION}
    Consumer(world, "a2", instance_id="i").join()
    assert (timers_of(world, "a"), timers_of(world, "a2")) == (set(), {SESSION})


def test_which_deadlines_a_classic_member_has() -> None:
    world = world_of(news=2)
    (new,) = consumers(world, "new")
    old = ClassicConsumer(world, "old")
    old.join()
    assert timers_of(world, old.member_id) == {SESSION, SYNC}
    old.sync()
    assert timers_of(world, old.member_id) == {SESSION}
    Consumer(world, "third").join()
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert timers_of(world, old.member_id) == {SESSION, JOIN}
    old.rejoin()
    assert timers_of(world, old.member_id) == {SESSION}
    assert timers_of(world, new.member_id) == {SESSION}


def test_the_assignor_of_a_setting_that_was_changed_is_not_missed() -> None:
    world = world_of(news=2)
    consumers(world, "a", assignor="range")
    world.coordinator.config = GroupConfig(consumer_assignors=("uniform",))
    assert world.coordinator.describe_consumer_group(GROUP).assignor_name == "uniform"
    b = Consumer(world, "b")
    assert b.join().error_code == ErrorCode.NONE


def test_many_members_each_have_their_part() -> None:
    world = world_of(news=300)
    members = [Consumer(world, f"m{number}") for number in range(100)]
    for member in members:
        member.join()
    for _ in range(3):
        for member in members:
            member.send()
    assert {len(member.owned) for member in members} == {3}
    assert consumer_group(world).state_name == "Stable"
