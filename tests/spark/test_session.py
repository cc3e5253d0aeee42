"""Starting Spark from the command line: what is missing is one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark.errors import PipelineError
from barnabas.spark.session import check_java, start_session


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
