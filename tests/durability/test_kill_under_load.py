"""kill -9 at any moment under load: everything acknowledged is there, offsets are dense, idempotent records once.

BARNABAS_KILLS=200 kills more often, BARNABAS_SEED repeats the moments of a run.
"""

import random
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from barnabas.client.admin import ConfigChange, NewTopic, alter_configs, create_topics, describe_configs, list_topics
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.offsets import EARLIEST, delete_records, offsets_at
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce, produce_request
from tests.broker.turning import until
from tests.durability.killing import KILLS, faults_found, kill_and_start, new_seed
from tests.durability.ledger import Audit, Ledger, Reader, read_from
from tests.durability.load import OPTIONS, Load
from tests.storage.builders import sent_by

TOPIC = "records"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(4)]
SEGMENT_BYTES = 20_000
# Of every producer, between two kills.
ACKNOWLEDGED_MIN = 10
ALIVE_SECONDS_MAX = 0.4


class Changes:
    """Somebody who creates topics, changes settings and deletes records all the time, and notes what was done.

    Invariant: done <= what the broker says <= begun, for each of the three.
    """

    def __init__(self, bootstrap_servers: str, ledger: Ledger, seed: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._ledger = ledger
        self._chance = random.Random(f"{seed} changes")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changes")
        self.topics_begun = self.topics_done = 0
        self.segment_bytes_begun = self.segment_bytes_done = SEGMENT_BYTES
        self.starts_begun = dict.fromkeys(PARTITIONS, 0)
        self.starts_done = dict.fromkeys(PARTITIONS, 0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        actions = (self._create_topic, self._change_setting, self._delete_records)
        with Client(self._bootstrap_servers, OPTIONS) as client:
            while not self._stopping.wait(self._chance.uniform(0, 0.05)):
                try:
                    self._chance.choice(actions)(client)
                except (ApiError, ClientError, AssertionError) as error:
                    self._ledger.fail(f"changes: {error!r}")
                    return

    def _create_topic(self, client: Client) -> None:
        self.topics_begun += 1
        name = topic_name(self.topics_begun)
        failures = create_topics(client, [NewTopic(name=name, partitions=2, replication_factor=1)])
        # An attempt whose answer was lost has created it.
        assert all(failure.code == ErrorCode.TOPIC_ALREADY_EXISTS for failure in failures.values()), failures
        self.topics_done += 1

    def _change_setting(self, client: Client) -> None:
        self.segment_bytes_begun += 1
        change = ConfigChange(name="segment.bytes", value=str(self.segment_bytes_begun))
        failures = alter_configs(client, {TOPIC: [change]})
        assert not failures, failures
        self.segment_bytes_done = self.segment_bytes_begun

    def _delete_records(self, client: Client) -> None:
        partition = self._chance.choice(PARTITIONS)
        offset = self._ledger.ends.get(partition, 0)
        # A third of what is there, and never what is new, so that there is something left to look for.
        wanted = max(offset // 3, self.starts_begun[partition])
        self.starts_begun[partition] = wanted
        start = delete_records(client, {partition: wanted})[partition]
        assert start == wanted
        self.starts_done[partition] = start


def topic_name(number: int) -> str:
    """The name of the topic that was created as the so-manieth."""
    return f"extra-{number}"


def check_round(client: Client, ledger: Ledger, reader: Reader, changes: Changes, audit: Audit) -> None:
    """Check everything that is known to have been done before now."""
    assert not ledger.failures, ledger.failures
    acknowledged = ledger.take_new()
    topics_done, segment_bytes_done, starts_done = (
        changes.topics_done,
        changes.segment_bytes_done,
        dict(changes.starts_done),
    )
    found = reader.read_on(client)
    starts = offsets_at(client, PARTITIONS, EARLIEST)
    audit.add(found, starts)
    audit.check(acknowledged, starts)
    names = {topic.name for topic in list_topics(client)}
    assert {topic_name(number) for number in range(1, topics_done + 1)} <= names
    segment_bytes = int(describe_configs(client, [TOPIC])[TOPIC]["segment.bytes"].value or 0)
    assert segment_bytes_done <= segment_bytes <= changes.segment_bytes_begun
    for partition in PARTITIONS:
        assert starts_done[partition] <= starts[partition] <= changes.starts_begun[partition]


def test_everything_acknowledged_outlives_kill_9_under_load(tmp_path: Path) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    ledger, reader, clock = Ledger(), Reader(PARTITIONS), SystemClock()
    kills = 0
    with Broker(data=tmp_path / "data") as broker, Client(broker.bootstrap_servers, OPTIONS) as client:
        settings = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1000"}
        topic = NewTopic(name=TOPIC, partitions=len(PARTITIONS), replication_factor=1, configs=settings)
        assert not create_topics(client, [topic])
        with (
            Load(broker.bootstrap_servers, PARTITIONS, ledger, seed) as load,
            Changes(broker.bootstrap_servers, ledger, seed) as changes,
        ):
            audit = Audit(load.idempotent)
            while kills < KILLS and not ledger.failures:
                load.wait_for(ACKNOWLEDGED_MIN)
                clock.sleep(chance.uniform(0, ALIVE_SECONDS_MAX))
                kills += kill_and_start(broker, chance)
                check_round(client, ledger, reader, changes, audit)
        check_round(client, ledger, reader, changes, audit)
        # From the beginning, once more: what was read in any round is still there, and is what it was.
        starts = offsets_at(client, PARTITIONS, EARLIEST)
        whole, _ = read_from(client, starts)
        for partition in PARTITIONS:
            expected = {k: v for k, v in reader.seen[partition].items() if k >= starts[partition]}
            assert whole[partition] == expected
        broker.stop()
        segments = len(list((tmp_path / "data").glob(f"{TOPIC}-*/*.log")))
        assert segments > len(PARTITIONS), "no segment was rolled"
        assert faults_found(tmp_path / "data") == ""
    print(f"{kills} kills, {ledger.count} records acknowledged, {segments} segments, {changes.topics_done} topics")


@pytest.mark.parametrize("segment_bytes", [250, 1 << 20])
def test_a_batch_whose_answer_was_lost_is_not_appended_again(tmp_path: Path, segment_bytes: int) -> None:
    """The broker dies when it has appended and nobody has read its answers: all are sent again, and are there once."""
    batches = [sent_by(7, sequence, 2) for sequence in range(0, 10, 2)]
    with Broker(data=tmp_path / "data") as broker:
        with connected(broker) as connection, connected(broker) as other:
            create_topic(other, TOPIC, config={"segment.bytes": segment_bytes})
            for batch in batches:
                connection.send(produce_request(TOPIC, {0: bytearray(batch)}), connection.version_of("Produce", 9))
            until(lambda: fetch(other, TOPIC, 0).high_watermark == 10)
            broker.kill()
        broker.start()
        with connected(broker) as connection:
            answers = [produce(connection, TOPIC, bytearray(batch)) for batch in batches]
            assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, n) for n in range(0, 10, 2)]
            assert offsets_of(fetch(connection, TOPIC, 9)) == [8, 9]
            assert produce(connection, TOPIC, sent_by(7, 10)).base_offset == 10
