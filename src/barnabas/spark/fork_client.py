"""Asks the fork server of Spark's JVM to be, in place of this process, what Spark has started it for.

    Spark         starts `barnabas-python -m MODULE` to plan a query or to begin a stream
    that process  asks the server of its parent, which is Spark's JVM, hands over all it was started with, and ends as
                  the process ends that was forked for it
    the server    is started by the first that finds none, and ends with the JVM

        to the server     length   i32, and with it standard input, output and errors as descriptors
                          request  working directory, number of arguments, arguments and variables, a zero byte
                                   between one and the next: none of them can have one
        from the server   started  one byte, when there is a process
                          status   i32, when it has ended: its exit code, or the number of a signal below 0

Rule 1: who is not served runs by itself, as it would without a server.
Rule 2: it speaks only to processes of its own user.
Rule 3: who asked ends with what was started for it.
Rule 4: a stream waits for this process to start, so that it imports next to nothing: no `typing`, for one.
"""

import os
import socket
import struct
import sys
from collections.abc import Sequence

SERVER_MODULE = "barnabas.spark.fork_server"
LISTENER = 3
LENGTH = struct.Struct("!i")
STARTED = b"\1"
STANDARD = (0, 1, 2)
_CREDENTIALS = struct.Struct("3i")  # The peer's process, user and group.
_LOST = 1


def run_forked(arguments: Sequence[str]) -> int | None:
    """Have the server of this process's parent run what Spark asks for; None where that can not be.

    Returns the exit code, or the number of a signal below 0, when it is over.
    """
    parent = os.getppid()
    if not hasattr(os, "pidfd_open") or not _is_spark(parent):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            if not _connect(connection, _address(parent), parent) or not is_own(connection):
                return None
            _send_request(connection, arguments)
            if connection.recv(len(STARTED)) != STARTED:
                return None
        except OSError:
            return None
        # From here on it runs, and must not be run again whatever happens to the server.
        try:
            status = connection.recv(LENGTH.size, socket.MSG_WAITALL)
        except OSError:
            return _LOST
    return int(LENGTH.unpack(status)[0]) if len(status) == LENGTH.size else _LOST


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
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in STANDARD]
        hand_over = (os.POSIX_SPAWN_DUP2, listener.fileno(), LISTENER)
        command = [sys.executable, "-m", SERVER_MODULE, str(parent)]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=[*nothing, hand_over])
    return True


def is_own(connection: socket.socket) -> bool:
    """Tell whether the other end is a process of the same user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1]) == os.geteuid()


def _send_request(connection: socket.socket, arguments: Sequence[str]) -> None:
    try:
        folder = os.getcwdb()
    except OSError:
        folder = b""  # It was removed.
    variables = [name + b"=" + value for name, value in os.environb.items()]
    request = b"\0".join([folder, b"%d" % len(arguments), *map(os.fsencode, arguments), *variables])
    socket.send_fds(connection, [LENGTH.pack(len(request))], STANDARD)
    connection.sendall(request)
