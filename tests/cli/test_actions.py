"""Commands with actions: what they share."""

import argparse

import pytest

from barnabas.cli.actions import Actions, run_action
from barnabas.client.client import Client


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="barnabas things")
    actions = Actions(made, "things", "thing")
    actions.add("count", "count things", "a b", lambda client, arguments: len(arguments.names)).add_argument(
        "names", nargs="*"
    )
    return made


def test_an_action_is_done_with_a_client_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parser().parse_args(["count", "x", "y", "--bootstrap-server", "h:1", "--json"])
    assert (arguments.bootstrap_server, arguments.json) == ("h:1", True)
    assert run_action("things", arguments) == 2
    monkeypatch.setattr(arguments, "act", lambda client, arguments: isinstance(client, Client))
    assert run_action("things", arguments) == 1


def test_the_help_of_an_action_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["count", "--help"])
    said = capsys.readouterr().out
    assert "Count things." in said
    assert "example:\n  barnabas things count a b\n" in said
    assert "one JSON object a thing" in said


def test_an_action_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([])
    assert ended.value.code == 2
    assert "ACTION" in capsys.readouterr().err
