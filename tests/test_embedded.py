"""Broker: in a child process and on a thread, started, stopped, killed, and never left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.client.admin import list_topics
from barnabas.client.client import Client
from barnabas.clock import ManualClock
from barnabas.embedded import BrokerFailedError
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import is_alive, until
from tests.storage.builders import batch_of
from tests.storage.memory_files import MemoryFiles

IN_PROCESS = pytest.mark.parametrize("in_process", [True, False], ids=["thread", "child"])


# Start and stop.


@IN_PROCESS
def test_a_broker_answers_when_it_is_made_and_is_gone_after_the_block(in_process: bool) -> None:
    with Broker(in_process=in_process) as broker:
        assert broker.is_running
        assert (broker.pid == os.getpid()) == in_process
        assert "running" in repr(broker)
        with connected(broker) as connection:
            assert connection.request(MetadataRequest()).brokers
        address, pid, data = broker.bootstrap_servers, broker.pid, broker.data
        assert (data / "meta.properties").exists()
    assert not broker.is_running
    assert "stopped" in repr(broker)
    assert in_process or not is_alive(pid)
    assert not data.exists()
    host, _, port = address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)


@IN_PROCESS
def test_a_broker_comes_back_on_the_same_port_with_its_data(in_process: bool, tmp_path: Path) -> None:
    with Broker(in_process=in_process, data=tmp_path / "data") as broker:
        address = broker.bootstrap_servers
        with connected(broker) as connection:
            create_topic(connection, "orders")
        for offset in range(3):
            with connected(broker) as connection:
                assert produce(connection, "orders", batch_of()).base_offset == offset
            broker.stop()
            assert not broker.is_running
            broker.stop()  # It is stopped already.
            broker.start()
            broker.start()
            assert broker.bootstrap_servers == address
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "orders", 0)) == [0, 1, 2]
    assert (tmp_path / "data" / "orders-0").exists()  # What was named is kept.


def test_a_child_that_is_killed_comes_back_with_what_it_promised() -> None:
    with Broker() as broker:
        address = broker.bootstrap_servers
        with connected(broker) as connection:
            create_topic(connection, "orders")
            assert produce(connection, "orders", batch_of(3)).error_code == ErrorCode.NONE
        pid = broker.pid
        broker.kill()
        assert not broker.is_running
        assert not is_alive(pid)
        broker.kill()
        assert broker.data.exists()
        broker.start()
        assert broker.bootstrap_servers == address
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, "orders", 0)) == [0, 1, 2]


def test_a_block_that_fails_stops_its_broker_all_the_same() -> None:
    with pytest.raises(ZeroDivisionError), Broker() as broker:
        pid = broker.pid
        raise ZeroDivisionError
    assert not is_alive(pid)
    assert not broker.data.exists()


def test_a_child_that_died_by_itself_can_be_closed() -> None:
    with Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        until(lambda: not broker.is_running)
    assert not broker.data.exists()


def test_what_a_child_says_can_be_read() -> None:
    with Broker(settings={"no.such.setting": 1}) as broker:
        assert "the setting no.such.setting is not known here and is ignored" in broker.log


# Settings.


@IN_PROCESS
def test_settings_are_given_by_either_name_and_as_python_values(in_process: bool) -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": False, "max.message.bytes": 100}
    with Broker(in_process=in_process, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "orders", partitions=-1)
        (topic,) = connection.request(MetadataRequest(topics=None)).topics
        assert len(topic.partitions) == 3
        assert produce(connection, "orders", batch_of(size=200)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@IN_PROCESS
def test_a_bad_setting_is_told_in_one_line(in_process: bool) -> None:
    with pytest.raises(BrokerFailedError) as caught:
        Broker(in_process=in_process, settings={"num.partitions": "many"})
    message = str(caught.value)
    assert re.search(r"num\.partitions is 'many'; it must be a whole number, 1 to \d+$", message)
    assert "\n" not in message


@IN_PROCESS
def test_a_port_that_is_taken_is_told_in_one_line(in_process: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailedError, match=str(port)) as caught:
            Broker(in_process=in_process, listen=f"127.0.0.1:{port}")
    assert "\n" not in str(caught.value)


@IN_PROCESS
def test_data_that_another_broker_uses_is_told_in_one_line(in_process: bool, tmp_path: Path) -> None:
    with Broker(data=tmp_path):
        with pytest.raises(BrokerFailedError, match=re.escape(str(tmp_path))) as caught:
            Broker(in_process=in_process, data=tmp_path)
        assert "\n" not in str(caught.value)


@IN_PROCESS
def test_temporary_data_of_a_broker_that_did_not_start_is_removed(
    in_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerFailedError):
        Broker(in_process=in_process, listen="127.0.0.1:99999")
    assert list(tmp_path.glob("barnabas-*")) == []


def test_what_only_a_thread_can_have_is_refused_for_a_child() -> None:
    with pytest.raises(ValueError, match="in_process=True"):
        Broker(clock=ManualClock())
    with pytest.raises(ValueError, match="in_process=True"):
        Broker(files=MemoryFiles())
    with Broker() as broker:
        for name in ("faults", "server"):
            with pytest.raises(ValueError, match="in_process=True"):
                getattr(broker, name)


def test_a_thread_can_not_be_killed() -> None:
    with Broker(in_process=True) as broker:
        with pytest.raises(ValueError, match="child process"):
            broker.kill()
        assert broker.is_running
        assert broker.log == ""


# On a thread.


def test_several_brokers_live_in_one_process() -> None:
    with Broker(in_process=True) as first, Broker(in_process=True) as second:
        assert first.bootstrap_servers != second.bootstrap_servers
        with connected(first) as connection:
            create_topic(connection, "orders")
        with connected(second) as connection:
            assert connection.request(MetadataRequest(topics=None)).topics == []
        first.stop()
        with connected(second) as connection:
            assert connection.request(MetadataRequest()).brokers


def test_a_broker_on_a_thread_goes_by_the_clock_and_the_disk_it_is_given(tmp_path: Path) -> None:
    clock, disk = ManualClock(), MemoryFiles()
    with Broker(in_process=True, clock=clock, files=disk, data=tmp_path) as broker, connected(broker) as connection:
        create_topic(connection, "orders", config={"message.timestamp.type": "LogAppendTime"})
        assert produce(connection, "orders", batch_of()).log_append_time_ms == clock.now_ms()
        clock.advance(5000)
        assert produce(connection, "orders", batch_of()).log_append_time_ms == clock.now_ms()
    assert not (tmp_path / "orders-0").exists()
    assert disk.exists(f"{tmp_path}/orders-0")


def test_faults_can_be_asked_for_again_after_a_restart() -> None:
    with Broker(in_process=True) as broker:
        for _ in range(2):
            broker.faults.error("Metadata", ErrorCode.UNKNOWN_SERVER_ERROR)
            with connected(broker) as connection:
                assert connection.request(MetadataRequest(), 13).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            broker.stop()
            broker.start()


# Parents and children.


def test_a_child_outlives_the_thread_that_made_it() -> None:
    made: list[Broker] = []
    thread = threading.Thread(target=lambda: made.append(Broker()))
    thread.start()
    thread.join()
    (broker,) = made
    with broker, connected(broker) as connection:
        # Whoever is told to stop answers what is under way and goes: it would be gone by the second request.
        for _ in range(20):
            assert connection.request(MetadataRequest()).brokers
        assert broker.is_running


PARENT = """
import sys
from barnabas import Broker
broker = Broker(data=sys.argv[1])
print(broker.pid, broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_does_not_outlive_its_parent(tmp_path: Path, end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert is_alive(pid)
        parent.send_signal(end)
    until(lambda: not is_alive(pid))
    # It was stopped in order, not cut off.
    assert (tmp_path / ".kafka_cleanshutdown").exists()


THREADED_PARENT = """
import sys, threading
from barnabas import Broker
def start():
    global broker
    broker = Broker(data=sys.argv[1])
starting = threading.Thread(target=start)
starting.start()
starting.join()
print(broker.pid, broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def test_a_child_outlives_the_thread_that_started_it_and_is_stopped_in_order(tmp_path: Path) -> None:
    """Linux tells a child of the end of the thread that started it, and again of every thread after that one."""
    with subprocess.Popen(
        [sys.executable, "-c", THREADED_PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, servers = parent.stdout.readline().split()
        for _ in range(3):
            os.kill(int(pid), signal.SIGHUP)
            with Client(servers) as client:
                list_topics(client)
        parent.kill()
    until(lambda: not is_alive(int(pid)))
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_program_that_forgets_its_broker_ends_and_so_does_the_broker(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path)], input="", capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    pid = int(result.stdout.split()[0])
    until(lambda: not is_alive(pid))


IMPORTS = """
import sys
import barnabas
heavy = {"pyarrow", "pyspark", "uvloop", "asyncio", "barnabas.embedded"} & set(sys.modules)
assert not heavy, heavy
barnabas.Broker
heavy = {"pyarrow", "pyspark", "uvloop", "barnabas.server"} & set(sys.modules)
assert not heavy, heavy
try:
    barnabas.Brocker
except AttributeError as error:
    assert "Brocker" in str(error)
else:
    raise AssertionError("barnabas has everything")
"""


def test_importing_it_imports_little() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("in_process", [True, False])
def test_a_broker_on_every_address_tells_one_to_connect_to(in_process: bool) -> None:
    with Broker(listen=":0", in_process=in_process) as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        before = broker.bootstrap_servers
        broker.stop()
        broker.start()
        assert broker.bootstrap_servers == before
