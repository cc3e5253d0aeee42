"""SaslHandshake and SaslAuthenticate: how a client proves who it is, before anything else is answered."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class SaslHandshakeRequest:
    mechanism: Annotated[str, "string"] = ""


@structure
class SaslHandshakeResponse:
    error_code: Annotated[int, "int16"] = 0
    mechanisms: Annotated[list[str], "[]string"] = field(default_factory=list)


@structure
class SaslAuthenticateRequest:
    auth_bytes: Annotated[bytes, "bytes"] = b""


@structure
class SaslAuthenticateResponse:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    auth_bytes: Annotated[bytes, "bytes"] = b""
    session_lifetime_ms: Annotated[int, "int64 1+"] = 0
