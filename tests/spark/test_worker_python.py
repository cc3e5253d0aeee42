"""The Python of Spark's workers: archives that are not needed leave the path, and all else is as `python` does it."""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from barnabas.spark.worker_python import COMMAND, is_forked, without_archives, workers_python

PROGRAM = "from barnabas.spark.worker_python import main; main()"


def archive(folder: Path, name: str, version: str) -> str:
    path = folder / name
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr(f"{name.partition('.')[0].partition('-')[0]}/version.py", version)
    return str(path)


def installed(folder: Path, package: str, version: str) -> str:
    (folder / package).mkdir(parents=True)
    (folder / package / "version.py").write_text(version)
    return str(folder)


def run(*arguments: str, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_archives_of_what_is_installed_leave_the_path(tmp_path: Path) -> None:
    sources = [archive(tmp_path, "pyspark.zip", "4.3.0"), archive(tmp_path, "py4j-0.10.9.9-src.zip", "0.10.9.9")]
    packages = installed(installed_in := tmp_path / "packages", "pyspark", "4.3.0")
    installed(installed_in, "py4j", "0.10.9.9")
    assert without_archives(["", *sources, "/nowhere", packages]) == ["", "/nowhere", packages]


@pytest.mark.parametrize("module", ["pyspark/__init__.py", "mine.py"])
def test_the_jar_of_sparks_core_leaves_the_path_unless_it_has_python(tmp_path: Path, module: str) -> None:
    plain, full = tmp_path / "spark-core_2.13-4.3.0.jar", tmp_path / "spark-core_2.13-4.3.0-with-python.jar"
    with zipfile.ZipFile(plain, "w") as opened:
        opened.writestr("org/apache/spark/SparkContext.class", "")
    with zipfile.ZipFile(full, "w") as opened:
        opened.writestr(module, "")
    (tmp_path / "spark-core_none.jar").write_text("no archive")
    rest = [str(full), str(tmp_path / "spark-core_none.jar"), str(tmp_path / "spark-sql_2.13-4.3.0.jar")]
    assert without_archives([str(plain), *rest]) == rest


def test_nothing_is_read_again_of_what_has_left_the_path(tmp_path: Path) -> None:
    program = "import sys; print(*[each for each in sys.path_importer_cache if '.zip' in each])"
    (tmp_path / "module.py").write_text(program)
    sources = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")
    other = archive(tmp_path, "orders.zip", "1")
    done = run("-m", "module", folder=tmp_path, path=os.pathsep.join([sources, other]))
    known = done.stdout.split()
    assert other in known, done.stderr
    assert not [each for each in known if each.startswith(sources)]


@pytest.mark.parametrize("version", ["4.2.0", None])
def test_another_version_or_none_leaves_the_archive(tmp_path: Path, version: str | None) -> None:
    path = [archive(tmp_path, "pyspark.zip", "4.3.0")]
    if version is not None:
        path.append(installed(tmp_path / "packages", "pyspark", version))
    # The version that is found first is the one that would be imported.
    path.append(installed(tmp_path / "later", "pyspark", "4.3.0" if version else "4.3.1"))
    assert without_archives(path) == path


def test_what_is_no_archive_of_spark_stays(tmp_path: Path) -> None:
    packages = installed(tmp_path / "packages", "pyspark", "4.3.0")
    (tmp_path / "pyspark.zip").write_text("no archive")
    other = archive(tmp_path, "orders.zip", "4.3.0")
    path = [str(tmp_path / "pyspark.zip"), "/nowhere/py4j-src.zip", other, str(tmp_path / "pyspark"), packages]
    assert without_archives(path) == path


def test_a_module_runs_as_python_runs_it_with_the_installed_pyspark(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "import sys, pyspark\n"
        "main = sys.modules['__main__'].__name__\n"
        "print(__name__, __spec__.name, main, sys.argv[1:], sys.path[0], pyspark.__file__)\n"
        "sys.exit(7)\n"
    )
    home = Path(pyspark.__file__).parent
    sources = home / "python" / "lib" / "pyspark.zip"
    assert sources.exists()
    done = run("-m", "module", "a", "-b", folder=tmp_path, path=str(sources))
    assert done.stdout.split() == [
        *("__main__", "module", "__main__", "['a',", "'-b']", str(tmp_path), str(home / "__init__.py")),
    ], done.stderr
    assert done.returncode == 7


def test_nothing_is_put_on_a_path_that_is_to_be_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    other = archive(tmp_path, "pyspark.zip", "9.9.9")
    done = run("-m", "platform", folder=tmp_path, path=other)
    assert done.returncode == 0, done.stderr
    (tmp_path / "show.py").write_text("import sys; print(sys.path[0])")
    done = run("-m", "show", folder=tmp_path, path=os.pathsep.join([other, str(tmp_path)]))
    assert done.stdout.strip() == other, "an archive of another version stays where it is"


def test_a_folder_that_was_removed_is_no_reason_not_to_run(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'cd {gone} && rmdir {gone} && exec "$0" -c "$1" -m platform'
    done = subprocess.run(["sh", "-c", command, sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_arguments_go_to_python(tmp_path: Path) -> None:
    done = run("-c", "import sys; print(sys.argv[1:], sys.executable)", "-m", "x", folder=tmp_path)
    assert done.stdout.split() == ["['-m',", "'x']", sys.executable], done.stderr
    assert run("-c", "raise SystemExit(3)", folder=tmp_path).returncode == 3


def test_workers_get_the_command_beside_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert workers_python() == str(tmp_path / "python")
    (tmp_path / COMMAND).touch()
    assert workers_python() == str(tmp_path / "python")
    (tmp_path / COMMAND).chmod(0o755)
    assert workers_python() == str(tmp_path / COMMAND)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("-m pyspark.daemon pyspark.sql.worker.create_data_source", True),
        ("-m pyspark.sql.streaming.python_streaming_source_runner", True),
        ("-m pyspark.daemon pyspark.worker", False),
        ("-m pyspark.worker", False),
        ("-m platform", False),
    ],
)
def test_what_plans_is_forked_and_what_runs_tasks_is_not(arguments: str, expected: bool) -> None:
    assert is_forked(arguments.split()) == expected


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_who_asked_ends_by_the_signal_that_ended_the_other(number: signal.Signals) -> None:
    program = f"from barnabas.spark.worker_python import _end; _end(-{int(number)})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-number, "")


def test_what_was_imported_ahead_runs_without_a_warning(tmp_path: Path) -> None:
    done = run("-m", "pyspark.sql.worker.lookup_data_sources", folder=tmp_path)
    assert "RuntimeWarning" not in done.stderr
    assert done.returncode == 1, "it is told nothing to look up for"


def test_a_module_of_spark_that_fails_fails_as_it_does_in_python(tmp_path: Path) -> None:
    done = run("-m", "pyspark.no_such_module", folder=tmp_path)
    assert (done.returncode, "No module named pyspark.no_such_module" in done.stderr) == (1, True)
