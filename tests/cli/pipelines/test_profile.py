"""The words of `barnabas pipeline profile`."""

import pytest

from tests.cli.pipelines.captured import called_with


def test_a_broker_or_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = called_with(monkeypatch, "profile", "orders", "--bootstrap-server", "h:1")
    assert given == ("orders", "orders.html")
    assert named == {"bootstrap_servers": "h:1", "directories": [], "options": {}}
    given, named = called_with(
        monkeypatch, "profile", "orders", "--directory", "a", "--directory", "b", "--output", "o.html"
    )
    assert given == ("orders", "o.html")
    assert (named["bootstrap_servers"], named["directories"]) == (None, ["a", "b"])
