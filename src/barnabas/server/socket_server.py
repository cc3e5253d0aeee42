"""SocketServer: listens, accepts, limits, and closes what is idle.

Acceptor and processors of Kafka are roles here, not threads: the loop accepts and serves all connections.

Rule 1: a connection over a limit (`max.connections`, `.per.ip`, `.per.ip.overrides`, the open files that the system
allows) is closed with one line in the log.
Rule 2: of the connections that are quiet for `connections.max.idle.ms`, the oldest are closed first. Quiet is also one
that is not read from for so long, whatever it waits for: nobody would notice that its client is gone.
Rule 3: a failed accept is logged, and accepting goes on; who could not be accepted waits.
"""

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable

from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.broker_config import BrokerConfig, Endpoint
from barnabas.clock import Clock
from barnabas.server.busy_poll import BusyPoll
from barnabas.server.connection import Connection
from barnabas.server.receive_buffer import SharedBuffer
from barnabas.server.send_buffers import SendBuffers

logger = logging.getLogger(__name__)

IDLE_CHECK_MS = 1_000
FILES_KEPT = 1_024
"""So many open files are left to logs: a file that can not be opened takes its log directory offline."""
ACCEPTS_PER_TURN = 64
ACCEPT_AGAIN_MS = 100
"""How long accepting rests after it failed, which it does when there are too many open files."""


class ListenError(Exception):
    """An address can not be listened on; the message says which and why."""


class SocketServer:
    """All sockets of a broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: RequestChannel,
        scheduler: Scheduler,
        pool: IoPool,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self.loop = loop
        self.channel = channel
        self.clock = clock
        self.pool = pool
        self.shared_buffer = SharedBuffer()
        self.send_buffers = SendBuffers()
        self.busy_poll = BusyPoll(loop.call_soon)
        self.frame_bytes_max = config().socket_request_max_bytes
        self._config = config
        self._scheduler = scheduler
        self._acceptors: list[_Acceptor] = []
        self._is_closing = False
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files_max = max(files_max - FILES_KEPT, files_max // 2)
        self._connections: dict[Connection, None] = {}
        self._per_address: Counter[str] = Counter()

    # Listen.

    def start(self) -> dict[str, Endpoint]:
        """Open every listener, and return where each listens by its name; raises ListenError."""
        listening: dict[str, Endpoint] = {}
        for endpoint in self._config().listeners:
            listening[endpoint.name] = self._listen(endpoint)
        self._scheduler.every(IDLE_CHECK_MS, self._close_idle)
        return listening

    def _listen(self, endpoint: Endpoint) -> Endpoint:
        port = endpoint.port
        try:
            for family, address in _addresses(endpoint.host):
                listener = _open(family, address, port, self._config())
                port = listener.getsockname()[1]
                self._acceptors.append(_Acceptor(self, endpoint.name, listener))
        except OSError as error:
            reason = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise ListenError(f"{endpoint} can not be listened on: {reason}") from None
        except UnicodeError:  # What no name server can be asked for.
            raise ListenError(f"{endpoint} can not be listened on: its host is no name of a machine") from None
        return endpoint._replace(port=port)

    # Connections.

    def add(self, connection: Connection) -> str | None:
        """Take a connection in, or return why not."""
        config, host = self._config(), connection.client_host
        if self._is_closing:
            return "the broker is stopping"
        if len(self._connections) >= config.max_connections:
            return f"there are {len(self._connections)} already, and max.connections is {config.max_connections}"
        if len(self._connections) >= self._files_max:
            return f"there are {len(self._connections)} already, and the system lets us have few more files open"
        limit = dict(config.max_connections_per_ip_overrides).get(host, config.max_connections_per_ip)
        if self._per_address[host] >= limit:
            return f"it has {self._per_address[host]} already, and its limit is {limit}"
        self._connections[connection] = None
        self._per_address[host] += 1
        return None

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        if connection in self._connections:
            del self._connections[connection]
            self._per_address[connection.client_host] -= 1
            if not self._per_address[connection.client_host]:
                del self._per_address[connection.client_host]

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def _close_idle(self) -> None:
        """Close what is idle for too long, beginning with the oldest."""
        idle_ms_max = self._config().connections_max_idle_ms
        if idle_ms_max < 0:
            return
        oldest = self.clock.monotonic_seconds() - idle_ms_max / 1000
        for connection in sorted(self._connections, key=lambda one: one.last_active):
            if connection.last_active > oldest:
                break
            if connection.is_idle or connection.is_reading_paused:
                logger.info(
                    "the connection from %s was idle for %d ms and is closed", connection.client_host, idle_ms_max
                )
                if connection.is_idle:
                    connection.close()
                else:
                    connection.abort()  # What it has not read by now would keep it open.

    # Stop.

    def stop_listening(self) -> None:
        """Take no more connections, and no more requests of those that are there, or a busy broker would never end."""
        self._is_closing = True
        self.channel.close()
        for acceptor in self._acceptors:
            acceptor.close()

    async def drain(self, seconds_max: float) -> None:
        """Wait until every request that was begun is answered; not by the clock, which a test may have stopped."""
        deadline = self.loop.time() + seconds_max
        while any(not connection.is_idle for connection in self._connections) and self.loop.time() < deadline:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)


class _Acceptor:
    """One listening socket. The loop's own way to accept closes what can not be accepted, and tells nobody."""

    def __init__(self, server: SocketServer, listener: str, listening: socket.socket) -> None:
        self._server = server
        self._loop = server.loop
        self._listener = listener
        self._socket = listening
        self._is_failing = False
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        """Accept those that wait."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                self._is_failing = False  # Nobody is left to wait.
                return
            except ConnectionAbortedError:
                continue  # The client did not wait for us.
            except OSError as error:
                self._rest(error)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._connect(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: Connection(self._server, self._listener), accepted)
        except OSError as error:
            accepted.close()
            logger.warning("a connection could not be accepted: %s", error)

    def _rest(self, error: OSError) -> None:
        """Go on a little later; the clients wait in the backlog. It is told once, not every time it is tried."""
        if not self._is_failing:
            self._is_failing = True
            logger.error("connections can not be accepted and have to wait: %s", error)
        self._loop.remove_reader(self._socket)
        self._loop.call_later(ACCEPT_AGAIN_MS / 1000, self._go_on)

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Take no more connections."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._socket)
            self._socket.close()


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Return the addresses of a host; none is every address, of both kinds where the machine has both."""
    if not host:
        return [(socket.AF_INET6, "::")] if socket.has_dualstack_ipv6() else [(socket.AF_INET, "0.0.0.0")]
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name may have several, IPv4 first: that is the one that clients on the same machine are told.
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return sorted(unique, key=lambda one: one[0] != socket.AF_INET)


def _open(family: socket.AddressFamily, address: str, port: int, config: BrokerConfig) -> socket.socket:
    """Return a listening socket; buffer sizes are set here, because accepted sockets take them over."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
        if config.socket_send_buffer_bytes >= 0:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
        if config.socket_receive_buffer_bytes >= 0:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        listener.bind((address, port))
        listener.listen(config.socket_listen_backlog_size)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
