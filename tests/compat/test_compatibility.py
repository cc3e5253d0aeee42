"""Every scenario with every client that can run it, against a broker in a process of its own.

BARNABAS_COMPAT=kafka runs them against a real Apache Kafka instead, which proves the scenarios themselves.
"""

import itertools
import re

import pytest

from tests.compat.brokers import RunningBroker
from tests.compat.cells import CELLS, Cell
from tests.compat.clients import CLIENTS, Connections
from tests.compat.model import Need
from tests.compat.scenarios.catalog import SCENARIOS
from tests.compat.scenarios.scenario import Context
from tests.kafka_peer.jars import PeerUnavailableError

# Tests run in any order and some run twice, so that topics are told apart by number.
runs = itertools.count(1)


def cell_parameters(*, restarts: bool) -> list[object]:
    return [
        pytest.param(
            cell,
            id=re.sub(r"\W+", "-", f"{cell.scenario.name}-{cell.client.name}"),
            marks=[pytest.mark.kafka] if cell.client.needs_java else [],
        )
        for cell in CELLS
        if cell.scenario.restarts == restarts
    ]


def run(cell: Cell, connections: Connections, broker: RunningBroker) -> None:
    words = re.sub(r"\W+", "-", cell.scenario.name)
    try:
        cell.scenario.run(
            Context(
                driver=connections.driver(cell.client),
                broker=broker,
                other=lambda: connections.driver(cell.other_client()),
                observer=lambda: connections.driver(cell.observing_client()),
                reconnected=lambda: connections.new_driver(cell.client),
                apart=lambda: cell.client.apart(connections.servers),
                prefix=f"{words}-{next(runs)}",
            )
        )
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("cell", cell_parameters(restarts=False))
def test_scenario(cell: Cell, connections: Connections, compat_broker: RunningBroker) -> None:
    run(cell, connections, compat_broker)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("cell", cell_parameters(restarts=True))
def test_scenario_with_restarts(
    cell: Cell, restarting_connections: Connections, restarting_broker: RunningBroker
) -> None:
    run(cell, restarting_connections, restarting_broker)


def test_names_are_unique() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)


def test_what_clients_lack_is_needed_by_a_scenario() -> None:
    """Otherwise a lack would be written down that the table never shows."""
    needed = frozenset[Need]().union(*(scenario.needs for scenario in SCENARIOS))
    assert [(client.name, need) for client in CLIENTS for need in client.lacks if need not in needed] == []
