"""The produce load: keeps every connection's window full, and looks at every answer.

Bytes come from the rings and go to sockets; what comes back is compared with what must come back, and timed. One thread
and one epoll drive all connections. A wake-up costs one `recv` for all answers that are there, and one `send` for all
requests that may follow.

Rule 1: nothing is built, encoded or decoded during a load. An answer is decoded only if it is not the expected one.
"""

import gc
import select
import socket
import time
from collections import deque

from barnabas.wire.apis import response_decoder
from barnabas.wire.primitives import DecodeError
from bench.load.requests import PRODUCE, PRODUCE_VERSION, Ring, build_rings
from bench.load.spec import LoadError, LoadReport, LoadSpec, quantile

SILENCE_S_MAX = 30.0
RECEIVE_BYTES = 1 << 16
EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET


class Connection:
    """One connection, its ring, and how far it is."""

    def __init__(self, port: int, ring: Ring) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.ring = ring
        self.requested = 0
        self.answered = 0
        self._frames = memoryview(ring.frames)
        self._position = 0
        self._unsent = 0
        self._sent_at: deque[int] = deque()
        self._received = b""

    def request(self, count: int, now_ns: int) -> None:
        """Put the next frames in the queue and send what the socket takes."""
        self.requested += count
        self._unsent += count * self.ring.frame_bytes
        self._sent_at.extend([now_ns] * count)
        self.push()

    def push(self) -> None:
        """Send what waits, until the socket takes no more."""
        end = len(self._frames)
        try:
            while self._unsent:
                sent = self.socket.send(self._frames[self._position : min(end, self._position + self._unsent)])
                self._unsent -= sent
                self._position += sent
                if self._position == end:
                    self._position = 0
        except BlockingIOError:
            pass

    def receive(self, latencies: list[int]) -> int:
        """Take the answers that are there, and return the time at which they were."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return time.perf_counter_ns()
        now_ns = time.perf_counter_ns()
        if not data:
            raise LoadError("the broker closed a connection")
        if self._received:
            data = self._received + data
        size = self.ring.answer_bytes
        prefixes = self.ring.prefixes
        slot = self.answered % len(prefixes)
        position = 0
        end = len(data) - size
        while position <= end:
            if not data.startswith(prefixes[slot], position):
                raise LoadError(_describe(data[position:], prefixes[slot]))
            position += size
            slot += 1
            if slot == len(prefixes):
                slot = 0
            latencies.append(now_ns - self._sent_at.popleft())
        self.answered += position // size
        self._received = data[position:]
        if self._received and not prefixes[slot].startswith(self._received[: len(prefixes[slot])]):
            raise LoadError(_describe(self._received, prefixes[slot]))
        return now_ns

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _describe(data: bytes, expected: bytes) -> str:
    """Say what came instead of the expected answer."""
    try:
        response, _ = response_decoder(PRODUCE, PRODUCE_VERSION)(data, 9)
    except DecodeError:
        response = data[:200].hex()
    return f"an answer does not begin with {expected.hex()}; it is {response}"


class ProduceLoad:
    """Connections that are ready to begin."""

    def __init__(self, spec: LoadSpec) -> None:
        self._spec = spec
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        for ring in build_rings(spec):
            connection = Connection(spec.port, ring)
            self._connections[connection.socket.fileno()] = connection

    def run(self) -> LoadReport:
        """Load the broker, wait for the last answer, and report."""
        latencies: list[int] = []
        gc.disable()
        cpu, started_ns = time.process_time(), time.perf_counter_ns()
        for number, connection in self._connections.items():
            connection.request(self._spec.in_flight, time.perf_counter_ns())
            self._epoll.register(number, EVENTS)
        self._drive(started_ns + int(self._spec.seconds * 1e9), latencies)
        seconds = (time.perf_counter_ns() - started_ns) / 1e9
        busy = (time.process_time() - cpu) / seconds
        gc.enable()
        return self._report(seconds, busy, latencies)

    def _drive(self, deadline_ns: int, latencies: list[int]) -> None:
        """Answer events until every connection has all its answers."""
        connections = self._connections
        poll = self._epoll.poll
        in_flight = self._spec.in_flight
        # What each connection may send, so that the bound holds for all together.
        frame_bytes = next(iter(connections.values())).ring.frame_bytes
        requests_max = max(in_flight, self._spec.bytes_max // frame_bytes // len(connections))
        open_connections = len(connections)
        while open_connections:
            events = poll(SILENCE_S_MAX)
            if not events:
                raise LoadError(f"no answer within {SILENCE_S_MAX:.0f} s")
            for number, event in events:
                connection = connections[number]
                if not event & select.EPOLLIN:
                    connection.push()
                    continue
                answered = connection.answered
                now_ns = connection.receive(latencies)
                if now_ns < deadline_ns and connection.requested < requests_max:
                    free = in_flight - (connection.requested - connection.answered)
                    connection.request(min(free, requests_max - connection.requested), now_ns)
                else:
                    connection.push()
                    if connection.answered == connection.requested != answered:
                        open_connections -= 1

    def _report(self, seconds: float, busy: float, latencies: list[int]) -> LoadReport:
        acknowledged = [0] * self._spec.partitions
        size = 0
        for connection in self._connections.values():
            connection.close()
            size += connection.answered * connection.ring.batch_bytes
            rounds, rest = divmod(connection.answered, len(connection.ring.partitions))
            for slot, partition in enumerate(connection.ring.partitions):
                acknowledged[partition] += rounds + (slot < rest)
        latencies.sort()
        return LoadReport(
            seconds=seconds,
            requests=len(latencies),
            bytes=size,
            p50_us=quantile(latencies, 0.5) / 1e3,
            p99_us=quantile(latencies, 0.99) / 1e3,
            p999_us=quantile(latencies, 0.999) / 1e3,
            generator_busy=busy,
            acknowledged=acknowledged,
        )
