"""DescribeAcls, CreateAcls, DeleteAcls: v1-3. There is no authorizer yet, and as Kafka without one says so."""

from typing import Any

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ApiError, ErrorCode


def handle_acls(broker: Services, request: Request, body: Any) -> Any:
    """Refuse the whole request."""
    raise ApiError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured on this broker")
