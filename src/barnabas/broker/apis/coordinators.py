"""FindCoordinator: v0-6, which broker coordinates a group (0) or a transactional id (1): with one broker, this one.

Share groups (key type 2, KIP-932) do not exist here. librdkafka compresses with lz4 only for brokers that speak this
API.

Versions: 1+ key types, 4+ many keys at a time (KIP-699).
"""

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1
BATCHED_VERSION = 4
NO_NODE = -1


def handle_find_coordinator(
    broker: Services, request: Request, body: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Answer every key."""
    keys = body.coordinator_keys if request.version >= BATCHED_VERSION else [body.key]
    found = [_coordinator(broker, request, key, body.key_type) for key in keys]
    if request.version >= BATCHED_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _coordinator(broker: Services, request: Request, key: str, key_type: int) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        message = f"there are no coordinators of type {key_type}"
        return Coordinator(
            key=key, node_id=NO_NODE, port=NO_NODE, error_code=ErrorCode.INVALID_REQUEST, error_message=message
        )
    endpoint = broker.advertised(request.peer.listener, request.peer.local_host)
    return Coordinator(key=key, node_id=broker.node_id, host=endpoint.host, port=endpoint.port, error_message=None)
