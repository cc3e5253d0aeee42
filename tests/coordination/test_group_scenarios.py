"""The scenarios of groups: scripts with what they brought when they were recorded.

`REWRITE_SCENARIOS=1 pytest tests/coordination/test_group_scenarios.py` records them anew. Only commit what changed if
you understand why.
"""

import os
from pathlib import Path

import pytest

from tests.coordination.group_script import rewritten

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("group_*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    recorded = path.read_text(encoding="utf-8")
    now = rewritten(recorded)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(now, encoding="utf-8")
        recorded = now
    assert now == recorded


def test_there_are_scenarios() -> None:
    assert SCENARIOS
