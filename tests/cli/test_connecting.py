"""Where the broker is, and one line for whatever goes wrong."""

import argparse
import socket

import pytest

from barnabas.cli.connecting import add_bootstrap_server, complain, not_negative, positive, with_client
from barnabas.cli.main import main
from barnabas.client.connection import ClientError
from barnabas.records.batch import CorruptRecordError
from barnabas.wire.errors import ApiError, ErrorCode


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_bootstrap_server(parser)
    return parser.parse_args(words)


def test_the_address_comes_from_the_option_or_the_environment_or_is_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVERS", raising=False)
    assert parse().bootstrap_server == "127.0.0.1:9092"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", "a:1,b:2")
    assert parse().bootstrap_server == "a:1,b:2"
    assert parse("--bootstrap-server", "c:3").bootstrap_server == "c:3"


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("--bootstrap-server", "host:port")
    assert ended.value.code == 2
    assert "HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["topics", "describe", "t"],
        ["topics", "alter", "t", "--partitions", "2"],
        ["topics", "delete", "t"],
        ["consume", "t"],
        ["groups", "list"],
        ["groups", "describe"],
        ["groups", "describe", "g"],
        ["groups", "reset", "g", "--topic", "t", "--to", "earliest"],
        ["groups", "delete", "g"],
        ["transactions", "list"],
        ["transactions", "describe", "t"],
        ["transactions", "abort", "t"],
        ["transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0"],
    ],
)
def test_a_broker_that_is_not_there_is_one_line_that_says_how_to_start_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert main([*words, "--bootstrap-server", f"127.0.0.1:{port}"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"barnabas {words[0]}: no broker answers at 127.0.0.1:{port}: Connection refused (`barnabas serve` starts "
        "one)\n"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ClientError("what\n  went wrong"), "barnabas topics: what went wrong\n"),
        (ApiError(ErrorCode.POLICY_VIOLATION, "no"), "barnabas topics: POLICY_VIOLATION: no\n"),
        (CorruptRecordError("It is damaged.", 7), "barnabas topics: It is damaged. (at byte 7)\n"),
    ],
)
def test_every_error_is_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(client: object) -> int:
        raise error

    assert with_client("topics", parse(), fail) == 1
    assert capsys.readouterr().err == line


def test_the_exit_code_is_that_of_the_act() -> None:
    assert with_client("topics", parse(), lambda client: 7) == 7


def test_a_complaint_comes_after_what_was_printed(capfd: pytest.CaptureFixture[str]) -> None:
    print("printed")
    complain("topics", "wrong")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("printed\n", "barnabas topics: wrong\n")


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "²"])
def test_what_is_no_number_is_refused(text: str) -> None:
    for read in (positive, not_negative):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)


def test_numbers_are_read() -> None:
    assert (positive("7"), not_negative("0")) == (7, 0)
    with pytest.raises(argparse.ArgumentTypeError, match="from 1 on"):
        positive("0")
