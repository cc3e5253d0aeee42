"""SASL on a listener that does not use it."""

from barnabas.client.client import Client
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest


def test_there_is_nothing_to_prove(barnabas_broker: Broker) -> None:
    with Client(barnabas_broker.bootstrap_servers) as client:
        for version in (0, 1):
            answer = client.request(SaslHandshakeRequest(mechanism="PLAIN"), version)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        for version in (0, 1, 2):
            answer = client.request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
            assert (answer.error_code, answer.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
