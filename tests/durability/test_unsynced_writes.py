"""flush.messages=1 on a disk that loses what was not synced: everything acknowledged, and everything read, is kept.

The broker runs on a MemoryFiles. Before random steps of the disk, what a power cut at that very moment would leave is
put aside, with what producers had been told and consumers could read by then; the logs on it are opened afterwards.
Only log directories are on that disk. The metadata is a file of SQLite, which keeps promises of its own.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.broker_config import broker_names, resolve
from barnabas.client.admin import ConfigChange, NewTopic, alter_configs, create_topics
from barnabas.client.client import Client
from barnabas.client.fetched import whole_batches
from barnabas.client.offsets import EARLIEST, LATEST, offsets_at
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from tests.broker.asking import connected, create_topic, produce
from tests.broker.turning import until
from tests.durability.killing import new_seed
from tests.durability.ledger import Audit, Found, Ledger, Place, Reader, Sent, read_from
from tests.durability.load import KINDS, OPTIONS, Load
from tests.storage.builders import batch_of, sent_by
from tests.storage.memory_files import EVERYTHING, KEEPS, SYNCED_ONLY, MemoryFiles

TOPIC = "records"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(3)]
SETTINGS: dict[str, object] = {"flush.messages": 1, "segment.bytes": 20_000, "index.interval.bytes": 500}
POWER_CUTS = [keep for keep in KEEPS if keep is not EVERYTHING]
ACKNOWLEDGED_MIN = 1_500
MOMENTS_MIN = 40
PROBABILITY = 0.03


class Moment(NamedTuple):
    """What had been promised when the power went, and what it left."""

    acknowledged: dict[Sent, Place]
    high_watermarks: dict[TopicPartition, int]
    keep: str
    files: MemoryFiles


class PowerCuts:
    """Takes the disk of a running broker as power cuts would leave it."""

    def __init__(self, files: MemoryFiles, broker: Broker, ledger: Ledger, seed: int) -> None:
        self._files = files
        self._broker = broker
        self._ledger = ledger
        self._chance = random.Random(f"{seed} power cuts")
        self.moments: list[Moment] = []

    def maybe(self) -> None:
        """Take it now, or not."""
        if self._chance.random() < PROBABILITY:
            self.now()

    def now(self) -> None:
        """Take it. The promises are looked at first: those made meanwhile may be kept or not."""
        acknowledged = self._ledger.acknowledged()
        partitions = self._broker.server.services.replica_manager.partitions
        high_watermarks = {name: partitions[name].log.high_watermark.message_offset for name in PARTITIONS}
        keep = self._chance.choice(POWER_CUTS)
        self.moments.append(Moment(acknowledged, high_watermarks, keep.name, self._files.crash(keep)))


def opened(files: MemoryFiles, data: Path) -> LogManager:
    """Open the logs on a disk, as the next broker does."""
    settings = resolve({**broker_names({name: str(value) for name, value in SETTINGS.items()}), "log.dirs": str(data)})
    manager = LogManager(
        LogManagerOptions(
            files=files, clock=SystemClock(), config=settings.manager, topic_config=lambda name: settings.topics
        )
    )
    manager.start()
    return manager


def records_of(log: Log) -> Found:
    """Everything that is in a log."""
    found: Found = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, log.log_end, min_one_message=True).records
        assert records is not None
        for batch in whole_batches(memoryview(records.file.read_at(records.size, records.position))):
            batch.check()
            found.update({record.offset: bytes(record.value or b"") for record in batch.records()})
            offset = batch.last_offset + 1
    return found


def check_moment(moment: Moment, seen: Mapping[TopicPartition, Found], data: Path, idempotent: set[str]) -> None:
    """Open what a power cut left, and check it."""
    manager = opened(moment.files, data)
    logs = {partition: manager.current_logs[partition].log for partition in PARTITIONS}
    found = {partition: records_of(log) for partition, log in logs.items()}
    starts = dict.fromkeys(PARTITIONS, 0)
    audit = Audit(idempotent)
    audit.add(found, starts)
    audit.check(moment.acknowledged, starts)
    for partition, high_watermark in moment.high_watermarks.items():
        for offset in range(high_watermark):
            assert found[partition].get(offset) == seen[partition][offset], (
                f"{partition} {offset} was read, and is gone"
            )
    manager.close_logs()
    manager.release()


def test_a_power_cut_takes_nothing_that_was_promised(tmp_path: Path) -> None:
    seed = new_seed()
    data, files, ledger, reader = tmp_path / "data", MemoryFiles(clock=SystemClock()), Ledger(), Reader(PARTITIONS)
    data.mkdir()
    with (
        Broker(data=data, settings=SETTINGS, in_process=True, files=files) as broker,
        Client(broker.bootstrap_servers, OPTIONS) as client,
    ):
        assert not create_topics(client, [NewTopic(name=TOPIC, partitions=len(PARTITIONS), replication_factor=1)])
        cuts = PowerCuts(files, broker, ledger, seed)
        files.before_step = cuts.maybe
        with Load(broker.bootstrap_servers, PARTITIONS, ledger, seed, KINDS) as load:
            while (ledger.count < ACKNOWLEDGED_MIN or len(cuts.moments) < MOMENTS_MIN) and not ledger.failures:
                reader.read_on(client)
            cuts.now()
        files.before_step = lambda: None
        reader.read_on(client)
        cuts.now()
        assert not ledger.failures, ledger.failures
    for moment in cuts.moments:
        check_moment(moment, reader.seen, data, load.idempotent)
    print(f"{len(cuts.moments)} power cuts, {ledger.count} records acknowledged")


def test_what_was_promised_is_read_as_soon_as_the_broker_is_back(tmp_path: Path) -> None:
    """Nobody has to append first: the recovered log is flushed again, and the high watermark is at its end."""
    data, files = tmp_path / "data", MemoryFiles(clock=SystemClock())
    data.mkdir()
    with (
        Broker(data=data, settings=SETTINGS, in_process=True, files=files) as broker,
        connected(broker) as connection,
    ):
        create_topic(connection, TOPIC)
        for _ in range(5):
            assert produce(connection, TOPIC, batch_of(3)).error_code == 0
        left = files.crash(SYNCED_ONLY)
    with (
        Broker(data=data, settings=SETTINGS, in_process=True, files=left) as broker,
        Client(broker.bootstrap_servers, OPTIONS) as client,
    ):
        partition = TopicPartition(TOPIC, 0)
        assert offsets_at(client, [partition], LATEST) == {partition: 15}
        found, _ = read_from(client, offsets_at(client, [partition], EARLIEST))
        assert list(found[partition]) == list(range(15))


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_is_sent_again_after_a_crash_is_acknowledged(tmp_path: Path, acks: int) -> None:
    """It is not appended a second time, and its acknowledgement still waits for the disk, and comes."""
    data, files = tmp_path / "data", MemoryFiles(clock=SystemClock())
    data.mkdir()
    with Broker(data=data, settings=SETTINGS, in_process=True, files=files) as broker:
        with connected(broker) as connection:
            create_topic(connection, TOPIC)
            assert produce(connection, TOPIC, sent_by(7, 0, 3), acks=acks).base_offset == 0
        left = files.crash(SYNCED_ONLY)
    with (
        Broker(data=data, settings=SETTINGS, in_process=True, files=left) as broker,
        connected(broker) as connection,
    ):
        again = produce(connection, TOPIC, sent_by(7, 0, 3), acks=acks)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert produce(connection, TOPIC, sent_by(7, 3, 1), acks=acks).base_offset == 3


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_is_sent_again_after_flush_messages_was_set_waits_for_its_own_fsync(
    tmp_path: Path, acks: int
) -> None:
    """The first attempt was not to be flushed. The second one is, although it appends nothing."""
    data, files = tmp_path / "data", MemoryFiles(clock=SystemClock())
    data.mkdir()
    settings = {name: value for name, value in SETTINGS.items() if name != "flush.messages"}
    with (
        Broker(data=data, settings=settings, in_process=True, files=files) as broker,
        connected(broker) as connection,
        Client(broker.bootstrap_servers, OPTIONS) as client,
    ):
        create_topic(connection, TOPIC)
        assert produce(connection, TOPIC, sent_by(7, 0, 3), acks=acks).base_offset == 0
        assert not alter_configs(client, {TOPIC: [ConfigChange(name="flush.messages", value="1")]})
        partition = broker.server.services.replica_manager.partitions[TOPIC, 0]
        until(lambda: partition.log.config.flush_messages == 1)
        again = produce(connection, TOPIC, sent_by(7, 0, 3), acks=acks)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert partition.log.recovery_point == 3
