"""`barnabas pipeline ingest`: what its arguments mean. tests/spark/jobs/test_commands.py runs it."""

import pytest

from barnabas.spark.jobs.ingest import RecordExpressions
from tests.cli.pipelines.captured import called_with


def test_arguments_go_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "files orders --format csv --reader-option header=true --key id --create-topic --partitions 4"
    names, options = called_with(monkeypatch, "ingest", *words.split())
    assert names == ("files", "orders")
    wanted = {
        "source_format": "csv",
        "reader_options": {"header": "true"},
        "expressions": RecordExpressions(key="id"),
        "create_topic": True,
        "partitions": 4,
        "checkpoint": None,
        "schema": None,
    }
    assert {name: options[name] for name in wanted} == wanted
