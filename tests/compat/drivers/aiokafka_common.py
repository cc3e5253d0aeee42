"""What all of aiokafka's driver shares: its event loop, and its errors and records in the words of the scenarios."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

# aiokafka carries no type information.
from aiokafka.errors import KafkaError, ProducerFenced  # type: ignore[import-untyped]

from tests.compat.model import DEADLINE_S, ClientError, Record, error_name

Result = TypeVar("Result")

APPEND_TIME = 1


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except KafkaError as failure:
        code = getattr(failure, "errno", None)
        # aiokafka has an error of its own for this.
        is_fenced = isinstance(failure, ProducerFenced)
        local = "PRODUCER_FENCED" if is_fenced else f"local: {type(failure).__name__}"
        name = error_name(code) if code else local
        raise ClientError(name, str(failure)) from failure


def raise_for(code: int, message: str | None = None) -> None:
    if code != 0:
        raise ClientError(error_name(code), message or "")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with translated():
            # Twice the deadline, so that the client's own one comes first.
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * DEADLINE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def record_of(record: Any) -> Record:
    return Record(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        append_time=record.timestamp_type == APPEND_TIME,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
