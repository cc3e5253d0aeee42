"""The broker under test: Barnabas, or with BARNABAS_COMPAT=kafka a real Apache Kafka, which proves the scenarios.

Both understand the same few words (`RunningBroker`); everything else of them is no business of a compatibility test.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from barnabas import Broker
from tests.kafka_peer.peer import KafkaPeer

KINDS = ("barnabas", "kafka")
KIND = os.environ.get("BARNABAS_COMPAT") or "barnabas"

# What both are run with; the scenarios rely on these.
SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    # A deleted topic gives its files back while the next scenario runs, not after a minute.
    "log.segment.delete.delay.ms": "1000",
    # What scenarios send has timestamps of years ago.
    "log.retention.ms": "-1",
    # Groups and transactions notice in seconds that a client is gone.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # Few partitions of the internal topics, because each costs time when starting.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}

# Kafka's limits of the settings above, which Barnabas does not have.
KAFKA_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


class RunningBroker(Protocol):
    """A broker in a process of its own. After `stop` or `kill`, `start` runs it again on the same data and port."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> object: ...

    def kill(self) -> object: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> object: ...


def new_broker(folder: Path, settings: Mapping[str, str] = SETTINGS) -> RunningBroker:
    """Starts a broker of the kind that is tested, with its data in this folder."""
    if KIND not in KINDS:
        raise ValueError(f"BARNABAS_COMPAT is {KIND!r}, and must be one of {KINDS}")
    if KIND == "kafka":
        return KafkaPeer(folder, {**settings, **KAFKA_SETTINGS})
    return Broker(data=folder, settings=settings)


def data_of(broker: RunningBroker) -> Path:
    """The folder of a broker's partitions."""
    if isinstance(broker, KafkaPeer):
        return broker.data_dir
    assert isinstance(broker, Broker)
    return broker.data
