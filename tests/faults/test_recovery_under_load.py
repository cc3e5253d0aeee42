"""A broker that was killed serves what needs no recovery at once, and the rest as it comes, and loses nothing."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.records.batch import BatchHeader, stamp
from barnabas.storage.checkpoint import CLEAN_SHUTDOWN_MARKER, LOG_START_OFFSET_CHECKPOINT, read_offsets
from barnabas.storage.files import OsFiles
from barnabas.storage.loader import load_log
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop, until, until_on_loop
from tests.storage.builders import batch_of

LARGE = TopicPartition("large", 0)
KEPT = {"log.retention.ms": -1}


class Gate:
    """Holds the recovery of the logs of one topic until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        load = load_log

        def held(options: Any, known: Any, on_progress: Any = None) -> Any:
            if f"/{topic}-" in options.directory:
                self.reached.set()
                while on_progress is not None and not self.open.wait(0.01):
                    on_progress(0)
            return load(options, known, on_progress)

        monkeypatch.setattr("barnabas.storage.log_loading.load_log", held)
        monkeypatch.setattr("barnabas.server.broker_server.EAGER_RECOVERY_BYTES", 0)


def now_batch() -> bytearray:
    return batch_of(1, timestamp=SystemClock().now_ms())


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The data of a broker that was killed: three records in `large`, of which one is deleted, and one in `small`."""
    data = tmp_path / "data"
    with Broker(data=data, settings=KEPT) as broker, connected(broker) as connection:
        for name in ("large", "small"):
            create_topic(connection, name)
        for _ in range(3):
            assert produce(connection, "large", now_batch()).error_code == ErrorCode.NONE
        assert produce(connection, "small", now_batch()).error_code == ErrorCode.NONE
        partition = DeleteRecordsPartition(partition_index=0, offset=1)
        connection.request(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="large", partitions=[partition])]))
        broker.kill()
    return data


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch, "large")
    yield gate
    gate.open.set()


def leader_error(connection: Any, topic: str) -> int:
    (found,) = connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 8).topics
    assert found.error_code == ErrorCode.NONE
    code: int = found.partitions[0].error_code
    return code


def test_healthy_partitions_are_served_while_others_are_recovered(
    killed: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(in_process=True, data=killed, settings=KEPT) as broker, connected(broker) as connection:
        manager = broker.server.services.log_manager
        assert gate.reached.wait(60)
        until_on_loop(broker, lambda: ("small", 0) in broker.server.services.replica_manager.partitions)
        assert offsets_of(fetch(connection, "small", 0)) == [0]
        assert produce(connection, "small", now_batch()).error_code == ErrorCode.NONE
        # The one that is recovered is there, and clients are told to come again.
        assert produce(connection, "large", now_batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetch(connection, "large", 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader_error(connection, "large") == ErrorCode.LEADER_NOT_AVAILABLE
        (directory,) = connection.request(DescribeLogDirsRequest(topics=None)).results
        sizes = {topic.name: topic.partitions[0].partition_size for topic in directory.topics}
        assert sizes["large"] == (killed / "large-0" / f"{0:020d}.log").stat().st_size
        # No id is handed out for the first time that a log may remember.
        answer = connection.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        on_loop(broker, manager.checkpoint_log_start_offsets)
        assert read_offsets(OsFiles(), f"{killed}/{LOG_START_OFFSET_CHECKPOINT}")[LARGE] == 1
        assert main(["status", "--bootstrap-server", broker.bootstrap_servers]) == 0
        said = capsys.readouterr().out
        assert "RUNNING" in said
        assert "large-0\t0.0 MB" in said
        gate.open.set()
        until_on_loop(broker, lambda: ("large", 0) in broker.server.services.replica_manager.partitions)
        assert produce(connection, "large", now_batch()).base_offset == 3
        assert offsets_of(fetch(connection, "large", 1)) == [1, 2, 3]
        assert fetch(connection, "large", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (
            connection.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).error_code == 0
        )
    assert (killed / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_topic_can_be_deleted_while_its_log_is_recovered(killed: Path, gate: Gate) -> None:
    with Broker(in_process=True, data=killed, settings=KEPT) as broker, connected(broker) as connection:
        assert gate.reached.wait(60)
        answer = connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="large")]), 6)
        assert answer.responses[0].error_code == ErrorCode.NONE
        assert not (killed / "large-0").exists()
        create_topic(connection, "large")
        assert produce(connection, "large", now_batch()).base_offset == 0


def test_a_stop_while_logs_are_recovered_is_not_clean_and_loses_nothing(killed: Path, gate: Gate) -> None:
    with Broker(in_process=True, data=killed, settings=KEPT):
        assert gate.reached.wait(60)
    assert not (killed / CLEAN_SHUTDOWN_MARKER).exists()
    gate.open.set()
    with Broker(in_process=True, data=killed, settings=KEPT) as broker, connected(broker) as connection:
        until_on_loop(broker, lambda: ("large", 0) in broker.server.services.replica_manager.partitions)
        assert offsets_of(fetch(connection, "large", 1)) == [1, 2]


def grow(log: Path, size: int) -> int:
    """Append batches to a log as a broker would have that never flushed, and return its end offset."""
    one, offset = bytearray(batch_of(1, timestamp=SystemClock().now_ms(), size=1000)), 3
    parts = []
    for offset in range(3, 3 + size // len(one)):
        stamp(one, 0, BatchHeader(offset, len(one) - 12, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0))
        parts.append(bytes(one))
    with open(log, "ab") as file:
        file.write(b"".join(parts))
    return offset + 1


def test_a_broker_that_is_killed_again_and_again_while_it_recovers_loses_nothing(killed: Path, tmp_path: Path) -> None:
    """Real processes, and more than is recovered before a broker is ready."""
    end = grow(killed / "large-0" / f"{0:020d}.log", 80 << 20)
    broker = Broker(data=killed, settings=KEPT)
    try:
        for _ in range(3):
            broker.kill()
            assert "recovering" in broker.log
            broker.start()
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "small", 0)) == [0]
            until(lambda: leader_error(connection, "large") == ErrorCode.NONE)
            assert produce(connection, "large", now_batch()).base_offset == end
            until(lambda: "1 others are being recovered" in broker.log)
            assert "logs are recovered" in broker.log
    finally:
        broker.close()
    assert main(["verify", str(killed)]) == 0
    shutil.rmtree(killed)
