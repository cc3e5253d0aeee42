"""Consumer groups: members join, rebalance one partition at a time, are late, are fenced, and leave."""

from typing import Any

import pytest

from barnabas.coordination.records import GROUP_KINDS, decode, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordinator_config import GroupConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_groups import TopicPartitions
from tests.coordination.consumer_world import (
    Consumer,
    change_topics,
    consumer_group,
    consumers,
    heartbeat,
    settle,
    state_of,
    topics_of,
    world_of,
)
from tests.coordination.group_world import GROUP, World

JOIN: dict[str, Any] = {
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["news"],
    "topic_partitions": [],
}


def kinds(world: World, since: int = 0) -> list[tuple[str, bool]]:
    """The kinds of records that were written, and whether they delete."""
    entries = [entry.record for entry in world.log[since:] if entry.record is not None]
    return [(type(record.key).__name__.removeprefix("ConsumerGroup"), record.value is None) for record in entries]


# Joining.


def test_the_first_member_gets_everything_at_once() -> None:
    world = world_of(news=3)
    response = heartbeat(world, **JOIN)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert response.assignment is not None
    assert response.assignment.topic_partitions == [
        TopicPartitions(topic_id=topics_of(world).id_of("news"), partitions=[0, 1, 2])
    ]
    assert kinds(world) == [
        ("MemberMetadataKey", False),
        ("MetadataKey", False),
        ("TargetAssignmentMemberKey", False),
        ("TargetAssignmentMetadataKey", False),
        ("CurrentMemberAssignmentKey", False),
    ]
    assert consumer_group(world).state_name == "Stable"


def test_a_heartbeat_without_news_writes_nothing_and_brings_no_assignment() -> None:
    world = world_of(news=3)
    (a,) = consumers(world, "a")
    records = len(world.log)
    response = a.send()
    assert (response.member_epoch, response.assignment) == (1, None)
    assert len(world.log) == records


def test_a_full_heartbeat_brings_the_assignment_again() -> None:
    world = world_of(news=3)
    (a,) = consumers(world, "a")
    response = a.send(is_full=True)
    assert response.assignment is not None
    assert [topic.partitions for topic in response.assignment.topic_partitions] == [[0, 1, 2]]


def test_in_version_0_the_broker_makes_the_member_id() -> None:
    world = world_of(news=3)
    response = heartbeat(world, version=0, **{**JOIN, "member_id": ""})
    assert (response.error_code, response.member_id) == (0, "1")
    assert heartbeat(world, version=0, member_id="1", member_epoch=1).member_epoch == 1


def test_who_subscribes_to_nothing_or_to_what_is_not_there_gets_nothing() -> None:
    world = world_of(news=3)
    for topics in ([], ["weather"]):
        (a,) = consumers(world, "a", topics=topics)
        assert (a.partitions, a.epoch) == ([], consumer_group(world).group_epoch)
        a.leave()


@pytest.mark.parametrize(
    ("fields", "version", "message"),
    [
        ({"member_id": " "}, 1, "MemberId can't be empty."),
        ({"member_id": ""}, 1, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 1}, 0, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1}, 0, "MemberId can't be empty."),
        ({"group_id": ""}, 1, "GroupId can't be empty."),
        ({"instance_id": ""}, 1, "InstanceId can't be empty."),
        ({"rack_id": ""}, 1, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 1, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": [TopicPartitions()]}, 1, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            1,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, 1, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_make_no_sense(fields: dict[str, Any], version: int, message: str) -> None:
    world = world_of(news=3)
    response = heartbeat(world, version=version, **{**JOIN, **fields})
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert world.log == []
    assert world.coordinator.groups == {}


def test_an_assignor_that_is_not_configured_is_refused() -> None:
    world = world_of(GroupConfig(consumer_assignors=("uniform",)), news=3)
    response = heartbeat(world, **JOIN, server_assignor="range")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == "ServerAssignor range is not supported. Supported assignors: uniform."


def test_a_full_group_takes_no_more_members() -> None:
    world = world_of(GroupConfig(consumer_max_size=1), news=3)
    (a,) = consumers(world, "a")
    assert Consumer(world, "b").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().error_code == ErrorCode.NONE


def test_who_is_unknown_is_told_so() -> None:
    world = world_of(news=3)
    assert heartbeat(world, member_id="a", member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert heartbeat(world, member_id="a", member_epoch=-1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    consumers(world, "a")
    assert heartbeat(world, member_id="b", member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(world, member_id="b", member_epoch=-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    response = heartbeat(world, member_id="b", member_epoch=1, instance_id="i")
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Rebalances.


def test_a_partition_goes_to_a_new_member_when_the_old_one_has_given_it_up() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a")
    b = Consumer(world, "b")
    b.join()
    assert (b.partitions, b.epoch) == ([], 2)
    assert consumer_group(world).state_name == "Reconciling"
    a.send()
    assert (a.partitions, a.epoch) == (["news-0"], 1), "it is told, and stays in its epoch until it says it has done it"
    b.send()
    assert b.partitions == []
    a.send()
    assert a.epoch == 2
    b.send()
    assert b.partitions == ["news-1"]
    assert consumer_group(world).state_name == "Stable"


def test_a_member_that_does_not_say_what_it_has_has_given_nothing_up() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a")
    Consumer(world, "b").join()
    a.send()
    assert heartbeat(world, "a", member_id="a", member_epoch=1).member_epoch == 1
    a.send()
    assert a.epoch == 2


def test_a_member_that_gives_nothing_up_is_fenced_when_its_time_is_up() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a", rebalance_ms=10_000)
    b = Consumer(world, "b")
    b.join()
    a.send(is_busy=True)
    for _ in range(2):
        world.advance(4_000)
        assert a.send(is_busy=True).error_code == ErrorCode.NONE
        b.send()
    world.advance(4_000)
    assert a.send().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    b.send()
    assert b.partitions == ["news-0", "news-1"]


def test_who_sends_nothing_for_too_long_is_out() -> None:
    world = world_of(news=2)
    a, b = consumers(world, "a", "b")
    world.advance(44_000)
    a.send()
    world.advance(44_999)
    settle(a)
    assert a.partitions == ["news-0", "news-1"]
    assert list(consumer_group(world).members) == ["a"]
    assert b.send().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(45_000)
    assert consumer_group(world).state_name == "Empty"


def test_what_a_leaving_member_had_is_free_at_once() -> None:
    world = world_of(news=2)
    a, b = consumers(world, "a", "b")
    response = b.leave()
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "b", -1)
    assert consumer_group(world).state_name == "Assigning"
    a.send()
    assert a.partitions == ["news-0", "news-1"]
    assert len(world.coordinator.timers) == 2, "the session of a, and the offsets' expiry"


def test_a_changed_subscription_takes_topics_away_and_brings_others() -> None:
    world = world_of(news=2, sports=2)
    a, b = consumers(world, "a", "b")
    a.topics = ["sports"]
    a.send(is_full=True)
    settle(a, b)
    assert a.partitions == ["sports-0", "sports-1"]
    assert b.partitions == ["news-0", "news-1"]


def test_a_member_may_change_its_subscription_while_it_still_has_to_give_up() -> None:
    world = world_of(news=2, sports=2)
    (a,) = consumers(world, "a", topics=["news", "sports"])
    b = Consumer(world, "b", topics=["news", "sports"])
    b.join()
    a.send(is_busy=True)
    a.topics = ["news"]
    a.send(is_full=True, is_busy=True)
    settle(a, b)
    assert a.partitions == ["news-0", "news-1"]
    assert b.partitions == ["sports-0", "sports-1"]


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    world = world_of(news=3, sports=3)
    topics = ["news", "sports"]
    a, b = consumers(world, "a", "b", topics=topics, assignor="range")
    assert a.partitions == ["news-0", "news-1", "sports-0", "sports-1"]
    c, d, e = (Consumer(world, name, topics=topics, assignor="uniform") for name in "cde")
    for member in (c, d, e):
        member.join()
    settle(a, b, c, d, e)
    assert sorted(len(member.partitions) for member in (a, b, c, d, e)) == [1, 1, 1, 1, 2]
    assert world.coordinator.describe_consumer_group(GROUP).assignor_name == "uniform"


# Epochs.


def test_a_member_that_missed_an_answer_is_heard() -> None:
    world = world_of(news=2)
    a, b = consumers(world, "a", "b")
    b.leave()
    a.send(is_lost=True)
    assert consumer_group(world).members["a"].member_epoch == a.epoch + 1
    response = a.send()
    assert (response.error_code, a.partitions) == (0, ["news-0", "news-1"])


def test_a_member_that_missed_an_answer_and_has_what_it_should_not_is_fenced() -> None:
    world = world_of(news=2)
    a, b = consumers(world, "a", "b")
    b.leave()
    a.send(is_lost=True)
    old_epoch = a.epoch
    foreign = [TopicPartitions(topic_id=bytes(16), partitions=[7])]
    for owned in (foreign, None, [TopicPartitions(topic_id=topics_of(world).id_of("news"), partitions=[9])]):
        response = heartbeat(world, "a", member_id="a", member_epoch=old_epoch, topic_partitions=owned)
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, 99])
def test_any_other_epoch_is_fenced(epoch: int) -> None:
    world = world_of(news=2)
    a, b = consumers(world, "a", "b")
    b.leave()
    settle(a)
    assert a.epoch == 3
    response = heartbeat(world, "a", member_id="a", member_epoch=epoch, topic_partitions=[])
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert response.error_message is not None
    assert f"({epoch})" in response.error_message
    assert a.send().error_code == ErrorCode.NONE, "whoever that was, the member itself goes on"


def test_a_fenced_member_that_joins_again_has_what_it_had() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a")
    a.join()
    assert (a.epoch, a.partitions) == (1, ["news-0", "news-1"])


# Static members.


def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_notices() -> None:
    world = world_of(news=2)
    a, b = consumers(world, "a", "b")
    b.leave()
    b = Consumer(world, "b1", instance_id="i")
    b.join()
    settle(a, b)
    epoch = consumer_group(world).group_epoch
    had = b.partitions
    assert b.leave(-2).member_epoch == -2
    world.advance(30_000)
    a.send()
    assert a.partitions != ["news-0", "news-1"]
    back = Consumer(world, "b2", instance_id="i")
    back.join()
    assert (back.partitions, back.epoch) == (had, epoch)
    assert consumer_group(world).group_epoch == epoch
    b.instance_id = "i"
    assert b.send().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_out_when_its_session_ends() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a", instance_id="i")
    a.leave(-2)
    assert a.send().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    world.advance(45_000)
    assert consumer_group(world).is_empty
    assert consumer_group(world).static_members == {}


def test_an_instance_id_in_use_is_not_taken_over() -> None:
    world = world_of(news=2)
    consumers(world, "a", instance_id="i")
    response = Consumer(world, "b", instance_id="i").join()
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_missed_the_answer_to_its_join_joins_again() -> None:
    world = world_of(news=2)
    (a,) = consumers(world, "a", instance_id="i")
    assert a.join().error_code == ErrorCode.NONE
    a.leave(-2)
    assert a.join().error_code == ErrorCode.NONE
    assert a.partitions == ["news-0", "news-1"]


def test_a_static_member_may_leave_for_good() -> None:
    world = world_of(news=2)
    (b,) = consumers(world, "b")
    a = Consumer(world, "a", instance_id="i")
    a.join()
    settle(a, b)
    assert heartbeat(world, member_id="z", member_epoch=-1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert heartbeat(world, member_id="z", member_epoch=-1, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.leave().member_epoch == -1
    settle(b)
    assert b.partitions == ["news-0", "news-1"]


# Topics.


def test_new_partitions_are_assigned_with_the_next_heartbeat() -> None:
    world = world_of(news=1)
    (a,) = consumers(world, "a")
    change_topics(world, news=3, sports=3)
    a.send()
    assert (a.partitions, a.epoch) == (["news-0", "news-1", "news-2"], 2)


def test_a_topic_that_is_created_later_is_assigned_then() -> None:
    world = world_of(news=1)
    (a,) = consumers(world, "a", topics=["news", "weather"])
    change_topics(world, weather=1)
    a.send()
    assert a.partitions == ["news-0", "weather-0"]


def test_partitions_of_a_deleted_topic_are_given_up_also_if_one_of_its_name_comes_again() -> None:
    world = world_of(news=1, sports=2)
    (a,) = consumers(world, "a", topics=["news", "sports"])
    change_topics(world, sports=0)
    change_topics(world, sports=1)
    settle(a)
    assert a.partitions == ["news-0", "sports-0"]


def test_topics_that_nobody_reads_are_of_no_interest() -> None:
    world = world_of(news=1)
    (a,) = consumers(world, "a")
    change_topics(world, weather=4)
    records = len(world.log)
    a.send()
    assert len(world.log) == records


# Expressions.


def test_an_expression_brings_the_topics_that_it_matches_as_they_come_and_go() -> None:
    world = world_of(news=1, sports=1)
    (a,) = consumers(world, "a", topics=None, regex="news.*")
    assert a.partitions == ["news-0"]
    change_topics(world, newsletter=2, weather=1)
    settle(a)
    assert a.partitions == ["news-0", "newsletter-0", "newsletter-1"]
    change_topics(world, news=0)
    settle(a)
    assert a.partitions == ["newsletter-0", "newsletter-1"]
    assert consumer_group(world).is_subscribed_to("newsletter")
    assert not consumer_group(world).is_subscribed_to("weather")


def test_names_and_an_expression_add_up() -> None:
    world = world_of(news=1, sports=1, weather=1)
    (a,) = consumers(world, "a", topics=["weather"], regex="n.*")
    assert a.partitions == ["news-0", "weather-0"]
    a.regex = ""
    a.send(is_full=True)
    settle(a)
    assert a.partitions == ["weather-0"]
    assert consumer_group(world).regexes == {}


def test_an_expression_that_nobody_uses_any_more_is_forgotten() -> None:
    world = world_of(news=1, sports=1)
    a, b = consumers(world, "a", "b", topics=None, regex="n.*")
    a.leave()
    assert list(consumer_group(world).regexes) == ["n.*"]
    b.leave()
    assert consumer_group(world).regexes == {}
    assert state_of(world.restarted()) == state_of(world.coordinator)


def test_an_expression_that_is_none_changes_nothing() -> None:
    world = world_of(news=1)
    response = Consumer(world, "a", topics=None, regex="(").join()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.coordinator.groups == {}


def test_expressions_are_compared_with_the_topics_from_time_to_time() -> None:
    world = world_of(GroupConfig(consumer_regex_refresh_interval_ms=30_000), news=1)
    (a,) = consumers(world, "a", topics=None, regex="n.*")
    topics_of(world).create("nature", 1)  # Nobody tells the coordinator.
    world.advance(20_000)
    settle(a)
    assert a.partitions == ["news-0"]
    world.advance(20_000)
    settle(a)
    assert a.partitions == ["nature-0", "news-0"]


# Offsets, and what operators see.


def test_offsets_are_committed_by_members_in_their_epoch() -> None:
    world = world_of(news=1)
    (a,) = consumers(world, "a")
    assert world.commit({0: 5}, "a", 1, version=9) == [ErrorCode.NONE]
    assert world.commit({0: 5}, "a", 2, version=9) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert world.commit({0: 5}, "b", 1, version=9) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({0: 5}, version=9) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({0: 5}, "a", 1, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    a.leave()
    assert world.commit({0: 7}) == [ErrorCode.NONE], "an operator may, if nobody else does"
    assert world.offset() == 7


def test_a_group_is_described() -> None:
    world = world_of(news=2)
    consumers(world, "a", instance_id="i")
    Consumer(world, "b").join()
    described = world.coordinator.describe_consumer_group(GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 2, 2)
    assert described.assignor_name == "uniform"
    first, second = described.members
    assert (first.member_id, first.instance_id, first.member_epoch, first.member_type) == ("a", "i", 1, 1)
    assert (first.client_id, first.client_host) == ("a", "/127.0.0.1")
    assert first.subscribed_topic_names == ["news"]
    assert [(topic.topic_name, topic.partitions) for topic in first.assignment.topic_partitions] == [("news", [0, 1])]
    assert [topic.partitions for topic in first.target_assignment.topic_partitions] == [[0]]
    assert (second.member_id, second.assignment.topic_partitions) == ("b", [])
    assert [topic.partitions for topic in second.target_assignment.topic_partitions] == [[1]]
    (listed,) = world.coordinator.list_groups([], [])
    assert (listed.group_state, listed.group_type, listed.protocol_type) == ("Reconciling", "consumer", "consumer")
    change_topics(world, news=0)
    assert world.coordinator.describe_consumer_group(GROUP).members[0].assignment.topic_partitions == []


def test_an_empty_group_is_deleted_and_leaves_nothing() -> None:
    world = world_of(news=1)
    (a,) = consumers(world, "a", topics=None, regex="n.*")
    assert world.coordinator.delete_group(GROUP, world.now_ms)[0] == ErrorCode.NON_EMPTY_GROUP
    a.leave()
    error, step = world.coordinator.delete_group(GROUP, world.now_ms)
    assert error == ErrorCode.NONE
    world.perform(step)
    assert world.restarted().groups == {}


# After a crash.


def test_a_coordinator_that_takes_over_goes_on_where_the_old_one_was() -> None:
    world = world_of(news=4)
    (a,) = consumers(world, "a", rebalance_ms=10_000)
    b = Consumer(world, "b", instance_id="i", topics=None, regex=".*")
    b.join()
    a.send(is_busy=True)
    assert state_of(world.restarted()) == state_of(world.coordinator)
    world.restart()
    b.send()
    assert b.partitions == []
    world.advance(10_000)
    assert list(consumer_group(world).members) == ["b"], "the time to give up was begun anew, and has passed"
    world.advance(45_000)
    assert consumer_group(world).is_empty, "so were the sessions"


def test_all_records_can_be_read_in_any_order_and_with_tombstones() -> None:
    world = world_of(news=4)
    a, b = consumers(world, "a", "b", topics=None, regex="n.*")
    b.leave()
    settle(a)
    last = {repr(entry.record.key): entry.record for entry in world.log if entry.record is not None}
    for records in (list(last.values()), list(reversed(last.values()))):
        loaded = World(world.config, world.topics).coordinator
        for record in records:
            known = decode(GROUP_KINDS, *encode(record))
            assert known is not None
            loaded.replay(known)
        loaded.finish_loading(world.now_ms)
        assert state_of(loaded) == state_of(world.coordinator)
        for record in records:
            loaded.replay(CoordinatorRecord(record.key, None))
        assert state_of(loaded) == {}


def test_topics_that_changed_while_nobody_coordinated_are_noticed() -> None:
    world = world_of(news=1)
    (a,) = consumers(world, "a")
    topics_of(world).extend("news", 2)
    world.restart()
    settle(a)
    assert a.partitions == ["news-0", "news-1"]
