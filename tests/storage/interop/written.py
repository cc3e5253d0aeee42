"""Log directories that our LogManager writes, and a memory of what is in them, for Kafka to be asked about.

    directory = WrittenDirectory(folder)
    log = directory.create("topic", LogConfig(segment_bytes=20_000))
    log.append(records, codec=Codec.ZSTD)
    producer = Producer(producer_id=7)
    log.append(records, producer=producer, transactional=True)
    log.end(producer, commit=False)
    directory.close()
    log.batches, log.aborted, log.read_committed()         # what must be found

The memory is made from what was asked for, never from what the log says of itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from barnabas.clock import ManualClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.records.builder import NewRecord, build_batch, end_transaction_marker
from barnabas.records.codecs import Codec
from barnabas.storage.files import OsFiles
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.storage.transaction_index import AbortedTransaction
from tests.kafka_peer.populate import ConsumedRecord, TimestampType

NOW_MS = 1_700_000_000_000
COORDINATOR_EPOCH = 3
SEQUENCES = 2**31


@dataclass(slots=True)
class Producer:
    """An idempotent producer: its id, its epoch, the sequence number that comes next, its open transaction."""

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    transaction: "list[WrittenBatch]" = field(default_factory=list)

    def begin_epoch(self) -> None:
        """Start anew, as a producer that lost its state does."""
        self.epoch += 1
        self.next_sequence = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """One batch that was appended; `marker` is "", "COMMIT" or "ABORT"."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: Codec
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: str = ""
    records: tuple[ConsumedRecord, ...] = ()

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % SEQUENCES


class WrittenLog:
    """A log of partition 0 of a topic, and what was appended to it since it was opened."""

    def __init__(self, topic: str, log: Log, clock: ManualClock) -> None:
        self.topic = topic
        self.log = log
        self.start_offset = log.log_end_offset
        self.leader_epoch = max(0, log.leader_epochs.latest)
        self.batches: list[WrittenBatch] = []
        self.aborted: list[AbortedTransaction] = []
        self.producers: dict[int, Producer] = {}
        self.epoch_starts: list[tuple[int, int]] = []
        self._clock = clock
        self._aborted_batches: set[int] = set()

    @property
    def end_offset(self) -> int:
        """The offset that the next record must get."""
        return self.batches[-1].last_offset + 1 if self.batches else self.start_offset

    def append(
        self,
        records: Sequence[NewRecord],
        *,
        codec: Codec = Codec.NONE,
        producer: Producer | None = None,
        transactional: bool = False,
    ) -> None:
        """Append the records as one batch."""
        first = self.end_offset
        base_sequence = producer.next_sequence if producer else -1
        data = build_batch(
            records,
            codec=codec,
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
            base_sequence=base_sequence,
            transactional=transactional,
        )
        self.log.append_as_leader(data, self.leader_epoch)
        consumed = self._consumed(first, records)
        batch = WrittenBatch(
            base_offset=first,
            last_offset=first + len(records) - 1,
            leader_epoch=self.leader_epoch,
            codec=codec,
            max_timestamp=max(record.timestamp_ms for record in consumed),
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
            base_sequence=base_sequence,
            is_transactional=transactional,
            records=consumed,
        )
        self._remember(batch)
        if producer is not None:
            producer.next_sequence = (base_sequence + len(records)) % SEQUENCES
            self.producers[producer.producer_id] = producer
            if transactional:
                producer.transaction.append(batch)

    def append_message_set(self, data: bytes, records: Sequence[NewRecord], codec: Codec) -> None:
        """Append a set of magic 0 or 1, which has these records."""
        first = self.end_offset
        self.log.append_as_leader(data, self.leader_epoch)
        consumed = self._consumed(first, records)
        batch = WrittenBatch(
            base_offset=first,
            last_offset=first + len(records) - 1,
            leader_epoch=self.leader_epoch,
            codec=codec,
            max_timestamp=max(record.timestamp_ms for record in consumed),
            records=consumed,
        )
        self._remember(batch)

    def end(self, producer: Producer, *, commit: bool) -> None:
        """Append the marker that ends the producer's transaction."""
        marker = end_transaction_marker(
            commit=commit,
            timestamp=self._clock.now_ms(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=COORDINATOR_EPOCH,
        )
        offset = self.end_offset
        self.log.append_as_leader(marker, self.leader_epoch, is_client=False)
        batch = WrittenBatch(
            base_offset=offset,
            last_offset=offset,
            leader_epoch=self.leader_epoch,
            codec=Codec.NONE,
            max_timestamp=self._clock.now_ms(),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            is_transactional=True,
            marker="COMMIT" if commit else "ABORT",
        )
        self._remember(batch)
        transaction, producer.transaction = producer.transaction, []
        if not commit:
            self._aborted_batches |= {written.base_offset for written in transaction}
            stable = self.first_unstable_offset
            first = transaction[0].base_offset
            self.aborted.append(AbortedTransaction(producer.producer_id, first, offset, stable))

    @property
    def first_unstable_offset(self) -> int:
        """Where the oldest open transaction starts, or the end."""
        open_ones = [other.transaction[0].base_offset for other in self.producers.values() if other.transaction]
        return min(open_ones, default=self.end_offset)

    def _remember(self, batch: WrittenBatch) -> None:
        if not self.epoch_starts or self.epoch_starts[-1][0] != batch.leader_epoch:
            self.epoch_starts.append((batch.leader_epoch, batch.base_offset))
        self.batches.append(batch)
        self._clock.advance(1)

    def _consumed(self, first: int, records: Sequence[NewRecord]) -> tuple[ConsumedRecord, ...]:
        by_broker = self.log.config.message_timestamp_type == "LogAppendTime"
        return tuple(
            ConsumedRecord(
                topic=self.topic,
                partition=0,
                offset=first + number,
                timestamp_ms=self._clock.now_ms() if by_broker else timestamp,
                timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
                key=key,
                value=value,
                headers=tuple((name.decode(), content) for name, content in headers),
            )
            for number, (timestamp, key, value, headers) in enumerate(records)
        )

    def read_uncommitted(self) -> list[ConsumedRecord]:
        """What a consumer of everything must get."""
        return [record for batch in self.batches for record in batch.records]

    def read_committed(self) -> list[ConsumedRecord]:
        """What a consumer of committed records must get."""
        return [
            record
            for batch in self.batches
            if batch.base_offset not in self._aborted_batches and batch.last_offset < self.first_unstable_offset
            for record in batch.records
        ]


class WrittenDirectory:
    """A log directory with logs of ours, and what was written into each."""

    def __init__(self, path: Path, configs: dict[str, LogConfig] | None = None) -> None:
        self.path = path
        self.logs: dict[str, WrittenLog] = {}
        self._clock = ManualClock(NOW_MS)
        self._configs = configs or {}
        self._manager = open_manager(path, self._configs, self._clock)

    def create(self, topic: str, config: LogConfig) -> WrittenLog:
        """Make the log of a new topic."""
        self._configs[topic] = config
        self._manager.get_or_create_log(TopicPartition(topic, 0), uuid4())
        return self.open(topic)

    def open(self, topic: str) -> WrittenLog:
        """Go on with a log that is there."""
        log = self._manager.get_log(TopicPartition(topic, 0))
        assert log is not None
        written = self.logs[topic] = WrittenLog(topic, log, self._clock)
        return written

    def close(self) -> None:
        """Shut down cleanly."""
        for written in self.logs.values():
            written.log.update_high_watermark(written.log.log_end_offset)
        self._manager.shutdown()


def open_manager(
    path: Path, configs: dict[str, LogConfig] | None = None, clock: ManualClock | None = None
) -> LogManager:
    """A LogManager that has loaded everything in a folder."""
    manager = LogManager(
        LogManagerOptions(
            files=OsFiles(),
            clock=clock or ManualClock(NOW_MS),
            config=LogManagerConfig(log_dirs=(str(path),)),
            topic_config=lambda topic: (configs or {}).get(topic, LogConfig()),
        )
    )
    manager.start()
    return manager
