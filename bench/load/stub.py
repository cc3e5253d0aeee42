"""A server that only counts bytes and answers: what the generator reaches against it is the generator's own limit.

It answers as a broker that takes every batch. It is given the spec of the load, so that it knows all answers
beforehand.
"""

import select
import socket

from bench.load.requests import Ring, build_rings
from bench.load.spec import LoadSpec

RECEIVE_BYTES = 1 << 20


class StubServer:
    """Listens from construction on, for the connections of one load."""

    def __init__(self, spec: LoadSpec) -> None:
        self._rings = build_rings(spec)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=len(self._rings))
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Answer until every connection is closed."""
        epoll = select.epoll()
        clients: dict[int, _Client] = {}
        for ring in self._rings:
            client = _Client(self._listener.accept()[0], ring)
            clients[client.socket.fileno()] = client
            epoll.register(client.socket.fileno(), select.EPOLLIN)
        buffer = bytearray(RECEIVE_BYTES)
        while clients:
            for number, _ in epoll.poll():
                if not clients[number].answer(buffer):
                    clients.pop(number).socket.close()


class _Client:
    """A connection: bytes that came, and answers that went."""

    def __init__(self, connected: socket.socket, ring: Ring) -> None:
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ring = ring
        self._received = 0
        self._answered = 0
        self._answers = ring.answers * 2

    def answer(self, buffer: bytearray) -> bool:
        """Take what is there and answer the frames that it completes; False when the other side closed."""
        count = self.socket.recv_into(buffer)
        self._received += count
        complete = self._received // self._ring.frame_bytes
        if complete > self._answered:
            slot = self._answered % len(self._ring.answers)
            self.socket.sendall(b"".join(self._answers[slot : slot + complete - self._answered]))
            self._answered = complete
        return count > 0
