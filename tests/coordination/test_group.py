"""Both kinds of groups, and the shard, are what coordination/group.py says."""

from barnabas.coordination.classic_group import ClassicGroup
from barnabas.coordination.consumer_group import ConsumerGroup
from barnabas.coordination.group import Group, Shard
from tests.coordination.group_world import World


def test_groups_of_both_kinds_are_groups() -> None:
    groups: list[Group] = [ClassicGroup("g", 0), ConsumerGroup("g")]
    assert [group.group_type for group in groups] == ["classic", "consumer"]
    assert all(group.group_id == "g" and group.is_empty for group in groups)


def test_the_coordinator_is_a_shard() -> None:
    shard: Shard = World().coordinator
    assert shard.groups == {}
