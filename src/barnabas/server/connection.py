"""Connection: one client's socket, from received bytes to sent bytes.

    get_buffer -> (the loop receives) -> buffer_updated -> frames -> RequestChannel.handle -> answers -> transport
                                                                                          \\-> on_answer, later

Rule 1: requests are handled in the order they came, and answered in that order. The next one waits for the answer to
the one before, unless that is a produce, whose appends are done: several of those may wait for the disk together.
Rule 2: nothing is handled for a client that does not read its answers, while the request channel is full, or while a
request is under way. Of what it sends then 64 KB are received, because only who reads notices that the other end is
closed; the rest waits in its socket.
Rule 3: an answer is bytes and slices of files. A large slice goes from the page cache to the socket without passing
through this process, as far as the socket takes it; a small piece, given to the transport, then waits for the socket to
take more. Small slices, and what has to be waited for, are read in pieces of at most 1 MB, the next when the last was
sent. So a slow reader pins one piece and not its whole fetch.
Rule 4: bytes that can not be understood end the connection with one line in the log, and hurt nobody else.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.request_channel import Request, RequestChannel
from barnabas.server.receive_buffer import READ_BYTES_MAX, ReceiveBuffer
from barnabas.server.send_buffers import CHUNK_BYTES
from barnabas.wire.frames import REQUEST_HEADER, SIZE
from barnabas.wire.primitives import DecodeError

if TYPE_CHECKING:
    from barnabas.server.socket_server import SocketServer

logger = logging.getLogger(__name__)

FRAMES_PER_TURN = 64
"""After so many frames other connections get their turn."""
TURN_SECONDS = 0.005
"""They also get it after so long, which a few frames may take."""
CHUNKS_PER_TURN = 4
SMALL_BYTES = 64 << 10
"""A piece of a file up to this size is copied, which costs less than keeping track of a buffer. An answer up to this
size may wait together with others, and requests up to this size in all may wait for their turn."""
WRITE_BUFFER_HIGH = 0
"""The transport says that it is paused as soon as it could not send everything, and resumes when it has: only then may
a buffer be used again that it was given."""


UNTELLABLE = "its request failed, and there is no answer that could say so"
"""Why a connection ends by a produce with acks=0 that failed, which makes the client look for the leader anew."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection."""

    def __init__(self, server: "SocketServer", listener: str) -> None:
        self._server = server
        self._channel: RequestChannel = server.channel
        self._clock = server.clock
        self._turn_ended = server.busy_poll.turn_ended
        self._frame_bytes_max = server.frame_bytes_max
        self.listener = listener
        self.client_host = "?"
        self.local_host = "127.0.0.1"
        self._transport: asyncio.Transport
        self._received = ReceiveBuffer(server.shared_buffer)
        # How many bytes have to be there before there is anything to handle.
        self._needed = 4
        # Requests that are not answered yet, and those after them that are and must wait for their turn.
        self._waiting: deque[Request] = deque()
        self._outgoing: deque[Any] = deque()
        self._sending: memoryview | None = None
        self._descriptor = -1
        self._is_writing_paused = False
        self._is_reading_file = False
        self.is_reading_paused = False
        # Whether frames that came have to wait for one of the reasons of rule 2.
        self._is_held = False
        self._is_waiting_for_room = False
        self._is_scheduled = False
        self._is_closing = False
        self.last_active = self._clock.monotonic_seconds()

    # Begin and end.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, or refuse it because there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        # An IPv4 client of a listener for both kinds of addresses is known, and told of us, by its IPv4 address.
        self.client_host = (transport.get_extra_info("peername") or ("?",))[0].removeprefix("::ffff:")
        self.local_host = (transport.get_extra_info("sockname") or ("127.0.0.1",))[0].removeprefix("::ffff:")
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH, low=0)
        self._descriptor = transport.get_extra_info("socket").fileno()
        refusal = self._server.add(self)
        if refusal is not None:
            logger.warning("a connection from %s is refused: %s", self.client_host, refusal)
            self._is_closing = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget everything; answers that come later are dropped."""
        self._is_closing = True
        self._server.remove(self)
        self._received.start = self._received.filled
        self._received.handled()
        self._outgoing.clear()
        self._return_buffer()
        for request in self._waiting:
            self._channel.abandon(request)
        self._waiting.clear()

    def close(self, reason: str | None = None) -> None:
        """End the connection; what was written already is still sent. A reason is one line in the log."""
        if self._is_closing:
            return
        self._is_closing = True
        if reason is not None:
            logger.warning("the connection from %s is closed: %s", self.client_host, reason)
        self._transport.close()

    def abort(self) -> None:
        """End the connection without sending what is left."""
        self._is_closing = True
        self._transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting and not self._outgoing

    # Receive.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory to receive into: little of it while requests wait, since the bytes will have to wait too."""
        room = self._received.room(self._needed)
        return room[:SMALL_BYTES] if self._waiting or self._is_held else room

    def buffer_updated(self, count: int) -> None:
        """Handle what came, if it makes a frame whole."""
        received = self._received
        received.filled += count
        if received.filled - received.start >= self._needed:
            self._handle_frames()
        else:
            self.last_active = self._clock.monotonic_seconds()

    def eof_received(self) -> bool | None:
        """Close when the client does: there is nobody left to answer."""
        if self._received.filled > self._received.start and not self._is_closing and not self._is_held:
            logger.info("%s went away in the middle of a request", self.client_host)
        return None

    def _handle_frames(self) -> None:
        started = self._clock.monotonic_seconds()
        received, channel = self._received, self._channel
        must_wait = is_turn_over = False
        short_answers = 0
        if not (self._waiting or self._is_writing_paused or self._is_closing or channel.is_full):
            received.start, short_answers, answers = channel.take_plain(
                received.view, received.start, received.filled, self._frame_bytes_max
            )
            if answers:
                self._outgoing.append(answers)
            if short_answers:
                self._needed = 4
        for _ in range(FRAMES_PER_TURN - short_answers):
            start = received.start
            available = received.filled - start
            if available < 4:
                break
            if (self._waiting or self._is_writing_paused or self._is_closing or channel.is_full) and self._must_wait():
                must_wait = True
                break
            (size,) = SIZE.unpack_from(received.view, start)
            if size > self._frame_bytes_max or size < REQUEST_HEADER.size:
                self._refuse(f"a request of {size} bytes; {REQUEST_HEADER.size} to {self._frame_bytes_max} are read")
                break
            if available < 4 + size:
                self._needed = 4 + size
                break
            self._needed = 4
            received.start = start + 4 + size
            frame = received.view[start + 4 : start + 4 + size]
            answer = None if self._waiting else channel.answer_shortly(frame)
            if answer is None:
                try:
                    request = channel.handle(self, frame, started)
                except DecodeError as error:
                    self._refuse(str(error))
                    break
                self._take(request)
                if request.size > SMALL_BYTES or self._clock.monotonic_seconds() - started > TURN_SECONDS:
                    is_turn_over = True
                    break
                continue
            short_answers += 1
            if answer:
                self._outgoing.append(answer)
            if self._clock.monotonic_seconds() - started > TURN_SECONDS:
                is_turn_over = True
                break
        else:
            is_turn_over = True
        received.handled()
        if self._outgoing:
            self._send()
        self._is_held = must_wait
        if must_wait or is_turn_over or self.is_reading_paused:
            self._limit_reading(is_turn_over=is_turn_over)
        self.last_active = now = self._clock.monotonic_seconds()
        channel.count_turn(now - started, short_answers)
        self._turn_ended()

    def _must_wait(self) -> bool:
        """Tell whether the next request has to wait, for one of the reasons of rule 2."""
        if self._is_closing or self._is_writing_paused:
            return True
        if self._waiting and not self._waiting[-1].is_pipelined:
            return True
        if self._channel.is_full:
            if not self._is_waiting_for_room:
                self._is_waiting_for_room = True
                self._channel.wait_for_room(self._on_room)
            return True
        return False

    def _on_room(self) -> None:
        self._is_waiting_for_room = False
        self._continue_soon()

    def _refuse(self, reason: str) -> None:
        self._received.start = self._received.filled
        self._send()
        self.close(reason)

    def _limit_reading(self, *, is_turn_over: bool) -> None:
        """Read from the socket, or not, by how much came that is not handled and why it is not."""
        unhandled = self._received.filled - self._received.start
        if self._is_held:
            self._set_reading(is_wanted=unhandled < SMALL_BYTES)
        elif is_turn_over:
            self._continue_soon()
            self._set_reading(is_wanted=unhandled <= READ_BYTES_MAX)
        else:
            self._set_reading(is_wanted=True)

    def _set_reading(self, *, is_wanted: bool) -> None:
        if self._is_closing or is_wanted != self.is_reading_paused:
            return
        self.is_reading_paused = not is_wanted
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._received.evict()
            self._transport.pause_reading()

    def _continue_soon(self) -> None:
        if not self._is_scheduled and not self._is_closing:
            self._is_scheduled = True
            self._server.loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        if not self._is_closing:
            try:
                self._handle_frames()
            except BaseException:
                self.abort()  # As the loop does when it receives: nobody knows which requests are served by now.
                raise

    # Answer.

    def _take(self, request: Request) -> None:
        """Put an answer in its place."""
        if self._waiting or not request.is_answered:
            self._waiting.append(request)
        elif request.is_closing:
            self._send()
            self.close(UNTELLABLE)
        else:
            self._outgoing.extend(request.parts)

    def on_answer(self, request: Request) -> None:
        """Send answers that were not there at once, and go on with the requests behind them."""
        if self._is_closing:
            return
        while self._waiting and self._waiting[0].is_answered:
            first = self._waiting.popleft()
            if first.is_closing:
                self._send()
                self.close(UNTELLABLE)
                return
            self._outgoing.extend(first.parts)
        self.last_active = self._clock.monotonic_seconds()
        self._send()
        if self._is_held:
            self._continue_soon()

    # Send.

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is answered."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Go on when everything was sent."""
        self._is_writing_paused = False
        self.last_active = self._clock.monotonic_seconds()
        self._return_buffer()
        self._send()
        if self._is_held:
            self._continue_soon()

    def _return_buffer(self) -> None:
        if self._sending is not None:
            self._server.send_buffers.give(self._sending)
            self._sending = None

    def _send(self) -> None:
        """Send what there is to send, until the socket takes no more."""
        outgoing = self._outgoing
        chunks = 0
        while outgoing and not (self._is_writing_paused or self._is_reading_file or self._is_closing):
            head = b""
            if isinstance(outgoing[0], bytes):
                head = outgoing.popleft()
                if outgoing:
                    parts = [head]
                    while outgoing and isinstance(outgoing[0], bytes):
                        parts.append(outgoing.popleft())
                    head = b"".join(parts)
                if not outgoing or len(head) > SMALL_BYTES:
                    self._transport.write(head)
                    continue
            if chunks == CHUNKS_PER_TURN:
                outgoing.appendleft(head)
                self._server.loop.call_soon(self._send_more)
                return
            chunks += 1
            if outgoing[0].size <= SMALL_BYTES:
                self._send_chunk(head, CHUNK_BYTES)
            elif head:
                # A packet of its own for a few bytes would cost more than to copy what follows them.
                self._send_chunk(head, SMALL_BYTES)
            else:
                self._send_slice()

    def _send_more(self) -> None:
        if not self._is_closing:
            self._send()

    def _send_slice(self) -> None:
        """Send a piece of a file that needs no waiting for the disk, as much as the socket takes."""
        if self._transport.is_closing():
            # The client said that nothing more comes. What the transport has is still sent, and nothing may follow it.
            self._is_closing = True
            return
        part = self._outgoing[0]
        try:
            count = part.file.send_cached(self._descriptor, min(part.size, CHUNK_BYTES), part.position)
        except BlockingIOError:
            # Only the transport can wait for the socket, so it gets the next bytes.
            self._send_chunk(b"", SMALL_BYTES)
            return
        except ConnectionError:
            self.abort()
            return
        except OSError:
            count = 0  # The pool will meet the same error of the disk, and knows how to tell of it.
        if count:
            self._advance(part, count)
        else:
            self._read_in_pool(self._server.send_buffers.take())

    def _send_chunk(self, head: bytes, size_max: int) -> None:
        """Send bytes, and behind them as much of files as may be and needs no waiting for the disk."""
        outgoing = self._outgoing
        buffer = self._server.send_buffers.take()
        filled = len(head)
        buffer[:filled] = head
        while outgoing and filled < size_max:
            part = outgoing[0]
            if isinstance(part, bytes):
                if filled + len(part) > size_max:
                    break
                buffer[filled : filled + len(part)] = part
                filled += len(part)
                outgoing.popleft()
                continue
            wanted = min(part.size, size_max - filled)
            count = part.file.read_cached(buffer[filled : filled + wanted], part.position)
            if count == 0:
                break
            filled += count
            self._advance(part, count)
        if filled:
            self._write(buffer, filled)
        else:
            self._read_in_pool(buffer)

    def _advance(self, part: Any, count: int) -> None:
        """Take the first bytes off the slice that is sent next."""
        if count == part.size:
            self._outgoing.popleft()
        else:
            self._outgoing[0] = part._replace(position=part.position + count, size=part.size - count)

    def _write(self, buffer: memoryview, size: int) -> None:
        """Hand a buffer to the transport, and keep it as long as the transport does."""
        if size <= SMALL_BYTES:
            self._transport.write(bytes(buffer[:size]))
        else:
            self._transport.write(buffer[:size])
            if self._is_writing_paused:
                self._sending = buffer
                return
        self._server.send_buffers.give(buffer)

    def _read_in_pool(self, buffer: memoryview) -> None:
        """Let a thread wait for the disk, and go on when it has read."""
        part = self._outgoing[0]
        wanted = min(part.size, CHUNK_BYTES)
        self._is_reading_file = True

        def read(count: int | None, error: BaseException | None) -> None:
            self._is_reading_file = False
            if self._is_closing:
                self._server.send_buffers.give(buffer)
            elif error is not None or not count:
                self._server.send_buffers.give(buffer)
                self.close(f"a log could not be read: {error or 'it was cut off while it was sent'}")
                self.abort()
            else:
                self._advance(part, count)
                self._write(buffer, count)
                self._send()

        self._server.pool.submit(lambda: part.file.read_into(buffer[:wanted], part.position), read)
