"""FindCoordinator: v0-6, which broker coordinates a group (0) or a transactional id (1): the leader of its partition.

Behaviour: the first one who asks makes the broker create the internal topic, and is answered when it is there. Share
groups (key type 2, KIP-932) do not exist here. librdkafka compresses with lz4 only for brokers that speak this API.

Versions: 1+ key types, 4+ many keys at a time (KIP-699).
"""

from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC, internal_topic, partition_for
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
"""The topic whose leaders coordinate, by key type."""
BATCHED_VERSION = 4
NO_NODE = -1


def handle_find_coordinator(broker: Services, request: Request, body: FindCoordinatorRequest) -> Any:
    """Answer every key."""
    keys = body.coordinator_keys if request.version >= BATCHED_VERSION else [body.key]
    topic = TOPICS.get(body.key_type)
    if topic is None:
        error = ApiError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {body.key_type}")
        return _answer(request, [_failed(key, error) for key in keys])
    found: list[Coordinator] = []
    gathering = Gathering(request, None, lambda: _answer(request, found))

    def made(_: Any) -> None:
        found.extend(_coordinator(broker, request, topic, key) for key in keys)

    def created(result: Any) -> None:
        if topic in broker.cache.topics:
            # Where another request was faster, the logs are being made for that one.
            broker.topic_changes.when_made(topic, gathering.expect(made))
        else:
            error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} could not be created: {result}")
            found.extend(_failed(key, error) for key in keys)

    if topic in broker.cache.topics:
        created(None)
    else:
        broker.topic_changes.create(internal_topic(topic, broker.config.settings, 1), gathering.expect(created))
    return gathering.outcome()


def _answer(request: Request, found: list[Coordinator]) -> FindCoordinatorResponse:
    if request.version >= BATCHED_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _failed(key: str, error: ApiError) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, error_code=int(error.code), error_message=error.message)


def _coordinator(broker: Services, request: Request, topic: str, key: str) -> Coordinator:
    image = broker.cache.topics.get(topic)
    leader = NO_NODE if image is None else image.partitions[partition_for(key, len(image.partitions))].leader
    if leader != broker.node_id:
        return _failed(key, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {key} has no leader"))
    endpoint = broker.advertised(request.peer.listener, request.peer.local_host)
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port, error_message=None)
