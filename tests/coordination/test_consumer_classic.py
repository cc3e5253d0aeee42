"""Classic members in a consumer group: they join, sync and send heartbeats as ever, and get what the target gives."""

import pytest

from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import MemberIdentity
from tests.coordination.consumer_world import ClassicConsumer, Consumer, consumer_group, consumers, state_of, world_of
from tests.coordination.group_world import World


def mixed(world: World, name: str = "old", instance_id: str | None = None) -> tuple[Consumer, ClassicConsumer]:
    """A group with a consumer `new` and a classic member, of which each has what it is to have."""
    (new,) = consumers(world, "new")
    old = ClassicConsumer(world, name, instance_id=instance_id)
    assert old.join().error_code == ErrorCode.NONE
    assert old.sync().error_code == ErrorCode.NONE
    assert old.partitions == []
    new.send()
    new.send()
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "what it waited for is free"
    old.rejoin()
    return new, old


def test_a_classic_member_joins_at_once_and_gets_its_part_when_it_is_free() -> None:
    world = world_of(news=4)
    new, old = mixed(world)
    assert (new.partitions, old.partitions) == (["news-0", "news-1"], ["news-2", "news-3"])
    assert old.generation == new.epoch == 2
    assert old.heartbeat() == ErrorCode.NONE
    member = consumer_group(world).members[old.member_id]
    assert member.metadata.classic_member_metadata is not None
    assert member.metadata.classic_member_metadata.session_timeout_ms == 10_000
    described = world.coordinator.describe_consumer_group("readers")
    assert [member.member_type for member in described.members] == [1, 0]
    assert state_of(world.restarted()) == state_of(world.coordinator)


def test_a_member_id_is_required_of_dynamic_members_since_version_4() -> None:
    world = world_of(news=4)
    consumers(world, "new")
    response = world.answer(world.send_join(version=4))
    assert (response.error_code, response.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "1")
    response = world.answer(world.send_join(version=3))
    assert (response.error_code, response.generation_id, response.leader) == (ErrorCode.NONE, 2, "")


def test_a_classic_member_is_told_to_give_partitions_up_and_fenced_if_it_does_not() -> None:
    world = world_of(news=6)
    new, old = mixed(world)
    third = Consumer(world, "third")
    third.join()
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.join().error_code == ErrorCode.NONE
    assert old.generation == 2, "it is to give one up first"
    assert old.sync().error_code == ErrorCode.NONE
    assert old.partitions == ["news-3", "news-4"]
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.rejoin()
    assert (old.generation, old.partitions) == (3, ["news-3", "news-4"])
    for member in (new, new, third):
        member.send()
    assert third.partitions == ["news-2", "news-5"]
    # And now another rebalance, in which it does not come back.
    third.leave()
    for _ in range(9):
        assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        new.send()
        world.advance(7_000)
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    new.send()
    assert new.partitions == [f"news-{number}" for number in range(6)]


def test_who_joins_and_does_not_ask_for_the_assignment_is_fenced() -> None:
    world = world_of(news=4)
    (new,) = consumers(world, "new")
    old = ClassicConsumer(world, "old")
    old.join()
    for _ in range(9):
        world.advance(7_000)
        new.send()
        old.heartbeat()
    assert list(consumer_group(world).members) == ["new"]


def test_the_session_of_a_classic_member_is_as_long_as_it_asked_for() -> None:
    world = world_of(news=4)
    _, old = mixed(world)
    world.advance(9_000)
    assert old.heartbeat() == ErrorCode.NONE
    world.advance(10_000)
    assert list(consumer_group(world).members) == ["new"]


def test_what_a_classic_member_gets_wrong() -> None:
    world = world_of(news=4)
    new, old = mixed(world)
    assert world.heartbeat(old.member_id, 1) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("new", new.epoch) == ErrorCode.UNKNOWN_MEMBER_ID, "it does not speak this protocol"
    assert world.answer(world.send_sync(old.member_id, 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    for protocol_type, protocol_name in (("connect", None), ("consumer", "range")):
        ticket = world.send_sync(old.member_id, 2, protocol_type=protocol_type, protocol_name=protocol_name)
        assert world.answer(ticket).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    new.leave()
    assert world.group().state_name == "PreparingRebalance"


def test_a_new_rebalance_is_told_instead_of_an_assignment() -> None:
    world = world_of(news=4)
    consumers(world, "new")
    old = ClassicConsumer(world, "old")
    old.join()
    Consumer(world, "third").join()
    assert old.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    old.rejoin()
    assert old.generation == 3


@pytest.mark.parametrize(
    "protocols", [{}, {"range": b"\x00\x00"}, {"range": b""}], ids=["none", "not a consumer's", "empty"]
)
def test_who_has_nothing_in_common_with_the_others_is_turned_away(protocols: dict[str, bytes]) -> None:
    world = world_of(news=4)
    consumers(world, "new")
    response = world.answer(world.send_join(member_id="old", protocols=protocols))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    response = world.answer(world.send_join(member_id="old", protocol_type="connect"))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_must_have_a_protocol_in_common() -> None:
    world = world_of(news=4)
    mixed(world)
    other = ClassicConsumer(world, "other", protocol="range", member_id="other")
    assert other.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_classic_member() -> None:
    world = world_of(GroupConfig(consumer_max_size=1), news=4)
    consumers(world, "new")
    assert ClassicConsumer(world, "old").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_classic_member_comes_back_under_a_new_name() -> None:
    world = world_of(news=4)
    _, old = mixed(world, instance_id="i")
    back = ClassicConsumer(world, "old", instance_id="i")
    back.rejoin()
    assert back.member_id != old.member_id
    assert back.partitions == ["news-2", "news-3"]
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert old.join().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat("x", 2, instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert state_of(world.restarted()) == state_of(world.coordinator)


def test_members_leave_by_name_or_by_instance() -> None:
    world = world_of(news=4)
    new, _ = mixed(world, instance_id="i")
    assert world.leave(
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="nobody", group_instance_id="i"),
        MemberIdentity(group_instance_id="j"),
    ) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    records = len(world.log)
    assert world.leave(MemberIdentity(group_instance_id="i")) == [ErrorCode.NONE]
    assert len(world.log) > records
    new.send()
    assert new.partitions == ["news-0", "news-1", "news-2", "news-3"]
    assert world.leave(MemberIdentity(member_id="new")) == [ErrorCode.NONE]
    assert consumer_group(world).is_empty


def test_a_classic_member_commits_in_its_generation() -> None:
    world = world_of(news=4)
    _, old = mixed(world)
    assert world.commit({2: 5}, old.member_id, old.generation, version=8) == [ErrorCode.NONE]
    assert world.commit({2: 5}, old.member_id, 1, version=8) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_classic_member_may_go_on_in_the_consumer_protocol() -> None:
    world = world_of(news=4)
    new, old = mixed(world)
    modern = Consumer(world, old.member_id)
    modern.join()
    assert modern.partitions == ["news-2", "news-3"]
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(20_000)
    assert modern.send().error_code == ErrorCode.NONE, "its session is now as long as those of the others"
    assert new.send().error_code == ErrorCode.NONE
