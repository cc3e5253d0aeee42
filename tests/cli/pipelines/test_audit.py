"""The words of `barnabas pipeline audit`."""

import pytest

from tests.cli.pipelines.captured import called_with


def test_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = called_with(monkeypatch, "audit", "orders", "lake", "--bootstrap-server", "h:1", "--option", "a=b=c")
    assert given == ("orders", "lake")
    assert named == {"bootstrap_servers": "h:1", "options": {"a": "b=c"}}
