"""ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups, in every version."""

import pytest

from barnabas.client.connection import Connection
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tests.broker.asking import create_topic
from tests.broker.coordinating import SUBSCRIPTION, commit, committed, join_alone


def consumer(connection: Connection, name: str) -> None:
    """Make a consumer name of one member."""
    create_topic(connection, name)
    request = ConsumerGroupHeartbeatRequest(
        group_id=name,
        member_id="me",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )
    assert connection.request(request).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(connection: Connection, name: str, version: int) -> None:
    join_alone(connection, name)
    answer = connection.request(ListGroupsRequest(), version)
    (found,) = [one for one in answer.groups if one.group_id == name]
    assert (answer.error_code, found.protocol_type) == (ErrorCode.NONE, "consumer")
    if version >= 4:
        assert found.group_state == "Stable"
    if version >= 5:
        assert found.group_type == "classic"


def test_groups_are_listed_by_state_and_type(connection: Connection, name: str) -> None:
    consumer(connection, name)
    create_topic(connection, f"{name}-lone")
    commit(connection, f"{name}-lone", {(f"{name}-lone", 0): 1})
    for states, types, expected in (
        (["Stable"], [], {name}),
        (["Empty"], [], {f"{name}-lone"}),
        ([], ["consumer"], {name}),
        ([], ["Classic"], {f"{name}-lone"}),
        (["nothing"], [], set()),
    ):
        answer = connection.request(ListGroupsRequest(states_filter=states, types_filter=types), 5)
        assert {one.group_id for one in answer.groups if one.group_id.startswith(name)} == expected


@pytest.mark.parametrize("version", range(7))
def test_every_group_that_is_asked_for_is_described(connection: Connection, name: str, version: int) -> None:
    member = join_alone(connection, name)
    answer = connection.request(DescribeGroupsRequest(groups=[name, "nobody"]), version)
    found, missing = answer.groups
    assert (found.group_id, found.group_state, found.protocol_data) == (name, "Stable", "range")
    (one,) = found.members
    assert (one.member_id, one.client_id, one.client_host) == (member.member_id, "test", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (SUBSCRIPTION, b"assignment")
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (missing.group_id, missing.group_state, missing.error_code) == ("nobody", "Dead", expected)


@pytest.mark.parametrize("version", range(2))
def test_every_consumer_group_that_is_asked_for_is_described(connection: Connection, name: str, version: int) -> None:
    consumer(connection, name)
    join_alone(connection, f"{name}-classic")
    request = ConsumerGroupDescribeRequest(group_ids=[name, f"{name}-classic", "nobody"])
    found, classic, missing = connection.request(request, version).groups
    assert (found.group_state, found.group_epoch, found.assignor_name) == ("Stable", 1, "uniform")
    (member,) = found.members
    assert (member.member_id, member.subscribed_topic_names) == ("me", [name])
    assert member.assignment.topic_partitions[0].topic_name == name
    assert classic.error_code == missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted_with_their_offsets(connection: Connection, name: str, version: int) -> None:
    create_topic(connection, name)
    assert commit(connection, name, {(name, 0): 4}) == [0]
    join_alone(connection, f"{name}-alive")
    request = DeleteGroupsRequest(groups_names=[name, f"{name}-alive", "nobody"])
    answer = connection.request(request, version)
    codes = [(one.group_id, one.error_code) for one in answer.results]
    assert codes == [
        (name, ErrorCode.NONE),
        (f"{name}-alive", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert committed(connection, name, name) == (-1, 0)
