"""The one list of all scenarios, in the order of the table's rows."""

from tests.compat.scenarios import administering, consuming, producing, restarting
from tests.compat.scenarios.scenario import Scenario

SCENARIOS: list[Scenario] = [
    *producing.SCENARIOS,
    *consuming.SCENARIOS,
    *administering.SCENARIOS,
    *restarting.SCENARIOS,
]
