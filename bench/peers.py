"""The brokers that are measured, each a process of its own on loopback: Barnabas, and a real Apache Kafka beside it.

Kafka runs with the settings and the Java options of its own start scripts, on one node; Barnabas runs as users start
it. Both keep the files of a deleted topic for a moment only, so that one load's data is gone before the next begins.

Rule 1: the time of a start is from starting the process to the first answer about metadata, asked again and again.
"""

import compileall
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import barnabas
from bench.control import answers_metadata
from bench.load.spec import LoadError
from bench.process_cost import ProcessCost, process_cost
from tests.kafka_peer.jars import fetch_kafka, require_java
from tests.kafka_peer.peer import CLUSTER_ID, free_port, run_tool

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.002
SETTINGS: Mapping[str, str | int] = {"log.segment.delete.delay.ms": 200}

# The options of kafka-server-start.sh and kafka-run-class.sh.
KAFKA_JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Peer:
    """A broker in a process of its own, running from construction on; its data is removed when it is closed."""

    def __init__(self, name: str, folder: Path, port: int, command: list[str]) -> None:
        self.name = name
        self.folder = folder
        self.port = port
        # If the benchmark itself is killed, the kernel ends the broker too.
        setpriv = shutil.which("setpriv")
        self._command = command if setpriv is None else [setpriv, "--pdeathsig", "KILL", *command]
        self.start()

    def start(self) -> None:
        """Start it, on what it has on disk; `ready_s` says how long that took."""
        started = time.perf_counter()
        with open(self.folder / "output", "wb") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._wait_until_it_answers()
        self.ready_s = time.perf_counter() - started

    def kill(self) -> None:
        """Kill it, as a crash would; its data stays."""
        self._process.kill()
        self._process.wait()

    def cost(self) -> ProcessCost:
        """What the broker has cost so far."""
        return process_cost(self._process.pid)

    def has_data_of(self, topic: str) -> bool:
        """Whether there are folders of a topic, also of one that is being deleted."""
        return any((self.folder / "data").glob(f"{topic}-*"))

    def close(self) -> None:
        """Stop the broker and remove its data."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_metadata(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                said = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
                raise LoadError(f"{self.name} does not answer: {said[-2000:]}")
            time.sleep(POLL_S)


def start_barnabas(folder: Path, more: Mapping[str, str | int] | None = None) -> Peer:
    """Barnabas on an empty data folder, with some settings more."""
    # As pip does when it installs: where nothing writes bytecode, each start would compile what was edited since.
    compileall.compile_dir(Path(barnabas.__file__).parent, quiet=2)
    folder.mkdir(parents=True)
    port = free_port()
    chosen = {**SETTINGS, **(more or {})}
    settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "barnabas.cli.main", "serve"]
    command += ["--data", str(folder / "data"), "--listen", f"127.0.0.1:{port}", *settings]
    return Peer("Barnabas", folder, port, command)


def start_kafka(folder: Path, more: Mapping[str, str | int] | None = None) -> Peer:
    """A Kafka of one node on an empty data folder; raises PeerUnavailableError where this machine can not run one."""
    java, jars = require_java(), fetch_kafka()
    folder.mkdir(parents=True)
    port, controller_port = free_port(), free_port()
    properties: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        # Without it, nothing is deleted in the first 30 seconds.
        "log.initial.task.delay.ms": 500,
        **SETTINGS,
        **(more or {}),
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    (folder / "server.properties").write_text(text, encoding="utf-8")
    run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(folder / "server.properties"))
    command = [java, *KAFKA_JAVA_OPTIONS, "-cp", f"{jars}/*", "kafka.Kafka", str(folder / "server.properties")]
    return Peer("Kafka", folder, port, command)
