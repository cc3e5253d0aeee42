"""Clients in processes of their own, which can be killed: a crash without a word to the broker.

A Python client is served by `serve` at the end of a pipe. The Java clients get a JVM for themselves.
"""

import multiprocessing
import multiprocessing.connection
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from tests.compat.drivers.java import JavaMember, JavaProducer
from tests.compat.drivers.java_machine import JavaClients
from tests.compat.model import (
    DEADLINE_S,
    ClientError,
    CommittedOffset,
    Driver,
    Member,
    MemberOptions,
    NewRecord,
    Polled,
    Position,
    Producer,
    ProducerOptions,
)

Pipe: TypeAlias = "multiprocessing.connection.Connection[Any, Any]"


class Apart(AbstractContextManager["Apart"], Protocol):
    """A client that can be killed; it is at the end of the block, unless it was before."""

    def member(self, options: MemberOptions) -> Member: ...

    def producer(self, options: ProducerOptions) -> Producer: ...

    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A member or a producer in the other process."""

    number: int


def serve(pipe: Pipe, new_driver: Callable[[str], Driver], servers: str) -> None:
    """What the other process does, until it is killed: (object, call, arguments) comes in, ("result", ...) goes out."""
    driver = new_driver(servers)
    objects: list[Any] = [driver]
    while True:
        handle, call, arguments, options = pipe.recv()
        found = {name: objects[each.number] if isinstance(each, Handle) else each for name, each in options.items()}
        try:
            result = getattr(objects[handle.number], call)(*arguments, **found)
        except ClientError as error:
            pipe.send(("error", error.name, str(error)))
            continue
        if call in ("member", "producer"):
            objects.append(result)
            result = Handle(number=len(objects) - 1)
        pipe.send(("result", result, ""))


class PythonApart:
    """A Python client in another process."""

    def __init__(self, new_driver: Callable[[str], Driver], servers: str) -> None:
        # A copy of this process would copy the threads' locks, but not the threads.
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, new_driver, servers), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, handle: Handle, call: str, /, *arguments: object, **options: object) -> Any:
        self._pipe.send((handle, call, arguments, options))
        if not self._pipe.poll(2 * DEADLINE_S):
            raise TimeoutError(f"the other process did not answer {call}")
        kind, answer, text = self._pipe.recv()
        if kind == "error":
            raise ClientError(answer, text)
        return answer

    def member(self, options: MemberOptions) -> "MemberApart":
        return MemberApart(self, self.call(Handle(number=0), "member", options))

    def producer(self, options: ProducerOptions) -> "ProducerApart":
        return ProducerApart(self, self.call(Handle(number=0), "producer", options))

    def kill(self) -> None:
        self._process.kill()
        self._process.join(DEADLINE_S)

    def __enter__(self) -> "PythonApart":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._process.close()
        self._pipe.close()


class MemberApart:
    """A member in another process."""

    def __init__(self, apart: PythonApart, handle: Handle) -> None:
        self._apart = apart
        self.handle = handle

    def __enter__(self) -> "MemberApart":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It ends with its process."""

    def poll(self, *, commit: bool) -> Polled:
        polled: Polled = self._apart.call(self.handle, "poll", commit=commit)
        return polled

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        self._apart.call(self.handle, "commit", offsets)


class ProducerApart:
    """A producer in another process."""

    def __init__(self, apart: PythonApart, handle: Handle) -> None:
        self._apart = apart
        self._handle = handle

    def __enter__(self) -> "ProducerApart":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It ends with its process."""

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        positions: list[Position] = self._apart.call(self._handle, "send", topic, records)
        return positions

    def init_transactions(self) -> None:
        self._apart.call(self._handle, "init_transactions")

    def begin_transaction(self) -> None:
        self._apart.call(self._handle, "begin_transaction")

    def send_offsets(self, topic: str, offsets: Mapping[int, int], member: Member) -> None:
        assert isinstance(member, MemberApart)
        self._apart.call(self._handle, "send_offsets", topic, offsets, member=member.handle)

    def commit_transaction(self) -> None:
        self._apart.call(self._handle, "commit_transaction")

    def abort_transaction(self) -> None:
        self._apart.call(self._handle, "abort_transaction")


class JavaApart:
    """Java clients in a JVM for themselves."""

    def __init__(self, servers: str) -> None:
        self._clients = JavaClients()
        self._servers = servers
        self._is_alive = True

    def member(self, options: MemberOptions) -> JavaMember:
        return JavaMember(self._clients, self._servers, options)

    def producer(self, options: ProducerOptions) -> JavaProducer:
        return JavaProducer(self._clients, self._servers, options)

    def kill(self) -> None:
        if self._is_alive:
            self._is_alive = False
            self._clients.kill()

    def __enter__(self) -> "JavaApart":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
