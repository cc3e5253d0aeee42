"""From the rows of a task to batches of records by partition.

RecordBatches come from Spark, some thousand rows each, and are put together until there is about a batch for every
partition; `columns` makes batches of them, and whoever called submits these.

Rule 1: the rows of a partition keep their order.
Rule 2: what a task holds is bounded, whatever the number of partitions.
Rule 3: no batch is larger than the topic takes. A single row that is too large is refused with a sentence.
Rule 4: topics are looked at anew by every task: one that was made again, or has more partitions now, is taken so.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from barnabas.client.admin import describe_configs
from barnabas.client.client import Client
from barnabas.client.metadata import UnknownTopicError
from barnabas.model import TopicPartition
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.codecs import Codec
from barnabas.spark.columns import BatchEncoder, rows_by_partition
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.sink.partitioning import partitions_of_rows, rows_by_topic
from barnabas.wire.errors import ApiError

# How much is put together for one round of batches.
CHUNK_BYTES_MAX = 8 * 1024 * 1024
# What brokers take when nobody says otherwise.
_MAX_MESSAGE_BYTES = 1024 * 1024 + 12
# Bytes that do not compress become a few more; no codec adds a sixteenth.
_ROOM_FOR_CODECS = 16

Chunk = list[tuple[TopicPartition, Iterator[bytearray]]]


@dataclass(slots=True, kw_only=True)
class _Topic:
    partition_count: int
    max_message_bytes: int
    encoder: BatchEncoder
    batch_size: int
    # Where rows that have neither partition nor key go next.
    next_partition: int


class RowEncoder:
    """The rows of one task on their way to batches."""

    def __init__(self, client: Client, options: SinkOptions, columns: frozenset[str]) -> None:
        self._client = client
        self._options = options
        self._columns = columns
        self._topics: dict[str, _Topic] = {}
        self.rows = 0

    def chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield, round by round, the batches of each partition; a round is to be taken before the next is asked for.

        Raises:
            PipelineError: A row can not be written.
            ApiError, ClientError: A topic can not be asked for.
        """
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            self.rows += batch.num_rows
            waiting.append(self._with_known_columns(batch))
            waiting_bytes += waiting[-1].nbytes
            if waiting_bytes >= CHUNK_BYTES_MAX:
                yield self._chunk(pa.concat_batches(waiting))
                waiting, waiting_bytes = [], 0
        if waiting:
            yield self._chunk(pa.concat_batches(waiting))

    def _with_known_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out what is not written, and give names as we write them: Spark does not mind their case."""
        arrays = {
            name.lower(): batch.column(number)
            for number, name in enumerate(batch.schema.names)
            if name.lower() in self._columns
        }
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def _chunk(self, rows: pa.RecordBatch) -> Chunk:
        timestamp_ms = self._client.clock.now_ms()
        chunk: Chunk = []
        for name, of_topic in rows_by_topic(rows, self._options.topic):
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = self._look_at(name)
            row_bytes = max(1, of_topic.nbytes // of_topic.num_rows)
            rows_together = max(1, topic.batch_size // row_bytes)
            chosen = partitions_of_rows(
                of_topic,
                name,
                topic.partition_count,
                first_partition=topic.next_partition,
                rows_together=rows_together,
            )
            topic.next_partition += -(-of_topic.num_rows // rows_together)
            for number, indexes in rows_by_partition(chosen, topic.partition_count):
                made = topic.encoder.batches(of_topic, indexes, timestamp_ms)
                partition = TopicPartition(name, number)
                chunk.append((partition, _checked(made, partition, topic.max_message_bytes)))
        return chunk

    def _look_at(self, name: str) -> _Topic:
        self._client.retrying(lambda: self._client.fetch_metadata([name]))
        try:
            known = self._client.topic(name)
        except UnknownTopicError:
            # As Kafka's producer does it: brokers that make topics by themselves are asked to.
            known = self._client.topic(name, allow_auto_topic_creation=True)
        largest = self._max_message_bytes(name)
        room = largest - HEADER_SIZE
        if self._options.codec != Codec.NONE:
            room -= room // _ROOM_FOR_CODECS
        batch_size = max(1, min(self._options.batch_size, room))
        return _Topic(
            partition_count=len(known.partitions),
            max_message_bytes=largest,
            encoder=BatchEncoder(codec=self._options.codec, batch_size=batch_size),
            batch_size=batch_size,
            next_partition=random.randrange(len(known.partitions)),
        )

    def _max_message_bytes(self, name: str) -> int:
        try:
            entry = describe_configs(self._client, [name])[name].get("max.message.bytes")
        except ApiError:
            # Who may write to a topic may not always read its settings.
            return _MAX_MESSAGE_BYTES
        return _MAX_MESSAGE_BYTES if entry is None or entry.value is None else int(entry.value)


def _checked(batches: Iterator[bytearray], partition: TopicPartition, largest: int) -> Iterator[bytearray]:
    for batch in batches:
        if len(batch) > largest:
            raise PipelineError(
                f"a row for {partition} makes a batch of {len(batch):,} bytes by itself, but the topic's "
                f"max.message.bytes is {largest:,}"
            )
        yield batch
