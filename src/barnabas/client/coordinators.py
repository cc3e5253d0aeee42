"""Which broker coordinates a group or a transactional id, and questions to the coordinators of several of them.

Rule 1: what is asked for several keys at once has an answer for each: a value, or the error that no attempt can mend.
Rule 2: a coordinator that is loading, or has moved, is looked for again; what was answered is not asked again.
Rule 3: groups and transactional ids are listed by all brokers together, each telling of those it coordinates.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from barnabas.client.answers import error_of, is_retriable
from barnabas.client.client import Client
from barnabas.client.connection import Connection
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.coordinators import FindCoordinatorRequest

# Since this version one request asks for many keys (KIP-699).
_BATCHED_VERSION = 4

Answer = TypeVar("Answer")


class CoordinatorType(IntEnum):
    """What a key is the name of."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinators(client: Client, keys: Iterable[str], kind: CoordinatorType) -> dict[str, int | ApiError]:
    """Return the id of the broker that coordinates each key, or why there is none; asks once."""
    names = list(dict.fromkeys(keys))
    if not names:
        return {}
    connection = client.any_connection()
    version = connection.version_of("FindCoordinator")
    if version >= _BATCHED_VERSION:
        rows = connection.request(FindCoordinatorRequest(key_type=kind, coordinator_keys=names), version).coordinators
        found = {row.key: _node_id(row, row.key) for row in rows}
    else:
        found = {
            name: _node_id(connection.request(FindCoordinatorRequest(key=name, key_type=kind), version), name)
            for name in names
        }
    return {name: found.get(name, _silence(name)) for name in names}


def ask_coordinators(
    client: Client,
    keys: Iterable[str],
    kind: CoordinatorType,
    ask: Callable[[Connection, int, list[str]], Mapping[str, Answer | ApiError]],
) -> dict[str, Answer | ApiError]:
    """Ask the coordinator of each key, until all have answered.

    Args:
        ask: Called with a connection to a coordinator, its broker id, and the keys it coordinates.

    Raises:
        ApiError: A coordinator was not to be had in time; what no attempt can mend is in the result instead.
    """
    names = list(dict.fromkeys(keys))
    answers: dict[str, Answer | ApiError] = {}

    def attempt() -> None:
        failure: ApiError | None = None
        coordinated: dict[int, list[str]] = {}
        for name, found in find_coordinators(client, [n for n in names if n not in answers], kind).items():
            if not isinstance(found, ApiError):
                coordinated.setdefault(found, []).append(name)
            elif is_retriable(found):
                failure = found
            else:
                answers[name] = found
        for node_id, theirs in coordinated.items():
            said = ask(client.connection_to(node_id), node_id, theirs)
            for name in theirs:
                answer = said.get(name, _silence(name))
                if isinstance(answer, ApiError) and is_retriable(answer):
                    failure = answer
                else:
                    answers[name] = answer
        if failure is not None:
            raise failure

    client.retrying(attempt)
    return {name: answers[name] for name in names}


def ask_all_brokers(client: Client, ask: Callable[[Connection, int], Answer]) -> list[Answer]:
    """Ask every live broker, and return their answers; those that have answered are not asked again."""
    answers: dict[int, Answer] = {}

    def attempt() -> None:
        for node_id in client.cluster().nodes:
            if node_id not in answers:
                answers[node_id] = ask(client.connection_to(node_id), node_id)

    client.retrying(attempt)
    return list(answers.values())


def _node_id(row: Any, key: str) -> int | ApiError:
    if row.error_code != ErrorCode.NONE:
        return error_of(row.error_code, f"the coordinator of {key!r}", row.error_message)
    return int(row.node_id)


def _silence(key: str) -> ApiError:
    return error_of(ErrorCode.UNKNOWN_SERVER_ERROR, f"{key!r} is missing in the coordinator's answer")
