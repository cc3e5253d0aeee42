"""What every test shares: Hypothesis profiles, the Kafka peer's fixtures, and the rule that CI skips nothing.

Rule 1: on a developer's machine a test may skip, with a reason, what the machine cannot do (no Java, no network).
Rule 2: with CI=true nothing may be skipped and something must have run, or the run fails and says why.

HYPOTHESIS_PROFILE=deep looks longer and at random; the profile `ci` is the default and always tries the same cases.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from barnabas.embedded import DEFAULTS
from tests.kafka_peer.fixtures import kafka_jars, kafka_peer, killed_kafka, stopped_kafka

__all__ = ["kafka_jars", "kafka_peer", "killed_kafka", "stopped_kafka"]

# The records of most tests have timestamps of years ago. Those of retention say how long they keep theirs.
DEFAULTS["log.retention.ms"] = "-1"

# Deadlines measure the machine, not the code; and a shared machine is sometimes slow at making examples.
settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=100,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The settings of every Spark that a test starts, in this process or in another.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark" / "conf"))


# Folders whose tests share something that takes long to start, so that one process runs them all; the longest first.
TOGETHER = ("spark", "compat")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Says which tests stay together when several processes share the work: those of a file, or of such a folder.

    The long ones come first, so that at the end no process waits for the other.
    """
    folder = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(folder)
        # A test that starts everything it needs itself may say so, and run apart from its folder.
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(path.parts[0] if path.parts[0] in TOGETHER else str(path)))
    items.sort(key=lambda item: item.path.relative_to(folder).parts[0] not in TOGETHER)


def _complaint_of_ci(session: pytest.Session) -> str | None:
    """Why this run does not count on CI, or None."""
    if os.environ.get("CI") != "true" or session.config.option.collectonly:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return None
    skipped = len(reporter.stats.get("skipped", []))
    if skipped:
        return f"CI=true, and {skipped} tests were skipped: everything must run on CI."
    if not any(reporter.stats.get(outcome) for outcome in ("passed", "failed", "error")):
        return "CI=true, and not one test ran."
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fails a run on CI that skipped a test."""
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and _complaint_of_ci(session):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says in a sentence why CI failed a run without a failed test."""
    session = terminalreporter._session
    complaint = _complaint_of_ci(session) if session is not None else None
    if complaint:
        terminalreporter.write_line(complaint, red=True, bold=True)
