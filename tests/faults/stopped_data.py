"""Data of a broker that was stopped or killed, and what can be done to its files while it is down.

    whole = build(tmp_path / "stop", "stop")                 # once for many tests
    data = whole.copy_to(tmp_path / "data")
    position = garble(whole.segment_file(data, ".log", 0))
    ...                                                      # start a broker on `data` and compare with `whole.records`

The logs have five segments of some thirty batches, with committed and aborted transactions. After a kill the recovery
point lies behind the second segment: the first is trusted, all from the second on are recovered. The checkpoints of
that moment are put there by hand, because a broker writes them by its own time.
"""

import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka

from barnabas.client.client import Client
from barnabas.client.offsets import delete_records
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.records.batch import HEADER_SIZE
from barnabas.storage.batches import LogFile, scan_headers
from barnabas.storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, write_offsets
from barnabas.storage.files import OsFiles
from tests.broker.asking import connected, create_topic, fetch, records_of

SETTINGS = {
    "log.retention.ms": -1,
    "log.segment.bytes": 4096,
    "log.index.interval.bytes": 256,
    "log.cleaner.enable": False,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "barnabas.log.dirs.reserve.bytes": 0,
}
ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
TRANSACTIONS, RECORDS = 12, 10
DELETED_BEFORE = 10
"""Where the log of the second topic starts: somebody deleted what lies before."""

Values = dict[int, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of one record as it lies in its file."""

    offset: int
    segment: int
    position: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedData:
    """A log directory as its broker left it, and what was in it."""

    path: Path
    stop: str
    records: Mapping[TopicPartition, Values]
    bases: tuple[int, ...]
    """The base offsets of the segments of `orders`."""
    batches: tuple[Batch, ...]

    def copy_to(self, path: Path) -> Path:
        """A copy to do harm to."""
        shutil.copytree(self.path, path)
        return path

    def segment_file(self, data: Path, suffix: str, segment: int) -> Path:
        """A file of one segment of `orders`."""
        return data / str(ORDERS) / f"{self.bases[segment]:020d}{suffix}"

    def is_trusted(self, segment: int) -> bool:
        """Whether what lies in a segment is taken for good at the next start."""
        return self.stop == "stop" or segment == 0

    def kept(self, segment: int, position: int, *, is_followed: bool | None = None) -> set[int]:
        """The offsets that damage at a position of a segment leaves: behind what is trusted, all that follows."""
        follows = self.is_trusted(segment) if is_followed is None else is_followed
        kept = {batch.offset for batch in self.batches if batch.segment < segment}
        kept |= {batch.offset for batch in self.batches if batch.segment == segment and batch.end <= position}
        return kept | {batch.offset for batch in self.batches if follows and batch.segment > segment}


def build(path: Path, stop: str) -> StoppedData:
    """Let a broker write, and stop or kill it."""
    with Broker(data=path, settings=SETTINGS) as broker:
        with connected(broker) as connection:
            for partition in (ORDERS, OTHER):
                create_topic(connection, partition.topic)
            _write(broker.bootstrap_servers)
            with Client(broker.bootstrap_servers) as client:
                delete_records(client, {OTHER: DELETED_BEFORE})
            records = {ORDERS: read_all(connection, ORDERS), OTHER: read_all(connection, OTHER, DELETED_BEFORE)}
        (broker.kill if stop == "kill" else broker.stop)()
    files, folder = OsFiles(), path / str(ORDERS)
    bases = tuple(sorted(int(log.stem) for log in folder.glob("*.log")))
    if stop == "kill":
        checkpoint = str(path / RECOVERY_POINT_CHECKPOINT)
        write_offsets(files, checkpoint, dict.fromkeys(records, bases[2]))
        ends = {partition: max(found) + 1 for partition, found in records.items()}
        write_offsets(files, str(path / HIGH_WATERMARK_CHECKPOINT), ends)
    batches = []
    for segment, base in enumerate(bases):
        log = folder / f"{base:020d}.log"
        for position, header in scan_headers(LogFile(files.open(str(log)), str(log), log.stat().st_size), 0):
            end = position + header.size
            batches.append(Batch(offset=header.base_offset, segment=segment, position=position, end=end))
    assert len(bases) == 5
    assert [batch.offset for batch in batches] == list(records[ORDERS])
    return StoppedData(path=path, stop=stop, records=records, bases=bases, batches=tuple(batches))


def _write(bootstrap_servers: str) -> None:
    """Transactions of single batches to both topics, of which every third is aborted."""
    settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": "writer", "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer({**settings, "error_cb": lambda _: None})
    producer.init_transactions(30)
    for transaction in range(TRANSACTIONS):
        producer.begin_transaction()
        for number in range(RECORDS):
            value = b"%d-%d" % (transaction, number) + b"." * 60
            for topic in (ORDERS.topic, OTHER.topic):
                producer.produce(topic, value, key=b"key-%d" % number, partition=0)
            producer.flush()
        (producer.abort_transaction if transaction % 3 == 1 else producer.commit_transaction)(30)


def read_all(connection: Any, partition: TopicPartition, start: int = 0) -> Values:
    """All records of a partition from an offset on, markers too, by their offsets."""
    found: Values = {}
    while True:
        answer = fetch(connection, partition.topic, start)
        assert answer.error_code == 0, answer.error_code
        records = records_of(answer)
        if not records:
            return found
        found |= {record.offset: None if record.value is None else bytes(record.value) for record in records}
        start = records[-1].offset + 1


# What is done to a file, with another one at hand; each returns the first position in the file that is not as it was.

Damage = Callable[[Path, Path], int]


def truncate(path: Path, other: Path) -> int:
    """Cut a third off, and not where anything ends."""
    size = path.stat().st_size * 2 // 3
    os.truncate(path, size - (size % 2 == 0))
    return path.stat().st_size


def garble(path: Path, other: Path) -> int:
    """Put other bytes into the middle; of a log, into the records of a batch."""
    middle = path.stat().st_size // 2
    return garble_at(path, middle if path.suffix != ".log" else _batch_at(path, middle) + HEADER_SIZE)


def garble_header(path: Path, other: Path) -> int:
    """Put other bytes into the lengths and offsets of a batch in the middle of a log."""
    return garble_at(path, _batch_at(path, path.stat().st_size // 2))


def _batch_at(path: Path, middle: int) -> int:
    """Where the batch starts that has the byte in the middle."""
    log = LogFile(OsFiles().open(str(path)), str(path), path.stat().st_size)
    return max(position for position, _ in scan_headers(log, 0) if position <= middle)


def garble_at(path: Path, position: int, count: int = 20) -> int:
    """Put other bytes somewhere; chance is the same each time."""
    data = bytearray(path.read_bytes())
    chance = random.Random(f"{path.name} {position}")
    for place in range(position, min(len(data), position + count)):
        data[place] ^= chance.randrange(1, 256)
    path.write_bytes(data)
    return position


def remove(path: Path, other: Path) -> int:
    """Take the file away."""
    path.unlink()
    return 0


def swap(path: Path, other: Path) -> int:
    """Exchange it with another file."""
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    return 0


DAMAGES: dict[str, Damage] = {
    "truncated": truncate,
    "garbled": garble,
    "garbled header": garble_header,
    "removed": remove,
    "swapped": swap,
}
