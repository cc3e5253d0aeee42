"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit, in every version."""

from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.asking import create_topic
from tests.broker.coordinating import (
    Member,
    commit,
    commit_in,
    commit_request,
    committed,
    end,
    init,
    join_alone,
)


def fetch_request(group_id: str, topics: dict[str, list[int]] | None, version: int, ids: dict[str, bytes]) -> Any:
    if version < 8:
        named = None
        if topics is not None:
            named = [OffsetFetchRequestTopic(name=name, partition_indexes=which) for name, which in topics.items()]
        return OffsetFetchRequest(group_id=group_id, topics=named)
    many = None
    if topics is not None:
        many = [
            OffsetFetchRequestTopics(name=name, topic_id=ids.get(name, bytes(16)), partition_indexes=which)
            for name, which in topics.items()
        ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=many)])


def fetched(answer: Any, version: int) -> dict[int, tuple[int, str | None, int]]:
    topics = answer.topics if version < 8 else answer.groups[0].topics
    return {
        one.partition_index: (one.committed_offset, one.metadata, one.error_code)
        for topic in topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_what_is_committed_in_any_version_is_fetched_in_all(connection: Connection, name: str, version: int) -> None:
    ids = {name: create_topic(connection, name, 3)}
    request = commit_request(name, {(name, 0): 5, (name, 2): 7}, metadata="so far")
    for topic in request.topics:
        topic.topic_id = ids[name]
    answer = connection.request(request, version)
    assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0, 0]
    if version >= 10:
        assert {topic.topic_id for topic in answer.topics} == {ids[name]}
    expected = {0: (5, "so far", 0), 1: (-1, "", 0), 2: (7, "so far", 0)}
    for fetch_version in range(1, 11):
        answer = connection.request(fetch_request(name, {name: [0, 1, 2]}, fetch_version, ids), fetch_version)
        assert fetched(answer, fetch_version) == expected
        if fetch_version >= 2:
            answer = connection.request(fetch_request(name, None, fetch_version, ids), fetch_version)
            assert fetched(answer, fetch_version) == {0: expected[0], 2: expected[2]}


def test_partitions_that_do_not_exist_are_refused_one_by_one(connection: Connection, name: str) -> None:
    create_topic(connection, name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(connection, name, {(name, 0): 1, (name, 9): 1, ("nowhere", 0): 1}) == [0, unknown, unknown]
    assert committed(connection, name, name) == (1, 0)


def test_a_topic_id_that_nobody_has_is_answered_as_such(connection: Connection, name: str) -> None:
    topic_id = create_topic(connection, name)
    request = commit_request(name, {(name, 0): 1, ("other", 0): 2})
    request.topics[0].topic_id, request.topics[1].topic_id = topic_id, b"0123456789abcdef"
    answer = connection.request(request, 10)
    assert {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics} == {
        topic_id: 0,
        b"0123456789abcdef": ErrorCode.UNKNOWN_TOPIC_ID,
    }
    ids = {name: topic_id, "other": b"0123456789abcdef"}
    asked = fetch_request(name, {name: [0], "other": [0]}, 10, ids)
    (found,) = connection.request(asked, 10).groups
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in found.topics}
    assert codes == {topic_id: 0, b"0123456789abcdef": ErrorCode.UNKNOWN_TOPIC_ID}


def test_only_members_commit_for_a_group_that_has_some(connection: Connection, name: str) -> None:
    create_topic(connection, name)
    member = join_alone(connection, name)
    assert commit(connection, name, {(name, 0): 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(connection, name, {(name, 0): 1}, Member(member.member_id, 9)) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(connection, name, {(name, 0): 1}, member) == [0]


def test_a_text_that_is_too_long_is_refused_for_its_partition(connection: Connection, name: str) -> None:
    create_topic(connection, name)
    answer = connection.request(commit_request(name, {(name, 0): 1}, metadata="x" * 4097), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    answer = connection.request(commit_request(name, {(name, 0): 1}, metadata=None), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_many_groups_are_answered_together(connection: Connection, name: str) -> None:
    create_topic(connection, name)
    assert commit(connection, name, {(name, 0): 1}) == [0]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (name, "other", "third")]
    answer = connection.request(OffsetFetchRequest(groups=groups), 8)
    assert [(one.group_id, len(one.topics)) for one in answer.groups] == [(name, 1), ("other", 0), ("third", 0)]


def test_offsets_are_deleted(connection: Connection, name: str) -> None:
    create_topic(connection, name)
    assert commit(connection, name, {(name, 0): 1}) == [0]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    answer = connection.request(OffsetDeleteRequest(group_id=name, topics=topics))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert committed(connection, name, name) == (-1, 0)
    answer = connection.request(OffsetDeleteRequest(group_id="nobody", topics=topics))
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", [5])
def test_offsets_in_a_transaction(connection: Connection, name: str, version: int) -> None:
    create_topic(connection, name)
    producer = init(connection, name)
    assert commit_in(connection, producer, name, {(name, 0): 3}, version=version) == [0]
    assert end(connection, producer) is ErrorCode.NONE
    assert committed(connection, name, name) == (3, 0)


def test_a_transaction_without_a_transactional_id_is_refused(connection: Connection, name: str) -> None:
    create_topic(connection, name)
    producer = init(connection, name)
    producer.transactional_id = ""
    assert commit_in(connection, producer, name, {(name, 0): 3}) == [ErrorCode.INVALID_REQUEST]
