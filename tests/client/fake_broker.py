"""A broker on loopback that does what a test says: it answers with messages or wrong bytes, keeps silent, or hangs up.

    def produce(request, version):
        return ProduceResponse(...)          # or bytes to send as they are, Silence(), Hangup(after=b"...")

    with FakeBroker({"Produce": produce}, topics={"orders": 2}) as broker:
        Client(broker.bootstrap_servers)

ApiVersions and Metadata are answered without being told. Every request is kept in `requests`.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from barnabas.wire.apis import API_VERSIONS_KEY, APIS, request_decoder, response_encoder
from barnabas.wire.frames import SIZE, RequestHeader, body_position, read_request_header, response_frame
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.schema import Versions

UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35


class Silence:
    """No answer at all."""


@dataclass(frozen=True)
class Hangup:
    """These bytes, and then the end of the connection."""

    after: bytes = b""


@dataclass(frozen=True)
class Request:
    """What a client asked."""

    name: str
    version: int
    message: Any
    connection: int


Handler = Callable[[Any, int], Any]


class FakeBroker:
    """Listens from construction on, one thread a connection."""

    def __init__(
        self,
        handlers: Mapping[str, Handler] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[str, Versions] | None = None,
        node_id: int = 1,
    ) -> None:
        self.handlers: dict[str, Handler] = {
            "ApiVersions": self.api_versions,
            "Metadata": self.metadata,
            **(handlers or {}),
        }
        self.topics = dict(topics or {})
        self.topic_ids = {name: number.to_bytes(16, "big") for number, name in enumerate(self.topics, 1)}
        self.versions = {api.name: api.versions for api in APIS.values()}
        if versions is not None:
            self.versions = {"ApiVersions": Versions(0, 4), "Metadata": Versions(0, 13), **versions}
        self.node_id = node_id
        self.requests: list[Request] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # Who leads what: other brokers' nodes are added here by a test.
        self.nodes = {node_id: self.port}
        self.leaders: dict[tuple[str, int], int] = {}
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Request]:
        """The requests of one API, in order."""
        return [request for request in self.requests if request.name == name]

    def api_versions(self, message: Any, version: int) -> Any:
        by_name = {api.name: api.key for api in APIS.values()}
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=by_name[name], min_version=low, max_version=high)
                for name, (low, high) in self.versions.items()
            ]
        )

    def metadata(self, message: Any, version: int) -> Any:
        names = list(self.topics) if message.topics is None else [topic.name for topic in message.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in self.nodes.items()
            ],
            cluster_id="fake",
            controller_id=self.node_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids[name],
            partitions=[
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=self.leaders.get((name, number), self.node_id),
                    replica_nodes=[self.node_id],
                    isr_nodes=[self.node_id],
                )
                for number in range(self.topics[name])
            ],
        )

    def _accept(self) -> None:
        number = 0
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                self._sockets.append(opened)
                thread = threading.Thread(target=self._serve, args=(opened, number), daemon=True)
                self._threads.append(thread)
                thread.start()
                number += 1

    def _serve(self, opened: socket.socket, number: int) -> None:
        with opened, contextlib.suppress(OSError):
            while True:
                frame = self._read_frame(opened)
                if frame is None:
                    return
                header, position = read_request_header(frame)
                answer = self._answer(header, frame, position, number)
                if isinstance(answer, Hangup):
                    opened.sendall(answer.after)
                    return
                opened.sendall(answer)

    def _read_frame(self, opened: socket.socket) -> bytes | None:
        size = _read_exactly(opened, SIZE.size)
        return None if size is None else _read_exactly(opened, SIZE.unpack(size)[0])

    def _answer(self, header: RequestHeader, frame: bytes, position: int, number: int) -> bytes | Hangup:
        api = APIS[header.api_key]
        body = body_position(api, header.version, frame, position)
        message, _ = request_decoder(api, header.version)(frame, body)
        self.requests.append(Request(api.name, header.version, message, number))
        answer = self.handlers[api.name](message, header.version)
        if isinstance(answer, Silence):
            return b""
        if isinstance(answer, bytes | Hangup):
            return answer
        is_refused = api.key == API_VERSIONS_KEY and answer.error_code == UNSUPPORTED_VERSION
        version = 0 if is_refused else header.version
        parts = response_frame(api, version, header.correlation_id, response_encoder(api, version)(answer))
        return b"".join(parts)

    def close(self) -> None:
        """End every connection and the threads."""
        for opened in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_exactly(opened: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = opened.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def after(*answers: Any, then: Handler) -> Handler:
    """A handler that gives these answers first, and afterwards does what another does."""
    left = list(answers)

    def handle(message: Any, version: int) -> Any:
        return left.pop(0) if left else then(message, version)

    return handle
