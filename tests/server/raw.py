"""Raw sockets, for what no client does: half frames, wrong lengths, answers that nobody reads."""

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.wire.apis import APIS, request_encoder, response_decoder
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.primitives import skip_tagged_fields

DEADLINE_S = 30.0

API_KEYS = {api.name: api.key for api in APIS.values()}


def frame_of(message: Any, version: int, correlation_id: int = 1, client_id: str | None = "raw") -> bytes:
    """A whole frame, with its size."""
    api = APIS[API_KEYS[type(message).__name__.removesuffix("Request")]]
    header = RequestHeader(api.key, version, correlation_id, client_id)
    return b"".join(bytes(part) for part in request_frame(api, header, request_encoder(api, version)(message)))


def sized(payload: bytes) -> bytes:
    """Bytes with their size before them."""
    return struct.pack(">i", len(payload)) + payload


@contextmanager
def raw_connection(broker: Broker) -> Iterator[socket.socket]:
    """A socket to a broker, with a deadline on everything."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), DEADLINE_S) as connection:
        yield connection


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive so many bytes; fewer only when the broker closes."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def receive_answer(connection: socket.socket) -> bytes:
    """Receive one answer from its correlation id on; empty when the connection is closed."""
    size = receive_exactly(connection, 4)
    return receive_exactly(connection, struct.unpack(">i", size)[0]) if len(size) == 4 else b""


def decoded(answer: bytes, api_name: str, version: int) -> Any:
    """An answer as a message."""
    api = APIS[API_KEYS[api_name]]
    position = skip_tagged_fields(answer, 4) if api.is_flexible(version) and api.key != 18 else 4
    return response_decoder(api, version)(answer, position)[0]


def is_closed(connection: socket.socket) -> bool:
    """Tell whether the broker closes a connection, waiting for it."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return True


def is_served(broker: Broker) -> bool:
    """Tell whether another client is answered."""
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(MetadataRequest(topics=None), 9))
        return bool(receive_answer(connection))


def memory_mb(broker: Broker) -> float:
    """What a broker in a child process has in memory."""
    with open(f"/proc/{broker.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, and fail when it does not come true in time."""
    clock = SystemClock()
    deadline = clock.monotonic_seconds() + DEADLINE_S
    while not condition():
        assert clock.monotonic_seconds() < deadline, what
        clock.sleep(0.01)


def lines_by(broker: Broker, logger: str) -> list[str]:
    """The lines that some part of a broker in a child process has logged."""
    return [line for line in broker.log.splitlines() if f" {logger}" in line]
