"""CreateTopics: v2-7. DeleteTopics: v1-6. CreatePartitions: v0-3. DeleteRecords: v0-2.

Behaviour: each topic succeeds or fails by itself, in words too where the version has them. A topic is answered when it
is durable in the metadata and its logs are there, so that it can be written to at once. -1 partitions or replicas mean
the broker's defaults (CreateTopics 4+, KIP-464). A topic that is named twice in a request is refused, and nothing is
done for either. `timeout_ms` is not needed: the answer takes as long as the disk does.

Versions: CreateTopics 5+ answers settings and counts (KIP-525), 7+ the topic id. DeleteTopics 6+ also by id (KIP-516).
"""

from collections import Counter
from typing import Any

from barnabas.broker.apis.configs import created_topic_configs
from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.internal_topics import INTERNAL_TOPICS
from barnabas.broker.partition import Partition
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.cluster.controller import NewTopic
from barnabas.cluster.metadata_cache import TopicImage
from barnabas.model import NO_OFFSET
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.schema import ZERO_UUID

DEFAULT_COUNT = -1


def handle_create_topics(broker: Services, request: Request, body: CreateTopicsRequest) -> Any:
    """Create topics, or with `validate_only` say whether they could be."""
    answer = CreateTopicsResponse()
    gathering = Gathering(request, answer)
    named = Counter(topic.name for topic in body.topics)
    refused: set[str] = set()
    for topic in body.topics:
        result = CreatableTopicResult(name=topic.name, error_message=None)
        if named[topic.name] > 1:
            if topic.name not in refused:
                refused.add(topic.name)
                _fail(result, ApiError(ErrorCode.INVALID_REQUEST, f"{topic.name} is named more than once"))
                answer.topics.append(result)
            continue
        answer.topics.append(result)
        try:
            new = _new_topic(broker, topic)
        except ApiError as error:
            _fail(result, error)
            continue
        take = _taker(broker, result, new)
        broker.topic_changes.create(new, gathering.expect(take), validate_only=body.validate_only)
    return gathering.outcome()


def _taker(broker: Services, result: CreatableTopicResult, new: NewTopic) -> Any:
    def take(made: TopicImage | ApiError) -> None:
        if isinstance(made, ApiError):
            _fail(result, made)
            return
        result.topic_id = made.topic_id.bytes
        result.num_partitions = len(made.partitions)
        result.replication_factor = len(made.partitions[0].replicas)
        result.configs = created_topic_configs(broker, new.config)

    return take


def _new_topic(broker: Services, topic: CreatableTopic) -> NewTopic:
    if topic.name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is created by the broker")
    config: dict[str, str] = {}
    for one in topic.configs:
        if one.value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{one.name} has no value")
        config[one.name] = one.value
    assignments = {one.partition_index: tuple(one.broker_ids) for one in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic.name} has a partition that is assigned twice")
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if not assignments:
        defaults = broker.config.broker
        partitions = defaults.num_partitions if partitions == DEFAULT_COUNT else partitions
        replicas = defaults.default_replication_factor if replicas == DEFAULT_COUNT else replicas
    return NewTopic(
        name=topic.name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=assignments,
        config=config,
    )


def _fail(result: Any, error: ApiError) -> None:
    result.error_code = int(error.code)
    result.error_message = error.message
    if isinstance(result, CreatableTopicResult):
        result.configs = []


def handle_delete_topics(broker: Services, request: Request, body: DeleteTopicsRequest) -> Any:
    """Delete topics by name or by id."""
    answer = DeleteTopicsResponse()
    gathering = Gathering(request, answer)
    asked = body.topics or [DeleteTopicState(name=name) for name in body.topic_names]
    named = Counter((topic.name, topic.topic_id) for topic in asked)
    for topic in asked:
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        answer.responses.append(result)
        try:
            if named[topic.name, topic.topic_id] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named more than once")
            result.name = _deletable(broker, topic)
        except ApiError as error:
            _fail(result, error)
            continue

        def take(gone: TopicImage | ApiError, result: DeletableTopicResult = result) -> None:
            if isinstance(gone, ApiError):
                _fail(result, gone)
            else:
                result.topic_id = gone.topic_id.bytes

        broker.topic_changes.delete(result.name, gathering.expect(take))
    return gathering.outcome()


def _deletable(broker: Services, topic: DeleteTopicState) -> str:
    if not broker.config.broker.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if topic.name is not None and topic.topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    if topic.name is not None:
        return topic.name
    if topic.topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic has neither a name nor an id")
    image = broker.cache.topics_by_id.get(topic.topic_id)
    if image is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return image.name


def handle_create_partitions(broker: Services, request: Request, body: CreatePartitionsRequest) -> Any:
    """Give topics more partitions."""
    answer = CreatePartitionsResponse()
    gathering = Gathering(request, answer)
    named = Counter(topic.name for topic in body.topics)
    for topic in body.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        answer.results.append(result)
        if named[topic.name] > 1:
            _fail(result, ApiError(ErrorCode.INVALID_REQUEST, f"{topic.name} is named more than once"))
            continue
        _extend(broker, topic, result, gathering, validate_only=body.validate_only)
    return gathering.outcome()


def _extend(
    broker: Services,
    topic: CreatePartitionsTopic,
    result: CreatePartitionsTopicResult,
    gathering: Gathering,
    *,
    validate_only: bool,
) -> None:
    def take(made: TopicImage | ApiError) -> None:
        if isinstance(made, ApiError):
            _fail(result, made)

    assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
    then = gathering.expect(take)
    broker.topic_changes.create_partitions(topic.name, topic.count, assignments, then, validate_only=validate_only)


def handle_delete_records(broker: Services, request: Request, body: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Let logs start later; -1 is the high watermark."""
    answer = DeleteRecordsResponse()
    deleted: list[Partition] = []
    for topic in body.topics:
        results = []
        for asked in topic.partitions:
            one = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NO_OFFSET)
            try:
                if topic.name in INTERNAL_TOPICS:
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the broker")
                partition = broker.replica_manager.partition(topic.name, asked.partition_index)
                one.low_watermark = partition.delete_records(asked.offset)
                deleted.append(partition)
            except ApiError as error:
                one.error_code = int(error.code)
            results.append(one)
        answer.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    broker.replica_manager.on_records_deleted(deleted)
    return answer
