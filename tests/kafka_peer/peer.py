"""A real one-node Apache Kafka (KRaft) on loopback, and Kafka's dump tool.

    with KafkaPeer(tmp_path) as peer:
        peer.bootstrap_servers          # "127.0.0.1:54321"
        peer.stop()                     # SIGTERM: Kafka writes its checkpoints and the clean-shutdown marker
        peer.partition_dir("orders", 0) # the files to look at
        peer.start()                    # the same data again
        peer.kill()                     # SIGKILL: what a crash of the process leaves

The peer's data lives in the folder it is given and is never removed by it.
"""

import itertools
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka_peer.jars import fetch_kafka, require_java

# A fixed cluster id, so that data folders of different peers can be compared and exchanged.
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAA"
NODE_ID = 1
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60
DUMP_TIMEOUT_S = 300
START_ATTEMPTS = 3

# Records of a test have the times that it likes, and Kafka would delete the old ones in the middle of it.
KEEP_FOR_EVER = {"log.retention.ms": -1}

# Short-lived JVMs spend their time on starting; these settings make that quick.
QUICK_JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m"]
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel"

# What DumpLogSegments prints about files that it does not like; it exits with 0 all the same.
COMPLAINTS = re.compile(
    r"^(Mismatches in :|Non-consecutive offsets in |The following indexed offsets are not found in :"
    r"|Found out of order timestamp in :|Found timestamp mismatch in :|Found \d+ invalid bytes at the end of "
    r"|Ignoring unknown file )| is[vV]alid: false"
)


class KafkaPeerError(Exception):
    """Kafka, or a tool of it, did not do what it was asked; the message ends with what it said."""


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def java_command(main_class: str, *arguments: str, log_level: str) -> list[str]:
    """The command line that runs a class of Kafka."""
    return [require_java(), *QUICK_JVM, f"{LOG_LEVEL}={log_level}", "-cp", f"{fetch_kafka()}/*", main_class, *arguments]


def run_tool(
    main_class: str, *arguments: str, timeout_s: float = DUMP_TIMEOUT_S, stdin: str = "", log_level: str = "off"
) -> str:
    """Runs a class of Kafka to its end and returns its output, then its errors; raises `KafkaPeerError` if it fails."""
    done = subprocess.run(
        java_command(main_class, *arguments, log_level=log_level),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    said = "\n".join([*done.stdout.splitlines(), *done.stderr.splitlines()])
    if done.returncode != 0:
        last = "\n".join(said.splitlines()[-20:])
        raise KafkaPeerError(f"{main_class} {' '.join(arguments)} exited with {done.returncode}:\n{last}")
    return said


def dump_log(*arguments: str | Path) -> str:
    """Runs Kafka's DumpLogSegments with these arguments and returns its output.

    Starting the JVM is most of the cost, so pass many files in one call: dump_log("--files", ",".join(files)).
    The tool reports bad files in its output and exits with 0: see `complaints_of`.
    """
    return run_tool("org.apache.kafka.tools.DumpLogSegments", *map(str, arguments))


def complaints_of(output: str) -> list[str]:
    """What Kafka finds wrong with the files of a dump: one line a file and kind, with the first details.

    Gaps between offsets, which are right in a compacted log, are among them ("Non-consecutive offsets").
    """
    complaints = []
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if not COMPLAINTS.search(line):
            continue
        details = list(itertools.takewhile(lambda detail: detail.startswith("  "), lines[number + 1 :]))
        if line.startswith("Non-consecutive offsets in "):
            # The tool believes that every segment begins at offset 0, and names the first record of all others.
            details = [detail for detail in details if not detail.startswith("  -1 is followed by ")]
            if not details:
                continue
        complaints.append("".join([line, *details[:3]]))
    return complaints


def copy_sparse(source: Path, target: Path) -> None:
    """Copies a folder to `target`, which must not exist. Pre-allocated indexes stay holes instead of 10 MB each."""
    assert not target.exists(), f"{target} exists already"
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


class KafkaPeer:
    """One Kafka broker and controller in a process of its own. It is running from construction on."""

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str | int] | None = None,
        *,
        more_listeners: Sequence[str] = (),
        format_options: Sequence[str] = (),
    ) -> None:
        """Args:
        folder: where the peer keeps its data, its configuration and its output.
        overrides: settings of server.properties, over those of the peer.
        more_listeners: security protocols that each get a listener beside the plain one.
        format_options: what is said to the tool that formats the data folder.
        """
        self.folder = folder
        self.data_dir = folder / "data"
        self.overrides = dict(overrides or {})
        self._port = 0
        self._controller_port = 0
        self._more_ports = dict.fromkeys(more_listeners, 0)
        self._format_options = list(format_options)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients; it stays the same over restarts unless something else took the port."""
        return f"127.0.0.1:{self._port}"

    def address_of(self, listener: str) -> str:
        """The address of one of the additional listeners."""
        return f"127.0.0.1:{self._more_ports[listener]}"

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def partition_dir(self, topic: str, partition: int) -> Path:
        """Where the segments of a partition are."""
        return self.data_dir / f"{topic}-{partition}"

    def segments(self, topic: str, partition: int) -> list[Path]:
        """The log files of a partition, in order of their offsets."""
        return sorted(self.partition_dir(topic, partition).glob("*.log"))

    def replace_partition(self, topic: str, partition: int, source: Path, *, recover: bool) -> None:
        """Puts the files of another partition directory in the place of this one's, while Kafka is stopped.

        The topic must exist in Kafka: its `partition.metadata` stays, since a log with a topic id that Kafka does not
        know is set aside as stray. With `recover`, Kafka finds no clean-shutdown marker at its next start and scans the
        files; without, it trusts the indexes, the snapshot and the checkpoints as they are.
        """
        assert not self.is_running, "stop the peer first"
        target = self.partition_dir(topic, partition)
        for file in target.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in source.iterdir():
            if file.name != "partition.metadata":
                shutil.copyfile(file, target / file.name)
        marker = self.data_dir / ".kafka_cleanshutdown"
        if recover:
            marker.unlink(missing_ok=True)
        else:
            assert marker.exists(), "the peer was not stopped cleanly"

    def start(self) -> None:
        """Starts Kafka on its data and returns when it answers."""
        assert not self.is_running, "the peer runs already"
        for attempt in range(1, START_ATTEMPTS + 1):
            if self._port == 0 or attempt > 1:
                self._port, self._controller_port = free_port(), free_port()
                self._more_ports = {name: free_port() for name in self._more_ports}
            self._write_properties()
            self._format_once()
            self._launch()
            if self._wait_until_it_answers():
                return
            said = self.output_tail()
            self._process = None
            if "Address already in use" not in said:
                raise KafkaPeerError(f"Kafka ended while starting:\n{said}")
        raise KafkaPeerError(f"Kafka found no free port in {START_ATTEMPTS} attempts")

    def stop(self) -> None:
        """Asks Kafka to stop cleanly and waits until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills Kafka where it stands."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Ends the process if it is there; for tests that do not care how."""
        if self.is_running:
            self.kill()

    def output_tail(self) -> str:
        """The end of what Kafka wrote, for messages."""
        text = (self.folder / "kafka.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-30:])

    def __enter__(self) -> "KafkaPeer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_properties(self) -> None:
        listeners = {"PLAINTEXT": self._port, **self._more_ports}
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
        properties: dict[str, str | int] = {
            "process.roles": "broker,controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self._controller_port}",
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": addresses,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in listeners)]
            ),
            "log.dirs": str(self.data_dir),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            # A cleaner that looks often, with a small map, so that compaction is seen within a test.
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
            # After a kill the controller waits this long before it takes the same broker back.
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            # One replica, and few partitions of the internal topics, because each costs time when starting.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
        }
        properties.update(self.overrides)
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.folder / "server.properties").write_text(text, encoding="utf-8")

    def _format_once(self) -> None:
        if not (self.data_dir / "meta.properties").exists():
            properties = str(self.folder / "server.properties")
            run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties, *self._format_options)

    def _launch(self) -> None:
        command = java_command("kafka.Kafka", str(self.folder / "server.properties"), log_level="warn")
        # If the test run itself is killed, the kernel ends Kafka too.
        setpriv = shutil.which("setpriv")
        if setpriv is not None:
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with open(self.folder / "kafka.log", "wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _wait_until_it_answers(self) -> bool:
        """True when Kafka answers a request for metadata; False when its process ended."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.is_running:
                return False
            if self._accepts_connections() and self._has_metadata():
                return True
            time.sleep(0.05)
        self.kill()
        raise KafkaPeerError(f"Kafka did not answer within {START_TIMEOUT_S} s:\n{self.output_tail()}")

    def _accepts_connections(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return True
        except OSError:
            return False

    def _has_metadata(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            return len(admin.list_topics(timeout=5).brokers) == 1
        except KafkaException:
            return False

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "the peer was never started"
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            raise KafkaPeerError(f"Kafka did not end within {STOP_TIMEOUT_S} s of {number.name}") from None
        finally:
            self._process = None
