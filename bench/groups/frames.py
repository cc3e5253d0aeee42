"""Frames for connections that do not block, and a coordinator that is there before a load begins."""

import socket
import time
from typing import Any

from barnabas.client.connection import Connection
from barnabas.client.options import Address, ClientOptions
from barnabas.wire.apis import APIS, request_encoder, response_decoder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frames import SIZE, RequestHeader, request_frame
from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from barnabas.wire.primitives import skip_tagged_fields
from bench.load.spec import LoadError

CLIENT_ID = "bench"
GROUP, TRANSACTION = 0, 1
SILENCE_S_MAX = 30.0
RECEIVE_BYTES = 1 << 16
_KEYS = {api.name: api.key for api in APIS.values()}
# Of a coordinator that is being made or read.
_LATER = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


def frame_of(message: Any, version: int, correlation_id: int = 0) -> bytes:
    """A request as it is sent."""
    api = APIS[_KEYS[type(message).__name__.removesuffix("Request")]]
    header = RequestHeader(api.key, version, correlation_id, CLIENT_ID)
    return b"".join(request_frame(api, header, request_encoder(api, version)(message)))


def answer_of(name: str, version: int, frame: memoryview) -> Any:
    """An answer as it came, from its correlation id on."""
    api = APIS[_KEYS[name]]
    position = skip_tagged_fields(frame, SIZE.size) if api.is_flexible(version) else SIZE.size
    return response_decoder(api, version)(frame, position)[0]


def take_frames(received: bytearray) -> list[bytes]:
    """Cut whole answers off some bytes, each without its size."""
    frames = []
    position = 0
    while len(received) - position >= SIZE.size:
        (size,) = SIZE.unpack_from(received, position)
        end = position + SIZE.size + size
        if end > len(received):
            break
        frames.append(bytes(received[position + SIZE.size : end]))
        position = end
    del received[:position]
    return frames


def open_socket(port: int) -> socket.socket:
    """A connection that does not block."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S_MAX)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    return opened


def open_connection(port: int) -> Connection:
    """A connection for one request after the other."""
    return Connection(Address("127.0.0.1", port), ClientOptions(client_id=CLIENT_ID))


def find_coordinator(connection: Connection, key: str, key_type: int) -> None:
    """Wait until there is a coordinator, which makes its topic."""
    deadline = time.monotonic() + SILENCE_S_MAX
    while True:
        code = connection.request(FindCoordinatorRequest(key=key, key_type=key_type), 3).error_code
        if code == ErrorCode.NONE:
            return
        wait_or_raise(code, deadline, f"the coordinator of {key}")


def wait_or_raise(code: int, deadline: float, what: str) -> None:
    """Wait a moment if a coordinator asks to come again; raises LoadError for other errors, or when it is too late."""
    if code not in _LATER or time.monotonic() > deadline:
        raise LoadError(f"{what}: {ErrorCode(code).name}")
    time.sleep(0.02)
