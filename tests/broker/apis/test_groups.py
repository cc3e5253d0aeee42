"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat, in every version."""

import threading

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.groups import HeartbeatRequest, LeaveGroupRequest, MemberIdentity, SyncGroupRequest
from tests.broker.asking import connected, create_topic
from tests.broker.coordinating import SUBSCRIPTION, join, join_alone


@pytest.mark.parametrize("version", range(10))
def test_a_lone_member_joins_in_every_version(connection: Connection, name: str, version: int) -> None:
    answer = join(connection, name, version=version)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
    assert [(one.member_id, one.metadata) for one in answer.members] == [(answer.member_id, SUBSCRIPTION)]
    assert answer.member_id.startswith("test-")


@pytest.mark.parametrize("version", range(6))
def test_the_leader_gets_its_assignment_in_every_version(connection: Connection, name: str, version: int) -> None:
    joined = join(connection, name)
    request = SyncGroupRequest(group_id=name, generation_id=1, member_id=joined.member_id)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    answer = connection.request(request, version)
    assert (answer.error_code, answer.assignment) == (0, b"")


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_are_answered_in_every_version(connection: Connection, name: str, version: int) -> None:
    member = join_alone(connection, name)
    for generation, code in ((1, ErrorCode.NONE), (2, ErrorCode.ILLEGAL_GENERATION)):
        request = HeartbeatRequest(group_id=name, generation_id=generation, member_id=member.member_id)
        assert connection.request(request, version).error_code == code
    request = HeartbeatRequest(group_id=name, generation_id=1, member_id="nobody")
    assert connection.request(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_members_leave_in_every_version(connection: Connection, name: str, version: int) -> None:
    member = join_alone(connection, name)
    request = LeaveGroupRequest(group_id=name, member_id=member.member_id)
    if version >= 3:
        request.members = [MemberIdentity(member_id=member.member_id), MemberIdentity(member_id="nobody")]
    answer = connection.request(request, version)
    assert answer.error_code == ErrorCode.NONE
    assert [one.error_code for one in answer.members] == ([0, ErrorCode.UNKNOWN_MEMBER_ID] if version >= 3 else [])
    heartbeat = HeartbeatRequest(group_id=name, generation_id=1, member_id=member.member_id)
    assert connection.request(heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_two_members_wait_for_each_other(connection: Connection, broker: Broker, name: str) -> None:
    first = join_alone(connection, name)
    answers = []

    def come_too() -> None:
        with connected(broker) as other:
            answers.append(join(other, name))

    thread = threading.Thread(target=come_too)
    thread.start()
    heartbeat = HeartbeatRequest(group_id=name, generation_id=1, member_id=first.member_id)
    while connection.request(heartbeat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    again = join(connection, name, first.member_id)
    thread.join(60)
    assert (again.generation_id, answers[0].generation_id) == (2, 2)
    assert {one.member_id for one in again.members} == {first.member_id, answers[0].member_id}
    assert answers[0].members == []


def test_a_thousand_waiting_members_keep_nobody_out(broker: Broker, name: str) -> None:
    """A join waits for others, so it does not count as a request that is under way (`queued.max.requests` is 500)."""
    channel = broker.server.channel
    before = channel.unanswered
    with connected(broker) as connection, connected(broker) as other:
        member = join_alone(connection, name)
        thread = threading.Thread(target=lambda: join(other, name))
        thread.start()
        heartbeat = HeartbeatRequest(group_id=name, generation_id=1, member_id=member.member_id)
        while connection.request(heartbeat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        assert channel.unanswered == before
        leave = LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=member.member_id)])
        connection.request(leave)
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("version", range(2))
def test_a_consumer_group_gives_its_member_the_partitions(connection: Connection, name: str, version: int) -> None:
    topic_id = create_topic(connection, name, 3)
    request = ConsumerGroupHeartbeatRequest(
        group_id=name,
        member_id="me" if version else "",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )
    answer = connection.request(request, version)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 1)
    (assigned,) = answer.assignment.topic_partitions
    assert (assigned.topic_id, sorted(assigned.partitions)) == (topic_id, [0, 1, 2])
    leave = ConsumerGroupHeartbeatRequest(group_id=name, member_id=answer.member_id, member_epoch=-1)
    assert connection.request(leave, version).member_epoch == -1


def test_a_group_without_a_name_is_refused(connection: Connection, coordinators: None) -> None:
    assert join(connection, "").error_code == ErrorCode.INVALID_GROUP_ID
    answer = connection.request(ConsumerGroupHeartbeatRequest(member_id="me"))
    assert (answer.error_code, bool(answer.error_message)) == (ErrorCode.INVALID_REQUEST, True)
