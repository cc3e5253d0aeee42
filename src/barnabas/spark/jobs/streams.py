"""Runs a streaming query of a job to its end, and tells meanwhile how far it is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.spark.jobs.topics import plain_error

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.5


def run_to_the_end(query: StreamingQuery, look: Callable[[], None], *, is_endless: bool) -> None:
    """Wait for a query, and look at it now and then. An endless one ends when somebody interrupts it (Ctrl-C).

    Raises:
        PipelineError: The query failed with a sentence of ours.
    """
    try:
        with _noted_interrupts() as noted:
            while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                look()
                if noted:
                    raise KeyboardInterrupt
            look()
    except KeyboardInterrupt:
        if not is_endless:
            raise
    except Exception as error:
        plain = plain_error(error)
        if plain is None:
            raise
        raise plain from error
    finally:
        if query.isActive:
            query.stop()


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Note signals that would raise KeyboardInterrupt; the second raises it.

    In the middle of an answer of Java's it would leave Py4J with a connection that is of no use for the next question.
    """
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        if len(noted) > 1:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    # A signal that nobody handles ends the process as it always did.
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if is_main and callable(signal.getsignal(each))]
    before = {each: signal.signal(each, note) for each in numbers}
    try:
        yield noted
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
