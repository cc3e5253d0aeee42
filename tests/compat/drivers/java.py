"""Kafka's Java clients: a program of ours (java/ClientServer.java) in one JVM, asked over its stdin and stdout."""

import base64
import itertools
import json
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.compat.model import (
    DEADLINE_S,
    ClientError,
    ClusterDescription,
    ConsumerOptions,
    FoundOffset,
    Need,
    NewRecord,
    OffsetSpec,
    PartitionDescription,
    Position,
    ProducerOptions,
    ProducerState,
    Record,
    Setting,
    TopicDescription,
    isolation_level,
)
from tests.kafka_peer.jars import PeerUnavailableError
from tests.kafka_peer.peer import java_command

PROGRAM = Path(__file__).parent.parent / "java" / "ClientServer.java"
DEADLINE_MS = int(DEADLINE_S * 1000)


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


class JavaProducer:
    """A KafkaProducer."""

    def __init__(self, clients: JavaClients, servers: str, options: ProducerOptions) -> None:
        settings: dict[str, object] = {
            "compression.type": options.codec,
            "max.request.size": options.request_bytes_max,
            "batch.size": options.batch_bytes,
            "delivery.timeout.ms": DEADLINE_MS,
        }
        # The defaults (acks=all, idempotent) are left alone where they are what is wanted.
        if options.acks != "all":
            settings |= {"acks": options.acks, "enable.idempotence": "false"}
        elif options.idempotent is not None:
            settings["enable.idempotence"] = str(options.idempotent).lower()
        self._clients = clients
        self._handle = clients.call("open_producer", servers=servers, settings=settings)

    def __enter__(self) -> "JavaProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clients.call("close_producer", handle=self._handle)

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        asked = [
            {
                "partition": record.partition,
                "timestamp": record.timestamp_ms,
                "key": text(record.key),
                "value": text(record.value),
                "headers": [[name, text(value)] for name, value in record.headers],
            }
            for record in records
        ]
        answers = self._clients.call("send", handle=self._handle, topic=topic, records=asked)
        return [Position(partition=partition, offset=offset) for partition, offset in answers]


class JavaConsumer:
    """A KafkaConsumer with assigned partitions."""

    def __init__(
        self, clients: JavaClients, servers: str, topic: str, start: Mapping[int, int], options: ConsumerOptions
    ) -> None:
        settings: dict[str, object] = {
            "enable.auto.commit": "false",
            "auto.offset.reset": options.reset,
            "fetch.max.wait.ms": options.fetch_wait_ms_max,
        }
        if options.read_committed is not None:
            settings["isolation.level"] = isolation_level(options.read_committed)
        self._clients = clients
        self._handle = clients.call("open_consumer", servers=servers, topic=topic, start=start, settings=settings)

    def __enter__(self) -> "JavaConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clients.call("close_consumer", handle=self._handle)

    def take(self, count: int) -> list[Record]:
        answers = self._clients.call("take", handle=self._handle, count=count, deadline_ms=DEADLINE_MS)
        return [
            Record(
                partition=answer["partition"],
                offset=answer["offset"],
                timestamp_ms=answer["timestamp"],
                append_time=answer["append_time"],
                key=payload_of(answer["key"]),
                value=payload_of(answer["value"]),
                headers=tuple((name, payload_of(value)) for name, value in answer["headers"]),
            )
            for answer in answers
        ]


class JavaDriver:
    """The Java clients, connected to one broker."""

    name = "Java clients"
    lacks: Mapping[Need, str] = {Need.LEGACY_ALTER: "removed from the client in 4.0"}

    def __init__(self, clients: JavaClients, servers: str) -> None:
        self._clients = clients
        self._servers = servers

    def _call(self, call: str, /, **arguments: object) -> Any:
        return self._clients.call(call, servers=self._servers, **arguments)

    def close(self) -> None:
        self._call("close_admin")

    def producer(self, options: ProducerOptions) -> JavaProducer:
        return JavaProducer(self._clients, self._servers, options)

    def consumer(self, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> JavaConsumer:
        return JavaConsumer(self._clients, self._servers, topic, start, options)

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, FoundOffset | None]:
        answer = self._call("offsets_for_times", topic=topic, times=times_ms)
        return {
            int(number): None if found is None else FoundOffset(offset=found[0], timestamp_ms=found[1])
            for number, found in answer.items()
        }

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec) -> FoundOffset:
        offset, timestamp_ms = self._call("list_offset", topic=topic, partition=partition, spec=spec)
        return FoundOffset(offset=offset, timestamp_ms=timestamp_ms)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> None:
        self._call("create_topic", topic=topic, partitions=partitions, replicas=replicas, configs=dict(settings))

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", topic=topic)

    def list_topics(self) -> set[str]:
        return set(self._call("list_topics"))

    def describe_topic(self, topic: str) -> TopicDescription:
        answer = self._call("describe_topic", topic=topic)
        return TopicDescription(
            topic_id=answer["topic_id"],
            partitions=tuple(
                PartitionDescription(
                    number=partition["number"],
                    leader=partition["leader"],
                    replicas=tuple(partition["replicas"]),
                    in_sync_replicas=tuple(partition["in_sync_replicas"]),
                )
                for partition in answer["partitions"]
            ),
        )

    def create_partitions(self, topic: str, total: int) -> None:
        self._call("create_partitions", topic=topic, total=total)

    def topic_settings(self, topic: str) -> dict[str, Setting]:
        return {name: Setting(**entry) for name, entry in self._call("settings", kind="TOPIC", name=topic).items()}

    def broker_settings(self, broker_id: int) -> dict[str, Setting]:
        answer = self._call("settings", kind="BROKER", name=str(broker_id))
        return {name: Setting(**entry) for name, entry in answer.items()}

    def alter_topic(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._call("alter_topic", topic=topic, changes=dict(changes))

    def replace_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        raise NotImplementedError(self.lacks[Need.LEGACY_ALTER])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        low_watermark: int = self._call("delete_records", topic=topic, partition=partition, before=before_offset)
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        answer = self._call("describe_cluster")
        return ClusterDescription(
            cluster_id=answer["cluster_id"],
            controller_id=answer["controller_id"],
            brokers={int(number): address for number, address in answer["brokers"].items()},
        )

    def log_dirs(self, topic: str) -> dict[int, int]:
        return {int(number): size for number, size in self._call("log_dirs", topic=topic).items()}

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]:
        return [
            ProducerState(producer_id=producer_id, epoch=epoch, last_sequence=last_sequence)
            for producer_id, epoch, last_sequence in self._call("describe_producers", topic=topic, partition=partition)
        ]
