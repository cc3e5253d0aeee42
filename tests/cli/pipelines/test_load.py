"""The words of `barnabas pipeline load`."""

import pytest

from tests.cli.pipelines.captured import called_with


def test_a_running_broker_or_a_stopped_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = called_with(monkeypatch, "load", "rows.parquet", "orders", "--bootstrap-server", "h:1")
    assert given == ("rows.parquet", "orders")
    assert named == {
        "bootstrap_servers": "h:1",
        "log_dirs": None,
        "load_id": None,
        "source_format": "parquet",
        "options": {},
    }
    words = "rows orders --data data --format json --load-id may --option segmentBytes=5"
    _, named = called_with(monkeypatch, "load", *words.split())
    assert named == {
        "bootstrap_servers": None,
        "log_dirs": "data",
        "load_id": "may",
        "source_format": "json",
        "options": {"segmentBytes": "5"},
    }
