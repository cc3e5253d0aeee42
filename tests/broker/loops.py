"""A loop that a test turns by hand, so that nothing depends on time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class HandLoop:
    """Runs what is due on an event loop, and nothing else."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def turn(self, times: int = 3) -> None:
        """Let everything run that was called for soon, and what that calls for."""

        async def pass_by() -> None:
            for _ in range(times):
                await asyncio.sleep(0)

        self.loop.run_until_complete(pass_by())


@contextmanager
def hand_loop() -> Iterator[HandLoop]:
    """A loop of the test's own, closed at the end."""
    hand = HandLoop()
    try:
        yield hand
    finally:
        hand.loop.close()
