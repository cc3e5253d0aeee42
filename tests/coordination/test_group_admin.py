"""Groups as operators see them."""

from barnabas.wire.errors import ErrorCode
from tests.coordination.group_members import stable
from tests.coordination.group_world import GROUP, World, subscription


def listed(world: World, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    return sorted(group.group_id for group in world.coordinator.list_groups(states, types))


def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    stable(world, "a")
    world.commit({0: 5}, group_id="lone")
    assert listed(world) == ["lone", GROUP]
    assert listed(world, states=("stable",)) == [GROUP]
    assert listed(world, states=("Stable", "Empty")) == ["lone", GROUP]
    assert listed(world, types=("Classic",)) == ["lone", GROUP]
    assert listed(world, types=("consumer",)) == []
    (group,) = world.coordinator.list_groups(["Stable"], [])
    assert (group.protocol_type, group.group_state, group.group_type) == ("consumer", "Stable", "classic")


def test_a_stable_group_is_described_with_what_its_members_said() -> None:
    world = World()
    a, _ = stable(world, "a", "b")
    described = world.coordinator.describe_group(GROUP, 6)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    first = described.members[0]
    assert (first.member_id, first.client_id, first.client_host) == (a.member_id, "a", "/127.0.0.1")
    assert (first.member_metadata, first.member_assignment) == (subscription("news"), b"a")
    a.send_join()
    described = world.coordinator.describe_group(GROUP, 6)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""


def test_an_unknown_group_is_dead_and_since_version_6_an_error() -> None:
    world = World()
    old, new = (world.coordinator.describe_group("unknown", version) for version in (5, 6))
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message == "Group unknown not found."


def test_a_classic_group_is_no_consumer_group() -> None:
    world = World()
    stable(world, "a")
    described = world.coordinator.describe_consumer_group(GROUP)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == f"Group {GROUP} is not a consumer group."
    assert world.coordinator.describe_consumer_group("x").error_message == "Group x not found."
    assert world.coordinator.describe_consumer_group("").error_code == ErrorCode.INVALID_GROUP_ID
