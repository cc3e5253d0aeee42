"""What all of kafka-python's driver shares: its errors and its records in the words of the scenarios."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka.errors import KafkaError

from tests.compat.model import ClientError, Record, error_name

APPEND_TIME = 1


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except KafkaError as failure:
        code = getattr(failure, "errno", None)
        name = error_name(code) if code else f"local: {type(failure).__name__}"
        raise ClientError(name, str(failure)) from failure


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
