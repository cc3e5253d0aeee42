"""Reads the batches in a range of bytes of a segment, in large pieces, each batch whole and checked.

Rule 1: a batch is only good until the next is asked for: one buffer serves the whole range.
Rule 2: batches must end where the range ends, unless the last record that is wanted comes before.
"""

import os
from collections.abc import Iterator
from struct import Struct

from barnabas.client.fetched import FetchedBatch, whole_batches
from barnabas.records.batch import LENGTH_POSITION, LOG_OVERHEAD, CorruptRecordError
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.segments.options import ReadOptions
from barnabas.spark.segments.planning import ByteRange
from barnabas.storage.transaction_index import AbortedTransaction

CHUNK_BYTES = 4 * 1024 * 1024
_LENGTH = Struct(">i")


class BatchFilter:
    """Tells which batches a consumer sees."""

    def __init__(self, aborted: tuple[AbortedTransaction, ...]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)

    def shows(self, batch: FetchedBatch) -> bool:
        """Tell whether a batch is neither a marker nor part of an aborted transaction."""
        header = batch.header
        if header is None:
            return True
        if header.is_control:
            return False
        if not (self._aborted and header.is_transactional):
            return True
        return not any(
            each.first_offset <= header.base_offset and batch.last_offset <= each.last_offset
            for each in self._aborted.get(header.producer_id, ())
        )


def batches_of(wanted: ByteRange, chosen: BatchFilter, options: ReadOptions) -> Iterator[FetchedBatch]:
    """Yield the batches of a range that have wanted records; raises PipelineError or DataLossError."""
    try:
        descriptor = os.open(wanted.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if options.fail_on_data_loss:
            raise _lost(f"{wanted.path} is gone since the query was planned") from None
        return
    except OSError as error:
        raise PipelineError(f"{wanted.path} can not be read: {error.strerror}") from None
    try:
        for batch in _whole_batches(descriptor, wanted, options):
            if batch.header is not None and batch.header.base_offset >= wanted.end_offset:
                return
            if batch.last_offset >= wanted.start_offset and chosen.shows(batch):
                yield batch
            if batch.last_offset + 1 >= wanted.end_offset:
                return
    finally:
        os.close(descriptor)


def _lost(what: str) -> DataLossError:
    return DataLossError(f"{what}; with option 'failOnDataLoss' false, what there is would be read")


def _whole_batches(descriptor: int, wanted: ByteRange, options: ReadOptions) -> Iterator[FetchedBatch]:
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(wanted.size, 1))))
    position = wanted.start_position
    while position < wanted.end_position:
        size = min(len(buffer), wanted.end_position - position)
        try:
            data = buffer[: _fill(descriptor, buffer[:size], position)]
        except OSError as error:
            raise PipelineError(f"{wanted.path} can not be read: {error.strerror}") from None
        if len(data) < size:
            if options.fail_on_data_loss:
                raise _lost(f"{wanted.path} became shorter since the query was planned")
            return
        used = 0
        try:
            for batch in whole_batches(data):
                if options.check_crcs:
                    batch.check()
                used += len(batch.data)
                yield batch
        except CorruptRecordError as error:
            raise PipelineError(f"{wanted.path} is damaged at byte {position + used}: {error.reason}") from None
        if used == 0:
            buffer = _larger(buffer, data, position, wanted)
        position += used


def _fill(descriptor: int, buffer: memoryview, position: int) -> int:
    filled = 0
    while filled < len(buffer):
        count = os.preadv(descriptor, [buffer[filled:]], position + filled)
        if count == 0:
            break
        filled += count
    return filled


def _larger(buffer: memoryview, data: memoryview, position: int, wanted: ByteRange) -> memoryview:
    """Return room for a batch that is larger than the buffer; raises PipelineError when the range ends inside of it."""
    left = wanted.end_position - position
    needed = left + 1
    if len(data) >= LOG_OVERHEAD:
        needed = LOG_OVERHEAD + _LENGTH.unpack_from(data, LENGTH_POSITION)[0]
    if needed > left:
        raise PipelineError(
            f"{wanted.path} is damaged at byte {position}: a batch begins there that goes on behind byte "
            f"{wanted.end_position}, where the file or another batch by its index was to be"
        )
    return memoryview(bytearray(max(needed, 2 * len(buffer))))
