"""SendBuffers: memory that parts of files are read into on their way to a socket, used again and again.

Reading into fresh memory costs ten times what reading into used memory does. A transport keeps a reference to what it
could not send at once, so a buffer comes back only when that was sent.
"""

CHUNK_BYTES = 1 << 20
KEPT = 8


class SendBuffers:
    """The buffers of a loop."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self) -> memoryview:
        """Return a buffer; nobody else has it until it is given back."""
        return self._free.pop() if self._free else memoryview(bytearray(CHUNK_BYTES))

    def give(self, buffer: memoryview) -> None:
        """Take a buffer back."""
        if len(self._free) < KEPT:
            self._free.append(buffer)
