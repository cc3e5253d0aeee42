"""One connection: order, pipelining, back-pressure, and what happens to bytes that are no requests."""

import socket
import struct
from collections.abc import Iterator

import pytest

from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.asking import connected, create_topic, fetch_request, produce_request
from tests.server.raw import (
    decoded,
    frame_of,
    is_closed,
    is_served,
    memory_mb,
    raw_connection,
    receive_answer,
    receive_exactly,
    sized,
    wait_until,
)
from tests.storage.builders import batch_of

METADATA = frame_of(MetadataRequest(topics=None), 9, correlation_id=7)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"socket.request.max.bytes": 20_000_000}) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
        yield broker


def correlation_ids(connection: socket.socket, count: int) -> list[int]:
    return [struct.unpack(">i", receive_answer(connection)[:4])[0] for _ in range(count)]


def recent_batch(count: int = 1, size: int = 10) -> bytes:
    """A batch without timestamps, which every topic takes."""
    return bytes(batch_of(count, timestamp=1, size=size))


def test_a_request_that_comes_byte_by_byte_is_answered(broker: Broker) -> None:
    with raw_connection(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in METADATA:
            connection.sendall(bytes([byte]))
        assert correlation_ids(connection, 1) == [7]


def test_many_requests_at_once_are_answered_in_their_order(broker: Broker) -> None:
    frames = [frame_of(MetadataRequest(topics=[]), 9, correlation_id=number) for number in range(1000)]
    with raw_connection(broker) as connection:
        connection.sendall(b"".join(frames))
        assert correlation_ids(connection, 1000) == list(range(1000))


def test_a_fetch_that_waits_is_answered_before_the_requests_behind_it(broker: Broker) -> None:
    waiting = fetch_request("orders", {1: 0}, max_wait_ms=60_000)
    with raw_connection(broker) as connection, raw_connection(broker) as other:
        connection.sendall(frame_of(waiting, 12, 1) + frame_of(MetadataRequest(topics=[]), 9, 2))
        other.sendall(frame_of(produce_request("orders", {1: recent_batch()}), 9, 3))
        assert correlation_ids(other, 1) == [3]
        assert correlation_ids(connection, 2) == [1, 2]


def test_a_client_may_go_away_while_its_fetch_waits(broker: Broker) -> None:
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("orders", {0: 1 << 40}, max_wait_ms=60_000), 12))
        assert receive_answer(connection)
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("orders", {0: 0}, max_wait_ms=600_000), 12))
    assert is_served(broker)


@pytest.mark.parametrize(
    ("bytes_sent", "said"),
    [
        (struct.pack(">i", 20_000_001), "20000001 bytes"),
        (struct.pack(">i", 2**31 - 1) + b"x" * 100, "2147483647 bytes"),
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 0), "0 bytes"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), "bytes"),
        (sized(struct.pack(">hhih", 99, 0, 1, -1)), "there is no API 99"),
        (sized(struct.pack(">hhih", -1, 0, 1, -1)), "there is no API -1"),
        (sized(struct.pack(">hhih", 3, 99, 1, -1)), "Metadata has versions 0 to 13, not 99"),
        (sized(struct.pack(">hhih", 3, -1, 1, -1)), "not -1"),
        (sized(struct.pack(">hhih", 3, 9, 1, 500) + b"x"), "client id"),
        (sized(struct.pack(">hhih", 3, 9, 1, 2) + b"\xff\xfe"), "client id"),
        (sized(struct.pack(">hhih", 3, 9, 1, -1)), "ends in its header"),
        (sized(struct.pack(">hhih", 0, 9, 1, -1) + bytes(3)), "Produce"),
        (sized(struct.pack(">hhih", 1, 4, 1, -1) + b"\x7f" * 40), "topics has 2139062143 items"),
    ],
)
def test_what_is_no_request_ends_the_connection_with_one_line(broker: Broker, bytes_sent: bytes, said: str) -> None:
    before = broker.log
    with raw_connection(broker) as connection:
        connection.sendall(bytes_sent)
        assert is_closed(connection)
    wait_until(lambda: "is closed: " in broker.log[len(before) :], "nothing was logged")
    # Connections of other tests may say that they went away.
    (line,) = [line for line in broker.log[len(before) :].splitlines() if "is closed: " in line]
    assert said in line
    assert is_served(broker)


def test_a_request_of_exactly_the_largest_size_is_read(broker: Broker) -> None:
    # Bytes behind the body are ignored, so any request can be as long as it has to be.
    with raw_connection(broker) as connection:
        connection.sendall(sized(METADATA[4:] + bytes(20_000_000 - len(METADATA[4:]))) + METADATA)
        assert correlation_ids(connection, 2) == [7, 7]


def test_half_requests_keep_nobody_waiting(broker: Broker) -> None:
    large = frame_of(produce_request("orders", {0: recent_batch(900, size=1000)}), 9, 5)
    with raw_connection(broker) as slow, raw_connection(broker) as slower:
        slow.sendall(METADATA[:-1])
        slower.sendall(large[:700_000])
        for _ in range(20):
            assert is_served(broker)
        slow.sendall(METADATA[-1:])
        slower.sendall(large[700_000:])
        assert correlation_ids(slow, 1) == [7]
        assert correlation_ids(slower, 1) == [5]


def test_answers_before_a_bad_request_are_still_sent(broker: Broker) -> None:
    with raw_connection(broker) as connection:
        connection.sendall(METADATA + struct.pack(">i", -5))
        assert correlation_ids(connection, 1) == [7]
        assert is_closed(connection)


@pytest.mark.parametrize("version", [5, 17, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: Broker, version: int) -> None:
    greeting = struct.pack(">hhih", 18, version, 3, -1) + b"whatever it is that comes here"
    with raw_connection(broker) as connection:
        connection.sendall(sized(greeting))
        answer = decoded(receive_answer(connection), "ApiVersions", 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]
        connection.sendall(frame_of(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3))
        assert decoded(receive_answer(connection), "ApiVersions", 3).error_code == ErrorCode.NONE


def test_an_announced_length_takes_no_memory(broker: Broker) -> None:
    before = memory_mb(broker)
    connections = []
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", int(broker.bootstrap_servers.split(":")[1])))
        connection.sendall(struct.pack(">i", 19_999_999) + b"\0\0\0\x09")
        connections.append(connection)
    assert is_served(broker)
    assert memory_mb(broker) - before < 60, "200 x 20 MB were announced, and 200 x 8 bytes came"
    for connection in connections:
        connection.close()


def test_a_client_that_reads_no_answers_waits_and_others_go_on(broker: Broker) -> None:
    big = frame_of(produce_request("orders", {0: recent_batch(900, size=1000)}), 9)
    with raw_connection(broker) as connection:
        for _ in range(20):
            connection.sendall(big)
            receive_answer(connection)
    before = memory_mb(broker)
    fetch = frame_of(fetch_request("orders", {0: 0}, partition_max_bytes=15_000_000), 12)
    with raw_connection(broker) as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        greedy.setblocking(False)
        sent = 0
        try:
            for _ in range(3000):
                sent += greedy.send(fetch)
        except BlockingIOError:
            pass
        assert sent > 0
        assert is_served(broker)
        # It asked for gigabytes, and holds a piece of its first answer.
        assert memory_mb(broker) - before < 40
        # When it reads after all, the answers are whole and in order.
        greedy.settimeout(30)
        size = struct.unpack(">i", receive_exactly(greedy, 4))[0]
        answer = decoded(receive_exactly(greedy, size), "Fetch", 12)
        assert len(answer.responses[0].partitions[0].records) > 10_000_000


def test_large_requests_from_many_connections_do_not_mix(broker: Broker) -> None:
    with connected(broker) as admin:
        create_topic(admin, "mixed", 8)
    frames = [
        frame_of(produce_request("mixed", {number: recent_batch(500, size=1000 + number)}), 9, number)
        for number in range(8)
    ]
    connections = [socket.create_connection(("127.0.0.1", int(broker.bootstrap_servers.split(":")[1]))) for _ in frames]
    piece = 40_000
    for position in range(0, max(map(len, frames)), piece):
        for connection, data in zip(connections, frames, strict=True):
            connection.sendall(data[position : position + piece])
    for number, connection in enumerate(connections):
        answer = decoded(receive_answer(connection), "Produce", 9)
        (partition,) = answer.responses[0].partition_responses
        assert (partition.index, partition.error_code, partition.base_offset) == (number, 0, 0)
        connection.close()
