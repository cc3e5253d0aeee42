"""Words for tests of groups and transactions that speak the protocol: find the coordinator, join, commit, begin, end.

find(connection, "orders", GROUP)
member = join_alone(connection, "orders")
commit(connection, "orders", {("topic", 0): 5}, member)
producer = init(connection, "tx")
add(connection, producer, ("topic", 0)); produce_in(connection, producer, "topic"); end(connection, producer)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.client.connection import Connection
from barnabas.clock import SystemClock
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from barnabas.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.asking import produce_request
from tests.broker.turning import until
from tests.storage.builders import sent_by

GROUP, TRANSACTION = 0, 1
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
"""Version 0, one topic, no user data."""


def find(connection: Connection, key: str, key_type: int = GROUP) -> None:
    """Find a coordinator, which creates the internal topic; a Kafka has it only when one comes again."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    until(lambda: connection.request(request, 3).error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = connection.request(request, 3)
    assert answer.error_code == ErrorCode.NONE, answer


@dataclass(frozen=True)
class Member:
    """A member of a classic group."""

    member_id: str
    generation_id: int


def join(connection: Connection, group: str, member_id: str = "", **fields: Any) -> Any:
    """Join, and come again with the id that a new member is given."""
    version = fields.pop("version", 9)
    fields.setdefault("session_timeout_ms", 30_000)
    fields.setdefault("rebalance_timeout_ms", 60_000)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    request = JoinGroupRequest(
        group_id=group, member_id=member_id, protocol_type="consumer", protocols=protocols, **fields
    )
    answer = connection.request(request, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = connection.request(request, version)
    return answer


def join_alone(connection: Connection, group: str, assignment: bytes = b"assignment", **fields: Any) -> Member:
    """Be the only member of a group, with an assignment."""
    answer = join(connection, group, **fields)
    assert answer.error_code == ErrorCode.NONE, answer
    assert answer.leader == answer.member_id
    request = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id=fields.get("group_instance_id"),
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=assignment)],
    )
    synced = connection.request(request)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, assignment)
    return Member(answer.member_id, answer.generation_id)


def commit_request(
    group: str, offsets: Mapping[tuple[str, int], int], member: Member | None = None, metadata: str | None = ""
) -> OffsetCommitRequest:
    """A commit of a member, or without one of a consumer that is in no group."""
    member = member or Member("", -1)
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            ],
        )
        for (topic, index), offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.generation_id,
        topics=topics,
    )


def commit(
    connection: Connection, group: str, offsets: Mapping[tuple[str, int], int], member: Member | None = None
) -> list[int]:
    """Commit offsets, and return the error codes."""
    answer = connection.request(commit_request(group, offsets, member), 9)
    return [one.error_code for topic in answer.topics for one in topic.partitions]


def committed(
    connection: Connection, group: str, topic: str, partition: int = 0, *, require_stable: bool = False
) -> tuple[int, int]:
    """The offset that a group has committed, and the error code."""
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    )
    answer = connection.request(OffsetFetchRequest(groups=[asked], require_stable=require_stable), 9)
    (found,) = answer.groups
    assert found.error_code == ErrorCode.NONE, found
    one = found.topics[0].partitions[0]
    return one.committed_offset, one.error_code


@dataclass
class TransactionalProducer:
    """A producer with a transactional id; its sequence numbers count on by partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    sequences: dict[tuple[str, int], int]


def init(connection: Connection, transactional_id: str, **fields: Any) -> TransactionalProducer:
    """Get a producer id for a transactional id, as often as it takes to end what was open."""
    fields.setdefault("transaction_timeout_ms", 60_000)
    while True:
        answer = connection.request(InitProducerIdRequest(transactional_id=transactional_id, **fields), 5)
        if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            assert answer.error_code == ErrorCode.NONE, answer
            return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch, {})


def add(connection: Connection, producer: TransactionalProducer, *partitions: tuple[str, int]) -> list[int]:
    """Add partitions to a transaction, as clients of transaction.version 1 do, and return the error codes."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions],
    )
    answer = connection.request(request, 3)
    return [
        one.partition_error_code for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition
    ]


def produce_in(
    connection: Connection,
    producer: TransactionalProducer,
    topic: str,
    partition: int = 0,
    *,
    version: int = 12,
    timestamp: int | None = None,
) -> int:
    """Produce a record in a transaction, and return the error code."""
    sequence = producer.sequences.get((topic, partition), 0)
    now = timestamp or SystemClock().now_ms()
    batch = sent_by(producer.producer_id, sequence, 1, epoch=producer.epoch, transactional=True, timestamp=now)
    request = produce_request(topic, {partition: batch}, transactional_id=producer.transactional_id)
    answer = connection.request(request, version).responses[0].partition_responses[0]
    if answer.error_code == ErrorCode.NONE:
        producer.sequences[topic, partition] = sequence + 1
    return int(answer.error_code)


def end(
    connection: Connection, producer: TransactionalProducer, *, is_commit: bool = True, version: int = 5
) -> ErrorCode:
    """End a transaction; from version 5 on the producer goes on with the epoch that it is given."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )
    answer = connection.request(request, version)
    if answer.error_code == ErrorCode.NONE and version >= 5:
        producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
        producer.sequences.clear()
    return ErrorCode(answer.error_code)


def commit_in(
    connection: Connection,
    producer: TransactionalProducer,
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    version: int = 5,
    member: Member | None = None,
) -> list[int]:
    """Commit offsets in a transaction, and return the error codes."""
    member = member or Member("", -1)
    topics = [
        TxnOffsetCommitRequestTopic(
            name=topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)]
        )
        for (topic, index), offset in offsets.items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=member.generation_id,
        member_id=member.member_id,
        topics=topics,
    )
    answer = connection.request(request, version)
    return [one.error_code for topic in answer.topics for one in topic.partitions]
