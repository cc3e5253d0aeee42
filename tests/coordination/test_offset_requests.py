"""Offsets as clients ask for them."""

import pytest

from barnabas.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequestGroup,
)
from barnabas.wire.messages.transactions import TxnOffsetCommitRequest
from tests.coordination.group_members import joined, stable
from tests.coordination.group_world import GROUP, TOPIC, World, subscription, topic_id_of

OK = ErrorCode.NONE


@pytest.fixture
def world() -> World:
    return World()


# Commit.


def test_a_commit_comes_back_as_it_was_sent(world: World) -> None:
    assert world.commit({0: 5, 2: 7}, metadata="so far") == [OK, OK]
    first, none, third = world.fetch([0, 1, 2])
    assert (first.committed_offset, first.committed_leader_epoch, first.metadata) == (5, 7, "so far")
    assert (none.committed_offset, none.committed_leader_epoch, none.metadata) == (-1, -1, "")
    assert third.committed_offset == 7
    assert world.log[0].record == (
        OffsetCommitKey(group=GROUP, topic=TOPIC, partition=0),
        OffsetCommitValue(offset=5, leader_epoch=7, metadata="so far", commit_timestamp=world.now_ms),
    )


def test_no_metadata_is_stored_as_an_empty_one(world: World) -> None:
    world.commit({0: 5}, metadata=None)
    assert world.fetch()[0].metadata == ""


def test_errors_are_told_partition_by_partition(world: World) -> None:
    assert world.commit({0: 5, 3: 5, -1: 5}) == [OK] + 2 * [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit({0: 5}, topic="unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit({0: 5}, topic="unknown", version=10) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert world.commit({1: 5}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({1: 5}, metadata="x" * 4096) == [OK]


def test_metadata_that_no_record_can_hold_is_too_large_whatever_the_setting() -> None:
    world = World(config=GroupConfig(offset_metadata_max_bytes=60_000))
    assert world.commit({0: 5}, metadata="x" * 32_767) == [OK]
    assert world.commit({0: 5}, metadata="x" * 32_768) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit({0: 5}, metadata="\u20ac" * 10_922) == [OK]
    assert world.commit({0: 5}, metadata="\u20ac" * 10_923) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_commit_that_brings_nothing_makes_no_group(world: World) -> None:
    world.commit({0: 5}, topic="unknown")
    assert world.coordinator.groups == {}


def test_a_lone_consumer_makes_a_simple_group(world: World) -> None:
    world.commit({0: 5})
    assert (world.group().state_name, world.group().protocol_type) == ("Empty", None)
    world.restart()
    assert world.group().state_name == "Empty"
    assert world.offset() == 5


def test_a_lone_consumer_needs_no_group_name(world: World) -> None:
    assert world.commit({0: 5}, group_id="") == [OK]
    assert world.offset(group_id="") == 5


@pytest.mark.parametrize(("version", "error"), [
    (8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND),
])  # fmt: skip
def test_a_member_of_no_group_can_not_commit(world: World, version: int, error: ErrorCode) -> None:
    assert world.commit({0: 5, 9: 5}, "a-1", 1, version=version) == [error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_only_members_commit_into_a_group_that_has_some(world: World) -> None:
    (a,) = stable(world, "a")
    assert a.commit({0: 5}) == [OK]
    assert world.commit({0: 6}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({0: 6}, a.member_id, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.offset() == 5
    a.leave()
    assert world.commit({0: 6}) == [OK]
    assert world.offset() == 6


def test_nobody_commits_before_the_assignments_are_there(world: World) -> None:
    (a,) = joined(world, "a")
    assert a.commit({0: 5}) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_members_commit_while_they_are_asked_to_join_again(world: World) -> None:
    a, b = stable(world, "a", "b")
    a.send_join()
    assert b.commit({0: 5}) == [OK]


def test_a_commit_counts_as_heartbeat(world: World) -> None:
    (a,) = stable(world, "a")
    for offset in range(5):
        world.advance(9_000)
        assert a.commit({0: offset}) == [OK]


def test_the_topic_id_is_kept_and_compared(world: World) -> None:
    world.commit({0: 5}, version=10)
    assert world.fetch(topic_id=topic_id_of(TOPIC))[0].committed_offset == 5
    assert world.fetch(topic_id=b"another topic id")[0].committed_offset == -1
    world.restart()
    assert world.fetch(topic_id=b"another topic id")[0].committed_offset == -1


def test_versions_2_to_4_say_how_long_an_offset_is_kept(world: World) -> None:
    world.commit({0: 5}, retention_ms=1_000, version=4)
    record = world.log[0].record
    assert record is not None
    assert isinstance(record.value, OffsetCommitValue)
    assert record.value.expire_timestamp == world.now_ms + 1_000
    world.advance(600_000)
    assert world.coordinator.groups == {}


# Transactions.


def test_offsets_of_a_transaction_show_when_it_commits(world: World) -> None:
    world.commit({0: 1})
    assert world.commit_in_transaction(4, {0: 5, 1: 6}) == [OK, OK]
    assert [partition.committed_offset for partition in world.fetch([0, 1])] == [1, -1]
    unstable = world.fetch([0, 1, 2], require_stable=True)
    assert [partition.error_code for partition in unstable] == 2 * [ErrorCode.UNSTABLE_OFFSET_COMMIT] + [OK]
    assert [partition.committed_offset for partition in unstable] == [-1, -1, -1]
    world.end_transaction(4, is_commit=True)
    assert [partition.committed_offset for partition in world.fetch([0, 1], require_stable=True)] == [5, 6]


def test_a_transaction_makes_a_group_too(world: World) -> None:
    world.commit_in_transaction(4, {0: 5})
    assert world.group().is_empty
    world.restart()
    assert world.group().is_empty
    world.end_transaction(4, is_commit=True)
    assert world.offset() == 5


def test_a_transaction_does_not_replace_what_came_after_it(world: World) -> None:
    world.commit_in_transaction(4, {0: 5})
    world.commit({0: 9})
    world.end_transaction(4, is_commit=True)
    assert world.offset() == 9
    world.restart()
    assert world.offset() == 9


def test_transactions_are_of_members_that_are_still_there(world: World) -> None:
    (a,) = stable(world, "a")
    assert world.commit_in_transaction(4, {0: 5}, a.member_id, 1) == [OK]
    assert world.commit_in_transaction(4, {0: 5}, a.member_id, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit_in_transaction(4, {0: 5}, "x", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit_in_transaction(4, {0: 5}) == [OK], "before KIP-447 they do not say"
    assert world.commit_in_transaction(4, {0: 5}, "x", 1, group_id="other") == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit_in_transaction(4, {0: 5}, group_id="") == [ErrorCode.INVALID_GROUP_ID]
    assert world.commit_in_transaction(4, {9: 5}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_transaction_can_commit_nothing(world: World) -> None:
    ticket = world.ticket()
    request = TxnOffsetCommitRequest(group_id=GROUP, producer_id=4)
    step = world.coordinator.commit_transactional_offsets(ticket, 5, request, world.now_ms)
    world.perform(step, 4)
    assert (step.records, world.answer(ticket).topics) == ([], [])


# Fetch.


def test_an_unknown_group_has_no_offsets(world: World) -> None:
    assert world.fetch()[0].committed_offset == -1
    everything = OffsetFetchRequestGroup(group_id="unknown", topics=None)
    assert world.coordinator.fetch_offsets(everything, False, 0).topics == []


def test_all_offsets_of_a_group(world: World) -> None:
    world.commit({0: 5, 2: 7})
    world.commit({0: 8}, topic="sports")
    world.commit_in_transaction(4, {2: 9})
    request = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    response = world.coordinator.fetch_offsets(request, True, 0)
    assert {
        topic.name: [(partition.partition_index, partition.committed_offset) for partition in topic.partitions]
        for topic in response.topics
    } == {"news": [(0, 5), (2, -1)], "sports": [(0, 8)]}
    assert [topic.topic_id for topic in response.topics] == [topic_id_of("news"), topic_id_of("sports")]


# Delete.


def delete(world: World, topic: str = TOPIC, partition: int = 0, group_id: str = GROUP) -> OffsetDeleteResponse:
    partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )
    ticket = world.ticket()
    world.perform(world.coordinator.delete_offsets(ticket, request, world.now_ms))
    response = world.answer(ticket)
    assert isinstance(response, OffsetDeleteResponse)
    return response


def code_of(response: OffsetDeleteResponse) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_a_deleted_offset_is_gone(world: World) -> None:
    world.commit({0: 5, 1: 6})
    assert code_of(delete(world)) == OK
    assert code_of(delete(world, partition=2)) == OK
    assert (world.offset(0), world.offset(1)) == (-1, 6)
    world.restart()
    assert (world.offset(0), world.offset(1)) == (-1, 6)


def test_offsets_that_members_read_stay(world: World) -> None:
    (a,) = stable(world, "a", protocols={"range": subscription("news")})
    a.commit({0: 5})
    world.commit({0: 6}, a.member_id, 1, topic="sports")
    assert code_of(delete(world)) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert code_of(delete(world, "sports")) == OK
    assert (world.offset(), world.offset(topic="sports")) == (5, -1)


def test_deletes_that_do_not_fit(world: World) -> None:
    assert delete(world).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(world, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    stable(world, "a", protocol_type="connect")
    assert delete(world).error_code == ErrorCode.NON_EMPTY_GROUP
    world.commit({0: 5}, group_id="other")
    assert code_of(delete(world, "unknown", group_id="other")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (-1, 1_000):
        assert code_of(delete(world, partition=partition, group_id="other")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
