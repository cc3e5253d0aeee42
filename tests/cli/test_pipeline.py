"""`barnabas pipeline`: jobs, exit codes, one sentence for what can not be done; and real runs in their own process."""

import importlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas import Broker
from barnabas.cli import pipeline
from barnabas.cli.main import main
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.job import JobResult
from barnabas.wire.errors import ApiError, ErrorCode
from bench.spark.memory import descendants
from tests.broker.turning import command_of, is_alive
from tests.kafka_peer.populate import wait_until

COMMAND = [sys.executable, "-m", "barnabas", "pipeline"]
DEADLINE_SECONDS = 500


THROWN_BY_JAVA = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Job.run(Job.scala:1)
Caused by: java.io.IOException: no room
\t... 9 more
"""


class Py4JJavaError(Exception):
    """Has the name and the text of Py4J's own, which asks Java for its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(JobResult):
    """What a made-up job has found."""

    faults: int

    @property
    def is_fine(self) -> bool:
        return self.faults == 0

    def headings(self) -> list[str]:
        return ["what", "faults"]

    def rows(self) -> list[list[object]]:
        return [["all", self.faults]]

    def sentence(self) -> str:
        return f"{self.faults} faults."


class Session:
    """What stands in the place of Spark."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    started = Session()
    monkeypatch.setattr(pipeline, "start_session", lambda *_, **__: started)
    yield started
    assert started.is_stopped


def job_of(monkeypatch: pytest.MonkeyPatch, outcome: Exception | JobResult) -> None:
    """Have `verify` end like this."""

    def run(*_: Any) -> JobResult:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("barnabas.cli.pipelines.verify.run", run)


@pytest.mark.parametrize(("faults", "exit_code"), [(0, 0), (3, 1)])
def test_results_and_exit_codes(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], faults: int, exit_code: int
) -> None:
    job_of(monkeypatch, Checked(faults=faults))
    assert main(["pipeline", "verify", "data"]) == exit_code
    assert capsys.readouterr() == (f"all\t{faults}\n{faults} faults.\n", "")
    assert main(["pipeline", "verify", "data", "--json"]) == exit_code
    assert capsys.readouterr() == (f'{{"faults": {faults}}}\n', "")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PipelineError("there is no topic 'x'"), "there is no topic 'x'"),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you"), "not for you"),
        (RuntimeError("Java\nTraceback\nbarnabas.spark.errors.PipelineError: gone\n"), "gone"),
        (Py4JJavaError(THROWN_BY_JAVA), r"IOException: no room \(--debug shows all of it\)"),
        (RuntimeError("odd\nat java.lang.Thread"), r"RuntimeError: odd \(--debug shows all of it\)"),
        (FileNotFoundError(2, "No such file", "x"), "No such file"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_2(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    sentence: str,
) -> None:
    job_of(monkeypatch, error)
    assert main(["pipeline", "verify", "data"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(rf"barnabas pipeline verify: .*{sentence}.*\n", said.err)
    if not isinstance(error, OSError):
        with pytest.raises(type(error)):
            main(["pipeline", "verify", "data", "--debug"])


def test_help_names_all_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for job, sentence in pipeline.JOBS.items():
        assert re.search(rf"^ +{job} +", text, re.MULTILINE), sentence
        with pytest.raises(SystemExit):
            main(["pipeline", job, "--help"])
        help_of_job = capsys.readouterr().out
        assert f"barnabas pipeline {job} " in help_of_job.partition("example")[2]
        assert "--master" in help_of_job
        assert callable(importlib.import_module(f"barnabas.cli.pipelines.{job}").run)


@pytest.mark.parametrize(
    "words",
    [[], ["nosuch"], ["audit", "orders"], ["verify", "data", "--conf", "x"], ["audit", "a", "b", "--option", "x"]],
)
def test_bad_words_are_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *words])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_without_java_or_pyspark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert main(["pipeline", "verify", str(tmp_path)]) == 2
    assert re.fullmatch(
        r"barnabas pipeline verify: Spark needs Java 17 or 21 .*there is none\n", capsys.readouterr().err
    )
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert main(["pipeline", "verify", str(tmp_path)]) == 2
    assert "pip install 'barnabas[spark]'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic `orders`."""
    with Broker(data=tmp_path_factory.mktemp("pipeline") / "data") as broker:
        server = ["--bootstrap-server", broker.bootstrap_servers]
        for words, given in ((["topics", "create", "orders", *server], ""), (["produce", "orders", *server], "a\nb\n")):
            command = [sys.executable, "-m", "barnabas", *words]
            subprocess.run(command, input=given, text=True, check=True, capture_output=True)
        yield broker


def run(*words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_SECONDS, **options)


def test_a_real_run_has_one_json_object_on_stdout_and_a_bar_in_a_terminal(orders: Broker, tmp_path: Path) -> None:
    """With stderr as a terminal: nothing but our bar is drawn there, and it is taken away again."""
    controller, terminal = pty.openpty()
    page = tmp_path / "orders.html"
    # Polling more often than usual makes sure that so short a job is seen at all.
    program = (
        "import sys; from barnabas.spark.jobs import watching; watching.POLL_SECONDS = 0.01; "
        "from barnabas.cli.main import main; sys.exit(main())"
    )
    words = ["profile", "orders", "--bootstrap-server", orders.bootstrap_servers, "--output", str(page), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, "pipeline", *words], stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    os.close(terminal)
    drawn = bytearray()
    try:
        while True:
            drawn += os.read(controller, 4096)
    except OSError:
        pass  # The other end is closed.
    os.close(controller)
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    assert process.wait(DEADLINE_SECONDS) == 0
    assert json.loads(output)["figures"]["records"] == 2
    assert output.count("\n") == 1
    bars = drawn.decode().split("\r\x1b[K")
    assert bars[0] == "", "nothing comes before the first bar"
    assert bars[-1] == "", "the last one is taken away"
    assert len(bars) > 2
    assert all(re.fullmatch(r"profile \[[#.]{30}\] +\d+%  profile: .*tasks, \d+ s", bar) for bar in bars[1:-1])
    assert page.read_text().startswith("<!doctype html>")


def test_a_real_run_that_fails_says_one_line(orders: Broker, tmp_path: Path) -> None:
    done = run(*COMMAND, "audit", "orders", str(tmp_path), "--bootstrap-server", orders.bootstrap_servers)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"barnabas pipeline audit: {tmp_path} is not an archive: there is no _barnabas/archive.json in it\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_topic_is_followed_until_somebody_stops_it(orders: Broker, tmp_path: Path, number: signal.Signals) -> None:
    lake = tmp_path / "lake"
    words = ["archive", "orders", str(lake), "--bootstrap-server", orders.bootstrap_servers, "--follow", "--json"]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(lake.glob("_barnabas/commits/*.json")), "the first commit", DEADLINE_SECONDS)
    process.send_signal(number)
    output, said = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, said
    assert json.loads(output)["records"] == 2
    assert "Traceback" not in said
    assert "ERROR" not in said


def test_ctrl_c_while_java_starts_leaves_nobody_behind(orders: Broker, tmp_path: Path) -> None:
    """Both get it, as from a terminal."""
    words = ["snapshot", "orders", str(tmp_path / "out"), "--bootstrap-server", orders.bootstrap_servers]
    process = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True, start_new_session=True)

    def started() -> list[int]:
        return [each for each in descendants(process.pid) if b"pyspark-shell" in command_of(each)]

    wait_until(lambda: bool(started()), "Java", DEADLINE_SECONDS)
    java = started()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, said) == (130, "")
    wait_until(lambda: not any(map(is_alive, java)), "its end", DEADLINE_SECONDS)


def test_a_real_run_under_spark_submit(orders: Broker, tmp_path: Path) -> None:
    script = run(*COMMAND, "script").stdout.strip()
    assert Path(script).name == "__main__.py"
    submit = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert submit is not None
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    words = ["pipeline", "snapshot", "orders", str(tmp_path / "out"), "--bootstrap-server", orders.bootstrap_servers]
    done = run(submit, "--master", "local[1]", script, *words, "--json", env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["keys"], result["records_read"], result["records_without_key"]) == (0, 2, 2)
    assert (tmp_path / "out" / "_SUCCESS").exists()
