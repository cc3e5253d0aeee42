"""What all of confluent-kafka's driver shares: its errors and its records in the words of the scenarios."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from tests.compat.model import DEADLINE_S, ClientError, Record, error_name

Result = TypeVar("Result")


def client_error(error: KafkaError) -> ClientError:
    """The error in Kafka's words; librdkafka keeps negative codes for its own."""
    # With `auto.offset.reset=error` the broker's answer comes wrapped in an error of librdkafka's.
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "out of range" in error.str():
        return ClientError("OFFSET_OUT_OF_RANGE", error.str())
    # librdkafka has one word for a producer whose epoch another one has taken.
    if error.code() == KafkaError._FENCED:
        return ClientError("PRODUCER_FENCED", error.str())
    name = error_name(error.code()) if error.code() > 0 else f"local: {error.name()}"
    return ClientError(name, error.str())


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except KafkaException as failure:
        raise client_error(failure.args[0]) from failure


def result_of(future: "Future[Result]") -> Result:
    with translated():
        return future.result(DEADLINE_S)


def record_of(message: confluent_kafka.Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    timestamp_type, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or []
    key: Any = message.key()
    value: Any = message.value()
    return Record(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        append_time=timestamp_type == TIMESTAMP_LOG_APPEND_TIME,
        key=key,
        value=value,
        headers=tuple(headers),
    )
