"""Groups as an operator sees them: which there are, who is in them, how far they have come. Functions over a `Client`.

Rule 1: what is asked for several groups at once has an answer for each; errors are returned by the name of the group,
or by partition, and nothing is raised but what keeps every group from being answered.
Rule 2: a group may be a classic one or a consumer group (KIP-848). Which it is, only the coordinator knows: it is asked
for a consumer group first, and for a classic one where it has none, as Kafka's own admin client does.
Rule 3: offsets are fetched and committed by somebody who is no member. A group that has members refuses such commits.
Rule 4: topics have names here, so the versions that name them by id are not spoken: offsets may be of deleted topics.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.answers import check_answer, error_of
from barnabas.client.client import Client
from barnabas.client.connection import ClientError, Connection, UnsupportedVersionError
from barnabas.client.coordinators import CoordinatorType, ask_all_brokers, ask_coordinators
from barnabas.coordination.consumer_protocol import read_assignment
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.wire.primitives import DecodeError

CLASSIC, CONSUMER = "classic", "consumer"
"""The types of groups, as ListGroups spells them."""

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose assignments are partitions; others' are bytes that only they understand."""

_DEAD = "Dead"

# Since these versions ListGroups tells states (KIP-518) and types (KIP-848).
_STATES_VERSION = 4
_TYPES_VERSION = 5

# The last versions that name topics, and the first in which OffsetFetch asks for many groups (KIP-709).
_COMMIT_VERSION_MAX = 9
_FETCH_VERSION_MAX = 9
_FETCH_GROUPS_VERSION = 8

# Answers that mean that the group has moved or is loading, and that the whole question is to be asked again.
_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

_SENTENCES: Mapping[int, str] = {
    # A share group or a streams group of that name there may be; they are not described here.
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no consumer group {!r}",
    ErrorCode.NON_EMPTY_GROUP: "group {!r} has members",
    ErrorCode.UNKNOWN_MEMBER_ID: "group {!r} has members",
}


class GroupHasMembersError(ClientError):
    """The offsets of a group are its members' as long as it has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a list. Brokers from before KIP-518 and KIP-848 tell no state and no type: those are empty then."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member, and the partitions that it was assigned. A classic member has no epoch."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    member_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members. A classic group has no epoch; `assignor` is empty while there is none."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator_id: int
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """How far a group has come in a partition: the next offset that it reads, and what it noted with it."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


CommittedOffsets = dict[TopicPartition, OffsetAndMetadata]
PartitionFailures = dict[TopicPartition, ApiError]


def list_groups(client: Client, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """Return the groups of all brokers by name, only those in some states or of some types where these are given."""
    question = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def ask(connection: Connection, _: int) -> list[ListedGroup]:
        version = connection.version_of("ListGroups")
        if (states and version < _STATES_VERSION) or (types and version < _TYPES_VERSION):
            raise UnsupportedVersionError(
                f"{connection.address}: the broker is too old to tell groups by state or type"
            )
        answer = connection.request(question, version)
        check_answer(answer.error_code, "the broker does not list its groups")
        return [
            ListedGroup(
                group_id=row.group_id,
                group_type=row.group_type.lower(),
                protocol_type=row.protocol_type,
                state=row.group_state,
            )
            for row in answer.groups
        ]

    listed = {group.group_id: group for groups in ask_all_brokers(client, ask) for group in groups}
    return [listed[group_id] for group_id in sorted(listed)]


def describe_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Return each group, or why not: GROUP_ID_NOT_FOUND where there is none."""

    def ask(connection: Connection, node_id: int, names: list[str]) -> dict[str, GroupDescription | ApiError]:
        described = _describe_consumer_groups(connection, node_id, names)
        missing = [name for name in names if _is_not_found(described.get(name))]
        return described | (_describe_classic_groups(connection, node_id, missing) if missing else {})

    return ask_coordinators(client, group_ids, CoordinatorType.GROUP, ask)


def delete_groups(client: Client, group_ids: Iterable[str]) -> dict[str, ApiError]:
    """Delete groups without members, and their offsets; returns the errors by name."""

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, ApiError | None]:
        rows = connection.request(DeleteGroupsRequest(groups_names=names)).results
        return {row.group_id: _error(row.error_code, row.group_id) for row in rows}

    answers = ask_coordinators(client, group_ids, CoordinatorType.GROUP, ask)
    return {name: answer for name, answer in answers.items() if isinstance(answer, ApiError)}


def check_has_no_members(client: Client, group_id: str) -> None:
    """Raise GroupHasMembersError if commits from outside would be refused; a group that is not there has no members."""
    described = describe_groups(client, [group_id])[group_id]
    if isinstance(described, ApiError):
        if described.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise described
    elif described.members:
        count = f"{len(described.members)} member{'s' if len(described.members) > 1 else ''}"
        raise GroupHasMembersError(f"group {group_id!r} has {count} ({described.state}), and only they commit offsets")


def fetch_group_offsets(
    client: Client, group_id: str, partitions: Collection[TopicPartition] | None = None, *, require_stable: bool = False
) -> CommittedOffsets:
    """Return the offsets that a group has committed, of all partitions unless some are named.

    A partition without an offset is not in the result; neither is anything of a group that does not exist.

    Args:
        require_stable: Wait for the end of transactions that are about to commit other offsets.
    """

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, CommittedOffsets | ApiError]:
        version = connection.version_of("OffsetFetch", _FETCH_VERSION_MAX)
        question = _fetch_request(group_id, partitions, require_stable, version)
        answer = connection.request(question, version)
        found = answer.groups[0] if version >= _FETCH_GROUPS_VERSION else answer
        if found.error_code != ErrorCode.NONE:
            return {group_id: error_of(found.error_code, f"the offsets of group {group_id!r}")}
        return {group_id: _read_offsets(found.topics, group_id)}

    answer = ask_coordinators(client, [group_id], CoordinatorType.GROUP, ask)[group_id]
    if isinstance(answer, ApiError):
        raise answer
    return answer


def commit_group_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> PartitionFailures:
    """Commit offsets of a group without being a member, which makes the group if there is none.

    Returns the errors by partition: UNKNOWN_MEMBER_ID of all where the group has members.
    """

    def ask(connection: Connection, _: int, names: list[str]) -> dict[str, PartitionFailures | ApiError]:
        version = connection.version_of("OffsetCommit", _COMMIT_VERSION_MAX)
        failures: PartitionFailures = {}
        for topic in connection.request(_commit_request(group_id, offsets), version).topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code in _COORDINATOR_ERRORS:
                    return {group_id: error_of(row.error_code, f"committing offsets of group {group_id!r}")}
                if row.error_code != ErrorCode.NONE:
                    said = _SENTENCES.get(row.error_code, "group {!r}").format(group_id)
                    failures[partition] = error_of(
                        row.error_code, f"{said}: the offset of {partition} is not committed"
                    )
        return {group_id: failures}

    answer = ask_coordinators(client, [group_id], CoordinatorType.GROUP, ask)[group_id]
    if isinstance(answer, ApiError):
        raise answer
    return answer


def _error(code: int, group_id: str, message: str | None = None) -> ApiError | None:
    """Return the exception for a code; a known one has a sentence that needs no words of the broker."""
    if code == ErrorCode.NONE:
        return None
    sentence = _SENTENCES.get(code)
    return error_of(code, sentence.format(group_id)) if sentence else error_of(code, f"group {group_id!r}", message)


def _is_not_found(answer: GroupDescription | ApiError | None) -> bool:
    # Brokers of before KIP-848, and those that have it switched off, know no consumer groups at all.
    absent = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return answer is None or (isinstance(answer, ApiError) and answer.code in absent)


def _describe_consumer_groups(
    connection: Connection, node_id: int, names: list[str]
) -> dict[str, GroupDescription | ApiError]:
    try:
        rows = connection.request(ConsumerGroupDescribeRequest(group_ids=names)).groups
    except UnsupportedVersionError:
        return {}
    return {
        row.group_id: _error(row.error_code, row.group_id, row.error_message)
        or GroupDescription(
            group_id=row.group_id,
            group_type=CONSUMER,
            protocol_type=CONSUMER_PROTOCOL,
            state=row.group_state,
            assignor=row.assignor_name,
            coordinator_id=node_id,
            members=tuple(_consumer_member(member) for member in row.members),
            group_epoch=row.group_epoch,
        )
        for row in rows
    }


def _consumer_member(member: Any) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        partitions=tuple(
            TopicPartition(topic.topic_name, index)
            for topic in member.assignment.topic_partitions
            for index in topic.partitions
        ),
        member_epoch=member.member_epoch,
    )


def _describe_classic_groups(
    connection: Connection, node_id: int, names: list[str]
) -> dict[str, GroupDescription | ApiError]:
    answers: dict[str, GroupDescription | ApiError] = {}
    for row in connection.request(DescribeGroupsRequest(groups=names)).groups:
        # Before version 6 a group that is not there is one that is dead.
        is_missing = row.error_code == ErrorCode.NONE and row.group_state == _DEAD and not row.members
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_missing else row.error_code
        answers[row.group_id] = _error(code, row.group_id, row.error_message) or GroupDescription(
            group_id=row.group_id,
            group_type=CLASSIC,
            protocol_type=row.protocol_type,
            state=row.group_state,
            assignor=row.protocol_data,
            coordinator_id=node_id,
            members=tuple(_classic_member(member, row.protocol_type) for member in row.members),
        )
    return answers


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        partitions=_assigned(member.member_assignment) if protocol_type == CONSUMER_PROTOCOL else (),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        topics = read_assignment(data).assigned_partitions
    except DecodeError:
        # The leader of a group may write what it likes; that is no reason not to show the group.
        return ()
    return tuple(TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def _fetch_request(
    group_id: str, partitions: Collection[TopicPartition] | None, require_stable: bool, version: int
) -> OffsetFetchRequest:
    topics = None if partitions is None else _by_topic(partitions)
    if version >= _FETCH_GROUPS_VERSION:
        asked = None
        if topics is not None:
            asked = [OffsetFetchRequestTopics(name=name, partition_indexes=topics[name]) for name in topics]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=asked)], require_stable=require_stable
        )
    named = None
    if topics is not None:
        named = [OffsetFetchRequestTopic(name=name, partition_indexes=topics[name]) for name in topics]
    return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=require_stable)


def _read_offsets(topics: Any, group_id: str) -> CommittedOffsets | ApiError:
    offsets: CommittedOffsets = {}
    for topic in topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code != ErrorCode.NONE:
                return error_of(row.error_code, f"the offset of group {group_id!r} in {partition}")
            if row.committed_offset != NO_OFFSET:
                offsets[partition] = OffsetAndMetadata(
                    offset=row.committed_offset,
                    leader_epoch=row.committed_leader_epoch,
                    metadata=row.metadata or "",
                )
    return offsets


def _commit_request(group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, committed in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
