"""Runs a streaming query of a job to its end, and tells meanwhile how far it is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

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
        with _signals_between_questions() as deliver:
            while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                look()
                deliver()
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
def _signals_between_questions() -> Iterator[Callable[[], None]]:
    """Keep signals until `deliver`, which is yielded, hands them to whoever handles them; a second one is not kept.

    A handler that raises, as that of Ctrl-C does, in the middle of an answer of Java's would leave Py4J with a
    connection that is of no use for the next question.
    """
    kept: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        if kept:
            before[number](number, frame)
        kept.append(number)

    def deliver() -> None:
        while kept:
            number = kept.pop()
            before[number](number, None)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            # One that nobody handles ends the process as it always did.
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, keep)
    try:
        yield deliver
    finally:
        for kept_from, handler in before.items():
            signal.signal(kept_from, handler)
