"""RequestChannel: from the bytes of a request to the bytes of its answer, and how many are under way.

    connection --frame--> handle: header, API, version, body --> dispatch's handler --> answer, or "later"
    delayed operation --> Request.respond(message) --> connection

Rule 1: what is wrong with the bytes is a DecodeError, which the connection logs and closes for. A client that asks for
an API or a version that is not in the table gets the same, except ApiVersions, which always has an answer (KIP-511).
Rule 2: an answer is one of three: bytes to send, nothing (a produce with acks=0), or the end of the connection.
Rule 3: at most `queued.max.requests` are unanswered in all. A request that waits because its client wants it to (a
fetch with nothing to fetch) does not count: five hundred idle consumers must not keep a producer out.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from barnabas.broker.faults import Fault, Faults
from barnabas.broker.metrics import ApiStats, Histogram
from barnabas.broker.produce_frame import PlainProduce
from barnabas.broker.refusal import refusal_of
from barnabas.clock import Clock
from barnabas.wire.apis import API_VERSIONS_KEY, Api, request_decoder, response_encoder
from barnabas.wire.codec import Decoder, Encoder, Part
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.frames import RESPONSE_HEADER, body_position, read_request_header, size_of
from barnabas.wire.primitives import DecodeError

logger = logging.getLogger(__name__)

STALL_SECONDS = 0.001


class Outcome(Enum):
    """What a handler returns instead of an answer."""

    LATER = "the handler will call Request.respond"
    NO_RESPONSE = "nothing is sent"
    CLOSE = "the connection is closed"


class Peer(Protocol):
    """The connection that a request came by, as far as requests are concerned with it."""

    listener: str
    client_host: str
    local_host: str

    def on_answer(self, request: "Request") -> None:
        """Send an answer that was not there at once."""
        ...


Handler = Callable[[Any, "Request", Any], Any]
"""(the broker's parts, the request, its decoded body) -> an answer, or an Outcome."""


class Route(NamedTuple):
    """One row of the dispatch table."""

    api: Api
    handler_of: Callable[[int], Handler]
    """Finds the handler by the key of the API, when the first request of it comes."""
    is_pipelined: bool = False
    """Whether the next request of the connection is begun while this one waits: only a produce, which is appended."""
    is_counted: bool = True
    """Whether it counts as unanswered while it waits: not if it waits because the client asked it to."""


class _Version(NamedTuple):
    """What is needed to read and answer one version of an API; made when the first request of it comes."""

    route: Route
    handler: Handler
    decode: Decoder
    encode: Encoder
    header_tags: bytes
    stats: ApiStats


class _Shortcut:
    """The short way of one API, and how many requests of a turn took it."""

    __slots__ = ("answer", "answered", "stats")

    def __init__(self, answer: Callable[[memoryview], bytes | None], stats: ApiStats) -> None:
        self.answer = answer
        self.stats = stats
        self.answered = 0

    def count_turn(self, seconds: float) -> None:
        """Count the requests of a turn that is over."""
        if self.answered:
            self.stats.requests += self.answered
            self.stats.time.add(seconds, self.answered)
            self.answered = 0


class Request:
    """A request and, in time, its answer."""

    __slots__ = (
        "_channel",
        "_version",
        "client_id",
        "correlation_id",
        "delay_ms",
        "is_answered",
        "is_closing",
        "on_disconnect",
        "parts",
        "peer",
        "size",
        "started",
        "version",
    )

    def __init__(self, channel: "RequestChannel", version: _Version, peer: Peer, started: float) -> None:
        self._channel = channel
        self._version = version
        self.peer = peer
        self.started = started
        self.version = 0
        self.correlation_id = 0
        self.client_id: str | None = None
        self.delay_ms = 0
        """How long a fault keeps the answer back."""
        self.parts: list[Part] = []
        self.size = 0
        """How many bytes the body of the answer has."""
        self.is_answered = False
        self.is_closing = False
        self.on_disconnect: Callable[[], None] | None = None
        """Called when the client goes away while its request waits, so that nothing waits for nobody."""

    @property
    def api(self) -> Api:
        """What is asked for."""
        return self._version.route.api

    @property
    def is_pipelined(self) -> bool:
        """Whether the next request of the connection may begin while this one waits."""
        return self._version.route.is_pipelined

    def count_error(self, code: int) -> None:
        """Count an error of a part of the request; one of all of it is counted where it is refused."""
        self._version.stats.errors[code] += 1

    def respond(self, message: Any) -> None:
        """Answer a request whose handler returned Outcome.LATER."""
        self._channel.respond_later(self, message)

    def set_answer(self, answer: Any) -> None:
        """Take an answer, or an outcome that needs none."""
        self.is_answered = True
        if answer is Outcome.NO_RESPONSE:
            return
        if answer is Outcome.CLOSE:
            self.is_closing = True
            return
        version = self._version
        parts = version.encode(answer)
        tags = version.header_tags
        size = len(parts[0])
        if len(parts) > 1:
            size = size_of(parts)
            parts = [bytes(part) if isinstance(part, bytearray) else part for part in parts]
        head = RESPONSE_HEADER.pack(4 + len(tags) + size, self.correlation_id) + tags
        parts[0] = head + parts[0]
        self.parts = parts
        self.size = size


class RequestChannel:
    """All requests of a broker."""

    def __init__(self, broker: Any, routes: dict[int, Route], clock: Clock, queued_max: int) -> None:
        self._broker = broker
        self._routes = routes
        self._clock = clock
        self._queued_max = queued_max
        self._versions: dict[tuple[int, int], _Version] = {}
        self._unanswered = 0
        self.is_full = False
        """Whether no further request is to be read."""
        self._waiting_peers: list[Callable[[], None]] = []
        self.api_stats: dict[int, ApiStats] = {key: ApiStats() for key in routes}
        self.stalls = Histogram()
        """The turns of the loop that kept everybody else waiting for a millisecond or more."""
        self.busy_seconds = 0.0
        """How long the loop was busy with requests in all; the rest of the time it was idle."""
        self.faults: Faults | None = None
        self._shortcuts: dict[int, _Shortcut] = {}
        self._plain: PlainProduce | None = None
        self._plain_shortcut: _Shortcut

    # From bytes to an answer.

    def add_shortcut(
        self, api_key: int, shortcut: Callable[[memoryview], bytes | None], plain: PlainProduce | None = None
    ) -> None:
        """Let requests be answered without making messages, where `shortcut` can; the API's requests are counted.

        `plain` takes several at once where it can, and is asked first.
        """
        added = self._shortcuts[api_key] = _Shortcut(shortcut, self.api_stats[api_key])
        if plain is not None:
            self._plain, self._plain_shortcut = plain, added

    def take_plain(self, view: memoryview, start: int, filled: int, frame_bytes_max: int) -> tuple[int, int, bytes]:
        """Serve the plain produce requests that stand first: where the rest begins, how many, and all their answers."""
        if self._plain is None or (self.faults is not None and self.faults.is_any_waiting):
            return start, 0, b""
        taken = self._plain.take(view, start, filled, frame_bytes_max, self._clock.now_ms())
        self._plain_shortcut.answered += taken[1]
        return taken

    def answer_shortly(self, frame: memoryview) -> bytes | None:
        """Return the answer to a request that can be answered the short way, or None for all others."""
        shortcut = self._shortcuts.get(frame[0] << 8 | frame[1])
        if shortcut is None or (self.faults is not None and self.faults.is_any_waiting):
            return None
        answer = shortcut.answer(frame)
        if answer is not None:
            shortcut.answered += 1
        return answer

    def handle(self, peer: Peer, frame: memoryview, now: float) -> Request:
        """Serve one request; raises DecodeError for one that can not be understood."""
        header, position = read_request_header(frame)
        key = (header.api_key, header.version)
        version = self._versions.get(key) or self._learn(*key)
        request = Request(self, version, peer, now)
        request.version = header.version
        request.correlation_id = header.correlation_id
        request.client_id = header.client_id
        if header.api_key == API_VERSIONS_KEY and not version.route.api.versions.has(header.version):
            # The one request that must be answered whatever its version: in the oldest form, with what there is.
            request.version = 0
            request.set_answer(_unsupported_api_versions(version.route.api))
            self._count(request)
            return request
        position = body_position(version.route.api, header.version, frame, position)
        # Bytes behind the body are ignored, as Kafka does: librdkafka sends some with Metadata v13.
        body, _ = version.decode(frame, position)
        answer = self._serve(request, body) if self.faults is None else self._call(request, body)
        if answer is Outcome.LATER:
            if version.route.is_counted:
                self._unanswered += 1
                self.is_full = self._unanswered >= self._queued_max
        else:
            self._answer(request, answer)
        return request

    def _answer(self, request: Request, answer: Any) -> None:
        """Give a request its answer. One that can not be written is a bug, and ends the connection instead."""
        try:
            request.set_answer(answer)
        except Exception:
            logger.exception("the answer to %s v%d can not be written", request.api.name, request.version)
            request.set_answer(Outcome.CLOSE)
        self._count(request)

    def _call(self, request: Request, body: Any) -> Any:
        """Do the same with the faults that a test asked for."""
        route = request._version.route
        if self.faults is not None and self.faults.is_any_waiting:
            fault = self.faults.take(route.api.name)
            if fault is not None:
                return self._inject(fault, request, body)
        return self._serve(request, body)

    def _serve(self, request: Request, body: Any) -> Any:
        """Let the handler answer, and put its errors into the words of the API."""
        # Authentication, quotas and authorisation of the request have their place here, before the handler.
        try:
            return request._version.handler(self._broker, request, body)
        except ApiError as error:
            return self._refuse(request, body, error)
        except Exception:
            route = request._version.route
            logger.exception("%s v%d of %s failed", route.api.name, request.version, request.peer.client_host)
            failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")
            return self._refuse(request, body, failure)

    def _refuse(self, request: Request, body: Any, error: ApiError) -> Any:
        request._version.stats.errors[error.code] += 1
        answer = refusal_of(request.api, request.version, body, error)
        return Outcome.CLOSE if answer is None else answer

    def _inject(self, fault: Fault, request: Request, body: Any) -> Any:
        """Do what a test asked for instead of, or before, what the handler does."""
        if fault.is_dropped:
            return Outcome.CLOSE
        if fault.error is not None:
            return self._refuse(request, body, ApiError(fault.error, "asked for by a fault"))
        # The bytes of the records are the connection's, and gone when the delay is over: a delay is of the answer.
        request.delay_ms = fault.delay_ms
        answer = self._serve(request, body)
        if isinstance(answer, Outcome) or not fault.delay_ms:
            return answer
        self.respond_later(request, answer)
        return Outcome.LATER

    def _learn(self, api_key: int, version: int) -> _Version:
        route = self._routes.get(api_key)
        if route is None:
            raise DecodeError(f"there is no API {api_key}")
        api = route.api
        if not api.versions.has(version):
            if api_key != API_VERSIONS_KEY:
                low, high = api.versions
                raise DecodeError(f"{api.name} has versions {low} to {high}, not {version}")
            handler = route.handler_of(api_key)
            return _Version(route, handler, _no_body, response_encoder(api, 0), b"", self.api_stats[api_key])
        tags = b"\0" if api.is_flexible(version) and api_key != API_VERSIONS_KEY else b""
        decode, encode = request_decoder(api, version), response_encoder(api, version)
        handler = route.handler_of(api_key)
        found = _Version(route, handler, decode, encode, tags, self.api_stats[api_key])
        self._versions[api_key, version] = found
        return found

    def respond_later(self, request: Request, message: Any) -> None:
        """Answer a request that waited."""
        assert not request.is_answered, "a request is answered once"
        if request.delay_ms:
            assert self.faults is not None
            delay_ms, request.delay_ms = request.delay_ms, 0
            self.faults.call_later(delay_ms, lambda: self.respond_later(request, message))
            return
        self._answer(request, message)
        if request._version.route.is_counted:
            self._unanswered -= 1
            self.is_full = self._unanswered >= self._queued_max
            self._resume_peers()
        request.peer.on_answer(request)

    def abandon(self, request: Request) -> None:
        """Forget a request that waits, because its client is gone."""
        if request.on_disconnect is not None and not request.is_answered:
            request.on_disconnect()

    def _count(self, request: Request) -> None:
        stats = request._version.stats
        stats.requests += 1
        stats.time.add(self._clock.monotonic_seconds() - request.started)

    def count_turn(self, seconds: float, short_answers: int) -> None:
        """Note how long the loop was busy with one connection, and how many requests it answered the short way.

        Their answers go out together when the turn ends, so that is how long each of them took.
        """
        self.busy_seconds += seconds
        if short_answers:
            for shortcut in self._shortcuts.values():
                shortcut.count_turn(seconds)
        if seconds >= STALL_SECONDS:
            self.stalls.add(seconds)

    # How many are under way.

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answer."""
        return self._unanswered

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call back when a request may be read again."""
        self._waiting_peers.append(resume)

    def close(self) -> None:
        """Let no further request be begun, because the broker stops; those under way are answered."""
        self._queued_max = 0
        self.is_full = True

    def _resume_peers(self) -> None:
        while self._waiting_peers and not self.is_full:
            self._waiting_peers.pop(0)()


def _no_body(data: bytes | memoryview, position: int) -> tuple[Any, int]:
    raise AssertionError("an ApiVersions of an unknown version has no body that could be read")


def _unsupported_api_versions(api: Api) -> Any:
    from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

    low, high = api.versions
    known = ApiVersion(api_key=API_VERSIONS_KEY, min_version=low, max_version=high)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
