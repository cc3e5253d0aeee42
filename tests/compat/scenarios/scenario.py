"""What a scenario is, and the few words that scenarios are told in."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.compat.apart import Apart
from tests.compat.brokers import RunningBroker
from tests.compat.model import (
    DEADLINE_S,
    ClientError,
    ConsumerOptions,
    Driver,
    Need,
    NewRecord,
    Position,
    ProducerOptions,
    Record,
)

# Settings are written like keyword arguments where they are given to `new_topic`: `retention_ms="-1"`.
DEFAULT_OPTIONS = ProducerOptions()

# What Kafka's broker answers about a partition that its metadata has already and that it does not lead yet. The last
# one comes when a client sends the leader epoch of that metadata to a broker that has not heard of it.
NOT_LEADING_YET = frozenset(
    {"UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a scenario runs with."""

    driver: Driver
    broker: RunningBroker
    # Another client, for reading what this one wrote.
    other: Callable[[], Driver]
    # A client that can describe log directories, for looking at what is stored.
    observer: Callable[[], Driver]
    # The driver's client, connected anew: admin clients are not made to ride out a restart.
    reconnected: Callable[[], Driver]
    # The driver's client in another process, to be killed.
    apart: Callable[[], Apart]
    # No other scenario uses a topic whose name begins with this.
    prefix: str

    def topic_name(self, suffix: str = "") -> str:
        """A name of a topic that does not exist."""
        return f"{self.prefix}{suffix}"

    def new_topic(self, partitions: int = 1, /, **settings: str) -> str:
        """Creates a topic and waits until the broker shows it with all its leaders."""
        topic = self.topic_name()
        self.driver.create_topic(topic, partitions, {name.replace("_", "."): value for name, value in settings.items()})
        wait_for_leaders(self.driver, topic, partitions)
        return topic

    def send(
        self, topic: str, records: Sequence[NewRecord], options: ProducerOptions = DEFAULT_OPTIONS
    ) -> list[Position]:
        """Produces with a producer for this call alone."""
        with self.driver.producer(options) as producer:
            return producer.send(topic, records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the table."""

    name: str
    sentence: str
    run: Callable[[Context], None]
    needs: frozenset[Need]
    # Whether it stops the broker, which then cannot be the one that others use.
    restarts: bool


def scenario(
    sentence: str, *needs: Need, restarts: bool = False, name: str | None = None
) -> Callable[[Callable[[Context], None]], Scenario]:
    """Makes a scenario of a function. Its name is the function's, with spaces, unless it is given."""

    def made(run: Callable[[Context], None]) -> Scenario:
        return Scenario(
            name=name or run.__name__.replace("_", " "),
            sentence=sentence,
            run=run,
            needs=frozenset(needs),
            restarts=restarts,
        )

    return made


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits until a condition holds. Kafka's controller answers before its broker has heard of a change."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen that {what}")
        time.sleep(0.02)


def wait_for_leaders(driver: Driver, topic: str, partitions: int) -> None:
    """Waits until a topic has this many partitions, each with a leader that knows it.

    A new topic is in Kafka's metadata before its broker leads all partitions. Records sent in between are refused with
    NOT_LEADER_OR_FOLLOWER, and if only the first of several batches is, an idempotent producer cannot recover.
    """

    def there() -> bool:
        try:
            described = driver.describe_topic(topic)
            if len(described.partitions) != partitions or any(each.leader < 0 for each in described.partitions):
                return False
            # Only a leader can say where its partition ends. Asking a few of many partitions has to do.
            for partition in range(min(partitions, 3)):
                driver.list_offset(topic, partition, "latest")
        except ClientError as error:
            if error.name not in NOT_LEADING_YET:
                raise
            return False
        return True

    eventually(there, f"{topic} has {partitions} partitions with leaders")


@contextmanager
def refused(name: str) -> Iterator[None]:
    """The block must fail with this error of the broker."""
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.name == name, caught.value


def read(
    driver: Driver,
    topic: str,
    count: int,
    start: Mapping[int, int] | None = None,
    options: ConsumerOptions | None = None,
) -> list[Record]:
    """The first `count` records of partition 0, or of all partitions of `start` from those offsets."""
    with driver.consumer(topic, start or {0: 0}, options or ConsumerOptions()) as consumer:
        return consumer.take(count)


def read_all(driver: Driver, topic: str, partitions: int = 1) -> list[Record]:
    """Every record of a topic, by partition and offset; as many as the offsets say there are."""
    start = {number: driver.list_offset(topic, number, "earliest").offset for number in range(partitions)}
    ends = {number: driver.list_offset(topic, number, "latest").offset for number in range(partitions)}
    count = sum(ends[number] - start[number] for number in start)
    if count == 0:
        return []
    return sorted(read(driver, topic, count, start), key=lambda record: (record.partition, record.offset))


def numbered(count: int, *, start: int = 0, size: int = 0, partition: int = 0) -> list[NewRecord]:
    """Records whose values are numbers, padded to a size."""
    return [
        NewRecord(value=str(number).encode("ascii").ljust(size, b"."), partition=partition)
        for number in range(start, start + count)
    ]


def numbers_of(records: Sequence[Record]) -> list[int]:
    """The numbers in the values of `numbered` records."""
    return [int((record.value or b"").rstrip(b".")) for record in records]
