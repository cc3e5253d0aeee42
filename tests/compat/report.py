"""docs/COMPATIBILITY.md: the table of clients and scenarios, made of what a complete run against Barnabas showed.

Rule 1: the same outcomes give the same bytes: no dates, no times, rows and columns in the order of the lists.
Rule 2: a run that left out a cell says nothing about it, so only complete runs write the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.cells import CELLS
from tests.compat.clients import CLIENTS, Client
from tests.compat.scenarios.catalog import SCENARIOS
from tests.compat.scenarios.scenario import Scenario
from tests.compat.tools import TOOLS
from tests.kafka_peer.jars import KAFKA_VERSION

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "COMPATIBILITY.md"

YES = "yes"
NO = "NO"
DASH = "\N{EN DASH}"

# The column of the tools' own table.
TOOLS_COLUMN = "tools"

# A cell's row and column.
Key = tuple[str, str]

INTRODUCTION = f"""\
# Compatibility

What real clients, in processes of their own, were asked to do with a Barnabas broker, and whether they could. This page
is written by a complete run of `tests/compat` and by nothing else. The scenarios themselves are proven by the same run
against Apache Kafka {KAFKA_VERSION}. A client that cannot be asked is marked with a dash and the reason.

<!-- not run: the first command is the test suite, which writes this page -->
```sh
.venv/bin/python -X dev -m pytest tests/compat                        # against Barnabas; writes this page
BARNABAS_COMPAT=kafka .venv/bin/python -X dev -m pytest tests/compat  # the same against a real Apache Kafka
```

Groups are asked with the classic protocol, and where it is said with the consumer protocol (KIP-848).
"""


def declared() -> set[Key]:
    """Every cell that a complete run fills."""
    return {cell.key for cell in CELLS} | {(tool.name, TOOLS_COLUMN) for tool in TOOLS}


@dataclass(slots=True)
class Outcomes:
    """What a run showed so far."""

    # The cells of the tests that will run, by the tests' ids.
    expected: dict[str, Key] = field(default_factory=dict)
    passed: dict[Key, bool] = field(default_factory=dict)
    skipped: set[Key] = field(default_factory=set)

    def add(self, test: str, phase: str, outcome: str) -> None:
        """Takes the outcome of a phase of a test; a test passes when its call does and nothing around it fails."""
        key = self.expected.get(test)
        if key is None:
            return
        if outcome == "skipped":
            self.skipped.add(key)
        elif outcome == "failed":
            self.passed[key] = False
        elif phase == "call":
            self.passed.setdefault(key, True)

    def is_complete(self) -> bool:
        return set(self.passed) == declared() and not self.skipped


def render(passed: Mapping[Key, bool]) -> str:
    """The document."""
    return f"{INTRODUCTION}\n## Clients\n\n{_clients_table(passed)}\n## Kafka's tools\n\n{_tools_table(passed)}"


def _clients_table(passed: Mapping[Key, bool]) -> str:
    titles = ["scenario", "what is asked", *(f"{client.name} {client.version}" for client in CLIENTS)]
    rows = [
        [scenario.name, scenario.sentence, *(_cell(scenario, client, passed) for client in CLIENTS)]
        for scenario in SCENARIOS
    ]
    return _table(titles, rows)


def _tools_table(passed: Mapping[Key, bool]) -> str:
    rows = [[tool.name, tool.sentence, YES if passed[tool.name, TOOLS_COLUMN] else NO] for tool in TOOLS]
    return _table(["tool", "what it does", f"Kafka {KAFKA_VERSION}"], rows)


def _cell(scenario: Scenario, client: Client, passed: Mapping[Key, bool]) -> str:
    lack = client.lack(scenario.needs)
    if lack is not None:
        return f"{DASH} ({lack})"
    return YES if passed[scenario.name, client.name] else NO


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
