"""Consume, transform, produce, exactly once: what is made of records, and how far it came, are one transaction.

Members of one group share the input; each has a transactional id of its own. Whoever fails, or loses its partitions,
aborts and begins where the group has committed (KIP-447).
"""

import itertools
import random
from collections.abc import Iterator

import confluent_kafka

from checker.history import READ_COMMITTED, Planned, Seen, Transaction, transformed
from checker.workload.consumers import Reader
from checker.workload.producers import abort, commit, start_transactional
from checker.workload.world import (
    HEARTBEAT_MS,
    INPUT_TOPIC,
    OUTPUT_PARTITIONS,
    OUTPUT_TOPIC,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    Ongoing,
    World,
    is_wrong,
    partition_name,
    place,
)

GROUP = "transformers"
BATCH_MAX = 40
SHARE_ABORTED = 0.1
SHARE_ABANDONED = 0.05


def run_transformer(world: World, name: str, protocol: str) -> None:
    """Transform until the run ends; after everything that went wrong, with a new consumer and a new producer."""
    chance, attempts = world.chance(name), (f"{name}#{number}" for number in itertools.count())
    incarnation = 0
    while not world.stopping.is_set():
        incarnation += 1
        process = f"{name}/{incarnation}"
        producer = start_transactional(world, name)
        if producer is None:
            world.trouble(process, f"init_transactions did not succeed within {PATIENCE_S:.0f} s")
            return
        settings: dict[str, object] = {"group.protocol": protocol}
        if protocol == "classic":
            settings |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        reader = Reader(world, process, READ_COMMITTED, GROUP, **settings)
        try:
            reader.join(INPUT_TOPIC)
            while not world.stopping.is_set():
                taken = reader.poll(BATCH_MAX)
                if taken and not _transform(world, reader, producer, taken, attempts, chance):
                    break
        finally:
            reader.consumer.close()
            reader.write_down()


def _transform(
    world: World,
    reader: Reader,
    producer: confluent_kafka.Producer,
    taken: list[Seen],
    attempts: Iterator[str],
    chance: random.Random,
) -> bool:
    """One transaction; tells whether this consumer and this producer can go on."""
    partitions, attempt = range(OUTPUT_PARTITIONS), next(attempts)
    records = tuple(
        Planned(partition_name(OUTPUT_TOPIC, chance.choice(partitions)), transformed(record, attempt))
        for record in taken
    )
    consumed = {record.partition: record.offset + 1 for record in taken}
    ongoing = Ongoing(world, reader.process, Transaction(records=records, group=GROUP, consumed=consumed))
    fate = chance.random()
    try:
        producer.begin_transaction()
        for planned in records:
            topic, partition = place(planned.partition)
            value = planned.value.encode()
            producer.produce(topic, value, partition=partition, on_delivery=ongoing.on_delivery(planned))
        if fate < SHARE_ABANDONED:
            producer.flush(chance.choice([0.0, 0.5]))
            ongoing.gave_up()
            return False
        offsets = [confluent_kafka.TopicPartition(*place(name), at) for name, at in consumed.items()]
        producer.send_offsets_to_transaction(offsets, reader.consumer.consumer_group_metadata(), PATIENCE_S / 3)
        if fate < SHARE_ABANDONED + SHARE_ABORTED:
            abort(world, reader.process, producer, ongoing)
            return False
        return commit(world, reader.process, producer, ongoing)
    except confluent_kafka.KafkaException as error:
        if is_wrong(error.args[0]):
            world.trouble(reader.process, f"an error that may not be: {error.args[0]}")
        if error.args[0].txn_requires_abort() or error.args[0].retriable():
            abort(world, reader.process, producer, ongoing)
        else:
            ongoing.gave_up()
        return False
