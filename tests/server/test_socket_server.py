"""Listening, accepting, the limits of connections, and who is closed for being quiet."""

import asyncio
import resource
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.broker_config import resolve
from barnabas.clock import ManualClock
from barnabas.embedded import Broker, BrokerFailedError
from barnabas.server.broker_server import BrokerServer
from barnabas.server.socket_server import FILES_KEPT
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.configs import (
    IncrementalAlterConfigsReqAlterableConfig,
    IncrementalAlterConfigsReqAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.asking import connected, create_topic, fetch_request, produce
from tests.broker.turning import on_loop
from tests.server.raw import (
    decoded,
    frame_of,
    is_closed,
    is_served,
    lines_by,
    memory_mb,
    raw_connection,
    receive_answer,
    wait_until,
)
from tests.storage.builders import batch_of

METADATA = frame_of(MetadataRequest(topics=[]), 9, 77)
BROKER_RESOURCE = 4


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def connect(broker: Broker, host: str = "127.0.0.1", source: str | None = None) -> socket.socket:
    """A connection, from an address of the choice: on Linux all of 127.0.0.0/8 is this machine."""
    return socket.create_connection((host, port_of(broker)), 30, (source, 0) if source else None)


def is_answered(connection: socket.socket) -> bool:
    """Whether a request by a connection is answered, and not the connection closed."""
    try:
        connection.sendall(METADATA)
        return receive_answer(connection)[:4] == struct.pack(">i", 77)
    except (ConnectionResetError, BrokenPipeError):
        return False


def advertised_to(connection: socket.socket) -> tuple[str, int]:
    """The address that the client of a connection is told to connect to."""
    connection.sendall(METADATA)
    (node,) = decoded(receive_answer(connection), "Metadata", 9).brokers
    return node.host, node.port


@contextmanager
def closing(connections: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for connection in connections:
            connection.close()


def connection_count(broker: Broker) -> int:
    return on_loop(broker, lambda: broker.server.sockets.connection_count)


# Limits.


def test_no_more_connections_than_allowed_in_all(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(in_process=True, settings={"max.connections": 3}) as broker:
        allowed = [connect(broker) for _ in range(3)]
        with closing(allowed):
            assert all(map(is_answered, allowed))
            for _ in range(2):
                with connect(broker) as refused:
                    assert not is_answered(refused)
            assert all(map(is_answered, allowed))
            lines = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
            assert lines == [
                "a connection from 127.0.0.1 is refused: there are 3 already, and max.connections is 3"
            ] * len(lines)
            assert len(lines) == 2
            allowed.pop().close()
            wait_until(lambda: connection_count(broker) == 2, "a closed connection still counts")
            with connect(broker) as next_one:
                assert is_answered(next_one)


def test_limits_of_one_address_and_of_single_addresses() -> None:
    settings = {"max.connections.per.ip": 2, "max.connections.per.ip.overrides": "127.0.0.2:1,127.0.0.3:4"}
    with Broker(settings=settings) as broker:
        for source, allowed in (("127.0.0.1", 2), ("127.0.0.2", 1), ("127.0.0.3", 4), ("127.0.0.4", 2)):
            connections = [connect(broker, source=source) for _ in range(allowed + 2)]
            with closing(connections):
                # They are accepted in the order in which they were opened.
                assert [is_answered(one) for one in connections] == [True] * allowed + [False, False], source
        lines = [line for line in lines_by(broker, "barnabas.server") if "its limit is" in line]
        assert len(lines) == 8
        assert "a connection from 127.0.0.2 is refused: it has 1 already, and its limit is 1" in broker.log


def test_the_limit_of_an_ipv4_address_holds_on_a_listener_for_both_kinds() -> None:
    settings = {"max.connections.per.ip.overrides": "127.0.0.1:1"}
    with Broker(listen=":0", settings=settings) as broker:
        connections = [connect(broker) for _ in range(2)]
        with closing(connections):
            assert [is_answered(one) for one in connections] == [True, False]


def alter(broker: Broker, name: str, value: str) -> None:
    change = IncrementalAlterConfigsReqAlterableConfig(name=name, config_operation=0, value=value)
    with connected(broker) as connection:
        answer = connection.request(
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsReqAlterConfigsResource(
                        resource_type=BROKER_RESOURCE, resource_name="0", configs=[change]
                    )
                ]
            )
        )
        assert [one.error_code for one in answer.responses] == [ErrorCode.NONE], answer


def test_limits_can_be_changed_while_the_broker_runs() -> None:
    with Broker(in_process=True) as broker:
        alter(broker, "max.connections", "2")
        wait_until(lambda: connection_count(broker) == 0, "the connection is still there")
        connections = [connect(broker) for _ in range(3)]
        with closing(connections):
            assert [is_answered(one) for one in connections] == [True, True, False]
        wait_until(lambda: connection_count(broker) == 0, "connections are still there")
        alter(broker, "max.connections", "100")
        alter(broker, "max.connections.per.ip.overrides", "127.0.0.9:0")
        with connect(broker, source="127.0.0.9") as refused, connect(broker) as allowed:
            assert not is_answered(refused)
            assert is_answered(allowed)


# Idle connections.


def test_quiet_connections_are_closed_oldest_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    with Broker(in_process=True, clock=clock, settings={"connections.max.idle.ms": 10_000}) as broker:
        first, second, third = connections = [connect(broker, source=f"127.0.0.{number}") for number in (1, 2, 3)]
        with closing(connections):
            assert is_answered(first)
            clock.advance(2_000)
            assert is_answered(second)
            clock.advance(2_000)
            assert is_answered(third)
            clock.advance(6_500)  # 10.5 s after the first, 8.5 s after the second.
            assert is_closed(first)
            assert is_answered(third)
            clock.advance(9_000)
            assert is_closed(second)
            assert is_answered(third)
            clock.advance(30_000)
            assert is_closed(third)
        wait_until(lambda: connection_count(broker) == 0, "a closed connection still counts")
        lines = [record.getMessage() for record in caplog.records if "idle" in record.getMessage()]
        assert lines == [
            f"the connection from 127.0.0.{number} was idle for 10000 ms and is closed" for number in (1, 2, 3)
        ]


def test_several_quiet_connections_are_closed_in_the_order_they_went_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    with Broker(in_process=True, clock=clock, settings={"connections.max.idle.ms": 60_000}) as broker:
        order = [3, 1, 4, 2]
        by_number = {number: connect(broker, source=f"127.0.0.{number}") for number in (1, 2, 3, 4)}
        with closing(list(by_number.values())):
            for number in order:
                assert is_answered(by_number[number])
                clock.advance(10)
            clock.advance(100_000)
            assert all(is_closed(connection) for connection in by_number.values())
        closed = [record.getMessage().split()[3] for record in caplog.records if "idle" in record.getMessage()]
        assert closed == [f"127.0.0.{number}" for number in order]


def test_a_connection_is_not_quiet_while_a_request_is_under_way() -> None:
    clock = ManualClock()
    with Broker(in_process=True, clock=clock, settings={"connections.max.idle.ms": 10_000}) as broker:
        with connected(broker) as admin:
            create_topic(admin, "orders")
        with connect(broker) as waiting, connect(broker) as quiet:
            purgatory = broker.server.services.replica_manager.delayed_fetch
            waiting.sendall(frame_of(fetch_request("orders", {0: 0}, max_wait_ms=300_000), 12))
            wait_until(lambda: on_loop(broker, lambda: purgatory.size) == 1, "the fetch does not wait")
            assert is_answered(quiet)
            clock.advance(100_000)
            assert is_closed(quiet)
            with connected(broker) as producing:
                assert produce(producing, "orders", batch_of(1)).error_code == ErrorCode.NONE
            assert receive_answer(waiting)
            # Its time begins with the answer, and not with the request long before.
            clock.advance(5_000)
            assert is_answered(waiting)


def awaited_bytes(broker: Broker) -> list[int]:
    return [connection._needed for connection in broker.server.sockets._connections]


def test_half_a_request_is_no_reason_to_wait_for_ever() -> None:
    clock = ManualClock()
    with Broker(in_process=True, clock=clock) as broker, connect(broker) as slow:
        assert is_answered(slow)
        slow.sendall(METADATA[:9])
        wait_until(lambda: on_loop(broker, lambda: awaited_bytes(broker)) == [len(METADATA)], "it did not come")
        clock.advance(700_000)
        assert is_closed(slow)


def test_a_connection_that_is_not_read_from_is_closed_though_a_request_is_under_way() -> None:
    clock = ManualClock()
    with Broker(in_process=True, clock=clock, settings={"connections.max.idle.ms": 10_000}) as broker:
        with connected(broker) as admin:
            create_topic(admin, "orders")
        with connect(broker) as full:
            purgatory = broker.server.services.replica_manager.delayed_fetch
            full.sendall(frame_of(fetch_request("orders", {0: 0}, max_wait_ms=2_000_000_000), 12))
            wait_until(lambda: on_loop(broker, lambda: purgatory.size) == 1, "the fetch does not wait")
            full.sendall(METADATA * 5_000)
            sockets = broker.server.sockets
            wait_until(
                lambda: on_loop(broker, lambda: any(one.is_reading_paused for one in sockets._connections)),
                "reading goes on",
            )
            clock.advance(11_000)
            assert is_closed(full)
        assert on_loop(broker, lambda: purgatory.size) == 0


def test_a_request_that_comes_slowly_is_not_quiet() -> None:
    clock = ManualClock()
    settings = {"connections.max.idle.ms": 10_000}
    with Broker(in_process=True, clock=clock, settings=settings) as broker, connect(broker) as slow:
        for position, byte in enumerate(METADATA):
            slow.sendall(bytes([byte]))
            count = (position + 1) % len(METADATA)
            wait_until(
                lambda count=count: on_loop(broker, lambda: received_bytes(broker)) == [count],  # type: ignore[misc]
                "it did not come",
            )
            clock.advance(6_000)
        assert receive_answer(slow)


def received_bytes(broker: Broker) -> list[int]:
    received = [connection._received for connection in broker.server.sockets._connections]
    return [one.filled - one.start for one in received]


def test_nobody_is_too_quiet_when_the_limit_is_off() -> None:
    clock = ManualClock()
    settings = {"connections.max.idle.ms": -1}
    with Broker(in_process=True, clock=clock, settings=settings) as broker, connect(broker) as quiet:
        assert is_answered(quiet)
        clock.advance(10**12)
        assert is_answered(quiet)


# Listeners.


def test_each_listener_tells_its_own_advertised_address() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.2:0,EVERY://0.0.0.0:0",
        "advertised.listeners": "PLAINTEXT://broker.example:9999",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,EVERY:PLAINTEXT",
    }
    with several_listeners(settings) as ports:
        with socket.create_connection(("127.0.0.1", ports["PLAINTEXT"]), 30) as connection:
            assert advertised_to(connection) == ("broker.example", 9999)
        with socket.create_connection(("127.0.0.2", ports["INSIDE"]), 30) as connection:
            assert advertised_to(connection) == ("127.0.0.2", ports["INSIDE"])
        for host in ("127.0.0.1", "127.0.0.5"):
            with socket.create_connection((host, ports["EVERY"]), 30) as connection:
                assert advertised_to(connection) == (host, ports["EVERY"]), "the address that the client came to"


@contextmanager
def several_listeners(settings: dict[str, str]) -> Iterator[dict[str, int]]:
    """A broker with listeners of its own; their ports by name."""
    with tempfile.TemporaryDirectory() as data:
        server = BrokerServer(resolve({**settings, "log.dirs": data}))
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
            yield {name: endpoint.port for name, endpoint in server.listening.items()}
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def test_an_ipv6_listener() -> None:
    with Broker(listen="[::1]:0") as broker:
        with connect(broker, "::1") as connection:
            assert advertised_to(connection) == ("::1", port_of(broker))
        with pytest.raises(ConnectionRefusedError):
            connect(broker, "127.0.0.1")


def test_a_listener_on_every_address_serves_both_kinds() -> None:
    with Broker(listen=":0") as broker:
        for host in ("127.0.0.1", "::1", "127.0.0.7"):
            with connect(broker, host) as connection:
                assert advertised_to(connection) == (host, port_of(broker))


def test_a_listener_by_name() -> None:
    with Broker(listen="localhost:0") as broker:
        assert broker.bootstrap_servers.startswith("localhost:")
        with connect(broker, "localhost") as connection:
            assert advertised_to(connection) == ("localhost", port_of(broker))
        with connect(broker, "127.0.0.1") as connection:
            assert is_answered(connection)


def test_a_free_port_is_taken_and_kept() -> None:
    with Broker() as broker:
        port = port_of(broker)
        assert port > 0
        with connect(broker) as left_open:
            assert is_answered(left_open)
            broker.stop()
            broker.start()  # Though connections of the old one linger in the system.
        assert port_of(broker) == port
        assert is_served(broker)


@pytest.mark.parametrize("in_process", [False, True])
def test_a_port_that_is_taken_is_said(in_process: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = rf"PLAINTEXT://127\.0\.0\.1:{port} can not be listened on: the port is taken$"
        with pytest.raises(BrokerFailedError, match=said):
            Broker(listen=f"127.0.0.1:{port}", in_process=in_process)


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("no-such-host.invalid:0", "can not be listened on: "),
        ("203.0.113.1:0", "can not be listened on: Cannot assign requested address"),
        ("x" * 70 + ":0", "can not be listened on: its host is no name of a machine"),
        ("a..b:0", "can not be listened on: its host is no name of a machine"),
    ],
)
def test_an_address_that_is_not_ours_is_said(listen: str, said: str) -> None:
    with pytest.raises(BrokerFailedError, match=said):
        Broker(listen=listen, in_process=True)


def test_the_sizes_of_socket_buffers_are_set() -> None:
    settings = {"socket.send.buffer.bytes": 40_000, "socket.receive.buffer.bytes": 50_000}
    with Broker(in_process=True, settings=settings) as broker, connect(broker) as connection:
        assert is_answered(connection)

        def sizes() -> tuple[int, int]:
            (one,) = broker.server.sockets._connections
            accepted = one._transport.get_extra_info("socket")
            return tuple(
                accepted.getsockopt(socket.SOL_SOCKET, which) for which in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            )

        # The system doubles what it is asked for, to have room for its own notes.
        assert on_loop(broker, sizes) == (80_000, 100_000)


def test_requests_go_out_without_delay() -> None:
    with Broker(in_process=True) as broker, connect(broker) as connection:
        assert is_answered(connection)

        def no_delay() -> int:
            (one,) = broker.server.sockets._connections
            accepted: socket.socket = one._transport.get_extra_info("socket")
            return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

        assert on_loop(broker, no_delay)


# Many, and too many.


def test_thousands_of_idle_connections_harm_nobody() -> None:
    count = 2_000
    with_files(count + 500)
    with Broker() as broker:
        assert is_served(broker)
        before = memory_mb(broker)
        connections = [connect(broker) for _ in range(count)]
        with closing(connections):
            assert all(is_answered(one) for one in connections[::100])
            assert is_served(broker)
            assert memory_mb(broker) - before < 40, f"{count} idle connections"
            assert is_answered(connections[0])
            assert is_answered(connections[-1])
        assert is_served(broker)
        assert "Traceback" not in broker.log


def with_files(count: int) -> None:
    """Let this process have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def open_files(broker: Broker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def test_who_can_not_be_accepted_waits_and_one_line_says_so() -> None:
    quiet = {"replica.high.watermark.checkpoint.interval.ms": 3_600_000}
    with Broker(settings=quiet) as broker:
        assert is_served(broker)
        # The number of the last file that it may open.
        limit = open_files(broker) + 5
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
        connections = [connect(broker) for _ in range(20)]
        with closing(connections):
            wait_until(lambda: "Too many open files" in broker.log, "nothing was logged")
            assert is_answered(connections[0])
            waiting = connections[-1]
            waiting.sendall(METADATA)
            for connection in connections[:-1]:
                connection.close()
            assert receive_answer(waiting), "accepting does not go on"
        assert is_served(broker)
        (line,) = lines_by(broker, "barnabas.server.socket_server")
        assert "connections can not be accepted and have to wait: [Errno 24] Too many open files" in line
        assert "Traceback" not in broker.log


def test_connections_leave_files_for_the_logs() -> None:
    """A log that can not be opened takes its directory offline, so connections are refused before that."""
    with Broker(in_process=True) as broker:
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert on_loop(broker, lambda: broker.server.sockets._files_max) == max(files_max - FILES_KEPT, files_max // 2)
        on_loop(broker, lambda: setattr(broker.server.sockets, "_files_max", 10))
        connections = [connect(broker) for _ in range(12)]
        with closing(connections):
            assert [is_answered(one) for one in connections] == [True] * 10 + [False] * 2


def test_nobody_is_accepted_while_the_broker_stops() -> None:
    with Broker(in_process=True) as broker:
        port = port_of(broker)
        assert is_served(broker)
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 30)
        broker.start()
        with raw_connection(broker) as connection:
            assert is_answered(connection)
