"""The shop's events on their way to the broker: through confluent-kafka, a client of the field, on a thread.

Rule 1: the producer is idempotent and waits for its broker, so that one that is killed and started again gets every
event once. What was acknowledged is counted, and compared at the end.
"""

import itertools
import threading
from collections.abc import Iterable
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

from demo.shop import Event

_TICKS_A_SECOND = 20
_FLUSH_SECONDS_MAX = 120


class Traffic:
    """Events that arrive while the demo goes on, until it has seen enough of them, or there are no more."""

    def __init__(self, bootstrap_servers: str, events: Iterable[Event], events_a_second: float) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []
        self._events = iter(events)
        self._events_a_tick = max(1, round(events_a_second / _TICKS_A_SECOND))
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                # A broker that is away is no news: the demo takes it away.
                "log_level": 0,
            }
        )
        self._wanted: int | None = None
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._is_stopped.set()
        self.finish()

    def finish(self, at_least: int | None = None) -> None:
        """Return when so many events, or all there are, were sent, and those are acknowledged, or can not be."""
        self._wanted = at_least
        self._thread.join()

    def _run(self) -> None:
        # Waiting is the pace: `wait` returns at once when the demo stops.
        while not self._is_stopped.wait(1 / _TICKS_A_SECOND) and (self._wanted is None or self.sent < self._wanted):
            some = list(itertools.islice(self._events, self._events_a_tick))
            if not some:
                break
            for event in some:
                self._producer.produce(event.topic, event.value, event.key, on_delivery=self._on_delivery)
            self._producer.poll(0)
            self.sent += len(some)
        left = self._producer.flush(_FLUSH_SECONDS_MAX)
        if left:
            self.failures.append(f"{left} events were not acknowledged in time")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error.str())
