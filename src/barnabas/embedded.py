"""Broker: a broker for programs and tests, with temporary data and a free port unless told otherwise.

    with Broker() as broker:                              a child process, ready when the line is reached
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    with Broker(in_process=True, clock=ManualClock()) as broker:    on a thread, for faults and a clock to turn
        broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)

Rule 1: a broker that was started is stopped when the block ends, however it ends; a child does not outlive its parent.
Rule 2: temporary data is removed, data that was named is kept. `kill` and `start` again is a crash and its recovery.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from barnabas.clock import Clock
from barnabas.config import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.faults import Faults
    from barnabas.server.broker_server import BrokerServer
    from barnabas.storage.files import Files

logger = logging.getLogger(__name__)

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
READY = "barnabas ready on "
EVERY_ADDRESS = ("", "0.0.0.0", "[::]")
PYTHON_CHECKS = ("PYTHONDEVMODE", "PYTHONWARNINGS")

DEFAULTS = {"group.initial.rebalance.delay.ms": "0"}
"""Where the settings differ from those of a broker that serves: a test's first consumer shall not wait for a second."""


class BrokerFailedError(Exception):
    """The broker did not start, or went away; the message ends with what it said."""


class Broker:
    """A broker that is running from construction on.

    Args:
        data: where its data is; without it, a temporary folder that is removed at the end.
        settings: Kafka's names and values, as in server.properties; topic settings by either name.
        listen: HOST:PORT; port 0 takes a free one, which is kept when the broker is started again.
        in_process: run it on a thread of this process instead of a child process.
        clock: with `in_process`, the clock it goes by.
        files: with `in_process`, the disk it writes to.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        listen: str = "127.0.0.1:0",
        in_process: bool = False,
        clock: Clock | None = None,
        files: "Files | None" = None,
    ) -> None:
        if not in_process and (clock is not None or files is not None):
            raise ValueError("a clock or a disk of your own needs in_process=True")
        self._is_temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="barnabas-") if data is None else data)
        self._settings = {**DEFAULTS, **{name: _text(value) for name, value in (settings or {}).items()}}
        self._listen = listen
        self._runner: _ChildProcess | _Thread
        self._runner = _Thread(clock, files) if in_process else _ChildProcess()
        try:
            self.start()
        except BaseException:
            self._remove_data()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, HOST:PORT; it stays the same over restarts.

        Of a broker that listens on every address it is the one of loopback.
        """
        host, _, port = self._listen.rpartition(":")
        return f"{'127.0.0.1' if host in EVERY_ADDRESS else host}:{port}"

    @property
    def is_running(self) -> bool:
        """Whether it is there."""
        return self._runner.is_running

    @property
    def pid(self) -> int:
        """The process that it runs in."""
        return self._runner.pid

    @property
    def log(self) -> str:
        """What a child process has said so far."""
        return self._runner.said()

    @property
    def faults(self) -> "Faults":
        """Faults to ask for, by API; only with `in_process`."""
        return self._thread.faults

    @property
    def server(self) -> "BrokerServer":
        """The parts of the broker; only with `in_process`, and to be touched on its loop only."""
        return self._thread.server

    @property
    def _thread(self) -> "_Thread":
        if not isinstance(self._runner, _Thread):
            raise ValueError("this needs a broker that was made with in_process=True")
        return self._runner

    def start(self) -> None:
        """Start it again after `stop` or `kill`, with the same data and port; raises BrokerFailedError."""
        if not self.is_running:
            port = self._runner.start(self._listen, self.data, self._settings).rpartition(":")[2]
            self._listen = f"{self._listen.rpartition(':')[0]}:{port}"

    def stop(self) -> None:
        """Stop it in order: what is under way is answered, and everything is on the disk."""
        self._runner.stop()

    def kill(self) -> None:
        """End a child process as kill -9 does."""
        self._runner.kill()

    def close(self) -> None:
        """Stop it, and remove temporary data."""
        try:
            self.stop()
        finally:
            self._remove_data()

    def _remove_data(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers} {'running' if self.is_running else 'stopped'}, data {self.data}>"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class _ChildProcess:
    """A broker in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, listen: str, data: Path, settings: Mapping[str, str]) -> str:
        command = [sys.executable, "-m", "barnabas.cli.main", "serve", "--parent", str(os.getpid())]
        command += ["--data", str(data), "--listen", listen]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self._close_output()
        self._output = tempfile.TemporaryFile(prefix="barnabas-log-")  # noqa: SIM115 (it is read as long as the broker is)
        self._process = _spawn(command, self._output)
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            watchdog = threading.Timer(START_SECONDS_MAX, self._process.kill)
            watchdog.start()
            line = stdout.readline().decode()
            watchdog.cancel()
        if not line.startswith(READY):
            self._process.wait()
            said = self.said().strip()
            self._close_output()
            raise BrokerFailedError(said.splitlines()[-1] if said else "the broker ended without a word")
        return line.removeprefix(READY).split(" ", 1)[0]

    def said(self) -> str:
        """Return what it wrote to stderr."""
        if self._output is None:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def stop(self) -> None:
        if self._process is None:
            return
        if self.is_running:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                raise BrokerFailedError(f"the broker did not stop in {STOP_SECONDS_MAX:.0f} s and was killed") from None
        self._process = None
        self._close_output()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _close_output(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None


def _spawn(command: list[str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start a process on a thread that lives as long as it does: a child dies with the thread that started it."""
    started: Future[subprocess.Popen[bytes]] = Future()

    def run() -> None:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                # Python's own checks of a test run are not to slow the broker down.
                env={name: value for name, value in os.environ.items() if name not in PYTHON_CHECKS},
            )
        except BaseException as error:  # noqa: BLE001 (whatever it is, the thread that waits is told)
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=run, name="barnabas-child", daemon=True).start()
    return started.result()


class _Thread:
    """A broker on a thread of this process, with a loop of its own."""

    def __init__(self, clock: Clock | None, files: "Files | None") -> None:
        self._clock = clock
        self._files = files
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._error: BaseException | None = None
        self.server: BrokerServer
        self.faults: Faults

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int:
        return os.getpid()

    def said(self) -> str:
        return ""

    def start(self, listen: str, data: Path, settings: Mapping[str, str]) -> str:
        from barnabas.broker_config import broker_names, resolve
        from barnabas.server.broker_server import BrokerServer

        given = {**broker_names(settings), "log.dirs": str(data), "listeners": f"PLAINTEXT://{listen}"}
        try:
            resolved = resolve(given)
        except ConfigError as error:
            raise BrokerFailedError(str(error)) from None
        self.server = BrokerServer(resolved, clock=self._clock, files=self._files, on_fatal=self._on_fatal)
        self._error = None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="barnabas-broker", daemon=True)
        self._thread.start()
        ready.wait()
        self._check_started()
        endpoint = next(iter(self.server.listening.values()))
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"{host}:{endpoint.port}"

    def _on_fatal(self, reason: str) -> None:
        """Stop, as a process of its own would: nothing is left to write to."""
        logger.error("the broker stops: %s", reason)
        assert self._stopping is not None
        self._stopping.set()

    def _check_started(self) -> None:
        if self._error is not None:
            assert self._thread is not None
            self._thread.join()
            self._thread = None
            raise BrokerFailedError(str(self._error)) from self._error

    def _run(self, ready: threading.Event) -> None:
        import uvloop

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._stopping = asyncio.Event()
            try:
                await self.server.start()
                self.faults = self.server.enable_faults()
            except Exception as error:  # noqa: BLE001 (whatever it is, the thread that waits is told)
                self._error = error
                return
            finally:
                ready.set()
            await self._stopping.wait()
            await self.server.stop()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    def call(self, function: Any, *arguments: Any) -> None:
        """Run something on the broker's loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        if self._thread is None:
            return
        if self._thread.is_alive():
            assert self._stopping is not None
            with contextlib.suppress(RuntimeError):  # It may end by itself at this moment.
                self.call(self._stopping.set)
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise BrokerFailedError(f"the broker did not stop in {STOP_SECONDS_MAX:.0f} s")
        self._thread = None

    def kill(self) -> None:
        raise ValueError("a thread can not be killed; use a child process (without in_process)")
