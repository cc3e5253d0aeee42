"""Metadata: v0-13, brokers, topics and who leads what. DescribeCluster: v0-2. DescribeTopicPartitions: v0.

Metadata. No list of topics (v0: an empty one) asks for all. A topic that does not exist is created where the broker
and, from version 4 on, the client allow it; the answer waits until it is there. Kafka answers at once, and clients ask
again. Internal topics are created by the coordinators only.

Versions: 1+ rack and controller, 2+ cluster id, 5+ offline replicas, 7+ leader epochs, 8+ authorized operations, 10+
topic ids, 12+ topics asked for by id, 13+ an error for the whole answer. `controller_id` is always a live broker.

DescribeTopicPartitions answers topics in the order of their names, as many partitions as the limit allows, and a
cursor.
"""

from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.cluster.controller import NewTopic
from barnabas.cluster.metadata_cache import TopicImage
from barnabas.cluster.topics import check_topic_name
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.metadata import (
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# Everything may be done while there is no authorizer; the bits are Kafka's numbers of operations.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
ENDPOINT_BROKERS = 1
NO_LEADER = -1
TOPIC_ID_VERSION = 12


def handle_metadata(broker: Services, request: Request, body: MetadataRequest) -> Any:
    """Answer with what is known, after creating what is to be created."""
    endpoint = broker.advertised(request.peer.listener, request.peer.local_host)
    own = MetadataResponseBroker(
        node_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.config.broker.broker_rack or None
    )
    answer = MetadataResponse(brokers=[own], cluster_id=broker.cluster_id, controller_id=broker.node_id)
    if body.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    gathering = Gathering(request, answer)
    is_all = body.topics is None or (request.version == 0 and not body.topics)
    if is_all:
        answer.topics = [_topic(broker, image, body) for image in broker.cache.topics.values()]
    for asked in [] if is_all else body.topics or []:
        if asked.name is None and request.version < TOPIC_ID_VERSION:
            # Versions 10 and 11 can ask this way, but not answer.
            answer.topics.append(MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST))
            continue
        answer.topics.append(MetadataResponseTopic(name=asked.name, topic_id=asked.topic_id))
        _look_up(broker, asked, body, _Place(answer.topics, len(answer.topics) - 1, gathering))
    return gathering.outcome()


class _Place:
    """Where in the answer a topic goes, now or when it is created."""

    def __init__(self, topics: list[MetadataResponseTopic], index: int, gathering: Gathering) -> None:
        self._topics = topics
        self._index = index
        self.gathering = gathering

    def put(self, topic: MetadataResponseTopic) -> None:
        self._topics[self._index] = topic

    def fail(self, error: ApiError) -> None:
        self._topics[self._index].error_code = int(error.code)


def _look_up(broker: Services, asked: MetadataRequestTopic, body: MetadataRequest, place: _Place) -> None:
    """Put a topic into the answer, or begin to create it."""
    if asked.name is None:
        image = broker.cache.topics_by_id.get(asked.topic_id)
        if image is None:
            place.fail(ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id"))
        else:
            place.put(_topic(broker, image, body))
        return
    name = asked.name

    def found(_: object) -> None:
        image = broker.cache.topics.get(name)  # Perhaps somebody else created or deleted it in between.
        if image is not None:
            place.put(_topic(broker, image, body))
        else:
            place.fail(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"))

    if name in broker.cache.topics:
        # Whoever is told of a topic can write to it at once, also while another client's request creates it.
        broker.topic_changes.when_made(name, place.gathering.expect(found))
        return
    try:
        check_topic_name(name)
    except ApiError as error:
        place.fail(error)
        return
    is_allowed = body.allow_auto_topic_creation and broker.config.broker.auto_create_topics_enable
    if not is_allowed or name in INTERNAL_TOPICS:
        place.fail(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"))
        return

    def created(result: TopicImage | ApiError) -> None:
        if isinstance(result, ApiError) and name not in broker.cache.topics:
            place.fail(result)
        else:
            # Where another request was faster, the logs are being made for that one.
            broker.topic_changes.when_made(name, place.gathering.expect(found))

    config = broker.config.broker
    new = NewTopic(
        name=name, num_partitions=config.num_partitions, replication_factor=config.default_replication_factor
    )
    broker.topic_changes.create(new, place.gathering.expect(created))


def _topic(broker: Services, image: TopicImage, body: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=image.name,
        topic_id=image.topic_id.bytes,
        is_internal=image.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, image, index) for index in range(len(image.partitions))],
        topic_authorized_operations=TOPIC_OPERATIONS if body.include_topic_authorized_operations else -(2**31),
    )


def _leader(broker: Services, image: TopicImage, index: int) -> int:
    """Return who leads a partition: nobody (-1) while this broker should and has no log of it, for want of a disk."""
    leader = image.partitions[index].leader
    if leader == broker.node_id and (image.name, index) not in broker.replica_manager.partitions:
        return NO_LEADER
    return leader


def _partition(broker: Services, image: TopicImage, index: int) -> MetadataResponsePartition:
    state, leader = image.partitions[index], _leader(broker, image, index)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
    )


def handle_describe_cluster(
    broker: Services, request: Request, body: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Answer with the brokers; there are no controllers of their own to describe."""
    if body.endpoint_type != ENDPOINT_BROKERS:
        message = "only brokers (endpoint type 1) can be described: there are no other nodes"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    endpoint = broker.advertised(request.peer.listener, request.peer.local_host)
    rack = broker.config.broker.broker_rack or None
    own = DescribeClusterBroker(broker_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=rack)
    answer = DescribeClusterResponse(cluster_id=broker.cluster_id, controller_id=broker.node_id, brokers=[own])
    if body.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def handle_describe_topic_partitions(
    broker: Services, request: Request, body: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Answer page by page."""
    answer = DescribeTopicPartitionsResponse()
    names = sorted({topic.name for topic in body.topics}) or sorted(broker.cache.topics)
    first = 0
    if body.cursor is not None:
        if body.cursor.partition_index < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the cursor is at partition {body.cursor.partition_index}")
        names = [name for name in names if name >= body.cursor.topic_name]
        first = body.cursor.partition_index if names[:1] == [body.cursor.topic_name] else 0
    left = min(max(1, body.response_partition_limit), broker.config.broker.max_request_partition_size_limit)
    for name in names:
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        image = broker.cache.topics.get(name)
        if image is None:
            answer.topics.append(_unknown_topic(name))
            continue
        end = min(len(image.partitions), first + left)
        answer.topics.append(_described(broker, image, first, end))
        left -= max(0, end - first)
        if end < len(image.partitions):
            answer.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        first = 0
    return answer


def _unknown_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
    except ApiError as error:
        return DescribeTopicPartitionsResponseTopic(name=name, error_code=error.code)
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _described(broker: Services, image: TopicImage, start: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in range(start, end):
        state, leader = image.partitions[index], _leader(broker, image, index)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=image.name,
        topic_id=image.topic_id.bytes,
        is_internal=image.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
