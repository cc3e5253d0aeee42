"""The table of clients and scenarios: when it is written, what it says, and whether the committed one is current."""

from tests.compat.cells import CELLS
from tests.compat.clients import CLIENTS
from tests.compat.report import DASH, DOCUMENT, NO, YES, Outcomes, declared, render
from tests.compat.scenarios.catalog import SCENARIOS
from tests.compat.tools import TOOLS


def all_passed() -> dict[tuple[str, str], bool]:
    return dict.fromkeys(declared(), True)


def test_the_committed_table_has_these_scenarios_clients_and_tools() -> None:
    """A complete run against Barnabas (`pytest tests/compat`) writes it anew; the outcomes are that run's affair."""
    assert DOCUMENT.exists(), f"{DOCUMENT} is written by a complete run of tests/compat"
    committed = DOCUMENT.read_text(encoding="utf-8").replace(f"| {NO} ", f"| {YES} ")
    assert committed == render(all_passed())


def test_every_scenario_client_and_tool_is_in_the_table() -> None:
    text = render(all_passed())
    assert [scenario.name for scenario in SCENARIOS if f"\n| {scenario.name} | " not in text] == []
    assert [client.name for client in CLIENTS if f"| {client.name} {client.version} |" not in text] == []
    assert [tool.name for tool in TOOLS if f"\n| {tool.name} | " not in text] == []


def test_a_failure_is_said() -> None:
    passed = all_passed()
    assert f"| {NO} |" not in render(passed)
    passed[CELLS[0].key] = False
    assert render(passed).count(f"| {NO} |") == 1


def test_what_a_client_lacks_is_a_dash_with_the_reason() -> None:
    text = render(all_passed())
    dashes = len(SCENARIOS) * len(CLIENTS) - len(CELLS)
    assert text.count(f"| {DASH} (") == dashes > 0


def outcomes_of_all() -> Outcomes:
    outcomes = Outcomes(expected={f"test of {key}": key for key in declared()})
    for test in outcomes.expected:
        for phase in ("setup", "call", "teardown"):
            outcomes.add(test, phase, "passed")
    return outcomes


def test_a_run_is_complete_when_every_cell_has_run() -> None:
    outcomes = outcomes_of_all()
    assert outcomes.is_complete()
    assert all(outcomes.passed.values())
    outcomes.passed.popitem()
    assert not outcomes.is_complete()


def test_a_run_with_a_skipped_cell_is_not_complete() -> None:
    outcomes = outcomes_of_all()
    outcomes.add(f"test of {CELLS[0].key}", "setup", "skipped")
    assert not outcomes.is_complete()


def test_a_failure_around_a_test_counts() -> None:
    outcomes = outcomes_of_all()
    outcomes.add(f"test of {CELLS[0].key}", "teardown", "failed")
    assert outcomes.is_complete()
    assert not outcomes.passed[CELLS[0].key]


def test_other_tests_are_no_cells() -> None:
    outcomes = Outcomes()
    outcomes.add("tests/test_tidy.py::test_functions_are_short", "call", "failed")
    assert outcomes.passed == {}
