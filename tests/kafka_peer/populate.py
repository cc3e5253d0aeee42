"""Fills a real Kafka with every kind of data that Barnabas must read, and reads it back with Kafka's own protocol.

    data = populate(peer)
    data.read_committed, data.read_uncommitted      # what consumers got: lists of ConsumedRecord, in order

Timestamps, keys and values are the same in every run; offsets of the compacted topic are too, since what is cleaned is
decided by timestamps and not by when the cleaner looks. Producer ids are Kafka's choice.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka_peer.peer import KafkaPeer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# One topic a codec, with headers, null keys and null values.
CODEC_TOPICS = {codec: f"codec-{codec}" for codec in CODECS}
# The broker's time instead of the producer's.
APPEND_TIME = "append-time"
# Two partitions of several segments, with small and large batches and a record that fills most of a segment.
SEGMENTS = "segments"
# An idempotent producer, and one whose batches are compressed.
IDEMPOTENT = "idempotent"
# Two producers interleaved, with commits, aborts, an abort over several batches, and plain records in between.
TRANSACTIONS = "transactions"
# A committed transaction, then one that is still open: read_committed stops before it.
OPEN_TRANSACTION = "open-transaction"
# Keys written again and again, with tombstones and transactions, and cleaned by Kafka.
COMPACTED = "compacted"

PARTITIONS = {
    **dict.fromkeys(CODEC_TOPICS.values(), 1),
    APPEND_TIME: 1,
    SEGMENTS: 2,
    IDEMPOTENT: 1,
    TRANSACTIONS: 1,
    OPEN_TRANSACTION: 1,
    COMPACTED: 1,
}

# Kafka takes no smaller segments than this from a client (KIP-1030).
SEGMENT_BYTES_MIN = 1024 * 1024
BASE_TIMESTAMP_MS = 1_700_000_000_000
COMPACTED_SEGMENT_MS = 10_000
DEADLINE_S = 60

# As the client declares them; here the values are always bytes or None.
Headers = list[tuple[str, str | bytes | None]]


class TimestampType(Enum):
    """Whose time a record carries; the values are Kafka's attribute bit."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    """One record as a consumer got it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, str | bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulatedData:
    """What consumers of both isolation levels got from all topics of `PARTITIONS`, by topic, partition and offset."""

    read_committed: list[ConsumedRecord]
    read_uncommitted: list[ConsumedRecord]


def populate(peer: KafkaPeer) -> PopulatedData:
    """Creates and fills the topics, waits until Kafka has cleaned the compacted one, and reads everything back."""
    create_topics(peer, PARTITIONS)
    for codec, topic in CODEC_TOPICS.items():
        _fill_with_codec(peer, topic, codec)
    _fill_with_codec(peer, APPEND_TIME, "lz4")
    _fill_segments(peer)
    _fill_idempotent(peer)
    _fill_transactions(peer)
    _fill_open_transaction(peer)
    active_base_offset = _fill_compacted(peer)
    wait_until(
        lambda: (cleaned_offset(peer.data_dir, COMPACTED, 0) or 0) >= active_base_offset,
        f"Kafka cleans {COMPACTED} up to offset {active_base_offset}",
    )
    return read_back(peer)


def create_topics(peer: KafkaPeer, topics: dict[str, int]) -> None:
    """Creates these topics (name: number of partitions) with the settings that their data needs."""
    # The timestamps are old, so nothing may be deleted by age.
    common = {"retention.ms": "-1", "retention.bytes": "-1"}
    special = {
        APPEND_TIME: {"message.timestamp.type": "LogAppendTime"},
        SEGMENTS: {"segment.bytes": str(SEGMENT_BYTES_MIN)},
        COMPACTED: {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "segment.ms": str(COMPACTED_SEGMENT_MS),
            # The record that rolls the last segment comes from the future.
            "message.timestamp.after.max.ms": str(2**63 - 1),
        },
    }
    admin = AdminClient({"bootstrap.servers": peer.bootstrap_servers})
    created = admin.create_topics(
        [NewTopic(name, count, 1, config=common | special.get(name, {})) for name, count in topics.items()]
    )
    for future in created.values():
        future.result(DEADLINE_S)


def read_back(peer: KafkaPeer) -> PopulatedData:
    """Reads all that `populate` wrote, as it is now."""
    return PopulatedData(
        read_committed=consume(peer, PARTITIONS, "read_committed"),
        read_uncommitted=consume(peer, PARTITIONS, "read_uncommitted"),
    )


def consume(peer: KafkaPeer, topics: dict[str, int], isolation_level: str) -> list[ConsumedRecord]:
    """Every record of these topics (name: number of partitions) from the first offset to the end."""
    partitions = [TopicPartition(topic, number, 0) for topic, count in topics.items() for number in range(count)]
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "group.id": "nobody",
            "log_level": 3,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    records: list[ConsumedRecord] = []
    unfinished = {(partition.topic, partition.partition) for partition in partitions}
    deadline = time.monotonic() + DEADLINE_S
    try:
        consumer.assign(partitions)
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end of {sorted(unfinished)} was seen within {DEADLINE_S} s")
            for message in consumer.consume(num_messages=1_000, timeout=0.2):
                error = message.error()
                if error is None:
                    records.append(_consumed(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(_place(message))
                else:
                    raise AssertionError(f"the consumer got an error: {error}")
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.topic, record.partition, record.offset))


def cleaned_offset(data_dir: Path, topic: str, partition: int) -> int | None:
    """The first offset that the cleaner has not cleaned, from its checkpoint; None before the first cleaning."""
    checkpoint = data_dir / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return None
    for line in checkpoint.read_text(encoding="utf-8").splitlines()[2:]:
        name, number, offset = line.split()
        if (name, int(number)) == (topic, partition):
            return int(offset)
    return None


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Returns when the condition holds; raises `TimeoutError`, with the words of `what`, if it does not in time."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {deadline_s} s in vain until {what}")
        time.sleep(0.05)


def _producer(peer: KafkaPeer, **settings: str | int | bool) -> Producer:
    # A long linger, so that batches end where `flush` is called and not by chance.
    return Producer(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "acks": "all",
            "linger.ms": 10_000,
            # Kafka loads its coordinators at first use, and the client warns that it has to ask again.
            "log_level": 3,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """One record to produce; its timestamp is `BASE_TIMESTAMP_MS` plus `after_ms`."""

    after_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


def _send(producer: Producer, topic: str, batch: Iterable[_Input], partition: int = 0) -> None:
    """Sends the records as one batch (as long as they fit into one) and returns when they are acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    for record in batch:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=partition,
            timestamp=BASE_TIMESTAMP_MS + record.after_ms,
            headers=record.headers,
            on_delivery=delivered,
        )
    left = producer.flush(DEADLINE_S)
    if left or failures:
        raise AssertionError(
            f"{left} records were not delivered to {topic}, and {len(failures)} failed: {failures[:1]}"
        )


def _varied_batch(number: int) -> Iterator[_Input]:
    """Each part of a record is absent once; the values repeat themselves, so that every codec makes them smaller."""
    after_ms = number * 1_000
    text = b"all work and no play " * 20
    yield _Input(after_ms=after_ms, key=b"key", value=text)
    yield _Input(after_ms=after_ms + 5, key=None, value=text)
    # The timestamps go backwards here, which is allowed within a batch.
    yield _Input(after_ms=after_ms + 2, key=b"key", value=None)
    yield _Input(after_ms=after_ms + 7, key=None, value=None)
    yield _Input(after_ms=after_ms + 7, key=b"", value=b"")
    headers: Headers = [
        ("trace", b"\x00\x01\xff"),
        ("trace", b"again"),
        ("empty", b""),
        ("null", None),
        ("clé", b"\xc3"),
    ]
    yield _Input(after_ms=after_ms + 8, key="ключ".encode(), value=text, headers=headers)
    yield _Input(after_ms=after_ms + 9, key=b"k" * 300, value=b"v" * 5_000, headers=[("h" * 200, b"w" * 200)])


def _fill_with_codec(peer: KafkaPeer, topic: str, codec: str) -> None:
    producer = _producer(peer, compression_type=codec)
    for number in range(4):
        _send(producer, topic, _varied_batch(number))
    # A batch of one record, which a codec may leave uncompressed.
    _send(producer, topic, [_Input(after_ms=9_000, key=None, value=b"x")])


def _fill_segments(peer: KafkaPeer) -> None:
    plain = _producer(peer)
    packed = _producer(peer, compression_type="zstd")
    for partition in range(PARTITIONS[SEGMENTS]):
        for number in range(60):
            batch = [
                _Input(after_ms=number * 100 + i, key=b"%d" % i, value=_incompressible(number * 1_000 + i, 500))
                for i in range(100)
            ]
            _send(packed if number % 7 == 3 else plain, SEGMENTS, batch, partition)
        large = _Input(after_ms=7_000, key=b"large", value=_incompressible(7, 900_000))
        _send(plain, SEGMENTS, [large], partition)
        _send(plain, SEGMENTS, [_Input(after_ms=8_000, key=b"last", value=b"the end")], partition)


def _incompressible(seed: int, size_bytes: int) -> bytes:
    """The same bytes for the same seed, without a pattern that a codec could use."""
    state = seed * 2_654_435_761 + 12_345
    words = []
    for _ in range(size_bytes // 8 + 1):
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        words.append((state ^ (state >> 29)).to_bytes(8, "big"))
    return b"".join(words)[:size_bytes]


def _fill_idempotent(peer: KafkaPeer) -> None:
    plain = _producer(peer, enable_idempotence=True)
    packed = _producer(peer, enable_idempotence=True, compression_type="snappy")
    for number in range(12):
        _send(packed if number % 2 else plain, IDEMPOTENT, _varied_batch(number))


def _transactional(peer: KafkaPeer, name: str, **settings: str | int | bool) -> Producer:
    producer = _producer(peer, transactional_id=name, **settings)
    producer.init_transactions(DEADLINE_S)
    return producer


def _batch_of(label: str, count: int, after_ms: int = 0) -> Sequence[_Input]:
    return [_Input(after_ms=after_ms + i, key=b"%d" % i, value=f"{label} {i}".encode()) for i in range(count)]


def _commit(producer: Producer, peer: KafkaPeer, topic: str) -> None:
    with _marker_awaited(peer, topic):
        producer.commit_transaction(DEADLINE_S)


def _abort(producer: Producer, peer: KafkaPeer, topic: str) -> None:
    with _marker_awaited(peer, topic):
        producer.abort_transaction(DEADLINE_S)


@contextmanager
def _marker_awaited(peer: KafkaPeer, topic: str) -> Iterator[None]:
    """Leaves when the log has grown: Kafka answers the end of a transaction before it writes the marker."""
    # For a reader of committed records, the end would be that of the oldest open transaction.
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "group.id": "nobody",
            "log_level": 3,
            "isolation.level": "read_uncommitted",
        }
    )
    partition = TopicPartition(topic, 0)

    def end_offset() -> int:
        watermarks = consumer.get_watermark_offsets(partition, timeout=DEADLINE_S)
        assert watermarks is not None
        return watermarks[1]

    try:
        before = end_offset()
        yield
        wait_until(lambda: end_offset() > before, f"Kafka writes the marker to {topic}")
    finally:
        consumer.close()


def _fill_transactions(peer: KafkaPeer) -> None:
    plain = _producer(peer)
    first = _transactional(peer, "first")
    second = _transactional(peer, "second", compression_type="lz4")

    first.begin_transaction()
    _send(first, TRANSACTIONS, _batch_of("first, committed", 3))
    _commit(first, peer, TRANSACTIONS)

    # Two transactions that overlap: the one that began first ends last.
    first.begin_transaction()
    _send(first, TRANSACTIONS, _batch_of("first, aborted late", 3))
    second.begin_transaction()
    _send(second, TRANSACTIONS, _batch_of("second, committed", 20))
    _send(plain, TRANSACTIONS, _batch_of("plain, between", 2))
    _commit(second, peer, TRANSACTIONS)
    _send(first, TRANSACTIONS, _batch_of("first, aborted late, second batch", 3))
    _abort(first, peer, TRANSACTIONS)

    # Both aborted, overlapping.
    second.begin_transaction()
    _send(second, TRANSACTIONS, _batch_of("second, aborted", 20))
    first.begin_transaction()
    _send(first, TRANSACTIONS, _batch_of("first, aborted", 1))
    _abort(second, peer, TRANSACTIONS)
    _abort(first, peer, TRANSACTIONS)

    for number in range(5):
        first.begin_transaction()
        _send(first, TRANSACTIONS, _batch_of(f"first, round {number}", 2))
        if number % 2:
            _abort(first, peer, TRANSACTIONS)
        else:
            _commit(first, peer, TRANSACTIONS)
    _send(plain, TRANSACTIONS, _batch_of("plain, at the end", 2))


def _fill_open_transaction(peer: KafkaPeer) -> None:
    producer = _transactional(peer, "open", transaction_timeout_ms=900_000)
    producer.begin_transaction()
    _send(producer, OPEN_TRANSACTION, _batch_of("committed", 3))
    _commit(producer, peer, OPEN_TRANSACTION)
    producer.begin_transaction()
    _send(producer, OPEN_TRANSACTION, _batch_of("open", 4))
    _send(_producer(peer), OPEN_TRANSACTION, _batch_of("plain, behind the open one", 2))
    # The producer is left without ending its transaction, as by a client that died.


def _fill_compacted(peer: KafkaPeer) -> int:
    """Writes keys again and again, then rolls by a late timestamp; returns the active segment's base offset."""
    plain = _producer(peer)
    packed = _producer(peer, compression_type="lz4")
    transactional = _transactional(peer, "compacting")
    for number in range(10):
        # Every batch writes the keys 0 to 9 again, and one key that stays.
        batch = [*_batch_of(f"round {number}", 10), _Input(after_ms=10, key=b"only %d" % number, value=b"kept")]
        _send(packed if number % 2 else plain, COMPACTED, batch)
    transactional.begin_transaction()
    _send(transactional, COMPACTED, [_Input(after_ms=20, key=b"only 1", value=b"aborted, so not there")])
    _abort(transactional, peer, COMPACTED)
    transactional.begin_transaction()
    _send(transactional, COMPACTED, [_Input(after_ms=21, key=b"only 2", value=b"committed, so newer")])
    _commit(transactional, peer, COMPACTED)
    _send(plain, COMPACTED, [_Input(after_ms=30, key=b"only 3", value=None)])
    # This record's time is past the segment's, so it and what follows go to a new segment, which is not cleaned. The
    # markers of the transactions carry the broker's time and may have rolled the segment before: that changes nothing.
    in_active = [
        _Input(after_ms=2**40, key=b"5", value=b"active"),
        _Input(after_ms=2**40, key=b"5", value=b"active too"),
    ]
    _send(plain, COMPACTED, in_active)
    return max(int(segment.stem) for segment in peer.segments(COMPACTED, 0))


def _place(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def _consumed(message: Message) -> ConsumedRecord:
    topic, partition = _place(message)
    offset = message.offset()
    assert offset is not None
    kind, timestamp_ms = message.timestamp()
    headers = message.headers() or []
    assert isinstance(headers, list)
    return ConsumedRecord(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        # The client counts from 1: 0 means that there is no timestamp.
        timestamp_type=TimestampType(kind - 1),
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
    )
