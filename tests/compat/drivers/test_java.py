"""The JVM of the Java clients: what it says when it cannot be asked."""

from pathlib import Path

import pytest

from tests.compat.drivers.java_machine import JavaClients, require_compiler
from tests.compat.model import ClientError
from tests.kafka_peer.jars import PeerUnavailableError


def test_without_a_compiler_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailableError, match="need a JDK"):
        require_compiler()


@pytest.mark.kafka
def test_a_call_that_does_not_exist_is_answered(kafka_jars: Path) -> None:
    try:
        clients = JavaClients()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    try:
        with pytest.raises(ClientError, match="no such call"):
            clients.call("fly")
    finally:
        clients.close()
