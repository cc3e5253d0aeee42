"""THE table: every handler is there, every module of handlers is in it, and the versions are those of the protocol."""

from pathlib import Path

import pytest

import barnabas.broker.apis
from barnabas.broker.dispatch import (
    FETCH_KEY,
    HANDLERS,
    JOIN_GROUP_KEY,
    PRODUCE_KEY,
    SYNC_GROUP_KEY,
    handler_of,
    routes,
)
from barnabas.wire.apis import APIS


@pytest.mark.parametrize("key", HANDLERS)
def test_every_handler_resolves(key: int) -> None:
    assert callable(handler_of(key))


def test_every_api_of_the_protocol_module_has_a_handler() -> None:
    """An API whose messages are declared is one that is served."""
    assert HANDLERS.keys() == APIS.keys()


def test_every_handler_of_every_module_is_in_the_table() -> None:
    folder = Path(barnabas.broker.apis.__path__[0])
    declared = {
        f"{path.stem}.{line.split('(')[0].removeprefix('def ')}"
        for path in folder.glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("def handle_")
    }
    assert declared == set(HANDLERS.values())


def test_each_route_has_the_api_of_its_key() -> None:
    table = routes()
    assert table.keys() == HANDLERS.keys()
    assert all(route.api.key == key for key, route in table.items())


def test_only_produce_is_pipelined_and_what_waits_by_its_nature_is_not_counted() -> None:
    table = routes()
    assert [key for key, route in table.items() if route.is_pipelined] == [PRODUCE_KEY]
    assert [key for key, route in table.items() if not route.is_counted] == [
        FETCH_KEY,
        JOIN_GROUP_KEY,
        SYNC_GROUP_KEY,
    ]
