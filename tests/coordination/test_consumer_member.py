"""A member on its way to its target: each state, each step."""

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.coordination.consumer_member import ConsumerGroupMember, MemberState, Reconciliation
from barnabas.coordination.group_records import ConsumerGroupCurrentMemberAssignmentValue, OwnedPartitions
from barnabas.wire.messages.consumer_groups import TopicPartitions

NEWS = b"n" * 16
SPORTS = b"s" * 16
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def member(state: MemberState = STABLE, epoch: int = 1, **owned: Any) -> ConsumerGroupMember:
    return ConsumerGroupMember(member_id="a", state=state, member_epoch=epoch, previous_member_epoch=epoch, **owned)


def reported(*partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=NEWS, partitions=list(partitions))]


def step(
    before: ConsumerGroupMember,
    *target: int,
    owned: list[TopicPartitions] | None = None,
    others: tuple[int, ...] = (),
    epoch: int = 2,
    wanted: frozenset[bytes] = frozenset([NEWS]),
    has_subscription_changed: bool = False,
) -> tuple[MemberState, int, Mapping[int, int], Mapping[int, int]]:
    """Do one step with a target of one topic; return state, epoch, and what is assigned and to be given up of it."""
    owners = dict.fromkeys(others, "b")
    owners |= dict.fromkeys([*before.assigned.get(NEWS, {}), *before.pending_revocation.get(NEWS, {})], "a")
    after = Reconciliation(
        before,
        assignment_epoch=epoch,
        target={NEWS: frozenset(target)} if target else {},
        subscribed_topic_ids=wanted,
        owners={NEWS: owners},
        owned=owned,
    ).next(has_subscription_changed)
    if after != before:
        assert after.previous_member_epoch == before.member_epoch
    return after.state, after.member_epoch, after.assigned.get(NEWS, {}), after.pending_revocation.get(NEWS, {})


def test_what_is_free_is_assigned_at_once_with_the_epoch_of_the_target() -> None:
    assert step(member(), 0, 1) == (STABLE, 2, {0: 2, 1: 2}, {})


def test_what_is_kept_keeps_the_epoch_in_which_it_was_assigned() -> None:
    assert step(member(assigned={NEWS: {0: 1}}), 0, 1) == (STABLE, 2, {0: 1, 1: 2}, {})


def test_what_another_has_is_waited_for() -> None:
    assert step(member(), 0, 1, others=(1,)) == (UNRELEASED, 2, {0: 2}, {})
    assert step(member(), 0, 1, others=(0, 1)) == (UNRELEASED, 2, {}, {})
    waiting = member(UNRELEASED, 2, assigned={NEWS: {0: 2}})
    assert step(waiting, 0, 1, others=(1,)) == (UNRELEASED, 2, {0: 2}, {})
    assert step(waiting, 0, 1) == (STABLE, 2, {0: 2, 1: 2}, {})


def test_what_is_to_be_given_up_is_asked_for_in_the_old_epoch() -> None:
    before = member(assigned={NEWS: {0: 1, 1: 1}})
    assert step(before, 0) == (UNREVOKED, 1, {0: 1}, {1: 1})
    assert step(before, 0, owned=reported(0, 1)) == (UNREVOKED, 1, {0: 1}, {1: 1})
    assert step(before, 0, 2) == (UNREVOKED, 1, {0: 1}, {1: 1}), "nothing new before that"


def test_what_a_member_says_it_does_not_have_it_has_given_up() -> None:
    assert step(member(assigned={NEWS: {0: 1, 1: 1}}), 0, owned=reported(0)) == (STABLE, 2, {0: 1}, {})


def test_a_member_gives_up_in_its_own_time() -> None:
    asked = member(UNREVOKED, assigned={NEWS: {0: 1}}, pending_revocation={NEWS: {1: 1}})
    assert step(asked, 0) == (UNREVOKED, 1, {0: 1}, {1: 1})
    assert step(asked, 0, owned=reported(0, 1)) == (UNREVOKED, 1, {0: 1}, {1: 1})
    assert step(asked, 0, owned=reported(0)) == (STABLE, 2, {0: 1}, {})
    assert step(asked, 0, owned=[]) == (STABLE, 2, {0: 1}, {})


def test_after_giving_up_there_may_be_more_to_give_up() -> None:
    asked = member(UNREVOKED, assigned={NEWS: {0: 1}}, pending_revocation={NEWS: {1: 1}})
    assert step(asked, 2, owned=reported(0), epoch=3) == (UNREVOKED, 1, {}, {0: 1})


def test_what_was_given_up_may_come_back() -> None:
    asked = member(UNREVOKED, assigned={NEWS: {0: 1}}, pending_revocation={NEWS: {1: 1}})
    assert step(asked, 0, 1, owned=reported(0), epoch=3) == (STABLE, 3, {0: 1, 1: 3}, {})


def test_topics_that_are_not_wanted_any_more_are_given_up_whatever_the_target_says() -> None:
    nothing: frozenset[bytes] = frozenset()
    before = member(assigned={NEWS: {0: 1}}, epoch=2)
    assert step(before, 0, wanted=nothing) == (STABLE, 2, {0: 1}, {}), "it is looked when the subscription changes"
    assert step(before, 0, wanted=nothing, has_subscription_changed=True) == (UNREVOKED, 2, {}, {0: 1})
    assert step(before, 0, wanted=nothing, has_subscription_changed=True, owned=[]) == (STABLE, 2, {}, {})
    asked = member(UNREVOKED, assigned={NEWS: {0: 1}}, pending_revocation={NEWS: {1: 1}})
    assert step(asked, 0, wanted=nothing, has_subscription_changed=True) == (UNREVOKED, 1, {}, {0: 1, 1: 1})
    assert step(asked, 0, has_subscription_changed=True) == (UNREVOKED, 1, {0: 1}, {1: 1})
    assert step(member(epoch=1), 0, wanted=nothing) == (STABLE, 2, {}, {})


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        ([], True),
        (reported(0), True),
        (reported(0, 1), True),
        (reported(0, 2), False),
        ([TopicPartitions(topic_id=SPORTS, partitions=[0])], False),
        (None, False),
    ],
)
def test_what_a_member_may_say_that_it_has(owned: list[TopicPartitions] | None, expected: bool) -> None:
    assert member(assigned={NEWS: {0: 1, 1: 1}}).owns_no_more_than_assigned(owned) is expected


def test_a_record_of_an_older_or_later_kafka_is_read() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=55,
        assigned_partitions=[OwnedPartitions(topic_id=NEWS, partitions=[0, 2])],
    )
    loaded = ConsumerGroupMember(member_id="a").with_assignment_value(value)
    assert (loaded.state, loaded.member_epoch, loaded.previous_member_epoch) == (MemberState.UNKNOWN, 4, 3)
    assert loaded.assigned == {NEWS: {0: 4, 2: 4}}
