"""A process that has imported what Spark plans queries and begins streams with: what it forks starts at once.

`fork_client` tells how it is asked. It is started by the first that finds none, and ends with Spark's JVM.

Rule 1: who is not served is told so before anything has run: where the environment is another one, because libraries
read it when they are imported, and where anything fails.
Rule 2: it speaks only to processes of its own user.
Rule 3: what was started is told to go when the one who asked for it goes, or the JVM.

Forking is safe here although Arrow's memory and numpy's algebra have threads: both put themselves in order at a fork.
"""

import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.spark.fork_client import LENGTH, LISTENER, STANDARD, STARTED, is_own

_REQUEST_BYTES_MAX = 16 * 1024 * 1024
_REQUEST_TIMEOUT_S = 5.0

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
    folder: str
    standard: list[int]

    def become(self) -> list[str]:
        """Make this process the one that was asked for, as far as the system is concerned; returns the arguments."""
        for number, descriptor in zip(STANDARD, self.standard, strict=True):
            os.dup2(descriptor, number)
        self.close()
        os.environ.clear()
        os.environ.update(self.environment)
        if self.folder:  # Where it was removed there is none.
            os.chdir(self.folder)
        return self.arguments

    def close(self) -> None:
        """Let go of what was handed over."""
        for descriptor in self.standard:
            os.close(descriptor)


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
                    _say(child.connection, LENGTH.pack(os.waitstatus_to_exitcode(status)))
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
        request = _read_request(connection) if is_own(connection) else None
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
        _say(connection, STARTED)
        return None


def _read_request(connection: socket.socket) -> Request | None:
    """Return what is asked for; None where that is not to be understood."""
    standard: list[int] = []
    try:
        length, standard, _, _ = socket.recv_fds(connection, LENGTH.size, len(STANDARD))
        (size,) = LENGTH.unpack(length)
        if len(standard) == len(STANDARD) and 0 < size <= _REQUEST_BYTES_MAX:
            with connection.makefile("rb") as file:
                request = file.read(size)
            if len(request) == size:  # Who asked may be gone in the middle of it.
                return _parsed(request, standard)
    except (OSError, ValueError, struct.error):
        pass
    for descriptor in standard:
        os.close(descriptor)
    return None


def _parsed(request: bytes, standard: list[int]) -> Request:
    folder, count, *rest = map(os.fsdecode, request.split(b"\0"))
    variables = (variable.partition("=") for variable in rest[int(count) :])
    return Request(rest[: int(count)], {name: value for name, _, value in variables}, folder, standard)


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
    server = ForkServer(socket.socket(fileno=LISTENER), int(sys.argv[1]))
    import_ahead()
    request = server.serve()
    if request is not None:
        arguments = request.become()
        # What is run as a program must not have been imported before.
        sys.modules.pop(arguments[1], None)
        run_module(arguments)


if __name__ == "__main__":
    main()
