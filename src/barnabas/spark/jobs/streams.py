"""Runs a streaming query of a job to its end, and tells meanwhile how far it is."""

from __future__ import annotations

from collections.abc import Callable
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
        while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
            look()
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
