"""Words for tests of retention: a broker with a clock to turn, segments of one batch each, and what is left of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.storage.log import Log
from tests.broker.asking import connected, create_topic
from tests.broker.turning import append, on_loop, until_on_loop
from tests.storage.builders import batch_of

HOUR_MS = 3_600_000
CHECK_MS = 300_000
ONE_BATCH = {"segment.bytes": 100}
"""Every batch of `fill` has a segment of its own."""


@contextmanager
def retaining(clock: ManualClock, **options: Any) -> Iterator[Broker]:
    """A broker on a thread that goes by a clock."""
    with Broker(in_process=True, clock=clock, **options) as broker:
        yield broker


def topic_of(broker: Broker, name: str, partitions: int = 1, **config: object) -> None:
    """Create a topic whose segments have one batch; names of settings have underscores for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with connected(broker) as connection:
        create_topic(connection, name, partitions, {**ONE_BATCH, **settings})


def fill(broker: Broker, name: str, count: int, *, timestamp: int, partition: int = 0) -> None:
    """Append batches of one record, each with a timestamp one millisecond later."""
    for number in range(count):
        append(broker, name, batch_of(1, timestamp=timestamp + number), partition)


def log_of(broker: Broker, name: str, partition: int = 0) -> Log:
    """The log of a partition."""
    return broker.server.services.replica_manager.partitions[name, partition].log


def bases(broker: Broker, name: str, partition: int = 0) -> list[int]:
    """The base offsets of the segments of a log."""
    return on_loop(broker, lambda: [segment.base_offset for segment in log_of(broker, name, partition).segments])


def settled(broker: Broker) -> None:
    """Wait until retention has nothing left to do."""
    until_on_loop(broker, lambda: not broker.server.services.log_retention.is_running)


def checked(broker: Broker, clock: ManualClock) -> None:
    """Let the time of the next run on schedule come, and wait for the end of the run."""
    clock.advance(CHECK_MS)
    settled(broker)
