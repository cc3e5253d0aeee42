"""What a command of the pipeline calls its job with, without Spark."""

import importlib
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.cli import pipeline
from barnabas.cli.main import main


def called_with(monkeypatch: pytest.MonkeyPatch, job: str, *arguments: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run `barnabas pipeline JOB ...` with a job that does nothing; returns what it was given behind the session."""
    function = MagicMock()
    function.return_value.is_fine = True
    function.return_value.rows.return_value = []
    function.return_value.sentence.return_value = f"{job} is done"
    monkeypatch.setattr(importlib.import_module(f"barnabas.spark.jobs.{job}"), job, function)
    monkeypatch.setattr(pipeline, "start_session", MagicMock())
    assert main(["pipeline", job, *arguments]) == 0
    (call,) = function.call_args_list
    return call.args[1:], {name: value for name, value in call.kwargs.items() if name != "report"}
