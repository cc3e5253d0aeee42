"""The assignors: every partition has one owner who wants it, loads are even, and little moves."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.assignors import ASSIGNORS, MemberSpec, Partitions, assign_range, assign_uniform

Targets = Mapping[str, Partitions]


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


def spec(*numbers: int, target: Partitions | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(instance_id, frozenset(map(topic, numbers)), target or {})


def again(members: Mapping[str, MemberSpec], targets: Targets) -> dict[str, MemberSpec]:
    """The members as they are after an assignment."""
    return {member_id: member._replace(target=targets.get(member_id, {})) for member_id, member in members.items()}


def counts(**partition_counts: int) -> dict[bytes, int]:
    return {topic(int(name[1:])): partitions for name, partitions in partition_counts.items()}


def words(targets: Targets) -> dict[str, dict[int, list[int]]]:
    return {
        member_id: {int.from_bytes(topic_id, "big"): sorted(numbers) for topic_id, numbers in target.items()}
        for member_id, target in targets.items()
    }


def size(target: Partitions) -> int:
    return sum(map(len, target.values()))


def owners(targets: Targets) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member_id, target in targets.items():
        for topic_id, numbers in target.items():
            assert numbers, "no topic is there without partitions"
            for number in numbers:
                assert (topic_id, number) not in found, "two owners"
                found[topic_id, number] = member_id
    return found


def moved(before: Targets, after: Targets) -> int:
    """How many partitions were taken from a member that is still there."""
    now = owners(after)
    return sum(
        1
        for partition, member_id in owners(before).items()
        if member_id in after and partition in now and now[partition] != member_id
    )


def check_valid(members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int], targets: Targets) -> None:
    assert targets.keys() == members.keys()
    for member_id, target in targets.items():
        assert target.keys() <= members[member_id].topic_ids
    wanted = {topic_id for member in members.values() for topic_id in member.topic_ids}
    expected = {(topic_id, number) for topic_id in wanted for number in range(partition_counts[topic_id])}
    assert owners(targets).keys() == expected


@st.composite
def groups(draw: st.DrawFn, is_homogeneous: bool = False) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
    partition_counts = {topic(number): draw(st.integers(1, 9)) for number in range(1, draw(st.integers(1, 5)) + 1)}
    subscriptions = st.frozensets(st.sampled_from(sorted(partition_counts)))
    common = draw(subscriptions)
    # What members had before may be anything, also of topics that are gone, and also twice.
    targets = st.dictionaries(
        st.sampled_from([*sorted(partition_counts), topic(99)]),
        st.frozensets(st.integers(0, 11), min_size=1, max_size=5),
        max_size=3,
    )
    members = {
        f"m{number}": MemberSpec(
            draw(st.sampled_from([None, f"i{9 - number}"])),
            common if is_homogeneous else draw(subscriptions),
            draw(targets),
        )
        for number in range(draw(st.integers(1, 7)))
    }
    return members, partition_counts


@pytest.mark.parametrize("name", ["uniform", "range"])
@given(group=groups())
def test_every_partition_has_one_owner_who_subscribes(
    name: str, group: tuple[dict[str, MemberSpec], dict[bytes, int]]
) -> None:
    members, partition_counts = group
    targets = ASSIGNORS[name](members, partition_counts)
    check_valid(members, partition_counts, targets)
    repeated = ASSIGNORS[name](again(members, targets), partition_counts)
    assert moved(targets, repeated) == 0
    backwards = dict(reversed(again(members, targets).items()))
    assert ASSIGNORS[name](backwards, partition_counts) == repeated


@given(groups(is_homogeneous=True))
def test_uniform_differs_by_one_at_most_if_all_want_the_same(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, partition_counts = group
    sizes = [size(target) for target in assign_uniform(members, partition_counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_uniform_leaves_no_topic_whose_subscribers_could_be_evened_out(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, partition_counts = group
    targets = assign_uniform(members, partition_counts)
    for topic_id in partition_counts:
        subscribers = [member_id for member_id, member in members.items() if topic_id in member.topic_ids]
        for giver in subscribers:
            if topic_id in targets[giver]:
                assert all(size(targets[giver]) - size(targets[taker]) <= 1 for taker in subscribers)


@given(groups(is_homogeneous=True), st.data())
def test_when_a_member_leaves_only_its_partitions_move(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]], data: st.DataObject
) -> None:
    members, partition_counts = group
    before = assign_uniform(members, partition_counts)
    remaining = again(members, before)
    del remaining[data.draw(st.sampled_from(sorted(members)))]
    if remaining:
        assert moved(before, assign_uniform(remaining, partition_counts)) == 0


@given(groups(is_homogeneous=True))
def test_when_a_member_joins_no_more_moves_than_it_gets(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, partition_counts = group
    before = assign_uniform(members, partition_counts)
    new = MemberSpec(None, next(iter(members.values())).topic_ids, {})
    after = assign_uniform({**again(members, before), "new": new}, partition_counts)
    assert moved(before, after) == size(after["new"])


def test_uniform_gives_each_its_share() -> None:
    members = {"a": spec(1, 2), "b": spec(1, 2), "c": spec(1, 2)}
    assert words(assign_uniform(members, counts(t1=4, t2=3))) == {
        "a": {1: [0, 1, 2]},
        "b": {1: [3], 2: [0]},
        "c": {2: [1, 2]},
    }


def test_uniform_lets_whoever_has_more_keep_more() -> None:
    members = {"a": spec(1, target={topic(1): frozenset([0])}), "b": spec(1, target={topic(1): frozenset([1, 2])})}
    targets = assign_uniform(members, counts(t1=3))
    assert words(targets) == {"a": {1: [0]}, "b": {1: [1, 2]}}
    assert targets["a"] is members["a"].target


def test_uniform_evens_out_over_topics_that_not_all_want() -> None:
    members = {"a": spec(1), "b": spec(1, 2), "c": spec(1, 2)}
    assert {member_id: size(target) for member_id, target in assign_uniform(members, counts(t1=6, t2=3)).items()} == {
        "a": 3,
        "b": 3,
        "c": 3,
    }


def test_range_gives_the_same_numbers_of_all_topics() -> None:
    members = {"b": spec(1, 2), "a": spec(1, 2)}
    assert words(assign_range(members, counts(t1=3, t2=3))) == {
        "a": {1: [0, 1], 2: [0, 1]},
        "b": {1: [2], 2: [2]},
    }


def test_range_orders_static_members_by_their_instance_and_before_others() -> None:
    members = {"a": spec(1), "z": spec(1, instance_id="i1"), "y": spec(1, instance_id="i2")}
    assert words(assign_range(members, counts(t1=3))) == {"z": {1: [0]}, "y": {1: [1]}, "a": {1: [2]}}


def test_range_leaves_some_without_if_there_are_more_members_than_partitions() -> None:
    members = {"a": spec(1), "b": spec(1), "c": spec(1, 2)}
    assert words(assign_range(members, counts(t1=2, t2=1))) == {"a": {1: [0]}, "b": {1: [1]}, "c": {2: [0]}}


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_nobody_who_subscribes_to_nothing_gets_anything(name: str) -> None:
    assert ASSIGNORS[name]({"a": spec(), "b": spec()}, {}) == {"a": {}, "b": {}}
