"""The JVM of the Java clients: a program of ours (java/ClientServer.java), asked over its stdin and stdout."""

import base64
import itertools
import json
import shutil
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

from tests.compat.model import DEADLINE_S, ClientError, Record
from tests.kafka_peer.jars import PeerUnavailableError
from tests.kafka_peer.peer import java_command

PROGRAM = Path(__file__).parent.parent / "java" / "ClientServer.java"


def require_compiler() -> None:
    """Java runs a source file by compiling it, which a runtime without a compiler (JRE) cannot."""
    if shutil.which("javac") is None:
        raise PeerUnavailableError(
            "the Java clients' scenarios need a JDK, and there is only a Java runtime (Debian: openjdk-17-jdk-headless)"
        )


def text(payload: bytes | None) -> str | None:
    return None if payload is None else base64.b64encode(payload).decode("ascii")


def payload_of(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)


class JavaClients:
    """The JVM. Calls may come from several threads; answers find their callers by number."""

    def __init__(self) -> None:
        require_compiler()
        command = java_command(str(PROGRAM), log_level="off")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="java-clients")
        self._reader.start()

    def call(self, call: str, /, **arguments: object) -> Any:
        """Asks the JVM and waits for its answer."""
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
            requests = self._pipe(self._process.stdin)
            requests.write(json.dumps({"id": number, "call": call, **arguments}) + "\n")
            requests.flush()
        # Twice the deadline, so that the client's own one comes first.
        answer = future.result(2 * DEADLINE_S)
        if "error" not in answer:
            return answer["result"]
        if answer["error"] == "timeout":
            raise TimeoutError(answer["message"])
        raise ClientError(answer["error"], answer["message"])

    def close(self) -> None:
        self._pipe(self._process.stdin).close()
        self._reader.join()
        self._pipe(self._process.stdout).close()
        self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        """Ends it with all its clients where they stand."""
        self._process.kill()
        self.close()

    def _read(self) -> None:
        for line in self._pipe(self._process.stdout):
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer)
        for future in list(self._waiting.values()):
            future.set_result({"error": "local: the JVM ended", "message": "its errors are in the test's output"})

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def record_of(answer: Mapping[str, Any]) -> Record:
    return Record(
        partition=answer["partition"],
        offset=answer["offset"],
        timestamp_ms=answer["timestamp"],
        append_time=answer["append_time"],
        key=payload_of(answer["key"]),
        value=payload_of(answer["value"]),
        headers=tuple((name, payload_of(value)) for name, value in answer["headers"]),
    )
