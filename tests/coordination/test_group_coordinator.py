"""The shard: deleting and expiring groups, topics that go, loading, and speed that does not depend on luck."""

from dataclasses import replace

from barnabas.coordination.group_coordinator import GroupCoordinator
from barnabas.coordination.group_records import GroupMetadataKey, OffsetCommitKey
from barnabas.coordination.step import Client, CoordinatorRecord
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.offsets import OffsetFetchRequestGroup
from tests.coordination.group_members import required_id, stable
from tests.coordination.group_world import GROUP, TOPIC, World, subscription

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS


def delete(world: World, group_id: str = GROUP) -> ErrorCode:
    error, step = world.coordinator.delete_group(group_id, world.now_ms)
    world.perform(step)
    return error


def test_a_group_without_members_can_be_deleted() -> None:
    world = World()
    (a,) = stable(world, "a")
    a.commit({0: 5})
    world.commit_in_transaction(4, {1: 6}, a.member_id, 1)
    assert delete(world) == ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert delete(world) == ErrorCode.NONE
    assert delete(world) == ErrorCode.GROUP_ID_NOT_FOUND
    world.end_transaction(4, is_commit=True)
    assert (world.offset(0), world.offset(1)) == (-1, -1)
    world.restart()
    assert world.coordinator.groups == {}


def test_a_deleted_group_has_no_timers_left() -> None:
    world = World()
    required_id(world)
    before = len(world.coordinator.timers)
    assert delete(world) == ErrorCode.NONE
    assert len(world.coordinator.timers) == before - 1
    world.advance(DAY_MS)


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    world = World()
    world.commit({0: 5, 1: 6})
    world.commit({0: 7}, topic="sports")
    world.topics.delete(TOPIC)
    step = world.perform(world.coordinator.on_topics_changed([TOPIC, "sports"], world.now_ms))
    assert step.records == [
        CoordinatorRecord(OffsetCommitKey(group=GROUP, topic=TOPIC, partition=partition), None) for partition in (0, 1)
    ]
    assert (world.offset(), world.offset(topic="sports")) == (-1, 7)
    assert world.coordinator.on_topics_changed(["sports"], world.now_ms).records == []


def test_a_group_expires_a_week_after_its_last_member_left() -> None:
    world = World()
    (a,) = stable(world, "a")
    a.commit({0: 5})
    world.advance(DAY_MS)
    assert world.group().is_empty
    world.advance(WEEK_MS - DAY_MS // 2)
    assert world.offset() == -1
    assert world.coordinator.groups == {}
    assert world.log[-1].record == CoordinatorRecord(GroupMetadataKey(group=GROUP), None)
    assert world.restarted().groups == {}


def test_offsets_of_topics_that_consumers_left_expire_while_they_read_others() -> None:
    world = World(config=GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000))
    (a,) = stable(world, "a", protocols={"range": subscription("sports")})
    a.commit({0: 5})
    world.commit({0: 6}, a.member_id, 1, topic="sports")
    for _ in range(20):
        world.advance(5_000)
        a.heartbeat()
    assert (world.offset(), world.offset(topic="sports")) == (-1, 6)
    assert world.group().state_name == "Stable"


def test_an_open_transaction_keeps_a_group() -> None:
    world = World(config=GroupConfig(offsets_retention_minutes=1))
    world.commit_in_transaction(4, {0: 5})
    world.advance(DAY_MS)
    world.end_transaction(4, is_commit=True)
    assert world.offset() == 5


def test_a_group_that_is_being_joined_is_kept() -> None:
    world = World(config=GroupConfig(offsets_retention_check_interval_ms=1_000))
    member_id = required_id(world)
    world.advance(5_000)
    ticket = world.send_join("a", member_id)
    world.advance(3_000)
    assert world.answer(ticket).generation_id == 1


# Both kinds of groups under one roof.


def consumer_heartbeat(world: World, member_epoch: int) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="modern",
        member_epoch=member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    ticket = world.ticket()
    client = Client("modern", "/127.0.0.1")
    world.perform(world.coordinator.consumer_group_heartbeat(ticket, client, 1, request, world.now_ms))
    response = world.answer(ticket)
    assert response.error_code == ErrorCode.NONE
    epoch: int = response.member_epoch
    return epoch


def kind(world: World) -> str:
    return world.coordinator.groups[GROUP].group_type


def test_a_consumer_group_commits_lists_and_is_described_like_others() -> None:
    world = World()
    epoch = consumer_heartbeat(world, 0)
    assert kind(world) == "consumer"
    assert world.commit({0: 5}, "modern", epoch, version=9) == [ErrorCode.NONE]
    assert world.commit({0: 6}, "modern", epoch + 1, version=9) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert world.commit_in_transaction(4, {0: 6}, "modern", epoch + 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert [group.group_type for group in world.coordinator.list_groups([], ["consumer"])] == ["consumer"]
    assert world.coordinator.describe_consumer_group(GROUP).error_code == ErrorCode.NONE
    assert world.coordinator.describe_group(GROUP, 6).error_message == f"Group {GROUP} is not a classic group."
    assert delete(world) == ErrorCode.NON_EMPTY_GROUP
    world.restart()
    assert (kind(world), world.offset()) == ("consumer", 5)


def test_offsets_of_a_consumer_group_are_fetched_by_its_members() -> None:
    world = World()
    consumer_heartbeat(world, 0)
    for member_epoch, error in ((1, ErrorCode.NONE), (7, ErrorCode.STALE_MEMBER_EPOCH)):
        request = OffsetFetchRequestGroup(group_id=GROUP, member_id="modern", member_epoch=member_epoch)
        assert world.coordinator.fetch_offsets(request, False, world.now_ms).error_code == error


def test_an_empty_consumer_group_becomes_a_classic_one_by_a_join() -> None:
    world = World()
    epoch = consumer_heartbeat(world, 0)
    world.commit({0: 5}, "modern", epoch, version=9)
    consumer_heartbeat(world, -1)
    refused = world.answer(world.send_join("a", "unknown"))
    assert (refused.error_code, kind(world)) == (ErrorCode.UNKNOWN_MEMBER_ID, "consumer")
    stable(world, "a")
    assert (kind(world), world.offset()) == ("classic", 5)
    world.restart()
    assert (kind(world), world.group().state_name, world.offset()) == ("classic", "Stable", 5)


def test_an_empty_classic_group_becomes_a_consumer_group_by_a_heartbeat() -> None:
    world = World()
    (a,) = stable(world, "a")
    a.commit({0: 5})
    a.leave()
    consumer_heartbeat(world, 0)
    assert (kind(world), world.offset()) == ("consumer", 5)
    world.restart()
    assert (kind(world), world.offset()) == ("consumer", 5)


def test_classic_members_go_on_in_a_group_that_was_upgraded() -> None:
    world = World()
    (a,) = stable(world, "a")
    # What a consumer would have got; a name is not an assignment that can be taken over.
    world.group().members[a.member_id].assignment = b""
    consumer_heartbeat(world, 0)
    assert kind(world) == "consumer"
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.answer(a.send_join()).error_code == ErrorCode.NONE
    assert a.leave() == [ErrorCode.NONE]
    assert world.answer(a.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_consumer_group_expires_too_when_its_members_are_gone() -> None:
    world = World()
    consumer_heartbeat(world, 0)
    world.advance(DAY_MS)
    assert world.coordinator.groups == {}
    assert world.restarted().groups == {}


# Running.


def test_settings_can_be_changed_while_it_runs() -> None:
    world = World()
    world.coordinator.config = replace(world.config, offset_metadata_max_bytes=1)
    assert world.commit({0: 5}, metadata="xx") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_coordinator_that_does_not_serve_yet_waits_for_nothing() -> None:
    world = World()
    coordinator = GroupCoordinator(world.config, world.topics, world.new_id)
    assert coordinator.next_deadline_ms is None
    coordinator.finish_loading(5)
    assert coordinator.next_deadline_ms == 5 + world.config.offsets_retention_check_interval_ms


def test_tombstones_that_are_replayed_do_no_harm() -> None:
    world = World()
    (a,) = stable(world, "a")
    a.commit({0: 5})
    coordinator = GroupCoordinator(world.config, world.topics, world.new_id)
    for entry in world.log:
        assert entry.record is not None
        coordinator.replay(entry.record)
        coordinator.replay(CoordinatorRecord(entry.record.key, None))
        coordinator.replay(CoordinatorRecord(entry.record.key, None))
        coordinator.replay_transactional(4, CoordinatorRecord(entry.record.key, None))
    coordinator.finish_loading(0)
    assert coordinator.groups == {}


def test_heartbeats_push_nothing_to_the_heap() -> None:
    world = World()
    (a,) = stable(world, "a")
    before = len(world.coordinator.timers._heap)
    for _ in range(1_000):
        world.now_ms += 1
        assert a.heartbeat() == ErrorCode.NONE
    assert len(world.coordinator.timers._heap) == before
