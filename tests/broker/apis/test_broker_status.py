"""DescribeBrokerStatus: what a broker tells of itself and of its log directories."""

import errno
from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.broker_status import DescribeBrokerStatusRequest
from tests.broker.asking import connected, create_topic, produce
from tests.broker.turning import on_loop
from tests.storage.builders import batch_of
from tests.storage.memory_files import MemoryFiles


def test_a_broker_tells_its_state_and_that_of_its_directories(tmp_path: Path) -> None:
    clock, disk = ManualClock(), MemoryFiles()
    (tmp_path / "a").mkdir()
    folders = ",".join(str(tmp_path / name) for name in "abc")
    with (
        Broker(in_process=True, clock=clock, files=disk, data=folders, settings={"log.retention.ms": -1}) as broker,
        connected(broker) as connection,
    ):
        create_topic(connection, "orders", 3)
        for index in range(3):
            assert produce(connection, "orders", batch_of(), index).error_code == ErrorCode.NONE
        clock.advance(61_000)
        manager = broker.server.services.log_manager
        on_loop(broker, lambda: manager.disk_room.note_full(manager.directories[1]))
        on_loop(broker, lambda: manager.fail_directory(manager.directories[2], OSError(errno.EIO, "it broke")))
        answer = connection.request(DescribeBrokerStatusRequest())
        assert (answer.error_code, answer.state, answer.node_id) == (0, "RUNNING", 0)
        assert answer.cluster_id == broker.server.services.cluster_id
        assert answer.uptime_ms == 61_000
        assert answer.topic_count == 1
        assert answer.request_count >= 4
        assert answer.version
        states = [(one.path, one.state, one.log_count) for one in answer.log_directories]
        assert states == [
            (f"{tmp_path}/a", "online", 1),
            (f"{tmp_path}/b", "full", 1),
            (f"{tmp_path}/c", "offline", 1),
        ]
        online, _, offline = answer.log_directories
        assert 0 < online.log_bytes < online.free_bytes < online.total_bytes
        assert "it broke" in offline.reason
        assert (answer.recovery_logs_total, answer.loading) == (0, [])
        disk.fail("disk_space", under=f"{tmp_path}/a")
        assert "Input/output" in connection.request(DescribeBrokerStatusRequest()).log_directories[0].reason
