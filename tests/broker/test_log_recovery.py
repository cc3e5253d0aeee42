"""Logs that are recovered while the broker runs: progress in the log, coordinators that wait, and strays.

tests/faults/test_recovery_under_load.py shows what clients see of it.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.log_recovery import PROGRESS_INTERVAL_MS
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from barnabas.wire.messages.group_admin import ListGroupsRequest
from barnabas.wire.messages.groups import HeartbeatRequest
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop, until, until_on_loop
from tests.faults.test_recovery_under_load import KEPT, Gate, now_batch

SETTINGS = {**KEPT, "offsets.topic.num.partitions": 1}


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The data of a broker that was killed, with a group topic."""
    data = tmp_path / "data"
    with Broker(data=data, settings=SETTINGS) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        assert produce(connection, "orders", now_batch()).error_code == ErrorCode.NONE
        until(lambda: connection.request(FindCoordinatorRequest(key="billing"), 2).error_code == ErrorCode.NONE)
        broker.kill()
    with open(data / "__consumer_offsets-0" / f"{0:020d}.log", "ab") as log:
        log.write(b"torn")
    return data


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch, "__consumer_offsets")
    yield gate
    gate.open.set()


def test_progress_is_told_and_coordinators_wait_for_their_logs(
    killed: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    with (
        Broker(in_process=True, clock=clock, data=killed, settings=SETTINGS) as broker,
        connected(broker) as connection,
    ):
        assert gate.reached.wait(60)
        assert "recovering 2 logs, 0.0 MB from their recovery points" in caplog.text
        question = HeartbeatRequest(group_id="billing", generation_id=1, member_id="m")
        assert connection.request(question, 3).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert connection.request(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        until_on_loop(broker, lambda: ("orders", 0) in broker.server.services.replica_manager.partitions)
        clock.advance(PROGRESS_INTERVAL_MS)
        until(lambda: "recovering: 1 of 2 logs, 0.0 MB of 0.0 MB" in caplog.text)
        gate.open.set()
        until(lambda: connection.request(ListGroupsRequest(), 4).error_code == ErrorCode.NONE)
        until(lambda: "2 logs are recovered" in caplog.text)
        assert connection.request(question, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_log_of_no_known_topic_is_set_aside_when_it_is_recovered(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "ghosts")
    (killed / "ghosts-0").mkdir()
    (killed / "ghosts-0" / f"{0:020d}.log").write_bytes(bytes(now_batch()))
    with Broker(in_process=True, data=killed, settings=SETTINGS) as broker, connected(broker) as connection:
        gate.open.set()
        manager = broker.server.services.log_manager
        until_on_loop(broker, lambda: not manager.loading.all())
        assert on_loop(broker, lambda: [name.topic for name in manager.current_logs if name.topic == "ghosts"]) == []
        assert [path.name[-5:] for path in killed.glob("ghosts-0*")] == ["stray"]
        assert offsets_of(fetch(connection, "orders", 0)) == [0]
