"""Words for the storage tests: batches, headers of a producer's batches, logs, and the errors that are expected."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.clock import Clock, ManualClock
from barnabas.config import LogConfig
from barnabas.records.batch import (
    CONTROL,
    HEADER,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    compute_crc,
    read_header,
    restamp_crc,
)
from barnabas.records.builder import build_batch, end_transaction_marker
from barnabas.records.record import Record, batch_records
from barnabas.storage.files import Files
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.log_types import LogOptions
from barnabas.storage.segment import OpenSegments
from barnabas.wire.errors import ApiError, ErrorCode

NOW_MS = ManualClock().now_ms()
COORDINATOR_EPOCH = 5


def batch_of(count: int = 1, *, timestamp: int = NOW_MS, size: int = 10, **fields: Any) -> bytearray:
    """A batch of `count` records, each with a key, a value of `size` bytes and a timestamp one after the other."""
    records = [(timestamp + number, b"key-%d" % number, b"v" * size, ()) for number in range(count)]
    return build_batch(records, **fields)


def sent_by(
    producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, **fields: Any
) -> bytearray:
    """A batch of an idempotent producer."""
    return batch_of(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        **fields,
    )


def marker_of(
    producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = COORDINATOR_EPOCH, **fields: Any
) -> bytearray:
    """The control batch that ends a transaction."""
    return end_transaction_marker(
        commit=commit,
        timestamp=fields.pop("timestamp", NOW_MS),
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        **fields,
    )


def producer_header(
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    offset: int = 0,
    timestamp: int = NOW_MS,
    transactional: bool = False,
) -> BatchHeader:
    """The header of a batch of an idempotent producer, without a batch behind it."""
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def marker_header(producer_id: int, *, offset: int, epoch: int = 0, timestamp: int = NOW_MS) -> BatchHeader:
    """The header of a control batch."""
    header = producer_header(producer_id, NO_SEQUENCE, epoch=epoch, offset=offset, timestamp=timestamp)
    return header._replace(attributes=TRANSACTIONAL | CONTROL)


def with_fields(batch: bytes | bytearray, **fields: int) -> bytearray:
    """The same batch with other values in its header, and a checksum that is right for them."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *read_header(batch)._replace(**fields))
    if "crc" not in fields:
        restamp_crc(changed, 0, len(changed))
    return changed


def with_body(batch: bytes | bytearray, body: bytes, **fields: int) -> bytearray:
    """The same batch with other bytes behind its header, length and checksum right for them."""
    return with_fields(bytes(batch[:61]) + body, batch_length=49 + len(body), **fields)


def records_in(data: bytes | bytearray | memoryview) -> list[Record]:
    """All records of several batches, each of which must have the right checksum."""
    records: list[Record] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        assert header.crc == compute_crc(data, position, header.size)
        records += batch_records(data, header, position)
        position += header.size
    return records


@contextmanager
def refused(code: ErrorCode, words: str | None = None) -> Iterator[None]:
    """Expect that a client is answered with `code`."""
    with pytest.raises(ApiError, match=words) as caught:
        yield
    assert caught.value.code is code, caught.value


def log_options(files: Files, directory: str, config: LogConfig, clock: Clock | None = None) -> LogOptions:
    """What a log needs, each with its own cache of open segments."""
    return LogOptions(
        files=files,
        clock=clock or ManualClock(),
        directory=directory,
        config=config,
        open_segments=OpenSegments(),
    )


def open_log(
    files: Files, directory: str = "/data/orders-0", last_known: LastKnown | None = None, **settings: Any
) -> Log:
    """Open a log, after an unclean stop unless `last_known` says otherwise."""
    return load_log(log_options(files, directory, LogConfig(**settings)), last_known or LastKnown())


def after_clean_stop(log: Log) -> LastKnown:
    """What the checkpoints say of a log that was closed."""
    return LastKnown(log_start_offset=log.log_start_offset, recovery_point=log.log_end_offset, had_clean_shutdown=True)
