"""Start and stop: the order, what is given back when a start fails, and what is on the disk when a stop is over."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker_config import resolve
from barnabas.embedded import Broker, BrokerFailedError
from barnabas.server.broker_server import METADATA_FILE, BrokerServer, BrokerState
from barnabas.server.socket_server import ListenError
from barnabas.storage.checkpoint import CLEAN_SHUTDOWN_MARKER
from barnabas.storage.files import DirectoryLockedError, OsFiles
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.asking import connected, create_topic, fetch, fetch_request, offsets_of, produce, produce_request
from tests.broker.turning import on_loop
from tests.server.odd_disks import OddFiles
from tests.server.raw import decoded, frame_of, is_closed, is_served, raw_connection, receive_answer, wait_until
from tests.storage.builders import batch_of

SMALL = bytes(batch_of(1, timestamp=1))
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def server_on(data: Path, **settings: str) -> BrokerServer:
    return BrokerServer(resolve({"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0", **settings}))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("barnabas")}


def open_files_in(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:  # The one that lists them.
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


# Start.


def test_the_states_of_a_start_and_a_stop(tmp_path: Path) -> None:
    server = server_on(tmp_path)
    seen = [server.state]

    class Watched(BrokerServer):
        """Notes every state."""

        def __setattr__(self, name: str, value: object) -> None:
            if name == "state":
                seen.append(value)  # type: ignore[arg-type]
            super().__setattr__(name, value)

    async def run() -> None:
        server.__class__ = Watched
        await server.start()
        await server.stop()
        await server.stop()

    asyncio.run(run())
    assert seen == [
        BrokerState.NOT_RUNNING,
        BrokerState.STARTING,
        BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN,
        BrokerState.STARTING,
        BrokerState.RUNNING,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
        BrokerState.NOT_RUNNING,
    ]


def test_nobody_can_connect_before_the_logs_are_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = server_on(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")
    refused = []

    def is_refused(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            with socket.socket() as client:
                refused.append(client.connect_ex(("127.0.0.1", port)) != 0)
            return step(*arguments)

        return run

    async def run() -> None:
        server._load_logs = is_refused(server._load_logs)  # type: ignore[method-assign]
        server._requests = is_refused(server._requests)  # type: ignore[method-assign]
        server._schedule = is_refused(server._schedule)  # type: ignore[method-assign]
        await server.start()
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) == 0
        await server.stop()

    asyncio.run(run())
    assert refused == [True, True, True]


STEPS = ("_open_metadata", "_load_logs", "_replicas", "_start_controller", "_requests", "_schedule", "_open_sockets")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_before", [True, False])
def test_a_failure_gives_back_what_had_started(tmp_path: Path, step: str, is_before: bool) -> None:
    with Broker(data=tmp_path) as broker, connected(broker) as connection:
        create_topic(connection, "orders", 3)
        produce(connection, "orders", SMALL)
    before = threads()
    server = server_on(tmp_path)
    done = getattr(server, step)

    def fail(*arguments: Any) -> Any:
        if not is_before:
            done(*arguments)
        raise OSError(5, "the machine is on fire")

    async def fail_later() -> None:
        if not is_before:
            await done()
        raise OSError(5, "the machine is on fire")

    async def run() -> None:
        setattr(server, step, fail_later if step == "_start_controller" else fail)
        with pytest.raises(OSError, match="on fire"):
            await server.start()

    asyncio.run(run())
    assert server.state is BrokerState.NOT_RUNNING
    assert threads() == before
    assert open_files_in(tmp_path) == []
    # The next one finds the folder free, and everything in it.
    with Broker(data=tmp_path, in_process=True) as broker, connected(broker) as connection:
        assert offsets_of(fetch(connection, "orders", 0)) == [0]


def test_a_listener_that_can_not_be_opened_closes_those_before_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as taken:
        port, taken_port = free.getsockname()[1], taken.getsockname()[1]
        free.close()
        server = server_on(
            tmp_path,
            listeners=f"PLAINTEXT://127.0.0.1:{port},OTHER://127.0.0.1:{taken_port}",
            **{"listener.security.protocol.map": "OTHER:PLAINTEXT"},
        )

        async def run() -> None:
            with pytest.raises(ListenError, match=f"OTHER://127.0.0.1:{taken_port} can not be listened on"):
                await server.start()

        asyncio.run(run())
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0
        assert open_files_in(tmp_path) == []


def test_a_second_broker_is_told_who_holds_the_data(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as holder:
        with pytest.raises(BrokerFailedError, match=f"is in use by process {holder.pid};"):
            Broker(data=tmp_path)
        with pytest.raises(BrokerFailedError, match=f"is in use by process {holder.pid};"):
            Broker(data=tmp_path, in_process=True)
        assert is_served(holder)
    with Broker(data=tmp_path, in_process=True) as holder:
        with pytest.raises(BrokerFailedError, match="is in use by another broker in this process"):
            Broker(data=tmp_path, in_process=True)
        with pytest.raises(DirectoryLockedError):
            OsFiles().lock_directory(str(tmp_path))
        assert is_served(holder)


def test_data_of_another_node_is_refused(tmp_path: Path) -> None:
    Broker(data=tmp_path, settings={"node.id": 1}).close()
    with pytest.raises(BrokerFailedError, match=r"meta\.properties has node\.id=1, but this broker has node\.id=2"):
        Broker(data=tmp_path, settings={"node.id": 2})
    Broker(data=tmp_path, settings={"node.id": 1}).close()


@pytest.mark.parametrize(
    "content", [b"this is no database, and it never was one" * 100, b"SQLite format 3\0" + bytes(8176)]
)
def test_damaged_metadata_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    with Broker(data=tmp_path) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
    (tmp_path / METADATA_FILE).write_bytes(content)
    with pytest.raises(BrokerFailedError, match=METADATA_FILE) as caught:
        Broker(data=tmp_path)
    assert str(caught.value).startswith("barnabas serve: ")
    assert (tmp_path / METADATA_FILE).read_bytes() == content, "it is left as it was, for whoever has to mend it"
    assert open_files_in(tmp_path) == []


def test_settings_that_are_ignored_are_named_once(tmp_path: Path) -> None:
    settings = {
        "zookeeper.connect": "localhost",
        "process.roles": "broker",
        "num.partitions": 4,
        "num.network.threads": 9,
    }
    with Broker(data=tmp_path, settings=settings) as broker:
        assert broker.log.count("zookeeper.connect") == 1
        assert broker.log.count("process.roles") == 1
        assert "num.partitions" not in broker.log
        assert "num.network.threads" not in broker.log


def test_python_without_assertions_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-m", "barnabas.cli.main", "serve", "--data", str(tmp_path / "data")]
    done = subprocess.run([*command, "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("barnabas serve: python -O ")
    assert not (tmp_path / "data").exists()


# Stop.


def test_a_stop_writes_checkpoints_and_the_marker_and_the_next_start_recovers_nothing(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
            for _ in range(3):
                produce(connection, "orders", SMALL, 1)
        assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
        broker.stop()
        assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
        for name in CHECKPOINTS[::2]:
            assert "orders 1 3" in (tmp_path / name).read_text()
        broker.start()
        assert "2 logs loaded (the last shutdown was clean)" in broker.log
        assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
        broker.kill()
        broker.start()
        assert "2 logs loaded (the last shutdown was not clean, logs were recovered)" in broker.log
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "orders", 0, 1)) == [0, 1, 2]


@pytest.mark.parametrize("in_process", [True, False])
def test_a_restart_keeps_topics_their_ids_settings_and_offsets(tmp_path: Path, in_process: bool) -> None:
    with Broker(data=tmp_path, in_process=in_process) as broker:
        with connected(broker) as connection:
            topic_id = create_topic(connection, "orders", 3, {"retention.ms": 12345})
            produce(connection, "orders", SMALL, 2)
            before = connection.request(MetadataRequest(topics=None), 12)
        broker.stop()
        assert not broker.is_running
        broker.start()
        with connected(broker) as connection:
            after = connection.request(MetadataRequest(topics=None), 12)
            assert after == before
            assert after.topics[0].topic_id == topic_id
            assert produce(connection, "orders", SMALL, 2).base_offset == 1


def test_a_stop_answers_a_produce_that_waits_for_the_disk(tmp_path: Path) -> None:
    disk = OddFiles()
    with Broker(data=tmp_path, in_process=True, files=disk, settings={"flush.messages": 1}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
        server = broker.server
        with raw_connection(broker) as producing:
            disk.may_sync.clear()
            producing.sendall(frame_of(produce_request("orders", {0: SMALL}), 9, 5))
            wait_until(lambda: on_loop(broker, lambda: server.channel.unanswered) == 1, "it does not wait")
            stopping = threading.Thread(target=broker.stop)
            stopping.start()
            wait_until(lambda: server.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN, "it does not stop")
            disk.may_sync.set()
            answer = decoded(receive_answer(producing), "Produce", 9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert is_closed(producing)
            stopping.join()
        assert server.state is BrokerState.NOT_RUNNING
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_stop_answers_a_fetch_that_waits_at_once(tmp_path: Path) -> None:
    with Broker(data=tmp_path, in_process=True) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
        purgatory = broker.server.services.replica_manager.delayed_fetch
        with raw_connection(broker) as fetching:
            fetching.sendall(frame_of(fetch_request("orders", {0: 0}, max_wait_ms=2_000_000), 12))
            wait_until(lambda: on_loop(broker, lambda: purgatory.size) == 1, "it does not wait")
            broker.stop()
            answer = decoded(receive_answer(fetching), "Fetch", 12)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
            assert is_closed(fetching)


def test_a_client_that_does_not_read_its_answer_does_not_keep_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.server.broker_server.DRAIN_SECONDS", 0.2)
    with Broker(data=tmp_path, in_process=True) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
            for _ in range(24):
                produce(connection, "orders", bytes(batch_of(1, size=900_000, timestamp=1)))
        with raw_connection(broker) as greedy:
            greedy.sendall(frame_of(fetch_request("orders", {0: 0}, partition_max_bytes=30_000_000), 12) * 3)
            wait_until(
                lambda: on_loop(broker, lambda: any(not one.is_idle for one in broker.server.sockets._connections)),
                "nothing is left to send",
            )
            broker.stop()
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_consumers_that_go_on_asking_do_not_keep_a_broker_from_its_end(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
        ask = frame_of(fetch_request("orders", {0: 0}, max_wait_ms=500), 12)

        def consume() -> None:
            try:
                with raw_connection(broker) as consuming:
                    consuming.sendall(ask)
                    while receive_answer(consuming):
                        consuming.sendall(ask)
            except OSError:
                pass

        consumers = [threading.Thread(target=consume) for _ in range(5)]
        for consumer in consumers:
            consumer.start()
        broker.stop()
        for consumer in consumers:
            consumer.join()
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_requests_that_come_while_a_broker_stops_are_not_begun(tmp_path: Path) -> None:
    disk = OddFiles()
    with Broker(data=tmp_path, in_process=True, files=disk, settings={"flush.messages": 1}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
        server = broker.server
        log = on_loop(broker, lambda: server.services.replica_manager.partition("orders", 0).log)
        with raw_connection(broker) as producing:
            disk.may_sync.clear()
            producing.sendall(frame_of(produce_request("orders", {0: SMALL}), 9, 1))
            wait_until(lambda: on_loop(broker, lambda: server.channel.unanswered) == 1, "it does not wait")
            stopping = threading.Thread(target=broker.stop)
            stopping.start()
            wait_until(lambda: on_loop(broker, lambda: server.channel.is_full), "it does not stop")
            producing.sendall(b"".join(frame_of(produce_request("orders", {0: SMALL}), 9, 2) for _ in range(100)))
            wait_until(
                lambda: on_loop(broker, lambda: any(one._is_held for one in server.sockets._connections)),
                "they did not come",
            )
            disk.may_sync.set()
            assert receive_answer(producing)[:4] == b"\0\0\0\1"
            assert is_closed(producing)
            stopping.join()
        assert log.log_end_offset == 1
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_busy_producer_does_not_keep_a_broker_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.broker_server.DRAIN_SECONDS", 600.0)
    with Broker(data=tmp_path, in_process=True, settings={"flush.messages": 1}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
        ask = frame_of(produce_request("orders", {0: SMALL}), 9)
        answered = threading.Event()

        def produce_on() -> None:
            with contextlib.suppress(OSError), raw_connection(broker) as producing:
                producing.sendall(ask * 20)
                while receive_answer(producing):
                    answered.set()
                    producing.sendall(ask)

        producers = [threading.Thread(target=produce_on) for _ in range(3)]
        for producer in producers:
            producer.start()
        assert answered.wait(30)
        stopping = threading.Thread(target=broker.stop, daemon=True)
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()
        for producer in producers:
            producer.join()
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_broker_whose_last_log_directory_fails_stops_by_itself(tmp_path: Path) -> None:
    reasons: list[str] = []
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    server = BrokerServer(
        resolve({**settings, "replica.high.watermark.checkpoint.interval.ms": "5"}), on_fatal=reasons.append
    )

    async def run() -> None:
        await server.start()
        # Checkpoints can not be written where the folder was replaced by a file.
        shutil.rmtree(tmp_path / "data")
        (tmp_path / "data").write_text("")
        server._log_manager.directories[0].stale.add(CHECKPOINTS[2])
        for _ in range(1000):
            if reasons:
                break
            await asyncio.sleep(0.01)
        await server.stop()

    asyncio.run(run())
    assert reasons
    assert "no log directory is left" in reasons[0]


def test_a_killed_broker_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
            offsets = [produce(connection, "orders", SMALL).base_offset for _ in range(20)]
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not broker.is_running, "it lives on")
        broker.start()
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "orders", 0)) == offsets
