"""`barnabas pipeline archive`: what its arguments mean. tests/spark/jobs/test_commands.py runs it."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from barnabas.cli import pipeline
from barnabas.cli.main import main
from barnabas.spark.jobs.archive import archive
from tests.cli.pipelines.captured import called_with


def test_the_defaults_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names, options = called_with(monkeypatch, "archive", "orders", "lake", "--bootstrap-server", "a:1")
    assert names == ("orders", "lake")
    defaults = archive.__kwdefaults__ or {}
    assert {name: value for name, value in options.items() if name not in ("bootstrap_servers", "options")} == {
        name: defaults[name] for name in options if name in defaults and name != "options"
    }
    assert (options["bootstrap_servers"], options["options"]) == ("a:1", {})
    assert capsys.readouterr().out == "archive is done\n"


def test_arguments_go_to_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    schema = tmp_path / "schema"
    schema.write_text("id INT")
    words = (
        f"orders lake --from 12 --decode json --schema-file {schema} --on-error skip --group g --option a=b --follow"
    )
    options = called_with(monkeypatch, "archive", *words.split())[1]
    wanted = {
        "start": "12",
        "schema": "id INT",
        "on_error": "skip",
        "group_id": "g",
        "options": {"a": "b"},
        "follow": True,
    }
    assert {name: options[name] for name in wanted} == wanted


def test_what_can_not_be_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pipeline, "start_session", MagicMock())
    assert main(["pipeline", "archive", "t", "lake", "--schema", "a INT", "--schema-file", "b"]) == 2
    assert "'--schema-file' and '--schema' both say the schema" in capsys.readouterr().err
    assert main(["pipeline", "archive", "t", "lake", "--schema-file", "/nowhere/file"]) == 2
    assert "/nowhere/file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["pipeline", "archive", "t", "lake", "--from", "soon"])
