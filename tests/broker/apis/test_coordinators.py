"""FindCoordinator: with one broker it is this one, for every group and transactional id."""

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.coordinators import FindCoordinatorRequest


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("key_type", [0, 1])
def test_one_key_is_answered_with_this_broker(
    connection: Connection, broker: Broker, version: int, key_type: int
) -> None:
    answer = connection.request(FindCoordinatorRequest(key="group", key_type=key_type), version)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.node_id, f"{answer.host}:{answer.port}") == (0, broker.bootstrap_servers)


@pytest.mark.parametrize("version", range(4, 7))
def test_many_keys_are_each_answered(connection: Connection, broker: Broker, version: int) -> None:
    answer = connection.request(FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=0), version)
    assert [(one.key, one.node_id, one.error_code) for one in answer.coordinators] == [("a", 0, 0), ("b", 0, 0)]
    assert f"{answer.coordinators[0].host}:{answer.coordinators[0].port}" == broker.bootstrap_servers
    assert connection.request(FindCoordinatorRequest(coordinator_keys=[]), version).coordinators == []


def test_a_kind_of_coordinator_that_does_not_exist_is_refused(connection: Connection) -> None:
    answer = connection.request(FindCoordinatorRequest(key="k", key_type=2), 3)
    assert (answer.error_code, answer.node_id, answer.port) == (ErrorCode.INVALID_REQUEST, -1, -1)
    (one,) = connection.request(FindCoordinatorRequest(coordinator_keys=["k"], key_type=9), 6).coordinators
    assert (one.key, one.error_code) == ("k", ErrorCode.INVALID_REQUEST)
    assert "type 9" in one.error_message
