"""What all clients of a run share: where the broker is, the history, chance from the seed, and when to stop.

Rule 1: whatever a client does by chance, it does by its own `random.Random`, made from the seed and its name.
Rule 2: a client waits with a deadline, always. While faults go on a deadline that passes is no news; when they are over
and the broker is there, it is trouble, and is written down.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import confluent_kafka

from checker.history import History, Outcome, Planned, Transaction, Trouble

INPUT_TOPIC, OUTPUT_TOPIC = "events", "copies"
PARTITIONS = 4
OUTPUT_PARTITIONS = 2

# Longer than any fault lasts, so that nobody gives up for no reason.
PATIENCE_S = 30.0
TRANSACTION_TIMEOUT_MS = 6_000
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_MS = 300


@dataclass(slots=True, kw_only=True)
class World:
    """One run, as its clients see it."""

    bootstrap_servers: str
    history: History
    seed: int
    stopping: threading.Event = field(default_factory=threading.Event)

    def chance(self, name: str) -> random.Random:
        """The chance of one client."""
        return random.Random(f"{self.seed} {name}")

    def settings(self, name: str, **more: Any) -> dict[str, Any]:
        """The settings of a confluent-kafka client that is back as soon as the broker is."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": name,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "socket.timeout.ms": TRANSACTION_TIMEOUT_MS,
            # The broker comes back where it was. To begin anew (KIP-899) makes librdkafka 2.16 forget the coordinator
            # of the group that send_offsets_to_transaction waits for, and that call then never ends.
            "metadata.recovery.strategy": "none",
            # That a broker is away is no news here.
            "log_level": 0,
            "error_cb": lambda _: None,
            **more,
        }

    def trouble(self, name: str, what: str) -> None:
        """Write down what may never happen."""
        self.history.note(name, Trouble(what=what))


class Values:
    """Values that are sent once each: who sends them, and a number."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self._name = name
        self._chance = chance
        self._count = 0

    def next(self) -> Planned:
        """A new value, for some partition."""
        self._count += 1
        return Planned(f"{INPUT_TOPIC}-{self._chance.randrange(PARTITIONS)}", f"{self._name}:{self._count}")


def place(partition: str) -> tuple[str, int]:
    """`events-3` as topic and number."""
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def partition_name(topic: str, number: int) -> str:
    """The other way round."""
    return f"{topic}-{number}"


def padded(value: str, chance: random.Random) -> bytes:
    """A value as it is sent: records have different sizes."""
    return value.encode() + b"." * chance.randrange(200)


def read_value(sent: bytes) -> str:
    """The value of a record that was read."""
    return sent.rstrip(b".").decode()


class Ongoing:
    """A transaction in the history, from before its first record to its end."""

    def __init__(self, world: World, process: str, transaction: Transaction) -> None:
        self._world = world
        self._process = process
        self._body = transaction
        self._number = world.history.invoke(process, transaction)
        self._offsets: dict[str, int] = {}

    @property
    def is_asked_to_commit(self) -> bool:
        """Whether a commit was asked for."""
        return self._body.asked_to_commit_at is not None

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged."""
        return len(self._offsets)

    def on_delivery(self, planned: Planned) -> Callable[[Any, Any], None]:
        """What a producer calls when it knows about a record."""

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.delivered(planned, message.offset())

        return delivered

    def delivered(self, planned: Planned, offset: int) -> None:
        """Note where a record is."""
        self._offsets[planned.value] = offset
        self._world.history.saw(planned.partition, offset)

    def asks_to_commit(self) -> None:
        """Note the moment before a commit is asked for."""
        if not self.is_asked_to_commit:
            self._body = replace(self._body, asked_to_commit_at=self._world.history.now())

    def over(self, outcome: Outcome) -> None:
        """Note how it ended."""
        body = replace(self._body, offsets=dict(self._offsets))
        self._world.history.complete(self._number, self._process, outcome, body)

    def gave_up(self) -> None:
        """Note that nobody ends it: what was never asked to be committed can not be."""
        self.over(Outcome.UNKNOWN if self.is_asked_to_commit else Outcome.FAIL)


def is_wrong(error: confluent_kafka.KafkaError) -> bool:
    """Whether a client may never be told this, whatever happens to the broker: something was lost or damaged."""
    return error.code() in _WRONG


_WRONG = frozenset(
    {
        confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE,
        confluent_kafka.KafkaError.INVALID_MSG,
        confluent_kafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        confluent_kafka.KafkaError.DUPLICATE_SEQUENCE_NUMBER,
        confluent_kafka.KafkaError.UNKNOWN_PRODUCER_ID,
        confluent_kafka.KafkaError.INVALID_TXN_STATE,
        confluent_kafka.KafkaError.INVALID_PRODUCER_ID_MAPPING,
        confluent_kafka.KafkaError.UNKNOWN,
        confluent_kafka.KafkaError._BAD_MSG,
        confluent_kafka.KafkaError._GAPLESS_GUARANTEE,
        confluent_kafka.KafkaError._INCONSISTENT,
        confluent_kafka.KafkaError._AUTO_OFFSET_RESET,
    }
)
