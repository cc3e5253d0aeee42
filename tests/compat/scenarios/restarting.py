"""The broker stops and starts again while clients are at work."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.compat.model import DEADLINE_S, ConsumerOptions, Position, Producer, ProducerOptions
from tests.compat.scenarios.scenario import Context, numbered, numbers_of, read_all, scenario

RECORDS_A_ROUND = 20
# Rounds that must be acknowledged before the broker goes away, and after it is back.
ROUNDS = 5


class BusyProducer:
    """Sends round after round, in a thread, until it is told to finish; keeps what was acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._finish = threading.Event()
        self._progress = threading.Condition()
        self._pool = ThreadPoolExecutor(1)
        self.positions: list[Position] = []
        self._sending = self._pool.submit(self._send)

    def _send(self) -> None:
        while not self._finish.is_set():
            positions = self._producer.send(self._topic, numbered(RECORDS_A_ROUND, start=len(self.positions)))
            with self._progress:
                self.positions += positions
                self._progress.notify_all()

    def wait_for_rounds(self, rounds: int) -> None:
        """Waits until this many more rounds are acknowledged."""
        with self._progress:
            goal = len(self.positions) + rounds * RECORDS_A_ROUND
            # An error of the producer ends its thread, and is raised by `finish`.
            self._progress.wait_for(lambda: len(self.positions) >= goal or self._sending.done(), DEADLINE_S)

    def finish(self) -> list[int]:
        """Ends it after the round that it is in, and returns the offsets that were acknowledged."""
        self._finish.set()
        self._sending.result(2 * DEADLINE_S)
        self._pool.shutdown()
        return [position.offset for position in self.positions]


def produce_over_a_restart(context: Context, topic: str, idempotent: bool, end: Callable[[], object]) -> list[int]:
    """The acknowledged offsets of a producer that was busy while the broker ended and started again."""
    with context.driver.producer(ProducerOptions(idempotent=idempotent)) as producer:
        busy = BusyProducer(producer, topic)
        try:
            busy.wait_for_rounds(ROUNDS)
            end()
            context.broker.start()
            busy.wait_for_rounds(ROUNDS)
        finally:
            offsets = busy.finish()
    assert len(offsets) >= 2 * ROUNDS * RECORDS_A_ROUND
    return offsets


@scenario("A producer rides out a restart: everything acknowledged is there, where it was said to be.", restarts=True)
def producer_over_a_restart(context: Context) -> None:
    topic = context.new_topic()
    offsets = produce_over_a_restart(context, topic, False, context.broker.stop)
    numbers = numbers_of(read_all(context.reconnected(), topic))
    assert [numbers[offset] for offset in offsets] == list(range(len(offsets)))


@scenario(
    "An idempotent producer rides out a restart: nothing is lost, nothing is there twice, all is in order.",
    restarts=True,
)
def idempotent_producer_over_a_restart(context: Context) -> None:
    topic = context.new_topic()
    offsets = produce_over_a_restart(context, topic, True, context.broker.stop)
    assert offsets == list(range(len(offsets)))
    assert numbers_of(read_all(context.reconnected(), topic)) == list(range(len(offsets)))


@scenario("An idempotent producer rides out a SIGKILL of the broker in the same way.", restarts=True)
def idempotent_producer_over_a_kill(context: Context) -> None:
    topic = context.new_topic()
    offsets = produce_over_a_restart(context, topic, True, context.broker.kill)
    assert offsets == list(range(len(offsets)))
    assert numbers_of(read_all(context.reconnected(), topic)) == list(range(len(offsets)))


@scenario("A consumer rides out a restart and goes on with the next record.", restarts=True)
def consumer_over_a_restart(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(10))
    with context.driver.consumer(topic, {0: 0}, ConsumerOptions()) as consumer, ThreadPoolExecutor(1) as pool:
        assert numbers_of(consumer.take(5)) == list(range(5))
        taking = pool.submit(consumer.take, 10)
        context.broker.stop()
        context.broker.start()
        context.send(topic, numbered(5, start=10))
        assert numbers_of(taking.result()) == list(range(5, 15))


SCENARIOS = [
    producer_over_a_restart,
    idempotent_producer_over_a_restart,
    idempotent_producer_over_a_kill,
    consumer_over_a_restart,
]
