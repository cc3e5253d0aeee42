"""Coordinators are found, many at a time or one by one, and looked for again when they have moved."""

from typing import Any

import pytest

from barnabas.client.answers import error_of
from barnabas.client.client import Client
from barnabas.client.connection import Connection
from barnabas.client.coordinators import CoordinatorType, ask_all_brokers, ask_coordinators, find_coordinators
from barnabas.clock import ManualClock
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.coordinators import Coordinator, FindCoordinatorResponse
from barnabas.wire.schema import Versions
from tests.client.fake_broker import FakeBroker, after

ONE_BY_ONE = {"FindCoordinator": Versions(0, 3)}


def here(message: Any, version: int) -> Any:
    """Whatever is asked for is coordinated by broker 1."""
    if version < 4:
        return FindCoordinatorResponse(node_id=1)
    return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1) for key in message.coordinator_keys])


def code_for(client: Client, keys: list[str], codes: dict[str, list[ErrorCode]]) -> dict[str, Any]:
    """Ask coordinators that answer each key with these codes first, and with the key in capitals then."""

    def ask(connection: Connection, node_id: int, names: list[str]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for name in names:
            left = codes.get(name)
            answers[name] = error_of(left.pop(0), name) if left else name.upper()
        return answers

    return ask_coordinators(client, keys, CoordinatorType.GROUP, ask)


def test_real_coordinators_are_found(client: Client) -> None:
    for kind in CoordinatorType:
        found = client.retrying(lambda kind=kind: find_coordinators(client, ["a", "b", "a"], kind))  # type: ignore[misc]
        assert list(found) == ["a", "b"]
        assert set(found.values()) <= set(client.cluster().nodes) or any(
            isinstance(answer, ApiError) and answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            for answer in found.values()
        )


def test_many_are_found_with_one_request() -> None:
    with FakeBroker({"FindCoordinator": here}) as broker, Client(broker.bootstrap_servers) as client:
        assert find_coordinators(client, ["a", "b"], CoordinatorType.TRANSACTION) == {"a": 1, "b": 1}
        assert find_coordinators(client, [], CoordinatorType.GROUP) == {}
        (asked,) = broker.named("FindCoordinator")
    assert (asked.version, asked.message.coordinator_keys, asked.message.key_type) == (6, ["a", "b"], 1)


def test_an_old_broker_is_asked_one_by_one() -> None:
    refused = FindCoordinatorResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no")
    with (
        FakeBroker({"FindCoordinator": after(refused, then=here)}, versions=ONE_BY_ONE) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        found = find_coordinators(client, ["a", "b"], CoordinatorType.GROUP)
        assert str(found["a"]) == "GROUP_AUTHORIZATION_FAILED: the coordinator of 'a': no"
        assert found["b"] == 1
        assert [(asked.version, asked.message.key) for asked in broker.named("FindCoordinator")] == [(3, "a"), (3, "b")]


def test_a_key_without_an_answer_is_an_error() -> None:
    def nobody(message: Any, version: int) -> Any:
        return FindCoordinatorResponse()

    with FakeBroker({"FindCoordinator": nobody}) as broker, Client(broker.bootstrap_servers) as client:
        found = find_coordinators(client, ["a"], CoordinatorType.GROUP)["a"]
    assert isinstance(found, ApiError)
    assert "'a' is missing in the coordinator's answer" in str(found)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_a_coordinator_that_is_not_ready_is_asked_again(code: ErrorCode) -> None:
    not_yet = FindCoordinatorResponse(coordinators=[Coordinator(key=key, error_code=code) for key in ("a", "b")])
    with (
        FakeBroker({"FindCoordinator": after(not_yet, then=here)}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
    ):
        assert code_for(client, ["a", "b"], {"b": [code, code]}) == {"a": "A", "b": "B"}
        asked = [request.message.coordinator_keys for request in broker.named("FindCoordinator")]
        assert asked == [["a", "b"], ["a", "b"], ["b"], ["b"]]


def test_what_can_not_be_mended_is_the_answer_of_its_key() -> None:
    denied = Coordinator(key="c", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    some = FindCoordinatorResponse(coordinators=[denied, *(Coordinator(key=key, node_id=1) for key in "ab")])
    with (
        FakeBroker({"FindCoordinator": after(some, then=here)}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        answers = code_for(client, ["a", "b", "c"], {"b": [ErrorCode.NON_EMPTY_GROUP]})
    assert answers["a"] == "A"
    assert answers["b"].code is ErrorCode.NON_EMPTY_GROUP
    assert answers["c"].code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_coordinator_that_never_comes_is_an_error() -> None:
    def never(message: Any, version: int) -> Any:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, error_code=code) for key in message.coordinator_keys]
        )

    with (
        FakeBroker({"FindCoordinator": never}) as broker,
        Client(broker.bootstrap_servers, clock=ManualClock()) as client,
        pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE: the coordinator of 'a'"),
    ):
        code_for(client, ["a"], {})


def test_every_broker_is_asked_until_it_has_answered() -> None:
    with FakeBroker() as first, FakeBroker(node_id=2) as second:
        first.nodes[2] = second.port
        failures = [error_of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "still loading")]
        asked: list[int] = []

        def ask(connection: Connection, node_id: int) -> str:
            asked.append(node_id)
            if node_id == 2 and failures:
                raise failures.pop()
            return f"{node_id} at {connection.address.port}"

        with Client(first.bootstrap_servers, clock=ManualClock()) as client:
            second.nodes.update(first.nodes)
            answers = ask_all_brokers(client, ask)
        assert answers == [f"1 at {first.port}", f"2 at {second.port}"]
        assert asked == [1, 2, 2]
