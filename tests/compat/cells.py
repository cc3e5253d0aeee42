"""The cells of the table: every scenario with every client that can run it."""

from dataclasses import dataclass

from tests.compat.clients import CLIENTS, Client
from tests.compat.model import Need
from tests.compat.scenarios.catalog import SCENARIOS
from tests.compat.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A scenario run by a client."""

    scenario: Scenario
    client: Client

    @property
    def key(self) -> tuple[str, str]:
        """Its row and its column."""
        return (self.scenario.name, self.client.name)

    def observing_client(self) -> Client:
        """The first client that can describe log directories."""
        return next(client for client in CLIENTS if Need.LOG_DIRS not in client.lacks)

    def other_client(self) -> Client:
        """The next client that can do all that the scenario needs, itself if there is no other."""
        at = CLIENTS.index(self.client)
        others = CLIENTS[at + 1 :] + CLIENTS[: at + 1]
        return next(client for client in others if client.lack(self.scenario.needs) is None)


CELLS = [
    Cell(scenario=scenario, client=client)
    for scenario in SCENARIOS
    for client in CLIENTS
    if client.lack(scenario.needs) is None
]
