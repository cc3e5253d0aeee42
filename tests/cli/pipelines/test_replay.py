"""`barnabas pipeline replay`: what its arguments mean. tests/spark/jobs/test_commands.py runs it."""

import pytest

from tests.cli.pipelines.captured import called_with


def test_arguments_go_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "orders copy --from 5 --to @9 --checkpoint state --source-bootstrap-server b:2 --source-option x=y"
    names, options = called_with(monkeypatch, "replay", *words.split())
    assert names == ("orders", "copy")
    wanted = {
        "start": "5",
        "to": "@9",
        "checkpoint": "state",
        "source_bootstrap_servers": "b:2",
        "source_options": {"x": "y"},
    }
    assert {name: options[name] for name in wanted} == wanted
