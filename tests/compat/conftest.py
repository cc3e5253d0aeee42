"""The brokers and connections that the compatibility tests share, and the table that a complete run writes."""

import gc
import warnings
from collections.abc import Generator, Iterator

import pytest

from tests.compat.brokers import KIND, RunningBroker, new_broker
from tests.compat.cells import Cell
from tests.compat.clients import Connections, JavaMachine
from tests.compat.report import DOCUMENT, TOOLS_COLUMN, Outcomes, render
from tests.compat.tool import Tool
from tests.kafka_peer.jars import PeerUnavailableError

outcomes = Outcomes()


def started(factory: pytest.TempPathFactory, name: str) -> Iterator[RunningBroker]:
    try:
        broker = new_broker(factory.mktemp(name) / "broker")
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    with broker:
        yield broker


@pytest.fixture(scope="session")
def compat_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker that all scenarios share; each has topics of its own."""
    yield from started(tmp_path_factory, "compat")


@pytest.fixture(scope="session")
def restarting_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker that scenarios may stop and start again. They run one after the other, so one is enough."""
    yield from started(tmp_path_factory, "restarting")


@pytest.fixture(scope="session")
def java_machine() -> Iterator[JavaMachine]:
    """The JVM of the Java clients."""
    machine = JavaMachine()
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def connections(compat_broker: RunningBroker, java_machine: JavaMachine) -> Iterator[Connections]:
    """All clients' connections to the shared broker, kept for the whole run."""
    opened = Connections(compat_broker.bootstrap_servers, java_machine)
    yield opened
    opened.close()


@pytest.fixture
def restarting_connections(restarting_broker: RunningBroker, java_machine: JavaMachine) -> Iterator[Connections]:
    """Connections for one test, so that no client of another test notices the restart."""
    opened = Connections(restarting_broker.bootstrap_servers, java_machine)
    yield opened
    opened.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """After a restart, collects what kafka-python leaves behind.

    It forgets to close a socket whose connection was refused. They are collected here, where that is known, or a later
    test would be blamed; and only here, because pytest keeps the log's records, and with them the sockets, that long.
    """
    result = yield
    if isinstance(item, pytest.Function) and "restarting_connections" in item.fixturenames:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result


def pytest_collection_finish(session: pytest.Session) -> None:
    """Notes which tests fill which cells of the table."""
    for item in session.items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        for value in parameters.values():
            if isinstance(value, Cell):
                outcomes.expected[item.nodeid] = value.key
            elif isinstance(value, Tool):
                outcomes.expected[item.nodeid] = (value.name, TOOLS_COLUMN)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Takes the outcome of each test."""
    outcomes.add(report.nodeid, report.when or "", report.outcome)


def pytest_sessionfinish() -> None:
    """Writes the table if every cell was run, against Barnabas."""
    if KIND == "barnabas" and outcomes.is_complete():
        DOCUMENT.write_text(render(outcomes.passed), encoding="utf-8")
