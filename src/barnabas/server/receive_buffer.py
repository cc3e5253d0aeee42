"""ReceiveBuffer: the memory that requests are received into, shared by all connections of a loop.

    | handled ... | start   the rest of a frame that has not come yet   filled | room ...              |

Requests are handled where they were received, so nothing is copied on the way to the log. Callbacks of different
connections never interleave, so one buffer serves all. Its owner is the connection whose half frame lies in it; when
another one receives, that rest is moved to memory of its own first, which happens only when frames come in pieces from
several connections at a time.

Rule 1: memory of a connection's own grows with the bytes that came, never with the length that was announced.
Rule 2: whoever handles a frame must be done with its bytes when the next callback comes.
"""

from typing import Protocol

SHARED_BYTES = 2 << 20
OWN_BYTES_MIN = 64 << 10
READ_BYTES_MIN = 64 << 10
READ_BYTES_MAX = 256 << 10
"""What is received at a time is handled before anybody else is served, while it is in the processor's cache."""


class Owner(Protocol):
    """Whoever has bytes in the shared buffer."""

    def evict(self) -> None:
        """Take what is left in the shared buffer out of it."""
        ...


class SharedBuffer:
    """The one buffer of a loop."""

    __slots__ = ("beginning", "owner", "view")

    def __init__(self, size: int = SHARED_BYTES) -> None:
        self.view = memoryview(bytearray(size))
        self.beginning = self.view[:READ_BYTES_MAX]
        self.owner: Owner | None = None


class ReceiveBuffer:
    """What one connection has received and not handled yet: in the shared buffer, or in memory of its own."""

    __slots__ = ("_is_own", "_shared", "filled", "start", "view")

    def __init__(self, shared: SharedBuffer) -> None:
        self._shared = shared
        self._is_own = False
        self.view = shared.view
        # Invariant: what is not handled is view[start:filled]; in the shared buffer that is not empty only for its
        # owner.
        self.start = 0
        self.filled = 0

    def room(self, needed: int) -> memoryview:
        """Return memory to receive into; `needed` is how long the frame is that is being received, as far as known."""
        if self._is_own:
            return self._own_room()
        shared = self._shared
        if shared.owner is not self:
            if shared.owner is not None:
                shared.owner.evict()
            shared.owner = self
            return shared.beginning
        if self.start + max(needed, self.filled - self.start + READ_BYTES_MIN) > len(self.view):
            self._move_to_front()
        if needed > len(self.view) or self.filled == len(self.view):
            self.evict()
            return self._own_room()
        return self.view[self.filled : self.filled + READ_BYTES_MAX]

    def _own_room(self) -> memoryview:
        if self.start:
            self._move_to_front()
        if self.filled == len(self.view):
            self._take_memory(2 * self.filled)
        return self.view[self.filled : self.filled + READ_BYTES_MAX]

    def _move_to_front(self) -> None:
        size = self.filled - self.start
        self.view[:size] = self.view[self.start : self.filled]
        self.start, self.filled = 0, size

    def _take_memory(self, size: int) -> None:
        """Move what is not handled into new memory."""
        used = self.filled - self.start
        memory = memoryview(bytearray(size))
        memory[:used] = self.view[self.start : self.filled]
        self.view, self._is_own = memory, True
        self.start, self.filled = 0, used

    def evict(self) -> None:
        """Leave the shared buffer to others, and take along what is not handled."""
        if self._is_own:
            return
        if self.filled > self.start:
            self._take_memory(max(2 * (self.filled - self.start), OWN_BYTES_MIN))
        self._release()

    def handled(self) -> None:
        """Give memory back, if everything was handled."""
        if self.start == self.filled:
            self.start = self.filled = 0
            self._is_own = False
            self.view = self._shared.view
            self._release()

    def _release(self) -> None:
        if self._shared.owner is self:
            self._shared.owner = None
