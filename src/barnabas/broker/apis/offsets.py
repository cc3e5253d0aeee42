"""OffsetCommit v2-10, OffsetFetch v1-10, OffsetDelete v0, TxnOffsetCommit v0-5: how far groups have come.

Behaviour: the machine of the group answers. Partitions that do not exist are refused one by one, the others are
committed. What a transaction commits counts when its marker is in `__consumer_offsets`.

Versions: Fetch 2+ null topics are all, 7+ the client may ask for stable offsets only (KIP-447), 8+ many groups at a
time (KIP-709), 9+ the member says who it is (KIP-848); both 10+ topics by id (KIP-848); TxnOffsetCommit 4+ knows
TRANSACTION_ABORTABLE, 5+ makes the partition of the group's offsets part of the transaction by itself (KIP-890).
"""

from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.broker.ticket import Ticket
from barnabas.model import NO_OFFSET
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.schema import ZERO_UUID

TOPIC_ID_VERSION = 10
MANY_GROUPS_VERSION = 8
ABORTABLE_VERSION = 4
IMPLICIT_VERSION = 5


def handle_offset_commit(broker: Services, request: Request, body: OffsetCommitRequest) -> Any:
    """Commit offsets."""
    unknown: list[OffsetCommitResponseTopic] = []
    if request.version >= TOPIC_ID_VERSION:
        unknown = _name_topics(broker, body)
    # This is what consumers ask for most often, so it is said without the detour of `Groups.ask`.
    shards = broker.groups.shards
    shard = shards.shard_of(body.group_id)
    ticket = Ticket(request, body)
    place = _WithUnknown(ticket, unknown) if unknown else ticket
    shards.carry_out(shard, shard.machine.commit_offsets(place, request.version, body, shards.now_ms()))
    return ticket.outcome()


class _WithUnknown:
    """Adds the topics that no id is known of to the answer of the machine, which is not asked for them."""

    def __init__(self, ticket: Ticket, unknown: list[OffsetCommitResponseTopic]) -> None:
        self._ticket = ticket
        self._unknown = unknown
        self.refuse = ticket.refuse

    def answer(self, message: OffsetCommitResponse) -> None:
        """Answer with all topics."""
        message.topics += self._unknown
        self._ticket.answer(message)


def _name_topics(broker: Services, body: OffsetCommitRequest) -> list[OffsetCommitResponseTopic]:
    """Give topics that are named by id their names; take those that do not exist out, and return their answers."""
    known: list[OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponseTopic] = []
    for topic in body.topics:
        image = broker.cache.topics_by_id.get(topic.topic_id)
        if image is not None:
            topic.name = image.name
            known.append(topic)
        else:
            code = int(ErrorCode.UNKNOWN_TOPIC_ID)
            partitions = [
                OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ]
            unknown.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, partitions=partitions))
    body.topics = known
    return unknown


def handle_txn_offset_commit(broker: Services, request: Request, body: TxnOffsetCommitRequest) -> Any:
    """Commit offsets when the transaction is committed."""
    groups = broker.groups
    if not body.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id is needed")
    shard = groups.shards.shard_of(body.group_id)
    producer = (body.producer_id, body.producer_epoch)
    groups.check_producer(shard, producer)
    try:
        broker.transactions.admit(
            body.transactional_id,
            producer,
            shard.partition,
            implicit=request.version >= IMPLICIT_VERSION,
            knows_abortable=request.version >= ABORTABLE_VERSION,
        )
    except ApiError as error:
        code = error.code
        if code is ErrorCode.NOT_ENOUGH_REPLICAS:  # As a client of a coordinator understands it.
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        request.count_error(code)
        return _not_admitted(broker, body, code)
    return groups.ask_shard(
        shard,
        Ticket(request, body),
        lambda machine, ticket, now_ms: machine.commit_transactional_offsets(ticket, request.version, body, now_ms),
        producer,
    )


def _not_admitted(broker: Services, body: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Refuse all partitions; of those that do not exist that is said, whatever else is wrong."""
    answer = TxnOffsetCommitResponse()
    for topic in body.topics:
        image = broker.cache.topics.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        results = [
            TxnOffsetCommitResponsePartition(
                partition_index=one.partition_index,
                error_code=code if 0 <= one.partition_index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for one in topic.partitions
        ]
        answer.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
    return answer


def handle_offset_delete(broker: Services, request: Request, body: OffsetDeleteRequest) -> Any:
    """Delete offsets of topics that the group does not read any more."""
    return broker.groups.ask(
        request, body, body.group_id, lambda machine, ticket, now_ms: machine.delete_offsets(ticket, body, now_ms)
    )


class _GroupTicket:
    """The place of one group in an answer about many."""

    def __init__(self, answer: OffsetFetchResponse, index: int, done: Any) -> None:
        self._answer = answer
        self._index = index
        self._done = done

    def answer(self, group: OffsetFetchResponseGroup) -> None:
        """Put a group in its place."""
        self._answer.groups[self._index] = group
        self._done(None)

    def refuse(self, error: ApiError) -> None:
        """Put an error in its place."""
        group = self._answer.groups[self._index]
        self.answer(OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(error.code)))


def handle_offset_fetch(broker: Services, request: Request, body: OffsetFetchRequest) -> Any:
    """Tell the committed offsets of groups."""
    is_many = request.version >= MANY_GROUPS_VERSION
    asked = body.groups if is_many else [_as_group(body)]
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id) for group in asked])
    finish = None if is_many else (lambda: _for_one_group(answer.groups[0], asked[0]))
    gathering = Gathering(request, answer, finish)
    for index, group in enumerate(asked):
        ticket = _GroupTicket(answer, index, gathering.expect(lambda _: None))
        _fetch(broker, request, group, body.require_stable, ticket)
    return gathering.outcome()


def _fetch(
    broker: Services, request: Request, group: OffsetFetchRequestGroup, require_stable: bool, ticket: _GroupTicket
) -> None:
    unknown = _name_fetched(broker, group) if request.version >= TOPIC_ID_VERSION else []
    try:
        shard = broker.groups.shards.shard_of(group.group_id)
        found = shard.machine.fetch_offsets(group, require_stable, broker.groups.shards.now_ms())
    except ApiError as error:
        ticket.refuse(error)
        return
    if request.version >= TOPIC_ID_VERSION:
        for topic in found.topics:
            image = broker.cache.topics.get(topic.name)
            topic.topic_id = image.topic_id.bytes if image is not None else ZERO_UUID
        found.topics = [topic for topic in found.topics if topic.topic_id != ZERO_UUID]
        found.topics += unknown
    broker.groups.shards.tell(shard, ticket, found)


def _name_fetched(broker: Services, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    known: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in group.topics or ():
        image = broker.cache.topics_by_id.get(topic.topic_id)
        if image is not None:
            topic.name = image.name
            known.append(topic)
        else:
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=NO_OFFSET, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID)
                )
                for index in topic.partition_indexes
            ]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
    if group.topics is not None:
        group.topics = known
    return unknown


def _as_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Return what the versions for one group ask for in the words of those for many."""
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ]
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)


def _for_one_group(group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup) -> OffsetFetchResponse:
    """Return an answer in the words of the versions for one group, the first of which have errors by partition only."""
    if group.error_code:
        group.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=NO_OFFSET, error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)
