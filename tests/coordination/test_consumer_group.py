"""A consumer group as it is: who owns what, what is allowed, what is written and read again."""

import pytest

from barnabas.coordination.consumer_group import (
    ConsumerGroup,
    ResolvedRegularExpression,
    described_topics,
    metadata_hash,
)
from barnabas.coordination.consumer_member import ConsumerGroupMember, MemberState
from barnabas.coordination.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
)
from barnabas.coordination.step import CoordinatorRecord
from barnabas.wire.errors import ApiError, ErrorCode
from tests.coordination.consumer_world import ChangingTopics

NEWS = b"n" * 16


def member(
    member_id: str, *partitions: int, instance_id: str | None = None, protocols: tuple[str, ...] = ()
) -> ConsumerGroupMember:
    classic = ClassicMemberMetadata(supported_protocols=[ClassicProtocol(name=name) for name in protocols])
    metadata = ConsumerGroupMemberMetadataValue(
        instance_id=instance_id,
        subscribed_topic_names=["news"],
        classic_member_metadata=classic if protocols else None,
    )
    assigned = {NEWS: dict.fromkeys(partitions, 1)} if partitions else {}
    return ConsumerGroupMember(member_id=member_id, metadata=metadata, member_epoch=1, assigned=assigned)


def group_of(*members: ConsumerGroupMember) -> ConsumerGroup:
    group = ConsumerGroup("g")
    group.group_epoch = group.assignment_epoch = 1
    for one in members:
        group.put_member(one)
    return group


def test_states_follow_from_epochs() -> None:
    group = group_of()
    assert (group.state_name, group.is_empty) == ("Empty", True)
    group.put_member(member("a"))
    assert (group.state_name, group.is_empty) == ("Stable", False)
    group.put_epoch(2, 0)
    assert group.state_name == "Assigning"
    group.put_assignment_epoch(2, 0)
    assert group.state_name == "Reconciling"


def test_partitions_have_one_owner_until_they_are_given_up() -> None:
    group = group_of(member("a", 0, 1), member("b", 2))
    assert group.owners == {NEWS: {0: "a", 1: "a", 2: "b"}}
    group.put_current(
        ConsumerGroupMember(
            member_id="a",
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned={NEWS: {0: 1}},
            pending_revocation={NEWS: {1: 1}},
        )
    )
    assert group.owners == {NEWS: {0: "a", 1: "a", 2: "b"}}
    with pytest.raises(AssertionError, match="two owners"):
        group.put_current(member("b", 1))
    group = group_of(member("a", 0, 1))
    group.put_current(member("a"))
    assert group.owners == {}


def test_who_waits_for_what_another_has() -> None:
    group = group_of(member("a", 0), member("b", 1))
    group.put_target("a", {NEWS: frozenset([0, 1])})
    assert group.is_waiting_for_unreleased(group.members["a"])
    group.drop_member("b")
    assert not group.is_waiting_for_unreleased(group.members["a"])


def test_a_static_member_is_replaced_with_all_that_it_had() -> None:
    group = group_of(member("a", 0, 1, instance_id="i"))
    group.put_target("a", {NEWS: frozenset([0, 1])})
    records = group.replace_static_member("a", member("b", 0, 1, instance_id="i"))
    assert [record.value is None for record in records] == [True, True, True, False, False, False]
    assert (list(group.members), group.static_members) == (["b"], {"i": "b"})
    assert group.owners == {NEWS: {0: "b", 1: "b"}}
    assert group.targets == {"b": {NEWS: frozenset([0, 1])}}
    group.put_member(member("b", instance_id="j"))
    assert group.static_members == {"j": "b"}


def test_the_protocols_of_classic_members_must_overlap() -> None:
    group = group_of(member("a"), member("b", protocols=("range", "sticky")), member("c", protocols=("sticky",)))
    assert group.supports_classic_protocols("consumer", ["other", "sticky"])
    assert not group.supports_classic_protocols("consumer", ["range"])
    assert not group.supports_classic_protocols("connect", ["sticky"])
    assert group_of(member("a")).supports_classic_protocols("consumer", ["any"])
    assert not group_of(member("a")).supports_classic_protocols("consumer", [])


def error_of(group: ConsumerGroup, epoch: int, member_id: str = "a", version: int = 9, txn: bool = False) -> ErrorCode:
    """The error of a commit of partition 0."""
    try:
        check = group.validate_offset_commit(member_id, None, epoch, version, txn)
        if check is not None:
            check(NEWS, 0)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_who_may_commit_offsets() -> None:
    group = group_of()
    assert error_of(group, -1, "") == ErrorCode.NONE
    assert error_of(group, 1, "a") == ErrorCode.UNKNOWN_MEMBER_ID
    group = group_of(member("a"), member("old", protocols=("range",)))
    assert error_of(group, -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(group, 1) == ErrorCode.NONE
    assert error_of(group, 0) == error_of(group, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert error_of(group, 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert error_of(group, 1, version=3, txn=True) == ErrorCode.NONE
    assert error_of(group, 1, "old", version=8) == ErrorCode.NONE
    assert error_of(group, 2, "old") == error_of(group, 0, "old") == ErrorCode.ILLEGAL_GENERATION
    # Producers that do not know of members are believed.
    assert error_of(group, -1, "", version=3, txn=True) == ErrorCode.NONE


def test_an_older_epoch_may_commit_what_was_assigned_by_then_and_still_is() -> None:
    """KIP-1251: a commit may cross the heartbeat whose answer brings the new epoch."""
    current = ConsumerGroupMember(
        member_id="a",
        member_epoch=5,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={NEWS: {0: 3, 1: 5}},
        pending_revocation={NEWS: {2: 4}},
    )
    group = group_of(current)
    check = group.validate_offset_commit("a", None, 4, 9, False)
    assert check is not None
    check(NEWS, 0)
    check(NEWS, 2)
    for partition in (1, 3):
        with pytest.raises(ApiError) as raised:
            check(NEWS, partition)
        assert raised.value.code == ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_offset_commit("a", None, 5, 9, False) is None
    assert error_of(group, 6) == ErrorCode.STALE_MEMBER_EPOCH


def test_who_may_fetch_offsets_and_delete() -> None:
    group = group_of(member("a"))
    group.validate_offset_fetch(None, -1)
    group.validate_offset_fetch("a", 1)
    group.validate_offset_delete()
    for member_id, epoch, code in (("a", 2, ErrorCode.STALE_MEMBER_EPOCH), ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID)):
        with pytest.raises(ApiError) as raised:
            group.validate_offset_fetch(member_id, epoch)
        assert raised.value.code == code
    with pytest.raises(ApiError):
        group.validate_delete()
    group.drop_member("a")
    group.validate_delete()


def test_what_a_group_reads() -> None:
    group = group_of(member("a"))
    assert (group.is_subscribed_to("news"), group.is_subscribed_to("sports")) == (True, False)
    group.put_regex("s.*", ResolvedRegularExpression(frozenset(["sports"]), 1))
    assert group.is_subscribed_to("sports")
    group.drop_regex("s.*")
    assert not group.is_subscribed_to("sports")
    assert (group.offsets_may_expire, group.empty_since_ms, group.protocol_type) == (True, None, "consumer")


def test_members_of_which_there_is_no_more_than_an_assignment_are_none() -> None:
    written = group_of(member("a", 0), member("b", 1))
    loaded = ConsumerGroup("g")
    loaded.replay(written.put_current(written.members["a"]))
    loaded.replay(written.put_target("a", {NEWS: frozenset([0])}))
    loaded.replay(written.put_member(written.members["b"]))
    loaded.finish_loading()
    assert (list(loaded.members), loaded.targets, loaded.owners) == (["b"], {}, {})


def test_a_record_of_something_else_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        ConsumerGroup("g").replay(CoordinatorRecord(OffsetCommitKey(), None))


def test_the_hash_tells_whether_topics_changed() -> None:
    topics = ChangingTopics(news=1, sports=2)

    def current() -> int:
        return metadata_hash(described_topics(topics, {"sports", "news", "weather"}))

    first = current()
    assert metadata_hash(described_topics(topics, {"weather"})) == 0
    assert first == current() != 0
    assert -(2**63) <= first < 2**63
    seen = {first}
    for name, partitions in (("news", 2), ("weather", 1), ("sports", 0)):
        if partitions == 0:
            topics.delete(name)
        else:
            topics.create(name, partitions)
        assert current() not in seen
        seen.add(current())
    topics.extend("news", 3)
    assert current() not in seen
