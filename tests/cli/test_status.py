"""`barnabas status`: what it shows of a broker that runs, and one sentence when nobody answers."""

import json

import pytest

from barnabas.cli.main import main
from barnabas.embedded import Broker
from barnabas.wire.schema import Versions
from tests.client.fake_broker import FakeBroker


def status(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["status", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_people_get_tables_and_programs_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(in_process=True) as broker:
        check_both(capsys, broker.bootstrap_servers)


def check_both(capsys: pytest.CaptureFixture[str], address: str) -> None:
    """What a broker without topics says, for people and for programs."""
    code, out, err = status(capsys, "--bootstrap-server", address)
    assert (code, err) == (0, "")
    lines = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
    assert lines["state"].strip() == "RUNNING"
    assert "\tonline\t" in out
    code, out, err = status(capsys, "--bootstrap-server", address, "--json")
    found = json.loads(out)
    assert (code, err, found["state"]) == (0, "", "RUNNING")
    assert found["recovery"] == {"logs_done": 0, "logs_total": 0, "bytes_done": 0, "bytes_total": 0, "loading": []}
    (directory,) = found["log_directories"]
    assert directory["state"] == "online"
    assert 0 < directory["free_bytes"] <= directory["total_bytes"]


def test_another_broker_can_not_tell(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(versions={"ApiVersions": Versions(0, 3), "Metadata": Versions(0, 12)}) as broker:
        code, out, err = status(capsys, "--bootstrap-server", broker.bootstrap_servers)
    assert (code, out) == (1, "")
    assert "is no Barnabas broker, or an older one, and can not tell its status" in err


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = status(capsys, "--bootstrap-server", "127.0.0.1:1")
    assert (code, out) == (1, "")
    assert (
        err == "barnabas status: no broker answers at 127.0.0.1:1: Connection refused (`barnabas serve` starts one)\n"
    )


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["status", "--help"])
    assert "barnabas status --json" in capsys.readouterr().out
