"""One list of scenarios, run by every Kafka client against a real broker; the table in docs/COMPATIBILITY.md."""

import pytest

# These assert as tests do, and should show as much as tests when they fail.
pytest.register_assert_rewrite("tests.compat.scenarios", "tests.compat.tools", "tests.compat.coordinator_tools")
