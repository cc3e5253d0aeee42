"""The clients under test, in the order of the table's columns, and their open connections to brokers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

import confluent_kafka
import kafka

from tests.compat.apart import Apart, JavaApart, PythonApart
from tests.compat.drivers.aiokafka_driver import AiokafkaDriver
from tests.compat.drivers.confluent import ConfluentDriver
from tests.compat.drivers.java import JavaDriver
from tests.compat.drivers.java_machine import JavaClients
from tests.compat.drivers.kafka_python import KafkaPythonDriver
from tests.compat.model import Driver, Need
from tests.kafka_peer.jars import KAFKA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One column of the table."""

    name: str
    version: str
    lacks: Mapping[Need, str]
    needs_java: bool
    connect: Callable[["Connections"], Driver]
    # The client in a process of its own.
    apart: Callable[[str], Apart]

    def lack(self, needs: frozenset[Need]) -> str | None:
        """Why it cannot run a scenario with these needs, or None."""
        return next((self.lacks[need] for need in Need if need in needs and need in self.lacks), None)


class JavaMachine:
    """The JVM that all Java clients share, started when it is first used."""

    def __init__(self) -> None:
        self._clients: JavaClients | None = None

    def clients(self) -> JavaClients:
        if self._clients is None:
            self._clients = JavaClients()
        return self._clients

    def close(self) -> None:
        if self._clients is not None:
            self._clients.close()


class Connections:
    """The drivers of one broker, each made when it is first used. Close them before the broker goes away for good."""

    def __init__(self, servers: str, java: JavaMachine) -> None:
        self.servers = servers
        self.java = java
        self._drivers: dict[str, Driver] = {}
        self._opened: list[Driver] = []

    def driver(self, client: Client) -> Driver:
        if client.name not in self._drivers:
            self._drivers[client.name] = self.new_driver(client)
        return self._drivers[client.name]

    def new_driver(self, client: Client) -> Driver:
        """One that knows nothing of what went before."""
        driver = client.connect(self)
        self._opened.append(driver)
        return driver

    def close(self) -> None:
        for driver in self._opened:
            driver.close()
        # What they leave behind can be collected only when nothing leads to them: see `pytest_runtest_protocol`.
        self._opened.clear()
        self._drivers.clear()


CLIENTS = [
    Client(
        name=ConfluentDriver.name,
        version=f"{confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})",
        lacks=ConfluentDriver.lacks,
        needs_java=False,
        connect=lambda connections: ConfluentDriver(connections.servers),
        apart=lambda servers: PythonApart(ConfluentDriver, servers),
    ),
    Client(
        name=KafkaPythonDriver.name,
        version=kafka.__version__,
        lacks=KafkaPythonDriver.lacks,
        needs_java=False,
        connect=lambda connections: KafkaPythonDriver(connections.servers),
        apart=lambda servers: PythonApart(KafkaPythonDriver, servers),
    ),
    Client(
        name=AiokafkaDriver.name,
        version=version("aiokafka"),
        lacks=AiokafkaDriver.lacks,
        needs_java=False,
        connect=lambda connections: AiokafkaDriver(connections.servers),
        apart=lambda servers: PythonApart(AiokafkaDriver, servers),
    ),
    Client(
        name=JavaDriver.name,
        version=KAFKA_VERSION,
        lacks=JavaDriver.lacks,
        needs_java=True,
        connect=lambda connections: JavaDriver(connections.java.clients(), connections.servers),
        apart=JavaApart,
    ),
]
