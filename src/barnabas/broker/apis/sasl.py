"""SaslHandshake v0-1 and SaslAuthenticate v0-2: no listener asks who a client is yet, so there is nothing to prove."""

from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def handle_sasl_handshake(broker: Services, request: Request, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse, as Kafka does on a listener without SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def handle_sasl_authenticate(
    broker: Services, request: Request, body: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse likewise; what the client sent to prove who it is does not come back."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="this listener does not use SASL"
    )
