"""A Spark session for the command line: local unless told otherwise, quiet, and with Python workers of this Python.

Rule 1: what is missing (pyspark, Java) is one sentence that says how to get it.
Rule 2: under spark-submit the session is the one that was submitted, with its master and its configuration.
Rule 3: whoever interrupts a job sees that it ends, and no traceback, and no process is left behind.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from barnabas.spark.errors import PipelineError
from barnabas.spark.worker_python import workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
JAVA_VERSIONS = "17 or 21"
_JAVA_VERSION_MIN = 17
_QUIET = Path(__file__).with_name("log4j2.properties")

_DRIVER_JAVA = "spark.driver.extraJavaOptions"
# Arrow's Java looks at the bounds and the state of a buffer for every value that is written or read through it.
_UNCHECKED_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
FAST_SETTINGS: dict[str, Any] = {
    # Rows between the JVM and Python go through sockets of the machine, which cost half of what TCP does.
    "spark.python.unix.domain.socket.enabled": "true",
    _DRIVER_JAVA: _UNCHECKED_ARROW,
    "spark.executor.extraJavaOptions": _UNCHECKED_ARROW,
}
"""What makes a session exchange rows with Python faster; docs/PIPELINE.md, "Speed", tells it to users."""
# Spark's usual way to keep checkpoints starts processes to look at local files (`readlink`), some twenty a micro-batch.
# This one does not. It is no setting for everybody, because its name is Spark's own affair, and has changed before.
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
QUICK_CHECKPOINT_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
interrupted = threading.Event()
"""Whether somebody has interrupted the command: what fails after that, as Py4J does, is not told as an error."""
_LOCAL = {
    # Nothing outside this machine is to reach a session that nobody else uses.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_ALWAYS = {
    "spark.ui.showConsoleProgress": "false",
    # Times are shown as they are stored, whatever the machine's own time zone is.
    "spark.sql.session.timeZone": "UTC",
}


def start_session(
    job: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, is_quiet: bool = True
) -> SparkSession:
    """Return a session; raises PipelineError when Spark can not be started.

    Args:
        job: What the session is for; Spark's pages show it.
        master: Where it runs; `local[*]` where None, unless spark-submit has said it.
        conf: Spark's settings, over ours.
        is_quiet: Keep Spark's own log to errors.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise PipelineError("the pipeline needs Spark, which is not installed: pip install 'barnabas[spark]'") from None
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    is_local = False
    if not is_submitted:
        check_java()
    settings = dict(_ALWAYS)
    builder = SparkSession.builder.appName(f"barnabas {job}")
    if not is_submitted:
        chosen = (conf or {}).get("spark.master", LOCAL_MASTER) if master is None else master
        is_local = chosen.startswith("local")
        # The JVM starts Python workers, and would take the first `python3` of the path. For data sources the driver's
        # goes before the other. Workers elsewhere may have this Python and not the command beside it.
        os.environ.setdefault("PYSPARK_PYTHON", workers_python() if is_local else sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
        builder = builder.master(chosen)
        settings |= _LOCAL | FAST_SETTINGS if is_local else {}
        if is_quiet:
            quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
            settings[_DRIVER_JAVA] = f"{settings.get(_DRIVER_JAVA, '')} {quiet}".strip()
    for name, value in (settings | dict(conf or {})).items():
        builder = builder.config(name, value)
    children = _children()
    with _stderr_aside(is_quiet and not is_submitted) as said:
        try:
            session = builder.getOrCreate()
        except KeyboardInterrupt:
            # Spark's Java, which does not hear Ctrl-C, would go on for ever if it came before Python has spoken to it.
            for child in _children() - children:
                os.kill(child, signal.SIGKILL)
            raise
        except Exception as error:  # Whatever Spark fails with here, it means that there is no session.
            reason = f"{_first_line(error)} {said()}".strip()
            raise PipelineError(f"Spark does not start: {reason}") from error
    if is_quiet:
        session.sparkContext.setLogLevel("OFF")
        _interrupt_quietly()
    if is_local and session.conf.get(CHECKPOINT_MANAGER, None) is None:
        _keep_checkpoints_quickly(session)
    return session


def _children() -> set[int]:
    """Return the processes that this one has started and that are there; none where the system does not tell."""
    found: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # A thread that has just ended.
            found.update(map(int, children.read_text(encoding="utf-8").split()))
    return found


def _interrupt_quietly() -> None:
    """Let Ctrl-C be what it is in Python, and SIGTERM, with which services are stopped, the same.

    PySpark asks Java then to cancel all jobs, in the middle of another question, and both write tracebacks. The jobs
    end with the query or the session, which are stopped in any case.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
    # What fails in Py4J is raised as well. It logs some of that by the root logger, and not by its own.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_worth_telling)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    interrupted.set()
    raise KeyboardInterrupt


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Tell whether a message is not one that Py4J has for everybody who interrupts it."""
    return record.msg not in ("KeyboardInterrupt while sending command.", "Exception while sending command.")


def _keep_checkpoints_quickly(session: SparkSession) -> None:
    """Choose the quick way to keep checkpoints, if this Spark has it: a name that it lacks would fail every stream."""
    from py4j.java_gateway import JavaClass

    found: Any = session.sparkContext._jvm
    for name in QUICK_CHECKPOINT_MANAGER.split("."):
        found = getattr(found, name)
    if isinstance(found, JavaClass):
        session.conf.set(CHECKPOINT_MANAGER, QUICK_CHECKPOINT_MANAGER)


def check_java() -> None:
    """Raise PipelineError unless there is a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    remedy = f"Spark needs Java {JAVA_VERSIONS} (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None:
        where = f"JAVA_HOME is {home}, and there is none" if home else "there is none on the path"
        raise PipelineError(f"{remedy}, but {where}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _JAVA_VERSION_MIN:
        shown = said.splitlines()[0] if said else "says nothing"
        raise PipelineError(f"{remedy}, but {java} is: {shown}")


@contextmanager
def _stderr_aside(is_aside: bool) -> Iterator[Callable[[], str]]:
    """Keep what is written to stderr inside; yields what returns its last line.

    Java itself warns there when it starts, by no logger. It keeps this stderr as long as it runs, and so do workers.
    """
    if not is_aside:
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: _last_line(file)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
