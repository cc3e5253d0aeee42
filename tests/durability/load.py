"""Load: producers of several kinds that write as fast as they are answered, and note every answer in a Ledger.

    with Load(broker.bootstrap_servers, partitions, ledger, seed) as load:
        ...                                 # kill the broker, start it again
    load.idempotent                         # the names of those that promise each record once

Rule 1: nobody gives up: a broker that is away comes back, and every record is acknowledged in the end.
"""

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.sender import ACKS_ALL, ACKS_LEADER, Delivered, Sender, SendOptions
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.wire.errors import ApiError
from tests.broker.turning import until
from tests.durability.ledger import Ledger, Sent

PADDING_MAX = 300
IN_FLIGHT_MAX = 60
TIMEOUT_MS = 120_000
# The broker is to be busy, and the records few enough to be checked one by one.
PAUSE_SECONDS = 0.005
# Short waits, so that the load is back as soon as the broker is.
OPTIONS = ClientOptions(retry_backoff_ms=20, retry_backoff_max_ms=200, default_api_timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of producer."""

    name: str
    library: str
    acks: int
    is_idempotent: bool = False
    codec: Codec = Codec.NONE


KINDS = (
    Kind(name="own-idempotent", library="barnabas", acks=ACKS_ALL, is_idempotent=True),
    Kind(name="own-idempotent-lz4", library="barnabas", acks=ACKS_ALL, is_idempotent=True, codec=Codec.LZ4),
    Kind(name="own-acks-1", library="barnabas", acks=ACKS_LEADER),
    Kind(name="confluent-idempotent", library="confluent", acks=ACKS_ALL, is_idempotent=True),
    Kind(name="confluent-acks-all", library="confluent", acks=ACKS_ALL, codec=Codec.ZSTD),
    Kind(name="confluent-acks-1", library="confluent", acks=ACKS_LEADER),
)


class Load:
    """Producers, one thread each."""

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Sequence[TopicPartition],
        ledger: Ledger,
        seed: int,
        kinds: Sequence[Kind] = KINDS,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._partitions = partitions
        self._ledger = ledger
        self._stopping = threading.Event()
        self._names = [kind.name for kind in kinds]
        self.idempotent = {kind.name for kind in kinds if kind.is_idempotent}
        self._threads = [
            threading.Thread(target=self._run, args=(kind, random.Random(f"{seed} {kind.name}")), name=kind.name)
            for kind in kinds
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until every producer has so many more records acknowledged, or one has failed."""
        ledger = self._ledger
        wanted = {name: ledger.counts[name] + count for name in self._names}
        until(lambda: ledger.failures or all(ledger.counts[name] >= wanted[name] for name in self._names))

    def _run(self, kind: Kind, chance: random.Random) -> None:
        run = self._run_own if kind.library == "barnabas" else self._run_confluent
        try:
            run(kind, chance, _numbered(kind.name, chance))
        except (ApiError, ClientError, AssertionError, confluent_kafka.KafkaException) as error:
            self._ledger.fail(f"{kind.name}: {error!r}")

    def _run_own(self, kind: Kind, chance: random.Random, next_value: Callable[[], bytes]) -> None:
        waiting: dict[TopicPartition, deque[list[bytes]]] = defaultdict(deque)

        def delivered(batch: Delivered) -> None:
            values = waiting[batch.partition].popleft()
            assert len(values) == batch.count
            for number, value in enumerate(values):
                offset = batch.base_offset + number if batch.base_offset >= 0 else -1
                self._ledger.acknowledge(value, batch.partition, offset)

        options = SendOptions(acks=kind.acks, enable_idempotence=kind.is_idempotent, delivery_timeout_ms=TIMEOUT_MS)
        with Client(self._bootstrap_servers, OPTIONS) as client:
            sender = Sender(client, options, delivered)
            try:
                while not self._stopping.wait(PAUSE_SECONDS):
                    for _ in range(chance.randint(1, 8)):
                        partition = chance.choice(self._partitions)
                        values = [next_value() for _ in range(chance.randint(1, 5))]
                        waiting[partition].append(values)
                        records = [(client.clock.now_ms(), None, value, ()) for value in values]
                        sender.submit(partition, build_batch(records, codec=kind.codec))
                    sender.flush()
            finally:
                sender.close()

    def _run_confluent(self, kind: Kind, chance: random.Random, next_value: Callable[[], bytes]) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._ledger.fail(f"{kind.name}: {error}")
                return
            partition = TopicPartition(message.topic(), message.partition())
            self._ledger.acknowledge(message.value(), partition, message.offset())

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "acks": kind.acks,
                "enable.idempotence": kind.is_idempotent,
                "compression.type": kind.codec.name.lower(),
                "linger.ms": 1,
                "message.timeout.ms": TIMEOUT_MS,
                "message.send.max.retries": 1_000_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                # A lost connection is no reason to forget the cluster (KIP-899): a producer that learns of it anew,
                # once a second, may never get as far as to send between two kills.
                "metadata.recovery.strategy": "none",
                "topic.metadata.refresh.fast.interval.ms": 20,
                # A broker that is killed on purpose is no news.
                "log_level": 0,
            }
        )
        while not self._stopping.is_set():
            for _ in range(chance.randint(1, 20)):
                partition = chance.choice(self._partitions)
                producer.produce(partition.topic, next_value(), partition=partition.partition, on_delivery=delivered)
            producer.poll(PAUSE_SECONDS)
            while len(producer) > IN_FLIGHT_MAX and not self._stopping.is_set():
                producer.poll(0.01)
        assert producer.flush(TIMEOUT_MS / 1000) == 0, "not everything was acknowledged"


def _numbered(name: str, chance: random.Random) -> Callable[[], bytes]:
    """Return what gives the next value of a producer."""
    count = 0

    def next_value() -> bytes:
        nonlocal count
        count += 1
        return Sent(name, count).value(chance.randrange(PADDING_MAX))

    return next_value
