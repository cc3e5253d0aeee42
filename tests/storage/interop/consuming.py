"""Reads a log of ours as a consumer does: slice by slice, in small steps, with only the bytes that a fetch returns."""

from collections import deque
from collections.abc import Iterator

from barnabas.model import LogOffsetMetadata, TopicPartition
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import read_marker
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, Record
from barnabas.storage.batches import read_any_header, records_of
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from tests.kafka_peer.populate import ConsumedRecord, TimestampType

# Smaller than many batches and larger than some, so that slices end within batches, after them and before them.
FETCH_BYTES = 1_000


def fetched_batches(
    log: Log, limit: LogOffsetMetadata, max_size: int = FETCH_BYTES
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Every whole batch below a limit, fetched from the end of the one before it."""
    offset = log.log_start_offset
    while offset < limit.message_offset:
        found = log.read(offset, max_size, limit, min_one_message=True)
        if found.records is None:
            return
        data = memoryview(found.records.file.read_at(found.records.size, found.records.position))
        before = offset
        for header, batch in whole_batches(data):
            yield header, records_of(batch, header, DECOMPRESSED_BYTES_MAX)
            offset = header.last_offset + 1
        assert offset > before, f"a fetch at offset {before} of {log.directory} brought no whole batch"


def whole_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a slice, but for the part of one at its end."""
    position = 0
    while len(data) - position > 12:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if size > len(data) - position:
            return
        yield read_any_header(data, position), data[position : position + size]
        position += size


def read_uncommitted(partition: TopicPartition, log: Log) -> list[ConsumedRecord]:
    """What a consumer of everything gets."""
    return [
        _consumed(partition, header, record)
        for header, records in fetched_batches(log, log.high_watermark)
        if not header.is_control
        for record in records
    ]


def read_committed(partition: TopicPartition, log: Log) -> list[ConsumedRecord]:
    """What a consumer of committed records gets: it leaves out the batches of producers whose abort is announced."""
    limit = log.last_stable
    announced = deque(sorted(log.aborted_transactions(log.log_start_offset, limit.message_offset), key=lambda a: a[1]))
    aborting: set[int] = set()
    consumed = []
    for header, records in fetched_batches(log, limit):
        while announced and announced[0].first_offset <= header.last_offset:
            aborting.add(announced.popleft().producer_id)
        if header.is_control:
            if records and not read_marker(records[0])[0]:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            consumed += [_consumed(partition, header, record) for record in records]
    return consumed


def _consumed(partition: TopicPartition, header: BatchHeader, record: Record) -> ConsumedRecord:
    return ConsumedRecord(
        topic=partition.topic,
        partition=partition.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        timestamp_type=TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME,
        key=record.key,
        value=record.value,
        headers=tuple((name.decode(), value) for name, value in record.headers),
    )


def consume_all(manager: LogManager, topics: dict[str, int], isolation_level: str) -> list[ConsumedRecord]:
    """Every record of these topics (name: number of partitions), by topic, partition and offset."""
    read = {"read_committed": read_committed, "read_uncommitted": read_uncommitted}[isolation_level]
    consumed: list[ConsumedRecord] = []
    for topic, count in sorted(topics.items()):
        for number in range(count):
            partition = TopicPartition(topic, number)
            log = manager.get_log(partition)
            assert log is not None, f"{partition} was not loaded"
            # As the leader does when all replicas, here the only one, have everything.
            log.update_high_watermark(log.log_end_offset)
            consumed += read(partition, log)
    return consumed
