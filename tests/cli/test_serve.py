"""`barnabas serve` as an operator meets it: one line when it is ready, one when it can not start, and its signals."""

import argparse
import ctypes
import gc
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.broker_config import resolve
from barnabas.cli import serve
from barnabas.cli.main import main
from barnabas.client.connection import Connection
from barnabas.client.options import ClientOptions, parse_bootstrap_servers
from barnabas.config import ConfigError
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.asking import create_topic, produce
from tests.server.raw import frame_of, receive_answer, wait_until
from tests.storage.builders import batch_of

DEADLINE_S = 60
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
MARKER = ".kafka_cleanshutdown"
READY = re.compile(r"barnabas ready on (?P<host>\S*):(?P<port>\d+) \(data (?P<data>.+)\) in (?P<seconds>\d+\.\d) s\n")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "barnabas.cli.main", "serve", *words]


def failing(*words: str, **options: object) -> str:
    """Run it with what it can not start with; return its last words after checking that there is one line of them."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("barnabas serve: ")
    return lines[0].removeprefix("barnabas serve: ")


class Serving:
    """A broker that was started by the command, and its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.line = process.stdout.readline()
        found = READY.fullmatch(self.line)
        if found is None:
            process.kill()
            raise AssertionError(f"{self.line!r} is not the line that was expected")
        self.host, self.port, self.data = found["host"], int(found["port"]), found["data"]

    def end(self, *signals: signal.Signals) -> tuple[int, str, str]:
        """Send signals and return the exit code and the rest of both outputs."""
        for number in signals:
            self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, stdout, stderr


@contextmanager
def serving(*words: str, cwd: Path | None = None) -> Iterator[Serving]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(
        command(*words, "--parent", str(os.getpid())),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment,
    ) as process:
        try:
            yield Serving(process)
        finally:
            process.kill()


def is_answered(port: int, host: str = "127.0.0.1") -> bool:
    with socket.create_connection((host, port), 30) as connection:
        connection.sendall(frame_of(MetadataRequest(topics=[]), 9))
        return bool(receive_answer(connection))


# Ready.


def test_clients_are_answered_when_the_line_is_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving("--data", str(data), "--listen", "127.0.0.1:0") as broker:
        assert is_answered(broker.port)
        assert broker.host == "127.0.0.1"
        assert broker.data == str(data)
        exit_code, stdout, stderr = broker.end(signal.SIGTERM)
    assert exit_code == 0
    assert stdout == "", "one line is all that goes to stdout"
    assert "Traceback" not in stderr
    assert (data / MARKER).exists()


@pytest.mark.parametrize(("host", "reached_by"), [("", "127.0.0.1"), ("[::1]", "::1"), ("localhost", "127.0.0.1")])
def test_the_line_names_the_host_as_it_was_given(tmp_path: Path, host: str, reached_by: str) -> None:
    with serving("--data", str(tmp_path / "data"), "--listen", f"{host}:0") as broker:
        assert broker.host == host
        assert is_answered(broker.port, reached_by)


def test_without_arguments_the_data_is_in_a_folder_here(tmp_path: Path) -> None:
    with serving("--listen", "127.0.0.1:0", cwd=tmp_path) as broker:
        assert broker.data == "barnabas-data"
    assert (tmp_path / "barnabas-data" / "meta.properties").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_stops_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as broker:
        exit_code, _, stderr = broker.end(number)
    assert exit_code == 0
    assert "Traceback" not in stderr
    assert (tmp_path / MARKER).exists()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as broker:
        # Both are there when it looks.
        broker.process.send_signal(signal.SIGSTOP)
        exit_code, _, stderr = broker.end(signal.SIGTERM, signal.SIGINT, signal.SIGCONT)
    assert exit_code == 130
    assert "Traceback" not in stderr
    assert not (tmp_path / MARKER).exists()


def test_a_signal_during_the_start_stops_it_too(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("--data", str(tmp_path), "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # From here on it is in the middle of its start, and knows what to do with a signal.
        wait_until(lambda: (tmp_path / ".lock").exists() or process.poll() is not None, "it does not start")
        process.terminate()
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, stderr
    assert (tmp_path / MARKER).exists()


def test_it_ends_by_itself_when_its_last_log_directory_fails(tmp_path: Path) -> None:
    data = tmp_path / "data"
    often = ("--set", "replica.high.watermark.checkpoint.interval.ms=20")
    with serving("--data", str(data), "--listen", "127.0.0.1:0", *often) as broker:
        (address,) = parse_bootstrap_servers(f"127.0.0.1:{broker.port}")
        with Connection(address, ClientOptions()) as connection:
            create_topic(connection, "orders")
            data.rename(tmp_path / "gone")
            data.write_text("a file in the way")
            produce(connection, "orders", bytes(batch_of(1, timestamp=1)))
            exit_code, stdout, stderr = broker.end()
    assert exit_code == 1
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith("barnabas serve: no log directory is left")


def test_no_library_is_loaded_that_a_broker_does_not_need(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as broker:
        assert is_answered(broker.port)
        mapped = Path(f"/proc/{broker.process.pid}/maps").read_text()
    assert not re.search("pyarrow|pyspark|numpy|pandas", mapped)
    program = (
        "import sys, barnabas.cli.serve, barnabas.server.broker_server;"
        "print(*sorted({'pyarrow', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


# Settings.


def test_help_has_an_example_and_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "barnabas serve --data /var/lib/barnabas --listen 0.0.0.0:9092" in said
    for name in ("--data", "--listen", "--config", "--set", "--log-level"):
        assert name in said


def given(*words: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    return serve.given_settings(parser.parse_args(words))


def test_the_file_is_weaker_than_set_and_set_than_its_own_arguments(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/from/file\nlisteners=PLAINTEXT://:1\nlog.retention.hours=1\n")
    config = ("--config", str(file))
    assert given(*config)["num.partitions"] == "2"
    assert given(*config)["log.dirs"] == "/from/file"
    assert given(*config, "--set", "num.partitions=3")["num.partitions"] == "3"
    assert given(*config, "--set", "log.dirs=/set")["log.dirs"] == "/set"
    strongest = given(*config, "--set", "log.dirs=/set", "--data", "/data", "--listen", "[::1]:5")
    assert strongest["log.dirs"] == "/data"
    assert strongest["listeners"] == "PLAINTEXT://[::1]:5"


def test_a_setting_of_topics_can_be_given_by_either_name() -> None:
    assert given("--set", "retention.ms=5") == given("--set", "log.retention.ms=5")
    assert resolve(given("--set", "retention.ms=5")).topics.retention_ms == 5


def test_the_last_of_several_values_counts() -> None:
    assert given("--set", "num.partitions=3", "--set", "num.partitions = 4")["num.partitions"] == "4"


def test_the_data_is_in_a_folder_here_unless_any_setting_says_otherwise(tmp_path: Path) -> None:
    assert given()["log.dirs"] == serve.DEFAULT_DATA
    assert "log.dirs" not in given("--set", "log.dir=/old/name")
    assert resolve(given("--set", "log.dir=/old/name")).manager.log_dirs == ("/old/name",)


def test_what_is_no_setting_is_said() -> None:
    with pytest.raises(ConfigError, match=r"--set takes NAME=VALUE, not 'num\.partitions'"):
        given("--set", "num.partitions")


def test_an_unknown_setting_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=localhost:2181\n")
    words = ("--config", str(file), "--set", "zookeeper.connect=elsewhere", "--data", str(tmp_path / "data"))
    with serving(*words, "--listen", "127.0.0.1:0") as broker:
        _, _, stderr = broker.end(signal.SIGTERM)
    (line,) = [line for line in stderr.splitlines() if "zookeeper.connect" in line]
    assert "is not known here and is ignored" in line


def test_the_log_level_is_honoured(tmp_path: Path) -> None:
    words = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--log-level", "error")
    with serving(*words) as broker:
        assert broker.end(signal.SIGTERM) == (0, "", "")


# What it can not start with.


def test_garbage_is_collected_again_after_a_start_that_failed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--data", str(tmp_path), "--listen", f"127.0.0.1:{port}"]) == 1
    assert gc.isenabled()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = failing("--data", str(tmp_path), "--listen", f"127.0.0.1:{port}")
    assert said == f"PLAINTEXT://127.0.0.1:{port} can not be listened on: the port is taken"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "num.partitions=0"), "num.partitions"),
        (("--set", "num.partitions"), "--set takes NAME=VALUE"),
        (("--listen", "nonsense"), "listeners"),
        (("--listen", "127.0.0.1:99999"), "listeners"),
        (("--listen", "203.0.113.1:0"), "can not be listened on"),
        (("--listen", "x" * 70 + ":0"), "can not be listened on"),
        (("--config", "/no/such/file"), "/no/such/file"),
        (("--set", "listeners=SSL://127.0.0.1:0"), "only PLAINTEXT is spoken so far"),
        (("--set", "advertised.listeners=OTHER://a:1"), "listeners has no OTHER"),
        (("--set", "log.retention.hours=-7"), "log.retention.hours"),
    ],
)
def test_a_bad_setting(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    listen = () if "--listen" in words or "listeners" in words[1] else ("--listen", "127.0.0.1:0")
    assert said in failing("--data", str(tmp_path / "data"), *listen, *words)


def test_a_config_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"num.partitions=\xff\xfe\n")
    assert str(file) in failing("--data", str(tmp_path / "data"), "--config", str(file))


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert failing("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0").startswith(f"{tmp_path}/data ")
    assert "data" in failing("--data", str(tmp_path / "data" / "below"), "--listen", "127.0.0.1:0")


def _obey_permissions() -> None:
    """Take the right from a child of the superuser to write where the permissions say no."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o555)
    said = failing("--data", str(folder), "--listen", "127.0.0.1:0", preexec_fn=_obey_permissions)
    assert said == f"{folder} can not be used: Permission denied"
    below = failing("--data", str(folder / "below"), "--listen", "127.0.0.1:0", preexec_fn=_obey_permissions)
    assert "Permission denied" in below


def test_data_that_another_broker_holds(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as holder:
        said = failing("--data", str(tmp_path), "--listen", "127.0.0.1:0")
        assert f"is in use by process {holder.process.pid};" in said
        assert is_answered(holder.port)


def test_data_of_another_broker(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--set", "node.id=7"):
        pass
    assert "node.id=7" in failing("--data", str(tmp_path), "--listen", "127.0.0.1:0")


def test_a_damaged_metadata_file(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"not a database" * 1000)
    assert "metadata.sqlite" in failing("--data", str(tmp_path), "--listen", "127.0.0.1:0")


def test_a_metadata_file_that_is_damaged_inside_is_told_of_in_one_line_too(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), "--listen", "127.0.0.1:0") as broker:
        broker.end(signal.SIGTERM)
    damaged = bytearray((tmp_path / "metadata.sqlite").read_bytes())
    damaged[4096 + 8 : 4096 + 200] = b"\xff" * 192
    (tmp_path / "metadata.sqlite").write_bytes(damaged)
    assert "metadata.sqlite" in failing("--data", str(tmp_path), "--listen", "127.0.0.1:0")


def test_one_folder_named_twice(tmp_path: Path) -> None:
    assert "twice" in failing("--data", f"{tmp_path},{tmp_path}", "--listen", "127.0.0.1:0")


def test_an_unknown_argument_is_a_mistake_of_usage(tmp_path: Path) -> None:
    done = subprocess.run(command("--no-such"), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert "usage: " in done.stderr
