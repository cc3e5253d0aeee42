"""What a classic group is and allows: members, protocols, offsets, records."""

import pytest

from barnabas.coordination.classic_group import ClassicGroup, ClassicState
from barnabas.coordination.classic_member import ClassicMember, session_key
from barnabas.coordination.group_records import GroupMetadataValue, MemberMetadata
from barnabas.wire.errors import ApiError, ErrorCode
from tests.coordination.group_world import settled_state, subscription


def add(
    group: ClassicGroup, name: str, *protocols: str, instance_id: str | None = None, ticket: object = None
) -> ClassicMember:
    member = ClassicMember(
        member_id=name,
        instance_id=instance_id,
        client_id=name,
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols={protocol: subscription("news") for protocol in protocols},
        session_key=session_key(group.group_id, name),
    )
    group.protocol_type = "consumer"
    group.add(member, ticket)
    return member


def consumers(*names: str) -> ClassicGroup:
    """A stable group of consumers."""
    group = ClassicGroup("g", 0)
    for name in names:
        add(group, name, "range")
    group.start_generation(1)
    group.transition_to(ClassicState.STABLE, 2)
    return group


def value_of(group: ClassicGroup) -> GroupMetadataValue:
    value = group.record().value
    assert isinstance(value, GroupMetadataValue)
    return value


def test_the_first_member_leads_and_the_next_inherits() -> None:
    group = consumers("a", "b")
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None


def test_the_protocol_with_the_most_votes_is_chosen_of_those_all_speak() -> None:
    group = ClassicGroup("g", 0)
    add(group, "a", "sticky", "range", "roundrobin")
    add(group, "b", "roundrobin", "range")
    add(group, "c", "roundrobin", "range")
    assert group.select_protocol() == "roundrobin"
    group.remove("c")
    group.remove("b")
    assert group.select_protocol() == "sticky"


def test_who_shares_no_protocol_with_all_others_is_not_supported() -> None:
    group = ClassicGroup("g", 0)
    assert group.supports("consumer", ["range"])
    assert not group.supports("", ["range"])
    assert not group.supports("consumer", [])
    add(group, "a", "range", "sticky")
    add(group, "b", "range")
    group.transition_to(ClassicState.PREPARING_REBALANCE, 1)
    assert group.supports("consumer", ["range"])
    assert not group.supports("consumer", ["sticky"])
    assert not group.supports("connect", ["range"])


def test_waiting_joins_are_counted_also_when_a_ticket_replaces_another() -> None:
    group = ClassicGroup("g", 0)
    member = add(group, "a", "range", ticket=1)
    assert group.has_all_members_joined
    group.wait_for_join(member, 2)
    assert group.joins_waiting == 1
    group.wait_for_join(member, None)
    assert group.joins_waiting == 0
    assert not group.has_all_members_joined


def test_a_pending_name_is_missing_too() -> None:
    group = ClassicGroup("g", 0)
    group.pending_joins.add("b")
    add(group, "a", "range", ticket=1)
    assert not group.has_all_members_joined
    group.remove("b")
    assert group.has_all_members_joined


def test_a_leader_who_is_not_back_is_replaced_by_one_who_is() -> None:
    group = ClassicGroup("g", 0)
    assert not group.elect_joined_leader()
    add(group, "a", "range")
    assert not group.elect_joined_leader()
    add(group, "b", "range", ticket=1)
    assert group.elect_joined_leader()
    assert group.leader_id == "b"


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error"),
    [
        ("a", None, None),
        ("a", "i", None),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", "x", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_members_are_validated(member_id: str, instance_id: str | None, error: ErrorCode | None) -> None:
    group = ClassicGroup("g", 0)
    add(group, "a", "range", instance_id="i")
    if error is None:
        group.validate_member(member_id, instance_id)
    else:
        with pytest.raises(ApiError) as raised:
            group.validate_member(member_id, instance_id)
        assert raised.value.code == error


@pytest.mark.parametrize(
    ("state", "member_id", "generation", "is_transactional", "error"),
    [
        (ClassicState.STABLE, "a", 1, False, None),
        (ClassicState.STABLE, "a", 0, False, ErrorCode.ILLEGAL_GENERATION),
        (ClassicState.STABLE, "x", 1, False, ErrorCode.UNKNOWN_MEMBER_ID),
        (ClassicState.STABLE, "", -1, False, ErrorCode.UNKNOWN_MEMBER_ID),
        # Producers before KIP-447 do not say for whom they commit.
        (ClassicState.STABLE, "", -1, True, None),
        (ClassicState.STABLE, "a", 0, True, ErrorCode.ILLEGAL_GENERATION),
        (ClassicState.PREPARING_REBALANCE, "a", 1, False, None),
        (ClassicState.COMPLETING_REBALANCE, "a", 1, False, ErrorCode.REBALANCE_IN_PROGRESS),
        (ClassicState.COMPLETING_REBALANCE, "a", 1, True, None),
        (ClassicState.EMPTY, "", -1, False, None),
        (ClassicState.EMPTY, "x", 1, False, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit_offsets(
    state: ClassicState, member_id: str, generation: int, is_transactional: bool, error: ErrorCode | None
) -> None:
    group = consumers("a")
    if state is ClassicState.EMPTY:
        group.remove("a")
    group.transition_to(state, 3)
    if error is None:
        group.validate_offset_commit(member_id, None, generation, 8, is_transactional)
    else:
        with pytest.raises(ApiError) as raised:
            group.validate_offset_commit(member_id, None, generation, 8, is_transactional)
        assert raised.value.code == error


def test_only_what_nobody_reads_can_be_deleted_or_expire() -> None:
    group = consumers("a")
    assert group.is_subscribed_to("news")
    assert not group.is_subscribed_to("sports")
    assert group.offsets_may_expire
    group.transition_to(ClassicState.PREPARING_REBALANCE, 3)
    assert not group.offsets_may_expire
    group.validate_offset_delete()
    with pytest.raises(ApiError, match="has members"):
        group.validate_delete()


def test_consumers_whose_subscription_can_not_be_read_may_read_everything() -> None:
    group = ClassicGroup("g", 0)
    add(group, "a", "range").protocols["range"] = b"garbage"
    group.start_generation(1)
    group.transition_to(ClassicState.STABLE, 2)
    assert group.is_subscribed_to("anything")
    assert not group.offsets_may_expire


def test_offsets_of_other_protocols_can_not_be_deleted_while_there_are_members() -> None:
    group = ClassicGroup("g", 0)
    add(group, "a", "range")
    group.protocol_type = "connect"
    group.start_generation(1)
    assert not group.is_subscribed_to("news")
    with pytest.raises(ApiError, match="has members"):
        group.validate_offset_delete()


def test_offsets_grow_old_from_when_the_group_became_empty() -> None:
    group = consumers("a")
    assert group.empty_since_ms is None
    group.remove("a")
    group.start_generation(5)
    assert group.empty_since_ms == 5
    assert group.offsets_may_expire
    assert ClassicGroup("simple", 7).empty_since_ms is None
    assert ClassicGroup("simple", 7).offsets_may_expire


def test_a_group_comes_back_from_its_record() -> None:
    group = consumers("a", "b")
    group.members["a"].assignment = b"1"
    loaded = ClassicGroup.from_record("g", value_of(group))
    assert settled_state(loaded) == settled_state(group)
    assert loaded.subscribed_topics == {"news"}
    assert loaded.record() == group.record()


def test_an_empty_group_comes_back_from_its_record() -> None:
    group = consumers("a")
    group.remove("a")
    group.start_generation(5)
    loaded = ClassicGroup.from_record("g", value_of(group))
    assert (loaded.state, loaded.empty_since_ms, loaded.leader_id) == (ClassicState.EMPTY, 5, None)
    assert (loaded.generation_id, loaded.protocol_type) == (2, "consumer")


def test_records_of_old_versions_lack_times_and_some_name_a_leader_who_is_gone() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="gone",
        members=[MemberMetadata(member_id="a", session_timeout=10_000, rebalance_timeout=-1)],
    )
    group = ClassicGroup.from_record("g", value)
    assert group.members["a"].rebalance_timeout_ms == 10_000
    assert group.leader_id == "a"
    assert group.state_since_ms is None
    assert value_of(group).current_state_timestamp == -1
