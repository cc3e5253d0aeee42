"""Classic groups at work: the cases of Kafka's coordinator that a script would make hard to see."""

from dataclasses import replace

import pytest

from barnabas.coordination.classic_groups import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.groups import LeaveGroupRequest, MemberIdentity
from tests.coordination.group_members import Member, joined, member_of, required_id, stable
from tests.coordination.group_world import GROUP, World, subscription


@pytest.fixture
def world() -> World:
    return World()


def error_of(world: World, ticket: int) -> ErrorCode:
    return ErrorCode(world.answer(ticket).error_code)


# Joining.


def test_a_member_without_a_name_gets_one_first(world: World) -> None:
    member_id = required_id(world, "reader")
    assert member_id.startswith("reader-")
    ticket = world.send_join("reader", member_id)
    world.advance(3_000)
    assert world.answer(ticket).member_id == member_id


def test_members_of_old_versions_get_their_name_with_the_generation(world: World) -> None:
    ticket = world.send_join("reader", version=3)
    world.advance(3_000)
    response = world.answer(ticket)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.member_id == response.leader


def test_in_version_0_the_session_is_the_time_to_rejoin(world: World) -> None:
    world.send_join("reader", version=0, rebalance_ms=-1, session_ms=9_000)
    assert world.group().rebalance_timeout_ms == 9_000


def test_a_name_that_is_not_used_is_forgotten(world: World) -> None:
    member_id = required_id(world, "a", session_ms=10_000)
    world.advance(10_000)
    assert error_of(world, world.send_join("a", member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_name_can_leave(world: World) -> None:
    member_id = required_id(world)
    assert world.leave(MemberIdentity(member_id=member_id)) == [ErrorCode.NONE]
    assert world.leave(MemberIdentity(member_id=member_id)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_pending_name_can_not_be_used_as_a_static_member(world: World) -> None:
    member_id = required_id(world)
    ticket = world.send_join("a", member_id, instance_id="i")
    assert error_of(world, ticket) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_name_in_a_group_that_is_not_there_is_unknown(world: World) -> None:
    assert error_of(world, world.send_join("a", "a-1")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.coordinator.groups == {}


def test_a_join_that_is_refused_leaves_no_group(world: World) -> None:
    assert error_of(world, world.send_join("a", protocols={})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.coordinator.groups == {}


@pytest.mark.parametrize(("session_ms", "group_id", "error"), [
    (5_999, GROUP, ErrorCode.INVALID_SESSION_TIMEOUT),
    (1_800_001, GROUP, ErrorCode.INVALID_SESSION_TIMEOUT),
    (10_000, "", ErrorCode.INVALID_GROUP_ID),
])  # fmt: skip
def test_joins_that_make_no_sense(world: World, session_ms: int, group_id: str, error: ErrorCode) -> None:
    assert error_of(world, world.send_join("a", session_ms=session_ms, group_id=group_id)) == error


def test_the_first_rebalance_is_delayed_as_long_as_members_come(world: World) -> None:
    first = world.send_join("a", version=3, rebalance_ms=8_000)
    for name in "bcdef":
        world.advance(2_000)
        world.send_join(name, version=3, rebalance_ms=8_000)
    # Three seconds at a time, but not more than the eight that members have to rejoin.
    assert world.answers[first].at_ms - 1_000_000 == 8_000


def test_without_a_delay_the_first_member_need_not_wait() -> None:
    world = World(config=GroupConfig(initial_rebalance_delay_ms=0))
    assert world.answer(world.send_join("a", version=3)).generation_id == 1


def test_the_leader_gets_what_all_members_sent(world: World) -> None:
    members = joined(world, "a", "b", "c")
    described = {member.member_id: subscription("news") for member in members}
    leader = next(world.answers[ticket].message for ticket in world.answers if world.answers[ticket].message.members)
    assert {member.member_id: member.metadata for member in leader.members} == described
    assert {member.leader for member in members} == {leader.member_id}


def test_members_must_have_a_protocol_in_common(world: World) -> None:
    stable(world, "a", protocols={"range": b"", "sticky": b""})
    for kind, protocols in (("consumer", {"roundrobin": b""}), ("connect", {"range": b""}), ("consumer", {})):
        ticket = world.send_join("b", version=3, protocol_type=kind, protocols=protocols)
        assert error_of(world, ticket) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group().state_name == "Stable"


def test_a_full_group_takes_nobody() -> None:
    world = World(config=GroupConfig(max_size=2))
    a, b = stable(world, "a", "b")
    assert error_of(world, world.send_join("c")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    a.send_join()
    assert error_of(world, b.send_join()) == ErrorCode.NONE


def test_the_last_to_come_back_is_out_if_the_maximum_was_lowered(world: World) -> None:
    a, b = stable(world, "a", "b")
    world.coordinator.config = replace(world.config, max_size=1)
    back = a.send_join()
    refused = world.answer(b.send_join())
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    world.advance(60_000)
    assert list(world.group().members) == [a.member_id]
    assert world.answer(back).generation_id == 2


def test_a_group_that_is_loaded_with_too_many_members_rebalances(world: World) -> None:
    stable(world, "a", "b")
    world.config = replace(world.config, max_size=1)
    world.restart()
    assert world.group().state_name == "PreparingRebalance"


def test_a_retried_join_takes_the_place_of_the_first(world: World) -> None:
    a, _ = stable(world, "a", "b")
    first, second = a.send_join(), a.send_join()
    assert error_of(world, first) == ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(60_000)
    assert world.answer(second).generation_id == 2


def test_a_follower_who_missed_the_answer_goes_on_in_the_generation(world: World) -> None:
    a, b = joined(world, "a", "b")
    again = world.answer(b.send_join())
    assert (again.generation_id, again.members) == (1, [])
    assert len(world.answer(a.send_join()).members) == 2
    b_waits = b.sync()
    a.sync({b.member_id: b"for b"})
    assert world.answer(b_waits).assignment == b"for b"
    assert world.answer(b.send_join()).generation_id == 1


def test_a_member_with_other_protocols_starts_a_rebalance(world: World) -> None:
    a, b = stable(world, "a", "b", protocols={"range": b"1", "sticky": b"1"})
    b.send_join(protocols={"sticky": b"1"})
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    back = world.answer(a.send_join(protocols={"range": b"1", "sticky": b"1"}))
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_a_join_with_other_protocols_sends_those_who_wait_for_assignments_back(world: World) -> None:
    _, b, c = joined(world, "a", "b", "c")
    waits = b.sync()
    c.send_join(protocols={"range": b"other"})
    assert error_of(world, waits) == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_can_force_a_rebalance(world: World) -> None:
    a, b = stable(world, "a", "b")
    a.send_join()
    assert b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_new_member_that_waits_too_long_is_taken_for_gone(world: World) -> None:
    (a,) = stable(world, "a", rebalance_ms=600_000)
    waits = world.send_join("b", version=3)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(5_000)
    assert error_of(world, waits) == ErrorCode.UNKNOWN_MEMBER_ID


# Rebalances.


def test_who_does_not_come_back_in_time_is_out_and_a_leader_replaced(world: World) -> None:
    a, b = stable(world, "a", "b", rebalance_ms=5_000, session_ms=60_000)
    back = b.send_join(protocols={"range": subscription("sports")}, rebalance_ms=5_000, session_ms=60_000)
    world.advance(5_000)
    response = world.answer(back)
    assert (response.leader, len(response.members)) == (b.member_id, 1)
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_ask_for_its_assignment_is_out(world: World) -> None:
    a, b = joined(world, "a", "b", rebalance_ms=5_000, session_ms=60_000)
    a.sync({})
    assert world.group().state_name == "Stable"
    world.advance(5_000)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_if_the_leader_brings_no_assignments_the_others_join_again(world: World) -> None:
    a, b = joined(world, "a", "b", rebalance_ms=5_000, session_ms=60_000)
    waits = b.sync()
    world.advance(5_000)
    assert error_of(world, waits) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answer(b.send_join()).leader == b.member_id
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_ends_without_heartbeats_and_goes_on_with_them(world: World) -> None:
    a, b = stable(world, "a", "b")
    for _ in range(3):
        world.advance(9_000)
        assert a.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_session_leaves_an_empty_group(world: World) -> None:
    stable(world, "a")
    world.advance(10_000)
    group = world.group()
    assert (group.state_name, group.generation_id, group.protocol_type) == ("Empty", 2, "consumer")
    assert world.log[-1].record == group.record()


def test_a_member_that_waits_in_a_rebalance_keeps_its_session(world: World) -> None:
    a, b = stable(world, "a", "b", rebalance_ms=60_000)
    back = a.send_join()
    for _ in range(4):
        world.advance(8_000)
        b.heartbeat()
    b.send_join()
    assert world.answer(back).generation_id == 2


def test_a_member_that_is_gone_while_it_waits_for_its_assignment_is_answered(world: World) -> None:
    _, b = joined(world, "a", "b")
    waits = b.sync()
    assert b.leave() == [ErrorCode.NONE]
    assert error_of(world, waits) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_retried_sync_takes_the_place_of_the_first(world: World) -> None:
    a, b = joined(world, "a", "b")
    first, second = b.sync(), b.sync()
    a.sync({b.member_id: b"for b"})
    assert error_of(world, first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answer(second).assignment == b"for b"


def test_syncs_that_do_not_fit(world: World) -> None:
    (a,) = stable(world, "a")
    assert error_of(world, world.send_sync(a.member_id, 0)) == ErrorCode.ILLEGAL_GENERATION
    assert error_of(world, world.send_sync("x", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(world, world.send_sync("x", 1, group_id="other")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(world, world.send_sync("x", 1, group_id="")) == ErrorCode.INVALID_GROUP_ID
    for said in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        ticket = world.send_sync(a.member_id, 1, **said)  # type: ignore[arg-type]
        assert error_of(world, ticket) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    missing = world.send_sync(a.member_id, 1, protocol_type="consumer", version=5)
    assert error_of(world, missing) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a.send_join()
    world.send_join("b", version=3)
    a.generation = 2
    assert error_of(world, a.sync()) == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_that_do_not_fit(world: World) -> None:
    (a,) = stable(world, "a")
    assert world.heartbeat(a.member_id, 0) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("x", 1, group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("x", 1, group_id="") == ErrorCode.INVALID_GROUP_ID


# Leaving.


def test_many_leave_at_once_each_with_its_error(world: World) -> None:
    a, b, c = stable(world, "a", "b", instances=("c",))
    errors = world.leave(
        MemberIdentity(member_id=a.member_id),
        MemberIdentity(member_id="nobody"),
        MemberIdentity(group_instance_id="c"),
        MemberIdentity(group_instance_id="nobody"),
        MemberIdentity(member_id="old", group_instance_id="c"),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [ErrorCode.NONE, unknown, ErrorCode.NONE, unknown, unknown]
    assert list(world.group().members) == [b.member_id]
    assert world.group().static_members == {}
    assert c.heartbeat() == unknown


def test_an_old_name_of_a_static_member_can_not_leave_for_it(world: World) -> None:
    stable(world, "a", instances=("b",))
    assert world.leave(MemberIdentity(member_id="old", group_instance_id="b")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_old_versions_leave_alone_and_get_one_error(world: World) -> None:
    (a,) = stable(world, "a")
    for member_id, error in (("x", ErrorCode.UNKNOWN_MEMBER_ID), (a.member_id, ErrorCode.NONE)):
        ticket = world.ticket()
        request = LeaveGroupRequest(group_id=GROUP, member_id=member_id)
        world.perform(world.coordinator.leave_group(ticket, 2, request, world.now_ms))
        assert error_of(world, ticket) == error
    assert world.group().is_empty


def test_nobody_can_leave_what_is_not_there(world: World) -> None:
    assert world.leave(MemberIdentity(member_id="a")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    ticket = world.ticket()
    world.perform(world.coordinator.leave_group(ticket, 5, LeaveGroupRequest(), world.now_ms))
    assert error_of(world, ticket) == ErrorCode.INVALID_GROUP_ID


def test_a_member_that_leaves_while_it_joins_is_answered(world: World) -> None:
    member_id = required_id(world)
    waits = world.send_join("a", member_id)
    assert world.leave(MemberIdentity(member_id=member_id)) == [ErrorCode.NONE]
    assert error_of(world, waits) == ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(3_000)
    assert world.group().state_name == "Empty"


# Static members (KIP-345).


def back_again(world: World, name: str, version: int = 9, **options: object) -> Member:
    """A static member joins after a restart, without a name."""
    ticket = world.send_join(name, instance_id=name, version=version, **options)  # type: ignore[arg-type]
    return member_of(world, name, world.answer(ticket), name)


def test_a_static_member_comes_back_without_a_rebalance(world: World) -> None:
    a, b = stable(world, "a", instances=("b",))
    again = back_again(world, "b")
    assert again.member_id != b.member_id
    assert again.generation == 1
    assert world.answer(again.sync()).assignment == b"b"
    assert a.heartbeat() == ErrorCode.NONE
    assert b.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert b.commit({0: 5}) == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.heartbeat(b.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    world.restart()
    assert world.group().static_members == {"b": again.member_id}


def test_a_static_leader_that_comes_back_need_not_assign_again(world: World) -> None:
    stable(world, instances=("a", "b"))
    response = world.answer(world.send_join("a", instance_id="a", version=9))
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert len(response.members) == 2


def test_a_static_leader_of_an_old_version_is_not_told_that_it_leads(world: World) -> None:
    a, _ = stable(world, instances=("a", "b"))
    response = world.answer(world.send_join("a", instance_id="a", version=8))
    assert (response.leader, response.members, response.skip_assignment) == (a.member_id, [], False)


def test_a_static_member_with_another_protocol_starts_a_rebalance(world: World) -> None:
    a, _ = stable(world, "a", instances=("b",), protocols={"range": b"1", "sticky": b"1"})
    world.send_join("b", instance_id="b", protocols={"sticky": b"1"})
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_comes_back_while_assignments_are_made_starts_anew(world: World) -> None:
    a, b = joined(world, "a", instances=("b",))
    waits = b.sync()
    again = world.send_join("b", instance_id="b")
    assert error_of(world, waits) == ErrorCode.FENCED_INSTANCE_ID
    a.send_join()
    assert world.answer(again).generation_id == 2


def test_a_static_member_that_comes_back_before_it_has_its_assignment_gets_it(world: World) -> None:
    a, b = joined(world, "a", instances=("b",), rebalance_ms=5_000, session_ms=60_000)
    a.sync({b.member_id: b"for b"})
    again = back_again(world, "b", rebalance_ms=5_000, session_ms=60_000)
    world.advance(5_000)
    assert world.group().state_name == "Stable"
    assert world.answer(again.sync()).assignment == b"for b"


def test_a_static_member_that_joins_twice_fences_its_first_join(world: World) -> None:
    first = world.send_join("a", instance_id="a")
    second = world.send_join("a", instance_id="a")
    assert error_of(world, first) == ErrorCode.FENCED_INSTANCE_ID
    world.advance(6_000)
    assert world.answer(second).generation_id == 1


def test_a_static_member_with_an_old_name_is_fenced(world: World) -> None:
    _, b = stable(world, "a", instances=("b",))
    back_again(world, "b")
    assert error_of(world, b.send_join()) == ErrorCode.FENCED_INSTANCE_ID
    assert error_of(world, b.sync()) == ErrorCode.FENCED_INSTANCE_ID
    assert error_of(world, world.send_join("x", "x-1", instance_id="x")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_is_away_in_a_rebalance_is_kept(world: World) -> None:
    a, b = stable(world, "a", instances=("b",), rebalance_ms=5_000, session_ms=60_000)
    back = a.send_join(rebalance_ms=5_000, session_ms=60_000)
    world.advance(5_000)
    assert {member.member_id for member in world.answer(back).members} == {a.member_id, b.member_id}


def test_static_members_that_are_all_away_are_waited_for_until_their_sessions_end(world: World) -> None:
    a, _ = stable(world, "a", instances=("b",), rebalance_ms=5_000, session_ms=30_000)
    a.leave()
    world.advance(20_000)
    group = world.group()
    assert (group.state_name, list(group.static_members)) == ("PreparingRebalance", ["b"])
    world.advance(20_000)
    assert group.state_name == "Empty"


def test_static_members_that_ask_for_no_time_do_not_keep_the_coordinator_busy(world: World) -> None:
    a, _ = stable(world, "a", instances=("b",))
    back_again(world, "b", rebalance_ms=0, session_ms=30_000)
    a.leave()
    world.advance(60_000)
    assert world.group().state_name == "Empty"


# Loading.


def test_members_go_on_after_a_restart(world: World) -> None:
    a, b = stable(world, "a", "b")
    world.restart()
    world.advance(9_000)
    assert a.heartbeat() == ErrorCode.NONE
    assert world.answer(a.sync()).assignment == b"a"
    world.advance(9_000)
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_in_a_rebalance_goes_back_to_the_generation_before(world: World) -> None:
    a, b = stable(world, "a", "b")
    waits = a.send_join()
    world.restart()
    assert error_of(world, waits) == ErrorCode.NOT_COORDINATOR
    assert b.heartbeat() == ErrorCode.NONE


def test_those_who_wait_for_assignments_are_answered_when_the_shard_goes(world: World) -> None:
    _, b = joined(world, "a", "b")
    waits = b.sync()
    world.restart()
    assert error_of(world, waits) == ErrorCode.NOT_COORDINATOR
    assert world.waiting == set()
