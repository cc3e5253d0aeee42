"""What a run of one of Kafka's command line tools has and needs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.compat.brokers import RunningBroker
from tests.compat.model import DEADLINE_S, Driver, ProducerOptions
from tests.compat.scenarios.scenario import numbered, wait_for_leaders
from tests.kafka_peer.peer import run_tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool runs with."""

    broker: RunningBroker
    # Prepares and checks what the tool does.
    driver: Driver
    folder: Path
    # The broker's data.
    data: Path
    # A name that no other test uses.
    topic: str

    def run(self, main_class: str, *arguments: str, stdin: str = "", log_level: str = "off") -> str:
        """Runs a tool against the broker and returns what it said."""
        servers = self.broker.bootstrap_servers
        return run_tool(
            main_class,
            "--bootstrap-server",
            servers,
            *arguments,
            timeout_s=2 * DEADLINE_S,
            stdin=stdin,
            log_level=log_level,
        )

    def new_topic(self, partitions: int = 1, records: int = 0) -> str:
        """A topic with numbered records in partition 0."""
        self.driver.create_topic(self.topic, partitions, {})
        wait_for_leaders(self.driver, self.topic, partitions)
        if records:
            with self.driver.producer(ProducerOptions(idempotent=True)) as producer:
                producer.send(self.topic, numbered(records))
        return self.topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One row of the tools' table."""

    name: str
    sentence: str
    run: Callable[[ToolContext], None]
