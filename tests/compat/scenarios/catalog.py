"""The one list of all scenarios, in the order of the table's rows."""

from tests.compat.scenarios import administering, consuming, grouping, producing, restarting, transacting
from tests.compat.scenarios.scenario import Scenario

SCENARIOS: list[Scenario] = [
    *producing.SCENARIOS,
    *consuming.SCENARIOS,
    *grouping.SCENARIOS,
    *transacting.SCENARIOS,
    *administering.SCENARIOS,
    *restarting.SCENARIOS,
]
