"""Topics with a random past for the jobs that look at data, and archives of them, written without the job `archive`."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from barnabas.client.client import Client
from barnabas.client.producer import Producer
from barnabas.spark.archives.archive import Archive, open_or_create_archive
from barnabas.spark.archives.manifest import ArchiveDescription, Commit, OffsetRange
from tests.spark.sink.topics import make_topic

START_MS = 1_700_000_000_000
Headers = tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    """A record as it was written, and where it is."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def random_history(servers: str, *, seed: int, records: int = 400, partitions: int = 3) -> tuple[str, list[Record]]:
    """Write records: keys again and again, some in several partitions, tombstones, no keys, times out of order."""
    chance = random.Random(seed)
    # The records are of the past, and a broker would soon delete them.
    topic = make_topic(servers, partitions, {"retention.ms": "-1"})
    ends = [0] * partitions
    written = []
    for number in range(records):
        key = None if chance.random() < 0.05 else b"key %d" % chance.randrange(40)
        partition = chance.randrange(partitions) if chance.random() < 0.1 else hash_of(key) % partitions
        value = None if chance.random() < 0.15 else b"value %d " % number + b"x" * chance.randrange(300)
        headers = ((b"trace", b"%d" % number), (b"none", None)) if chance.random() < 0.3 else ()
        time = START_MS + number * 1000 + chance.randrange(-1500, 1500)
        written.append(Record(partition, ends[partition], time, key, value, headers))
        ends[partition] += 1
    write(servers, topic, written)
    return topic, written


def hash_of(key: bytes | None) -> int:
    """Any function of a key that is the same in every process."""
    return sum(key or b"")


def write(servers: str, topic: str, records: Sequence[Record]) -> None:
    """Write records to the partitions that they name."""
    with Client(servers) as client, Producer(client) as producer:
        for record in records:
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp=record.timestamp_ms,
            )


def topic_id_of(servers: str, topic: str) -> str:
    """The id of a topic."""
    with Client(servers) as client:
        return str(client.topic(topic).topic_id)


def archived(
    spark: SparkSession, servers: str, topic: str, folder: Path, written: Sequence[Record], *, cuts: Sequence[int]
) -> Archive:
    """Make an archive of the first records of each partition; a cut is how many offsets of each a commit goes up to."""
    description = ArchiveDescription(topic=topic, topic_id=topic_id_of(servers, topic))
    archive = open_or_create_archive(spark, str(folder), description)
    rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = rows.option("includeHeaders", "true").load().persist()
    start = 0
    for number, cut in enumerate(cuts):
        inside = f"offset >= {start} AND offset < {cut}"
        files = add_files(archive, folder, frame.where(inside), f"data/{number}")
        ranges = tuple(
            OffsetRange(partition=partition, start=start, end=min(cut, end), records=min(cut, end) - start)
            for partition in sorted({record.partition for record in written})
            if (end := sum(record.partition == partition for record in written)) > start
        )
        archive.add(Commit(number=number, timestamp_ms=START_MS, ranges=ranges, files=files))
        start = cut
    frame.unpersist()
    return archive


def add_files(archive: Archive, folder: Path, rows: DataFrame, name: str) -> dict[str, int]:
    """Write rows as Parquet below an archive, and return what a commit says of them."""
    rows.coalesce(1).write.parquet(str(folder / name))
    return {str(path.relative_to(folder)): path.stat().st_size for path in (folder / name).glob("*.parquet")}


def copied(folder: Path, target: Path) -> Path:
    """A copy of an archive, to be damaged."""
    shutil.copytree(folder, target)
    # Hadoop's checksums would find out what is changed by hand, before anything else can.
    for path in target.rglob("*.crc"):
        path.unlink()
    return target
