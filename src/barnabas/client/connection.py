"""One blocking TCP connection to a broker: requests go out in order, and their answers come back in the same order.

Bytes go to a socket and come from one; messages are those of `wire`. The versions to speak are negotiated once, when
the connection is opened: ApiVersions in our newest version, and in version 0 if the broker does not know that one.

Rule 1: the answer that is read belongs to the oldest request that waits; any other correlation id is a broken peer.
Rule 2: after any failure the connection is closed, because nobody knows how much of an answer was read. Requests that
were waiting may or may not have been carried out.
Rule 3: memory grows with the bytes that came, never with the length that was announced.

It does not retry, and knows no topics: see `client`. How it is secured is in `security`, `tls` and `sasl`: TLS wraps
the socket, and SASL has its exchange after the versions are known and before anything else is sent.
"""

import contextlib
import math
import select
import socket
from collections import deque
from collections.abc import Sequence
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, cast

from barnabas.client.options import Address, ClientOptions
from barnabas.client.sasl import SaslError, sasl_exchange
from barnabas.clock import Clock, SystemClock
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, Api, request_encoder, response_decoder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frames import RESPONSE_HEADER, SIZE, RequestHeader, request_frame
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.wire.primitives import DecodeError, skip_tagged_fields
from barnabas.wire.schema import VERSION_MAX, Versions

if TYPE_CHECKING:
    import ssl

# An answer is read into memory of this size first, which then grows as it fills.
CHUNK_BYTES = 1024 * 1024
# How many large answers leave their memory to later ones: whoever reads on still has the one before in hand.
_LARGE_KEPT = 2
# A larger one is an exception, whose memory nobody may need again.
_KEPT_BYTES_MAX = 16 * 1024 * 1024

_BY_NAME = {api.name: api for api in APIS.values()}
_CORRELATION_ID_MODULUS = 1 << 31


class ClientError(Exception):
    """What a client can fail with, other than an error code in an answer (`ApiError`)."""


class ConnectionFailedError(ClientError):
    """There is no connection to this address, or it broke, or no answer came in time."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.address, self.reason)


class AuthenticationError(ClientError):
    """The broker does not let this client in; another attempt would not change that."""


class UnsupportedVersionError(ClientError):
    """Broker and client have no version of an API in common."""


class _Waiting(NamedTuple):
    """A request whose answer has not come."""

    api: Api
    version: int
    correlation_id: int


class Connection:
    """An open connection whose broker has said what it can do."""

    def __init__(self, address: Address, options: ClientOptions, clock: Clock | None = None) -> None:
        """Open the connection; raises ConnectionFailedError or UnsupportedVersionError."""
        self.address = address
        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._waiting: deque[_Waiting] = deque()
        self._large: deque[bytearray] = deque(maxlen=_LARGE_KEPT)
        self._next_correlation_id = 0
        self._supported: dict[int, Versions] = {}
        self._socket = self._open()
        # After this moment the broker wants to be told anew who we are (KIP-368).
        self._expires = math.inf
        try:
            self._greet()
            if options.security.has_sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    def _open(self) -> socket.socket:
        timeout = self._options.socket_connection_setup_timeout_ms / 1000
        try:
            opened = socket.create_connection(self.address, timeout)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._secured(opened)
        except TimeoutError:
            raise ConnectionFailedError(self.address, f"no connection within {timeout:g} s") from None
        except OSError as error:
            raise ConnectionFailedError(self.address, error.strerror or str(error)) from None

    def _secured(self, opened: socket.socket) -> socket.socket:
        """Return the socket itself, or TLS over it."""
        security = self._options.security
        if not security.has_tls:
            return opened
        from barnabas.client import tls  # It takes longer to import than most commands take to run.

        try:
            return tls.secure(opened, security, self.address.host)
        except tls.TlsError as error:
            raise ConnectionFailedError(self.address, str(error)) from None

    def _greet(self) -> None:
        """Learn which versions the broker has."""
        greeting = ApiVersionsRequest(client_software_name="barnabas", client_software_version=_software_version())
        api = APIS[API_VERSIONS_KEY]
        self._supported = {API_VERSIONS_KEY: api.versions}
        answer = self.request(greeting)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.request(greeting, 0)
        if answer.error_code != ErrorCode.NONE:
            reason = f"the broker answers ApiVersions with error code {answer.error_code}"
            raise ConnectionFailedError(self.address, reason)
        self._supported = {row.api_key: Versions(row.min_version, row.max_version) for row in answer.api_keys}

    def _authenticate(self) -> None:
        """Prove who we are (SASL); raises AuthenticationError, which no other attempt can mend."""
        security = self._options.security
        answer = self.request(SaslHandshakeRequest(mechanism=security.mechanism), 1)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            has = ", ".join(answer.mechanisms)
            raise AuthenticationError(f"{self.address}: the broker has not {security.mechanism}, but {has}")
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationError(f"{self.address}: this listener does not use SASL")
        exchange = sasl_exchange(security.mechanism, security.username, security.password)
        try:
            question = next(exchange)
            while True:
                answer = self.request(SaslAuthenticateRequest(auth_bytes=question))
                if answer.error_code != ErrorCode.NONE:
                    said = answer.error_message or f"error code {answer.error_code}"
                    raise AuthenticationError(f"{self.address}: user {security.username!r} was refused: {said}")
                question = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            pass
        except SaslError as error:
            raise AuthenticationError(f"{self.address}: {error}") from None
        if getattr(answer, "session_lifetime_ms", 0) > 0:
            # A new connection is opened some time before the broker would close this one.
            self._expires = self._clock.monotonic_seconds() + 0.85 * answer.session_lifetime_ms / 1000

    def version_of(self, name: str, at_most: int = VERSION_MAX) -> int:
        """Return the newest version of an API that both sides know; raises UnsupportedVersionError."""
        api = _BY_NAME[name]
        usable = self._usable(api, at_most)
        if usable is not None:
            return usable
        theirs = self._supported.get(api.key)
        ours = f"{api.versions.low} to {min(api.versions.high, at_most)}"
        said = f"has {theirs.low} to {theirs.high}" if theirs else "does not have that API"
        raise UnsupportedVersionError(f"{self.address}: {name} is needed in version {ours}, but the broker {said}")

    def _usable(self, api: Api, at_most: int) -> int | None:
        theirs = self._supported.get(api.key)
        if theirs is None:
            return None
        high = min(api.versions.high, theirs.high, at_most)
        return high if high >= max(api.versions.low, theirs.low) else None

    @property
    def in_flight(self) -> int:
        """How many answers are waited for."""
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent, as far as is known."""
        if self._socket.fileno() < 0:
            return False
        return bool(self._waiting) or self._expires == math.inf or self._clock.monotonic_seconds() < self._expires

    @property
    def has_decrypted(self) -> bool:
        """Whether bytes have come that TLS holds."""
        return self._options.security.has_tls and cast("ssl.SSLSocket", self._socket).pending() > 0

    def fileno(self) -> int:
        """The socket's number, so that `select` can wait for several connections."""
        return self._socket.fileno()

    def request(self, message: Any, version: int | None = None) -> Any:
        """Send a message, and return its answer; nothing else may be waiting."""
        assert not self._waiting, "other answers are to be received first"
        self.send(message, version)
        return self.receive()

    def send(self, message: Any, version: int | None = None, *, is_answered: bool = True) -> None:
        """Send a message. Its class tells the API, and the version is the newest common one unless said otherwise."""
        api = _BY_NAME[type(message).__name__.removesuffix("Request")]
        version = self.version_of(api.name) if version is None else version
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_ID_MODULUS
        header = RequestHeader(api.key, version, correlation_id, self._options.client_id)
        frame = b"".join(request_frame(api, header, request_encoder(api, version)(message)))
        self._check_open()
        try:
            self._socket.settimeout(self._options.request_timeout_ms / 1000)
            self._socket.sendall(frame)
        except TimeoutError:
            self._fail("the broker did not take the request in time")
        except OSError as error:
            self._fail(error.strerror or str(error))
        except BaseException:
            self.close()  # Somebody pressed Ctrl-C, and half of a request is on its way.
            raise
        if is_answered:
            self._waiting.append(_Waiting(api, version, correlation_id))

    def receive(self) -> Any:
        """Wait for the answer to the oldest request that has none, and return it."""
        assert self._waiting, "no answer is waited for"
        api, version, correlation_id = self._waiting[0]
        self._check_open()
        try:
            data = self._receive_frame(api.name)
        except BaseException:
            self.close()  # Also after Ctrl-C: the rest of this answer would be taken for the next one.
            raise
        (found,) = SIZE.unpack_from(data)
        if found != correlation_id:
            self._fail(f"the answer has correlation id {found}, but {correlation_id} was to come")
        self._waiting.popleft()
        try:
            return _decode(api, version, data)
        except DecodeError as error:
            self._fail(f"the answer can not be read: {error}")

    def has_answer(self, seconds: float = 0.0) -> bool:
        """Tell whether the beginning of an answer, or the end of the connection, is there to be received."""
        return bool(readable([self], seconds))

    def _receive_frame(self, name: str) -> memoryview:
        """Return the bytes of an answer, from its correlation id on."""
        deadline = self._clock.monotonic_seconds() + self._options.request_timeout_ms / 1000
        (size,) = SIZE.unpack(self._receive_bytes(SIZE.size, deadline, name))
        least, most = RESPONSE_HEADER.size - SIZE.size, self._options.response_bytes_max
        if not least <= size <= most:
            self._fail(f"the answer has {least} to {most} bytes, but {size} were announced; is this a Kafka listener?")
        return self._receive_bytes(size, deadline, name)

    def _receive_bytes(self, size: int, deadline: float, name: str) -> memoryview:
        data = bytearray(size) if size <= CHUNK_BYTES else self._large_memory()
        filled = 0
        while filled < size:
            if filled == len(data):
                data.extend(bytes(min(len(data), size - filled)))
            with memoryview(data) as view, view[filled:size] as room:
                filled += self._receive_some(room, deadline, name)
        if CHUNK_BYTES < len(data) <= _KEPT_BYTES_MAX:
            self._large.append(data)
        return memoryview(data)[:size]

    def _large_memory(self) -> bytearray:
        """Return memory for a large answer: that of an earlier one which nobody looks at any more, or fresh memory.

        What was written to before is several times as fast as what the system has yet to give.
        """
        for _ in range(len(self._large)):
            data = self._large.popleft()
            try:
                # Nothing can be appended as long as there are views of it.
                data.append(0)
            except BufferError:
                self._large.append(data)
            else:
                data.pop()
                return data
        return bytearray(CHUNK_BYTES)

    def _receive_some(self, room: memoryview, deadline: float, name: str) -> int:
        try:
            # A time-out of 0 would mean not to wait at all, and is another error then.
            self._socket.settimeout(max(deadline - self._clock.monotonic_seconds(), 0.001))
            count = self._socket.recv_into(room)
        except TimeoutError:
            self._fail(f"no answer to {name} within {self._options.request_timeout_ms / 1000:g} s")
        except OSError as error:
            self._fail(error.strerror or str(error))
        if count == 0:
            self._fail(f"the broker closed the connection before it answered {name}")
        return count

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionFailedError(self.address, "the connection is closed")

    def _fail(self, reason: str) -> NoReturn:
        self.close()
        raise ConnectionFailedError(self.address, reason) from None

    def close(self) -> None:
        """Close the connection; what waits for an answer gets none."""
        self._waiting.clear()
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def readable(connections: Sequence[Connection], seconds: float) -> list[Connection]:
    """Wait until one of these has something to be received, and return those that have."""
    # What TLS has decrypted already is not in the socket any more, and nothing would tell of it.
    ready = [connection for connection in connections if connection.is_open and connection.has_decrypted]
    if ready:
        return ready
    poller = select.poll()
    by_number = {connection.fileno(): connection for connection in connections if connection.is_open}
    for number in by_number:
        poller.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poller.poll(seconds * 1000)]


def _decode(api: Api, version: int, data: memoryview) -> Any:
    position = SIZE.size
    is_greeting = api.key == API_VERSIONS_KEY
    if is_greeting and len(data) >= position + 2 and data[position : position + 2] == _UNSUPPORTED:
        # A broker that does not know our version answers in version 0, whatever we asked in (KIP-511).
        version = 0
    try:
        if api.is_flexible(version) and not is_greeting:
            position = skip_tagged_fields(data, position)
    except IndexError:
        raise DecodeError("it ends in its header") from None
    return response_decoder(api, version)(data, position)[0]


_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


@cache
def _software_version() -> str:
    # It takes longer to import than a connection takes to open.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"
