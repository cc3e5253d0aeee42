"""A data directory that a real Kafka wrote, with a group's offsets and transactions, opened by Barnabas."""

from pathlib import Path

import pytest

from barnabas import Broker
from tests.compat.drivers.confluent import ConfluentDriver
from tests.compat.model import (
    CommittedOffset,
    ConsumerOptions,
    Driver,
    MemberOptions,
    ProducerOptions,
    Record,
)
from tests.compat.scenarios.scenario import eventually, numbered, numbers_of, read, wait_for_leaders
from tests.kafka_peer.peer import NODE_ID, KafkaPeer, copy_sparse

pytestmark = pytest.mark.kafka

TOPIC = "handed-over"
GROUP = "handed-over-group"
TRANSACTIONAL_ID = "handed-over-producer"
# Where a group or a transactional id is kept depends on these; Kafka's peer has few, and Barnabas must have as many.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


def poll(driver: Driver, count: int) -> list[Record]:
    records: list[Record] = []

    def enough() -> bool:
        records.extend(member.poll(commit=False).records)
        return len(records) >= count

    with driver.member(MemberOptions(group=GROUP, topic=TOPIC, read_committed=True)) as member:
        eventually(enough, f"{count} records come")
        if count == 3:
            member.commit({0: CommittedOffset(offset=2, metadata="by Kafka")})
    return records


def test_barnabas_goes_on_with_the_groups_and_transactions_of_a_kafka(kafka_jars: Path, tmp_path: Path) -> None:
    with KafkaPeer(tmp_path / "kafka", SETTINGS) as peer:
        driver = ConfluentDriver(peer.bootstrap_servers)
        driver.create_topic(TOPIC, 1, {})
        wait_for_leaders(driver, TOPIC, 1)
        with driver.producer(ProducerOptions(transactional_id=TRANSACTIONAL_ID)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, numbered(3))
            producer.commit_transaction()
        assert numbers_of(poll(driver, 3)) == [0, 1, 2]
        with driver.producer(ProducerOptions(transactional_id=TRANSACTIONAL_ID)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, numbered(2, start=3))
            # The transaction stays open: whoever runs next has to abort it.
            driver.close()
            peer.stop()
    copy_sparse(peer.data_dir, tmp_path / "data")
    with Broker(data=tmp_path / "data", settings={**SETTINGS, "node.id": str(NODE_ID)}) as broker:
        driver = ConfluentDriver(broker.bootstrap_servers)
        assert driver.committed(GROUP, TOPIC) == {0: CommittedOffset(offset=2, metadata="by Kafka")}
        assert numbers_of(poll(driver, 1)) == [2]
        with driver.producer(ProducerOptions(transactional_id=TRANSACTIONAL_ID)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, numbered(2, start=5))
            producer.commit_transaction()
        committed = read(driver, TOPIC, 5, options=ConsumerOptions(read_committed=True))
        assert numbers_of(committed) == [0, 1, 2, 5, 6]
        driver.close()
