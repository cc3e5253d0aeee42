"""Collects records into batches, one open batch a partition, and hands full ones to the `Sender`.

    with Producer(client, ProducerOptions(codec=Codec.LZ4)) as producer:
        producer.send("orders", b"value", key=b"key")
        producer.flush()                        # raises ProduceError unless everything was acknowledged

Rule 1: nothing is written before a batch is full or `flush` is called; there is no thread that could. Leaving the block
flushes.
Rule 2: memory is bounded: what is collected and not acknowledged is at most `buffer_memory` bytes and one batch.
Rule 3: an error is raised by `flush`, or by the first `send` after it became known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from barnabas.client.client import Client
from barnabas.client.metadata import UnknownPartitionError
from barnabas.client.partitioner import StickyPartitions, partition_of_key
from barnabas.client.sender import Delivered, Sender, SendOptions
from barnabas.model import TopicPartition
from barnabas.records.builder import NewRecord, build_batch
from barnabas.records.codecs import Codec
from barnabas.records.record import Header

# What a record takes besides its key, value and headers, generously.
RECORD_OVERHEAD_BYTES = 21
HEADER_OVERHEAD_BYTES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How records are collected and sent. A batch is full at either limit, whichever comes first."""

    batch_size: int = 64 * 1024
    batch_records_max: int = 10_000
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    allow_auto_topic_creation: bool = False
    sending: SendOptions = field(default_factory=SendOptions)


@dataclass(slots=True, kw_only=True)
class _OpenBatch:
    records: list[NewRecord] = field(default_factory=list)
    size_bytes: int = 0


class Producer:
    """Open batches, and the sender that takes full ones."""

    def __init__(
        self,
        client: Client,
        options: ProducerOptions | None = None,
        on_delivery: Callable[[Delivered], None] | None = None,
    ) -> None:
        self._client = client
        self._options = ProducerOptions() if options is None else options
        self._sender = Sender(client, self._options.sending, on_delivery)
        self._sticky = StickyPartitions()
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self._open_bytes = 0
        self._partition_counts: dict[str, int] = {}

    @property
    def records_acknowledged(self) -> int:
        """How many records are known to be written; with acks=0, to be sent."""
        return self._sender.records_acknowledged

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Add a record to the batch of its partition; raises UnknownTopicError, or what `flush` raises."""
        if self._sender.has_failed:
            self.flush()
        target = TopicPartition(topic, self._choose(topic, key, partition))
        size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            size += HEADER_OVERHEAD_BYTES + len(name) + (len(content) if content else 0)
        batch = self._open.get(target)
        if batch is not None and batch.size_bytes + size > self._options.batch_size:
            self._seal(target)
            batch = None
        if batch is None:
            batch = self._open[target] = _OpenBatch()
        batch.records.append((self._client.clock.now_ms() if timestamp is None else timestamp, key, value, headers))
        batch.size_bytes += size
        self._open_bytes += size
        if batch.size_bytes >= self._options.batch_size or len(batch.records) >= self._options.batch_records_max:
            self._seal(target)
        if self._open_bytes > self._options.sending.buffer_memory:
            self._seal_all()

    def flush(self) -> None:
        """Write everything; raises ProduceError for what could not be."""
        self._seal_all()
        self._sender.flush()

    def close(self) -> None:
        """Close the connections; what was not flushed is lost."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            known = self._client.topic(topic, allow_auto_topic_creation=self._options.allow_auto_topic_creation)
            count = self._partition_counts[topic] = len(known.partitions)
        if partition is not None:
            if not 0 <= partition < count:
                raise UnknownPartitionError(topic, partition, count)
            return partition
        return self._sticky.choose(topic, count) if key is None else partition_of_key(key, count)

    def _seal(self, target: TopicPartition) -> None:
        batch = self._open.pop(target)
        self._open_bytes -= batch.size_bytes
        self._sticky.move_on(target.topic, target.partition, self._partition_counts[target.topic])
        self._sender.submit(
            target, build_batch(batch.records, codec=self._options.codec, level=self._options.compression_level)
        )

    def _seal_all(self) -> None:
        for target in list(self._open):
            self._seal(target)
