"""With flush.messages=1 the producers that wait for the disk share its fsyncs, and nobody sees what is not on it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceResponse
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop, until
from tests.durability.gated_files import Gate, GatedFiles
from tests.storage.builders import batch_of

TOPIC = "records"
PRODUCERS = 16

Answer = Future[PartitionProduceResponse]
Submit = Callable[[Connection, int, int], Answer]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def broker(gate: Gate) -> Iterator[Broker]:
    with Broker(in_process=True, settings={"flush.messages": 1}, files=GatedFiles(gate)) as broker:
        yield broker


@pytest.fixture
def connections(broker: Broker) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connected(broker)) for _ in range(PRODUCERS)]


@pytest.fixture
def submit(gate: Gate, connections: list[Connection]) -> Iterator[Submit]:
    """What produces one record on a connection, to a partition, with some acks, beside the test."""
    with ThreadPoolExecutor(PRODUCERS) as pool:

        def begin(connection: Connection, partition: int, acks: int) -> Answer:
            return pool.submit(produce, connection, TOPIC, batch_of(1), partition, acks=acks)

        yield begin
        gate.open()  # A test that failed lets nobody wait.


def log_end_offset(broker: Broker, partition: int) -> int:
    """Where the log of a partition ends."""
    partitions = broker.server.services.replica_manager.partitions
    return on_loop(broker, lambda: partitions[TOPIC, partition].log.log_end_offset)


def flushes(broker: Broker) -> int:
    """How many flushes there were."""
    return on_loop(broker, lambda: broker.server.services.replica_manager.flusher.flushes)


@pytest.mark.parametrize("acks", [1, -1])
def test_sixteen_produces_that_wait_take_two_fsyncs(
    broker: Broker, gate: Gate, connections: list[Connection], submit: Submit, acks: int
) -> None:
    """One for the first, and one for all that came while it was under way."""
    create_topic(connections[0], TOPIC)
    flushes_before = flushes(broker)
    gate.close()
    answers = [submit(connections[0], 0, acks)]
    until(lambda: gate.waiting == 1)
    answers += [submit(connection, 0, acks) for connection in connections[1:]]
    until(lambda: log_end_offset(broker, 0) == PRODUCERS)
    assert not any(answer.done() for answer in answers)
    gate.open()
    found = [answer.result() for answer in answers]
    assert {answer.error_code for answer in found} == {ErrorCode.NONE}
    assert sorted(answer.base_offset for answer in found) == list(range(PRODUCERS))
    assert gate.syncs == 2
    assert flushes(broker) - flushes_before == 2


def test_each_partition_has_fsyncs_of_its_own(
    broker: Broker, gate: Gate, connections: list[Connection], submit: Submit
) -> None:
    create_topic(connections[0], TOPIC, partitions=4)
    gate.close()
    answers = [submit(connection, number % 4, -1) for number, connection in enumerate(connections)]
    until(lambda: all(log_end_offset(broker, partition) == PRODUCERS // 4 for partition in range(4)))
    assert not any(answer.done() for answer in answers)
    gate.open()
    assert {answer.result().error_code for answer in answers} == {ErrorCode.NONE}
    assert 4 <= gate.syncs <= 8


def test_consumers_see_a_record_when_it_is_on_the_disk(
    broker: Broker, gate: Gate, connections: list[Connection], submit: Submit
) -> None:
    producer, consumer = connections[:2]
    create_topic(producer, TOPIC)
    assert produce(producer, TOPIC, batch_of(2)).error_code == ErrorCode.NONE
    gate.close()
    answer = submit(producer, 0, 1)
    until(lambda: gate.waiting == 1)
    found = fetch(consumer, TOPIC, 0)
    assert (offsets_of(found), found.high_watermark) == ([0, 1], 2)
    assert not answer.done()
    gate.open()
    assert answer.result().base_offset == 2
    found = fetch(consumer, TOPIC, 0)
    assert (offsets_of(found), found.high_watermark) == ([0, 1, 2], 3)
