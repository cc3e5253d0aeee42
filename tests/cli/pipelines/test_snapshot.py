"""The words of `barnabas pipeline snapshot`."""

import pytest

from barnabas.cli.connecting import BOOTSTRAP_SERVER_DEFAULT, BOOTSTRAP_SERVERS_VARIABLE
from tests.cli.pipelines.captured import called_with


def test_defaults_and_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BOOTSTRAP_SERVERS_VARIABLE, raising=False)
    given, named = called_with(monkeypatch, "snapshot", "customers", "out")
    assert given == ("customers", "out")
    assert named == {
        "bootstrap_servers": BOOTSTRAP_SERVER_DEFAULT,
        "archive": None,
        "at": None,
        "format": "parquet",
        "encoding": "text",
        "keep_tombstones": False,
        "overwrite": False,
        "options": {},
    }
    words = "customers out --archive lake --archive-only --at @5 --format csv --encoding base64 --keep-tombstones"
    _, named = called_with(monkeypatch, "snapshot", *words.split(), "--overwrite", "--option", "kafka.client.id=me")
    assert named == {
        "bootstrap_servers": None,
        "archive": "lake",
        "at": 5,
        "format": "csv",
        "encoding": "base64",
        "keep_tombstones": True,
        "overwrite": True,
        "options": {"kafka.client.id": "me"},
    }
