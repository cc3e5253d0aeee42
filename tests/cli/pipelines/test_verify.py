"""The words of `barnabas pipeline verify`."""

import pytest

from tests.cli.pipelines.captured import called_with


def test_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called_with(monkeypatch, "verify", "a", "b") == ((["a", "b"],), {})
