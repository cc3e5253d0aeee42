"""Producers of confluent-kafka: plain ones, idempotent with acks=all, and transactional ones that end in every way."""

import random
from typing import Any

import confluent_kafka

from checker.history import Outcome, Planned, Send, Transaction
from checker.workload.world import PATIENCE_S, TRANSACTION_TIMEOUT_MS, Ongoing, Values, World, is_wrong, padded, place

IN_FLIGHT_MAX = 100
PAUSE_S = 0.02
RECORDS_MAX = 8
# Of the transactions of a producer.
SHARE_ABORTED = 0.25
SHARE_ABANDONED = 0.1


def run_plain(world: World, name: str) -> None:
    """Send single records until the run ends, then wait until all are acknowledged."""
    chance = world.chance(name)
    codec = chance.choice(["none", "lz4", "zstd"])
    producer = confluent_kafka.Producer(
        world.settings(
            name,
            **{"enable.idempotence": True, "linger.ms": 2, "compression.type": codec, "message.timeout.ms": 120_000},
        )
    )
    values, plain = Values(name, chance), _Plain(world, name, producer, chance)
    while not world.stopping.wait(chance.uniform(0, 2 * PAUSE_S)):
        for _ in range(chance.randint(1, 4)):
            if plain.waiting < IN_FLIGHT_MAX:
                plain.send(values.next())
        producer.poll(0)
    if producer.flush(PATIENCE_S):
        world.trouble(name, f"{len(producer)} records are not acknowledged {PATIENCE_S:.0f} s after the last fault")


class _Plain:
    """Sends records and notes what becomes of them."""

    def __init__(self, world: World, name: str, producer: confluent_kafka.Producer, chance: random.Random) -> None:
        self._world = world
        self._name = name
        self._producer = producer
        self._chance = chance
        self.waiting = 0

    def send(self, planned: Planned) -> None:
        topic, partition = place(planned.partition)
        number = self._world.history.invoke(self._name, Send(record=planned))
        self.waiting += 1

        def delivered(error: Any, message: Any) -> None:
            self.waiting -= 1
            if error is None:
                body = Send(record=planned, offset=message.offset())
                self._world.history.complete(number, self._name, Outcome.OK, body)
                self._world.history.saw(planned.partition, message.offset())
                return
            self._world.history.complete(number, self._name, Outcome.UNKNOWN, Send(record=planned))
            self._world.trouble(self._name, f"a record was given up: {error}")

        value = padded(planned.value, self._chance)
        self._producer.produce(topic, value, partition=partition, on_delivery=delivered)


def run_transactional(world: World, name: str) -> None:
    """Run transactions until the run ends; a producer that is fenced or left behind is followed by another one."""
    chance = world.chance(name)
    values = Values(name, chance)
    incarnation = 0
    while not world.stopping.is_set():
        incarnation += 1
        process = f"{name}/{incarnation}"
        producer = start_transactional(world, name)
        if producer is None:
            world.trouble(process, f"init_transactions did not succeed within {PATIENCE_S:.0f} s")
            return
        while not world.stopping.wait(chance.uniform(0, 2 * PAUSE_S)):
            records = tuple(values.next() for _ in range(chance.randint(1, RECORDS_MAX)))
            ongoing = Ongoing(world, process, Transaction(records=records))
            if not run_transaction(world, process, producer, ongoing, records, chance):
                break


def start_transactional(world: World, transactional_id: str) -> confluent_kafka.Producer | None:
    """A producer that has its id and its epoch, and has thereby ended whatever was open; None if it can not be had."""
    timeouts = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "message.timeout.ms": TRANSACTION_TIMEOUT_MS}
    settings = world.settings(transactional_id, **{"transactional.id": transactional_id, "linger.ms": 2, **timeouts})
    deadline = world.history.now() + PATIENCE_S
    while world.history.now() < deadline:
        producer = confluent_kafka.Producer(settings)
        try:
            producer.init_transactions(PATIENCE_S / 3)
        except confluent_kafka.KafkaException as error:
            _complain(world, transactional_id, error)
            continue
        return producer
    return None


def run_transaction(
    world: World,
    process: str,
    producer: confluent_kafka.Producer,
    ongoing: Ongoing,
    records: tuple[Planned, ...],
    chance: random.Random,
) -> bool:
    """Run one transaction to whatever end; tells whether the producer can go on."""
    fate = chance.random()
    try:
        producer.begin_transaction()
        for planned in records:
            topic, partition = place(planned.partition)
            value = padded(planned.value, chance)
            producer.produce(topic, value, partition=partition, on_delivery=ongoing.on_delivery(planned))
        if fate < SHARE_ABANDONED:
            producer.flush(chance.choice([0.0, 0.5]))
            ongoing.gave_up()
            return False
        if fate < SHARE_ABANDONED + SHARE_ABORTED:
            producer.flush(chance.choice([0.0, 0.5]))
            return abort(world, process, producer, ongoing)
        return commit(world, process, producer, ongoing)
    except confluent_kafka.KafkaException as error:
        _complain(world, process, error)
        return abort(world, process, producer, ongoing) if _can_abort(error) else _left(ongoing)


def commit(world: World, process: str, producer: confluent_kafka.Producer, ongoing: Ongoing) -> bool:
    """Commit, however often it takes; tells whether the producer can go on."""
    ongoing.asks_to_commit()
    deadline = world.history.now() + PATIENCE_S
    while True:
        try:
            producer.commit_transaction(PATIENCE_S / 3)
        except confluent_kafka.KafkaException as error:
            _complain(world, process, error)
            if _can_abort(error):
                return abort(world, process, producer, ongoing)
            if not _is_retriable(error) or world.history.now() > deadline:
                return _left(ongoing)
            continue
        ongoing.over(Outcome.OK)
        return True


def abort(world: World, process: str, producer: confluent_kafka.Producer, ongoing: Ongoing) -> bool:
    """Abort, however often it takes; tells whether the producer can go on."""
    deadline = world.history.now() + PATIENCE_S
    while True:
        try:
            producer.abort_transaction(PATIENCE_S / 3)
        except confluent_kafka.KafkaException as error:
            # librdkafka asks for the end of a transaction whose first partition was not taken, because the one before
            # was not over yet; by now it is, and there is nothing to abort. A Kafka says so too.
            if error.args[0].code() != confluent_kafka.KafkaError.INVALID_TXN_STATE:
                _complain(world, process, error)
            if not _is_retriable(error) or world.history.now() > deadline:
                return _left(ongoing)
            continue
        ongoing.over(Outcome.FAIL)
        return True


def _left(ongoing: Ongoing) -> bool:
    ongoing.gave_up()
    return False


def _can_abort(error: confluent_kafka.KafkaException) -> bool:
    return bool(error.args[0].txn_requires_abort())


def _is_retriable(error: confluent_kafka.KafkaException) -> bool:
    return bool(error.args[0].retriable())


def _complain(world: World, process: str, error: confluent_kafka.KafkaException) -> None:
    if is_wrong(error.args[0]):
        world.trouble(process, f"an error that may not be: {error.args[0]}")
