"""The Python that Spark starts its workers with: the command `barnabas-python`, for PYSPARK_PYTHON.

    Spark    PYTHONPATH=.../pyspark.zip:.../py4j-src.zip barnabas-python -m pyspark.daemon pyspark.worker
    here     takes the archives off the path, and runs the module as `python -m` does

Spark puts its own Python code before everything else on the path of its workers, as an archive of sources. An archive
keeps no bytecode, so that every process compiles what it imports: about a second, which a stream waits for when it
starts, and a batch at its first task. Where the same PySpark is installed, that is imported in a quarter of the time.
The jar of Spark's core is there too, and has no Python: its thousands of names are read for nothing.

What Spark starts to plan queries and to begin streams is forked by a `fork_server`, which takes a tenth of that again.
The workers of tasks are not: they run functions of users, which may count on libraries that nothing has imported yet.

Rule 1: an archive is taken off only if what is installed is of the very same version, and the jar only if it has no
Python indeed. Where nothing is installed, or another version, workers are what they would be without this.
Rule 2: what is asked for is done in any case: arguments that are no module go to the Python that runs this.
Rule 3: who is served by the fork server waits for no import that it does not need: others import where they come by.
"""

import os
import sys
from collections.abc import Sequence

COMMAND = "barnabas-python"
_PACKAGES = ("pyspark", "py4j")
_CORE = "spark-core_"


def main() -> None:
    """Run what Spark asks for."""
    arguments = sys.argv[1:]
    if len(arguments) < 2 or arguments[0] != "-m":
        os.execv(sys.executable, [sys.executable, *arguments])
    if is_forked(arguments):
        from barnabas.spark.fork_client import run_forked

        status = run_forked(arguments)
        if status is not None:
            _end(status)
    leave_archives()
    run_module(arguments)


def is_forked(arguments: Sequence[str]) -> bool:
    """Tell whether a process is one that plans: a module of Spark, and not the workers of tasks."""
    return arguments[1].startswith("pyspark.") and "pyspark.worker" not in arguments[1:]


def _end(status: int) -> None:
    """End as another process has ended."""
    if status < 0:
        import signal

        try:
            signal.signal(-status, signal.SIG_DFL)
        except OSError:
            pass  # Nothing can be set for SIGKILL.
        os.kill(os.getpid(), -status)
    sys.exit(status)


def run_module(arguments: Sequence[str]) -> None:
    """Run `-m MODULE ARGUMENTS` as Python does."""
    import runpy

    if not sys.flags.safe_path:
        # A script has its own folder there, and a module the folder that it is started in.
        sys.path[0] = _working_directory()
    sys.argv[:] = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # It was removed, which is no reason not to run.


def leave_archives() -> None:
    """Take the archives that are not needed off the path of this process."""
    kept = without_archives(sys.path)
    needless = {entry for entry in sys.path if entry not in kept}
    sys.path[:] = kept
    # Workers let Python look anew at all folders that it knows, and that reads archives again: a tenth of a second.
    for known in list(sys.path_importer_cache):
        if any(known == entry or known.startswith(entry + os.sep) for entry in needless):
            del sys.path_importer_cache[known]


def without_archives(path: Sequence[str]) -> list[str]:
    """Return a module path without the jar, and without archives of what is installed later in the same version."""
    return [entry for entry in path if not _is_needless(entry, path)]


def _is_needless(entry: str, path: Sequence[str]) -> bool:
    name = os.path.basename(entry)
    if name.startswith(_CORE) and name.endswith(".jar"):
        return _has_no_python(entry)
    package = next((each for each in _PACKAGES if name.startswith(each)), None)
    if package is None or not name.endswith(".zip"):
        return False
    import zipimport

    version = os.path.join(package, "version.py")
    try:
        archived = zipimport.zipimporter(entry).get_data(version)
    except (zipimport.ZipImportError, OSError):
        return False
    return _installed(version, path) == archived


def _has_no_python(jar: str) -> bool:
    import pkgutil
    import zipimport

    try:
        zipimport.zipimporter(jar)  # What is no archive has no modules either, but is not ours to take off.
    except zipimport.ZipImportError:
        return False
    return not any(pkgutil.iter_modules([jar]))


def _installed(file: str, path: Sequence[str]) -> bytes | None:
    """Return the content of a file of the first folder on the path that has it."""
    for folder in path:
        try:
            with open(os.path.join(folder, file), "rb") as opened:
                return opened.read()
        except OSError:
            continue
    return None


def workers_python() -> str:
    """Return what PYSPARK_PYTHON is to be: the command beside this Python, or this Python where it has none."""
    command = os.path.join(os.path.dirname(sys.executable), COMMAND)
    return command if os.access(command, os.X_OK) else sys.executable
