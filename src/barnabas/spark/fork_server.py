"""A process that has imported what Spark plans queries and begins streams with: what it forks starts at once.

    Spark         starts `barnabas-python -m MODULE` to plan a query or to begin a stream
    that process  asks the server of its parent, which is Spark's JVM, hands over all it was started with, and ends as
                  the process ends that was forked for it
    the server    is started by the first that finds none, and ends with the JVM

        to the server     length   i32, and with it standard input, output and errors as descriptors
                          request  JSON: arguments, environment, working directory
        from the server   started  one byte, when there is a process
                          status   i32, when it has ended: its exit code, or the number of a signal below 0

Rule 1: who is not served runs by itself, as it would without a server: where the environment is another one, because
libraries read it when they are imported, and where anything fails.
Rule 2: client and server speak only to processes of their own user.
Rule 3: what was started is told to go when the one who asked for it goes, or the JVM; and who asked ends with it.

Forking is safe here although Arrow's memory and numpy's algebra have threads: both put themselves in order at a fork.
"""

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MODULE = "barnabas.spark.fork_server"
_LISTENER = 3
_LENGTH = struct.Struct("!i")
_CREDENTIALS = struct.Struct("3i")  # The peer's process, user and group.
_STARTED = b"\1"
_STANDARD = (0, 1, 2)
_REQUEST_BYTES_MAX = 16 * 1024 * 1024
_REQUEST_TIMEOUT_S = 5.0
_LOST = 1

# Spark gives these to a process for itself. Nothing that is imported ahead reads them.
_OWN_VARIABLES = (
    "SPARK_",
    "PYTHON_WORKER_",
    "PYTHON_DAEMON_",
    "PYTHON_UNIX_DOMAIN_",
    "PYTHON_FAULTHANDLER_",
    "PYTHON_UDF_",
)
# What Spark runs on the driver for data sources, and what that imports of ours.
_IMPORTED_AHEAD = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "barnabas.spark.data_source",
    "barnabas.spark.segments.data_source",
    "barnabas.spark.segments.writer",
    "barnabas.spark.sink.stream_writer",
    "barnabas.spark.sink.writer",
    "barnabas.spark.source.reader",
    "barnabas.spark.source.stream_reader",
)


class Request(NamedTuple):
    """What a process was started with; another becomes it."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str | None
    standard: list[int]

    def become(self) -> list[str]:
        """Make this process the one that was asked for, as far as the system is concerned; returns the arguments."""
        for number, descriptor in zip(_STANDARD, self.standard, strict=True):
            os.dup2(descriptor, number)
        self.close()
        os.environ.clear()
        os.environ.update(self.environment)
        if self.folder is not None:
            os.chdir(self.folder)
        return self.arguments

    def close(self) -> None:
        """Let go of what was handed over."""
        for descriptor in self.standard:
            os.close(descriptor)


# Who asks


def run_forked(arguments: Sequence[str]) -> int | None:
    """Have the server of this process's parent run what Spark asks for; None where that can not be.

    Returns the exit code, or the number of a signal below 0, when it is over.
    """
    parent = os.getppid()
    if not hasattr(os, "pidfd_open") or not _is_spark(parent):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            if not _connect(connection, _address(parent), parent) or not _is_own(connection):
                return None
            _send_request(connection, arguments)
            if connection.recv(len(_STARTED)) != _STARTED:
                return None
        except OSError:
            return None
        # From here on it runs, and must not be run again whatever happens to the server.
        try:
            status = connection.recv(_LENGTH.size, socket.MSG_WAITALL)
        except OSError:
            return _LOST
    return int(_LENGTH.unpack(status)[0]) if len(status) == _LENGTH.size else _LOST


def _is_spark(parent: int) -> bool:
    """Tell whether a parent may be Spark's JVM: process 1 is the parent of all who have lost theirs, and never ends."""
    if parent != 1:
        return True
    try:
        with open(f"/proc/{parent}/comm", encoding="utf-8") as file:
            return file.read().strip() == "java"
    except OSError:
        return False


def _address(parent: int) -> str:
    """Return the name of the server for a parent; numbers of processes come again, but not with the same start."""
    with open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as file:
        started = file.read().rpartition(")")[2].split()[19]
    return f"\0barnabas-python-{os.geteuid()}-{parent}-{started}"


def _connect(connection: socket.socket, address: str, parent: int) -> bool:
    try:
        connection.connect(address)
    except ConnectionRefusedError:
        if not _start(address, parent):
            return False
        connection.connect(address)
    return True


def _start(address: str, parent: int) -> bool:
    """Start the server, unless another has just done so and does not listen yet."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:
            return False
        listener.listen()
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in _STANDARD]
        hand_over = (os.POSIX_SPAWN_DUP2, listener.fileno(), _LISTENER)
        command = [sys.executable, "-m", MODULE, str(parent)]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=[*nothing, hand_over])
    return True


def _is_own(connection: socket.socket) -> bool:
    """Tell whether the other end is a process of the same user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1]) == os.geteuid()


def _send_request(connection: socket.socket, arguments: Sequence[str]) -> None:
    try:
        folder: str | None = os.getcwd()
    except OSError:
        folder = None  # It was removed.
    request = json.dumps([list(arguments), dict(os.environ), folder]).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(request))], _STANDARD)
    connection.sendall(request)


# The server


class _Child(NamedTuple):
    process_id: int
    descriptor: int
    connection: socket.socket | None
    """Who asked for it; None when that one is gone."""


class ForkServer:
    """Forks for whoever asks, as long as the parent lives."""

    def __init__(self, listener: socket.socket, parent: int) -> None:
        self._listener = listener
        self._served = _variables(os.environ)
        self._parent = os.pidfd_open(parent)
        self._children: list[_Child] = []

    def serve(self) -> Request | None:
        """Return in each process that is forked, with what it is to be; and None when the parent has ended."""
        while True:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._parent, selectors.EVENT_READ)
                for child in self._children:
                    selector.register(child.descriptor, selectors.EVENT_READ)
                    if child.connection is not None:
                        selector.register(child.connection, selectors.EVENT_READ)
                ready = {key.fd for key, _ in selector.select()}
            if self._parent in ready:
                for child in self._children:
                    signal.pidfd_send_signal(child.descriptor, signal.SIGTERM)
                return None
            self._look_after_children(ready)
            if self._listener.fileno() in ready:
                request = self._fork()
                if request is not None:
                    return request

    def _look_after_children(self, ready: set[int]) -> None:
        for number, child in reversed(list(enumerate(self._children))):
            if child.descriptor in ready:
                _, status = os.waitpid(child.process_id, 0)
                if child.connection is not None:
                    _say(child.connection, _LENGTH.pack(os.waitstatus_to_exitcode(status)))
                _let_go([self._children.pop(number)])
            elif child.connection is not None and child.connection.fileno() in ready:
                # Nothing is ever said after a request: who asked is gone.
                child.connection.close()
                signal.pidfd_send_signal(child.descriptor, signal.SIGTERM)
                self._children[number] = child._replace(connection=None)

    def _fork(self) -> Request | None:
        """Serve one who asks; returns in the process that is forked."""
        connection, _ = self._listener.accept()
        connection.settimeout(_REQUEST_TIMEOUT_S)
        request = _read_request(connection) if _is_own(connection) else None
        if request is None or _variables(request.environment) != self._served:
            # Who asked sees that nothing was started, and runs by itself.
            connection.close()
            if request is not None:
                request.close()
            return None
        try:
            process_id = os.fork()
        except OSError:  # No room for another process now: who asked may find some.
            connection.close()
            request.close()
            return None
        if process_id == 0:
            _let_go(self._children)
            connection.close()
            self._listener.close()
            os.close(self._parent)
            return request
        request.close()
        self._children.append(_Child(process_id, os.pidfd_open(process_id), connection))
        _say(connection, _STARTED)
        return None


def _read_request(connection: socket.socket) -> Request | None:
    """Return what is asked for; None where that is not to be understood."""
    standard: list[int] = []
    try:
        length, standard, _, _ = socket.recv_fds(connection, _LENGTH.size, len(_STANDARD))
        (size,) = _LENGTH.unpack(length)
        if len(standard) == len(_STANDARD) and 0 < size <= _REQUEST_BYTES_MAX:
            with connection.makefile("rb") as file:
                arguments, environment, folder = json.loads(file.read(size))
            return Request(arguments, environment, folder, standard)
    except (OSError, ValueError, struct.error):
        pass
    for descriptor in standard:
        os.close(descriptor)
    return None


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what two processes must have in common to be forked from one."""
    common = {name: value for name, value in environment.items() if not name.startswith(_OWN_VARIABLES)}
    if "PYTHONPATH" in common:
        # Spark names some of its archives twice.
        common["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(common["PYTHONPATH"].split(os.pathsep)))
    return common


def _say(connection: socket.socket, message: bytes) -> None:
    try:
        connection.sendall(message)
    except OSError:
        pass  # Nobody waits for it any more.


def _let_go(children: Iterable[_Child]) -> None:
    for child in children:
        os.close(child.descriptor)
        if child.connection is not None:
            child.connection.close()


def import_ahead() -> None:
    """Import what is needed later, and keep it out of the collector's sight, so that what is forked stays shared."""
    for name in _IMPORTED_AHEAD:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # Another version of Spark may not have it.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Be the server, and then whatever was forked is to be."""
    from barnabas.spark.worker_python import leave_archives, run_module

    os.setsid()
    leave_archives()
    server = ForkServer(socket.socket(fileno=_LISTENER), int(sys.argv[1]))
    import_ahead()
    request = server.serve()
    if request is not None:
        arguments = request.become()
        # What is run as a program must not have been imported before.
        sys.modules.pop(arguments[1], None)
        run_module(arguments)


if __name__ == "__main__":
    main()
