"""Groups against real brokers, held by a client of the field; and brokers of other times."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.client import Client
from barnabas.client.connection import UnsupportedVersionError
from barnabas.client.groups import (
    GroupDescription,
    GroupHasMembersError,
    ListedGroup,
    OffsetAndMetadata,
    check_has_no_members,
    commit_group_offsets,
    delete_groups,
    describe_groups,
    fetch_group_offsets,
    list_groups,
)
from barnabas.clock import ManualClock
from barnabas.coordination.consumer_protocol import ConsumerProtocolAssignment, write_assignment
from barnabas.coordination.consumer_protocol import TopicPartition as Assigned
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.coordinators import Coordinator, FindCoordinatorResponse
from barnabas.wire.messages.group_admin import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from barnabas.wire.messages.group_admin import ListedGroup as ListedRow
from barnabas.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.wire.schema import Versions
from tests.client.brokers import topic_name
from tests.client.fake_broker import FakeBroker, after
from tests.client.group_members import CLIENT_ID, PROTOCOLS, commit_as, member_of
from tests.client.test_coordinators import here


def described(client: Client, group_id: str) -> GroupDescription:
    answer = describe_groups(client, [group_id])[group_id]
    assert isinstance(answer, GroupDescription), answer
    return answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member_is_seen(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str], protocol: str
) -> None:
    topic, group_id = make_topic(partitions=2), topic_name(protocol)
    with member_of(bootstrap_servers, group_id, topic, protocol) as consumer:
        commit_as(consumer, topic, 7, "noted")
        assert ListedGroup(
            group_id=group_id, group_type=protocol, protocol_type="consumer", state="Stable"
        ) in list_groups(client)
        group = described(client, group_id)
        assert (group.group_type, group.protocol_type, group.state) == (protocol, "consumer", "Stable")
        assert group.coordinator_id in client.cluster().nodes
        assert group.assignor == ("range" if protocol == "classic" else "uniform")
        (member,) = group.members
        assert member.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert (member.client_id, member.client_host) == (CLIENT_ID, "/127.0.0.1")
        assert (member.member_epoch is None) == (group.group_epoch is None) == (protocol == "classic")
        ((partition, committed),) = fetch_group_offsets(client, group_id).items()
        # This client sends the zero that ends strings in C, too.
        assert (partition.partition, committed.offset, committed.metadata.rstrip("\0")) == (0, 7, "noted")
        with pytest.raises(GroupHasMembersError, match=r"has 1 member \(Stable\)"):
            check_has_no_members(client, group_id)
        failures = commit_group_offsets(client, group_id, {TopicPartition(topic, 0): OffsetAndMetadata(offset=1)})
        assert failures[TopicPartition(topic, 0)].code is ErrorCode.UNKNOWN_MEMBER_ID
        assert f"group '{group_id}' has members" in str(failures[TopicPartition(topic, 0)])
        assert delete_groups(client, [group_id])[group_id].code is ErrorCode.NON_EMPTY_GROUP
    assert (described(client, group_id).state, described(client, group_id).members) == ("Empty", ())
    check_has_no_members(client, group_id)
    assert delete_groups(client, [group_id]) == {}
    assert group_id not in [group.group_id for group in list_groups(client)]


def test_offsets_are_committed_and_fetched_without_being_a_member(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic, group_id = make_topic(partitions=3), topic_name("simple")
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    assert fetch_group_offsets(client, group_id) == {}
    offsets = {first: OffsetAndMetadata(offset=3), second: OffsetAndMetadata(offset=5, leader_epoch=0, metadata="m")}
    assert commit_group_offsets(client, group_id, offsets) == {}
    assert fetch_group_offsets(client, group_id) == offsets
    assert fetch_group_offsets(client, group_id, [second, third], require_stable=True) == {second: offsets[second]}
    assert fetch_group_offsets(client, group_id, []) == {}
    assert described(client, group_id).members == ()
    assert delete_groups(client, [group_id]) == {}
    assert fetch_group_offsets(client, group_id) == {}


def test_what_fails_is_told_by_partition_and_the_rest_is_committed(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic, group_id = make_topic(), topic_name("partly")
    offsets = {TopicPartition(topic, number): OffsetAndMetadata(offset=1) for number in (0, 9)}
    failures = commit_group_offsets(client, group_id, offsets)
    assert {each: error.code for each, error in failures.items()} == {
        TopicPartition(topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert list(fetch_group_offsets(client, group_id)) == [TopicPartition(topic, 0)]


def test_groups_that_are_not_there_are_errors_by_name(client: Client, make_topic: Callable[..., str]) -> None:
    group_id, missing = topic_name("there"), topic_name("missing")
    commit_group_offsets(client, group_id, {TopicPartition(make_topic(), 0): OffsetAndMetadata(offset=1)})
    answers = describe_groups(client, [missing, group_id])
    assert list(answers) == [missing, group_id]
    assert str(answers[missing]) == f"GROUP_ID_NOT_FOUND: there is no consumer group '{missing}'"
    assert isinstance(answers[group_id], GroupDescription)
    failures = delete_groups(client, [missing, group_id])
    assert {name: error.code for name, error in failures.items()} == {missing: ErrorCode.GROUP_ID_NOT_FOUND}
    check_has_no_members(client, missing)


def test_groups_are_listed_by_state_and_type(client: Client, make_topic: Callable[..., str]) -> None:
    group_id = topic_name("filtered")
    commit_group_offsets(client, group_id, {TopicPartition(make_topic(), 0): OffsetAndMetadata(offset=1)})

    def listed(**filters: Any) -> bool:
        return group_id in [group.group_id for group in list_groups(client, **filters)]

    assert listed(states=["Empty"])
    assert not listed(states=["Stable", "Dead"])
    assert listed(types=["classic"])
    assert not listed(types=["consumer"])
    assert listed(states=["Empty"], types=["classic", "consumer"])


def test_an_old_broker_lists_without_states_and_can_not_filter() -> None:
    def list_all(message: Any, version: int) -> Any:
        return ListGroupsResponse(groups=[ListedRow(group_id="g", protocol_type="consumer")])

    versions = {"ListGroups": Versions(0, 3)}
    with (
        FakeBroker({"ListGroups": list_all}, versions=versions) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        assert list_groups(client) == [ListedGroup(group_id="g", group_type="", protocol_type="consumer", state="")]
        with pytest.raises(UnsupportedVersionError, match="too old to tell groups by state"):
            list_groups(client, states=["Stable"])


def classic(message: Any, version: int) -> Any:
    """`connect` is a group of another protocol, `odd` has an assignment that nobody can read, others are dead."""
    partitions = write_assignment(
        ConsumerProtocolAssignment(assigned_partitions=[Assigned(topic="t", partitions=[2])]), 0
    )
    rows = []
    for name in message.groups:
        assignment = b"\x00" if name == "odd" else partitions
        members = [DescribedGroupMember(member_id="m", member_assignment=assignment)]
        protocol_type = "connect" if name == "connect" else "consumer"
        row = DescribedGroup(group_id=name, group_state="Stable", protocol_type=protocol_type, members=members)
        rows.append(row if name != "gone" else DescribedGroup(group_id=name, group_state="Dead"))
    return DescribeGroupsResponse(groups=rows)


def test_a_broker_from_before_consumer_groups_is_asked_for_classic_ones() -> None:
    versions = {"FindCoordinator": Versions(0, 4), "DescribeGroups": Versions(0, 5)}
    with (
        FakeBroker({"FindCoordinator": here, "DescribeGroups": classic}, versions=versions) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        answers = describe_groups(client, ["plain", "connect", "odd", "gone"])
    assignments = {
        name: answer.members[0].partitions for name, answer in answers.items() if isinstance(answer, GroupDescription)
    }
    assert assignments == {"plain": (TopicPartition("t", 2),), "connect": (), "odd": ()}
    gone = answers["gone"]
    assert isinstance(gone, ApiError)
    assert gone.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_only_what_is_no_consumer_group_is_asked_for_again() -> None:
    def consumer(message: Any, version: int) -> Any:
        codes = {"new": ErrorCode.NONE, "denied": ErrorCode.GROUP_AUTHORIZATION_FAILED}
        return ConsumerGroupDescribeResponse(
            groups=[
                DescribedConsumerGroup(
                    group_id=name, error_code=codes.get(name, ErrorCode.GROUP_ID_NOT_FOUND), error_message="said"
                )
                for name in message.group_ids
            ]
        )

    handlers = {"FindCoordinator": here, "DescribeGroups": classic, "ConsumerGroupDescribe": consumer}
    with FakeBroker(handlers) as broker, Client(broker.bootstrap_servers) as client:
        answers = describe_groups(client, ["new", "denied", "old"])
        assert [request.message.groups for request in broker.named("DescribeGroups")] == [["old"]]
    types = [answer.group_type for answer in answers.values() if isinstance(answer, GroupDescription)]
    assert types == ["consumer", "classic"]
    assert str(answers["denied"]) == "GROUP_AUTHORIZATION_FAILED: group 'denied': said"


def test_offsets_of_an_old_broker_are_asked_for_one_group_at_a_time() -> None:
    def fetch(message: Any, version: int) -> Any:
        names = ["t"] if message.topics is None else [topic.name for topic in message.topics]
        rows = [OffsetFetchResponsePartition(partition_index=1, committed_offset=4, metadata=None)]
        topics = [OffsetFetchResponseTopic(name=name, partitions=rows) for name in names]
        return OffsetFetchResponse(topics=topics)

    refused = OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    loading = OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    versions = {"FindCoordinator": Versions(0, 3), "OffsetFetch": Versions(1, 7)}
    handlers = {"FindCoordinator": here, "OffsetFetch": after(loading, refused, then=fetch)}
    with (
        FakeBroker(handlers, versions=versions) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED: the offsets of group 'g'"):
            fetch_group_offsets(client, "g")
        expected = {TopicPartition("t", 1): OffsetAndMetadata(offset=4)}
        assert fetch_group_offsets(client, "g") == expected
        assert fetch_group_offsets(client, "g", [TopicPartition("t", 1)]) == expected


def test_an_offset_that_is_about_to_change_is_waited_for() -> None:
    def answer(code: ErrorCode) -> OffsetFetchResponse:
        row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=4, error_code=code)
        topics = [OffsetFetchResponseTopics(name="t", partitions=[row])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    fetch = after(answer(ErrorCode.UNSTABLE_OFFSET_COMMIT), then=lambda message, version: answer(ErrorCode.NONE))
    with (
        FakeBroker({"FindCoordinator": here, "OffsetFetch": fetch}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        assert list(fetch_group_offsets(client, "g", require_stable=True)) == [TopicPartition("t", 0)]
        assert [request.version for request in broker.named("OffsetFetch")] == [9, 9]


def test_a_commit_goes_to_a_coordinator_that_has_moved() -> None:
    def commit(code: ErrorCode) -> OffsetCommitResponse:
        rows = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])

    moved = after(commit(ErrorCode.NOT_COORDINATOR), then=lambda message, version: commit(ErrorCode.NONE))
    with (
        FakeBroker({"FindCoordinator": here, "OffsetCommit": moved}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        assert commit_group_offsets(client, "g", {TopicPartition("t", 0): OffsetAndMetadata(offset=4)}) == {}
        assert [request.name for request in broker.requests].count("FindCoordinator") == 2
        assert broker.named("OffsetCommit")[0].message.generation_id_or_member_epoch == -1


def test_a_group_that_is_not_for_everybody_is_an_error() -> None:
    def denied(message: Any, version: int) -> Any:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=code, error_message="no")])

    with FakeBroker({"FindCoordinator": denied}) as broker, Client(broker.bootstrap_servers) as client:
        with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED: the coordinator of 'g': no"):
            check_has_no_members(client, "g")
        with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED"):
            commit_group_offsets(client, "g", {TopicPartition("t", 0): OffsetAndMetadata(offset=4)})
