"""Starting Spark from the command line: what is missing is one sentence."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import SparkSession

from barnabas.spark import session
from barnabas.spark.errors import PipelineError
from barnabas.spark.session import CHECKPOINT_MANAGER, QUICK_CHECKPOINT_MANAGER, check_java, start_session
from barnabas.spark.worker_python import workers_python
from tests.spark.session_settings import saying


class Builder:
    """Takes what a session is started with, and starts none."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> Self:  # noqa: N802 (Spark's name)
        """Take the name."""
        return self.config("spark.app.name", name)

    def master(self, master: str) -> Self:
        """Take where it runs."""
        return self.config("spark.master", master)

    def config(self, name: str, value: str) -> Self:
        """Take a setting."""
        self.settings[name] = value
        return self

    @property
    def conf(self) -> dict[str, str]:
        """Be its settings."""
        return self.settings

    def getOrCreate(self) -> Self:  # noqa: N802 (Spark's name)
        """Be the session."""
        return self


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    found = Builder()
    monkeypatch.setattr(SparkSession, "builder", found)
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setattr(session, "_keep_checkpoints_quickly", lambda _: found.config(CHECKPOINT_MANAGER, "quick"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.mark.parametrize(
    ("master", "python"),
    [(None, workers_python()), ("local-cluster[2,1,1024]", workers_python()), ("yarn", sys.executable)],
)
def test_workers_are_started_with_the_quick_python_where_it_is_there(
    builder: Builder, master: str | None, python: str
) -> None:
    start_session("test", master=master, is_quiet=False)
    assert os.environ.pop("PYSPARK_PYTHON") == python
    # What data sources run in is started with the driver's.
    assert os.environ.pop("PYSPARK_DRIVER_PYTHON") == python


def test_what_is_asked_for_goes_before_what_is_ours(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/elsewhere/driver")
    start_session("test", conf={"spark.ui.enabled": "true"}, is_quiet=False)
    assert builder.settings["spark.ui.enabled"] == "true"
    assert os.environ["PYSPARK_PYTHON"] == "/elsewhere/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "/elsewhere/driver"


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [(None, {}, "quick"), (None, {CHECKPOINT_MANAGER: "mine"}, "mine"), ("yarn", {}, None)],
)
def test_checkpoints_are_kept_quickly_where_spark_is_local_and_nothing_else_is_asked_for(
    builder: Builder, master: str | None, conf: dict[str, str], expected: str | None
) -> None:
    start_session("test", master=master, conf=conf, is_quiet=False)
    assert builder.settings.get(CHECKPOINT_MANAGER) == expected


def test_a_way_to_keep_checkpoints_that_spark_lacks_is_not_chosen(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saying(spark, {CHECKPOINT_MANAGER: "another"}):
        spark.conf.unset(CHECKPOINT_MANAGER)
        monkeypatch.setattr(session, "QUICK_CHECKPOINT_MANAGER", f"{QUICK_CHECKPOINT_MANAGER}OfAnotherSpark")
        session._keep_checkpoints_quickly(spark)
        assert spark.conf.get(CHECKPOINT_MANAGER, None) is None
        monkeypatch.undo()
        session._keep_checkpoints_quickly(spark)
        assert spark.conf.get(CHECKPOINT_MANAGER) == QUICK_CHECKPOINT_MANAGER


def test_java_that_is_missing_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=f"Spark needs Java 17 or 21 .*JAVA_HOME is {tmp_path}"):
        check_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    with pytest.raises(PipelineError, match="bin/java is: openjdk version"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match="there is none on the path"):
        check_java()


def test_spark_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(PipelineError, match=r"pip install 'barnabas\[spark\]'"):
        start_session("test")


def test_why_spark_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a process of its own, because this one may have a session; and with a Java that starts nothing."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program = "from barnabas.spark.session import start_session; start_session('test')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("barnabas.spark.errors.PipelineError: Spark does not start: [JAVA_GATEWAY_EXITED]")
    # What the script that starts Java said last is said too, and nowhere else.
    assert "spark-class" in last
    assert "spark-class" not in done.stderr.removesuffix(f"{last}\n")
