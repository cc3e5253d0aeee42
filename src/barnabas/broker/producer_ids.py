"""Producer ids for idempotent producers, handed out one by one from blocks of a thousand.

Rule 1: a block is on the disk as taken before its first id is handed out, so that no id ever comes twice, also not
after a crash; the rest of a block is lost with the broker.
"""

from collections.abc import Callable

from barnabas.cluster.controller import Controller
from barnabas.wire.errors import ApiError


class ProducerIds:
    """The ids that this broker may hand out."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._block = iter(range(0))
        self._waiting: list[Callable[[int | ApiError], None]] = []

    def next(self, done: Callable[[int | ApiError], None]) -> None:
        """Give `done` an id that nobody else has: at once, or when the next block is there."""
        producer_id = None if self._waiting else next(self._block, None)
        if producer_id is not None:
            done(producer_id)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._controller.allocate_producer_ids(self._got_block)

    def _got_block(self, block: range | ApiError) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(block, ApiError):
            for done in waiting:
                done(block)
            return
        self._block = iter(block)
        for done in waiting:
            self.next(done)
