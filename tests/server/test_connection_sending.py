"""What a connection sends, to whom reads slowly, not at all, or goes away: whole and right, or nothing."""

import errno
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.server.connection import SMALL_BYTES
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic, fetch_request, produce_request
from tests.broker.turning import on_loop
from tests.server.odd_disks import OddFiles
from tests.server.raw import (
    decoded,
    frame_of,
    is_closed,
    is_served,
    raw_connection,
    receive_answer,
    receive_exactly,
    wait_until,
)
from tests.storage.builders import batch_of, records_in

SMALL = bytes(batch_of(1, timestamp=1))
METADATA = frame_of(MetadataRequest(topics=[]), 9, 77)


def correlation_ids(connection: socket.socket, count: int) -> list[int]:
    return [struct.unpack(">i", receive_answer(connection)[:4])[0] for _ in range(count)]


def produce_frame(topic: str, correlation_id: int, *, acks: int = -1, batch: bytes = SMALL) -> bytes:
    return frame_of(produce_request(topic, {0: batch}, acks=acks), 9, correlation_id)


@pytest.fixture
def disk() -> OddFiles:
    return OddFiles()


@pytest.fixture
def broker(disk: OddFiles) -> Iterator[Broker]:
    """A broker on a thread, with a topic whose acknowledgements are durable and one whose are not."""
    with Broker(in_process=True, files=disk) as broker:
        with connected(broker) as connection:
            create_topic(connection, "durable", 1, {"flush.messages": 1})
            create_topic(connection, "quick")
        yield broker
        disk.may_sync.set()
        disk.is_cold = disk.is_cut_off = disk.fails = False


def end_offset(broker: Broker, topic: str) -> int:
    return on_loop(broker, lambda: broker.server.services.replica_manager.partition(topic, 0).log.log_end_offset)


def fill(broker: Broker, topic: str, megabytes: int, seed: int = 1) -> bytes:
    """Produce batches of 500 kB that differ in every byte; return the values one after the other."""
    maker = random.Random(seed)
    values = b""
    with raw_connection(broker) as connection:
        for number in range(2 * megabytes):
            value = maker.randbytes(500_000)
            batch = bytes(build_batch([(1, b"key", value, ())]))
            connection.sendall(produce_frame(topic, number, batch=batch))
            (partition,) = decoded(receive_answer(connection), "Produce", 9).responses[0].partition_responses
            assert partition.error_code == ErrorCode.NONE
            values += value
    return values


def values_in(answer: bytes) -> bytes:
    """The values of a fetch's whole batches, after their checksums were found right."""
    (partition,) = decoded(answer, "Fetch", 12).responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    data = memoryview(partition.records)
    end = 0
    while end + 12 <= len(data) and end + 12 + struct.unpack_from(">i", data, end + 8)[0] <= len(data):
        end += 12 + struct.unpack_from(">i", data, end + 8)[0]
    return b"".join(bytes(record.value or b"") for record in records_in(data[:end]))


# Order and pipelining.


def test_produces_that_wait_for_the_disk_together_are_answered_in_order(broker: Broker, disk: OddFiles) -> None:
    disk.may_sync.clear()
    with raw_connection(broker) as connection:
        for number in range(1, 6):
            connection.sendall(produce_frame("durable", number))
            # All of them are appended, though none is acknowledged.
            wait_until(lambda number=number: end_offset(broker, "durable") == number, "not appended")  # type: ignore[misc]
        connection.sendall(produce_frame("quick", 6) + METADATA + produce_frame("durable", 8))
        wait_until(lambda: end_offset(broker, "quick") == 1, "the produce to another log waits as well")
        assert end_offset(broker, "durable") == 5, "what is not a produce waits for its turn, and all behind it too"
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(30)
        before = disk.syncs
        disk.may_sync.set()
        assert correlation_ids(connection, 8) == [1, 2, 3, 4, 5, 6, 77, 8]
        assert disk.syncs - before <= 3, "they share fsyncs"


def test_a_produce_without_acknowledgement_between_others_is_appended_and_not_answered(
    broker: Broker, disk: OddFiles
) -> None:
    disk.may_sync.clear()
    frames = [
        produce_frame("durable", 1),
        produce_frame("durable", 2, acks=0),
        produce_frame("quick", 3, acks=0),
        produce_frame("durable", 4, acks=1),
    ]
    with raw_connection(broker) as connection:
        connection.sendall(b"".join(frames) + METADATA)
        wait_until(lambda: end_offset(broker, "durable") == 3, "not appended")
        disk.may_sync.set()
        assert correlation_ids(connection, 3) == [1, 4, 77]
    assert end_offset(broker, "quick") == 1


def test_a_produce_without_acknowledgement_that_fails_ends_the_connection_with_a_line(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with raw_connection(broker) as connection:
        connection.sendall(METADATA + produce_frame("nowhere", 2, acks=0) + METADATA)
        assert correlation_ids(connection, 1) == [77]
        assert is_closed(connection)
    wait_until(lambda: len(caplog.records) > 0, "nothing was logged")
    (line,) = [record.getMessage() for record in caplog.records if "is closed" in record.getMessage()]
    assert "its request failed" in line


def test_a_failed_partition_is_answered_by_itself(broker: Broker) -> None:
    damaged = bytearray(SMALL)
    damaged[-1] ^= 1
    with connected(broker) as connection:
        create_topic(connection, "several", 3)
    with raw_connection(broker) as raw:
        raw.sendall(frame_of(produce_request("several", {0: SMALL, 1: bytes(damaged), 2: SMALL, 7: SMALL}), 9))
        (topic,) = decoded(receive_answer(raw), "Produce", 9).responses
    assert {partition.index: partition.error_code for partition in topic.partition_responses} == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.NONE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_nothing_is_read_while_too_many_requests_are_unanswered(disk: OddFiles) -> None:
    settings = {"queued.max.requests": 2, "flush.messages": 1}
    with Broker(in_process=True, files=disk, settings=settings) as broker:
        with connected(broker) as admin:
            create_topic(admin, "orders", 3)
        channel = broker.server.channel
        connections = [socket.create_connection(address_of(broker), 30) for _ in range(5)]
        # A fetch that waits because its client likes it so takes nobody's place.
        connections[0].sendall(frame_of(fetch_request("orders", {2: 0}, max_wait_ms=600_000), 12, 9))
        disk.may_sync.clear()
        for number in (1, 2):
            connections[number].sendall(produce_frame("orders", number))
            wait_until(lambda number=number: on_loop(broker, lambda: channel.unanswered) == number, "not counted")  # type: ignore[misc]
        assert on_loop(broker, lambda: channel.is_full)
        for connection in connections[3:]:
            connection.sendall(METADATA * 100)
        wait_until(
            lambda: on_loop(broker, lambda: sum(one._is_held for one in broker.server.sockets._connections) == 2),
            "they are read",
        )
        disk.may_sync.set()
        assert correlation_ids(connections[1], 1) + correlation_ids(connections[2], 1) == [1, 2]
        for connection in connections[3:]:
            assert correlation_ids(connection, 100) == [77] * 100
            assert on_loop(broker, lambda: channel.unanswered) == 0
        for connection in connections:
            connection.close()


def address_of(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def test_a_flood_of_one_connection_does_not_keep_another_from_its_answer() -> None:
    count = 100_000
    ask = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="flooded", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    )
    with Broker() as broker:
        with connected(broker) as connection:
            create_topic(connection, "flooded")
        with raw_connection(broker) as flooding, raw_connection(broker) as other:
            flood = produce_frame("flooded", 1, acks=0) * count + METADATA
            sender = threading.Thread(target=flooding.sendall, args=(flood,))
            sender.start()
            seen = [0]
            while 0 in seen or len(seen) < 5:
                other.sendall(frame_of(ask, 5))
                answer = decoded(receive_answer(other), "ListOffsets", 5)
                seen.append(answer.topics[0].partitions[0].offset)
                seen = [*filter(None, seen)] or [0]
            assert seen[0] < count, "the other had to wait for the end of the flood"
            assert correlation_ids(flooding, 1) == [77]
            sender.join()


# Slow readers.


def test_slow_readers_of_large_fetches_get_whole_and_right_bytes(broker: Broker) -> None:
    """A send buffer that is used again before the transport has sent it mixes up the answers of connections."""
    values = fill(broker, "quick", 12)
    readers = []
    for number in range(4):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        reader.settimeout(30)
        reader.connect(address_of(broker))
        fetch = fetch_request("quick", {0: number}, partition_max_bytes=10_000_000)
        reader.sendall(frame_of(fetch, 12, number) + METADATA)
        readers.append(reader)
    received = [b""] * 4
    pace = random.Random(2)
    sizes = [4 + struct.unpack(">i", receive_exactly(reader, 4))[0] + 4 for reader in readers]
    left = [size - 4 for size in sizes]
    while any(left):
        for number, reader in enumerate(readers):
            if left[number]:
                data = reader.recv(min(left[number], pace.choice((100, 3000, 70_000, 300_000))))
                assert data
                received[number] += data
                left[number] -= len(data)
    for number, reader in enumerate(readers):
        # Four bytes of the size of the next answer were taken along, as a check that it comes right behind.
        answer, following = received[number][:-4], received[number][-4:]
        got = values_in(answer)
        assert len(got) >= 9_000_000
        assert got == values[number * 500_000 :][: len(got)]
        rest = receive_exactly(reader, struct.unpack(">i", following)[0])
        assert rest[:4] == struct.pack(">i", 77)
        reader.close()


def test_many_requests_behind_an_unread_answer_wait_in_their_socket(broker: Broker) -> None:
    """A receive buffer that had no room left used to be taken for the end of the stream."""
    values = fill(broker, "quick", 4)
    fetch = frame_of(fetch_request("quick", {0: 0}, partition_max_bytes=10_000_000), 12, 1)
    count = 30_000
    with raw_connection(broker) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sender = threading.Thread(target=connection.sendall, args=(fetch + METADATA * count,))
        sender.start()
        wait_until(lambda: on_loop(broker, lambda: paused_connections(broker)) == 1, "reading goes on")
        assert is_served(broker)
        assert values_in(receive_answer(connection)) == values
        assert correlation_ids(connection, count) == [77] * count
        sender.join()


def paused_connections(broker: Broker) -> int:
    return sum(connection._is_writing_paused for connection in broker.server.sockets._connections)


def test_what_is_not_in_memory_is_read_by_the_pool(broker: Broker, disk: OddFiles) -> None:
    values = fill(broker, "quick", 3)
    disk.is_cold = True
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("quick", {0: 0}, partition_max_bytes=10_000_000), 12, 1) + METADATA)
        assert values_in(receive_answer(connection)) == values
        assert correlation_ids(connection, 1) == [77]
    assert disk.waits > 0


def test_pages_that_were_dropped_are_read_again(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker:
        with connected(broker) as connection:
            create_topic(connection, "cold")
        values = fill(broker, "cold", 6)
        for number in range(3):
            for segment in (tmp_path / "data" / "cold-0").glob("*.log"):
                descriptor = os.open(segment, os.O_RDONLY)
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)
            with raw_connection(broker) as connection:
                fetch = fetch_request("cold", {0: number}, partition_max_bytes=10_000_000)
                connection.sendall(frame_of(fetch, 12, 1) + METADATA)
                assert values_in(receive_answer(connection)) == values[number * 500_000 :]
                assert correlation_ids(connection, 1) == [77]


@pytest.mark.parametrize(
    ("trouble", "is_cold", "said"),
    [
        ("is_cut_off", True, "cut off while it was sent"),
        ("fails", True, "disk is gone"),
        ("fails", False, "disk is gone"),
    ],
)
def test_a_log_that_can_not_be_read_while_it_is_sent_ends_the_connection(
    broker: Broker, disk: OddFiles, caplog: pytest.LogCaptureFixture, trouble: str, is_cold: bool, said: str
) -> None:
    fill(broker, "quick", 16)  # More than the system takes off our hands.
    with raw_connection(broker) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.sendall(frame_of(fetch_request("quick", {0: 0}, partition_max_bytes=20_000_000), 12, 1))
        receive_exactly(connection, 1000)
        disk.is_cold = is_cold
        setattr(disk, trouble, True)
        assert is_closed(connection)
    wait_until(lambda: "is closed" in caplog.text, "nothing was logged")
    (line,) = [record.getMessage() for record in caplog.records if "is closed" in record.getMessage()]
    assert said in line
    assert is_served(broker)


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENOBUFS, errno.ENOTCONN])
def test_an_error_of_sending_that_passes_leaves_nobody_waiting(broker: Broker, disk: OddFiles, code: int) -> None:
    """It used to leave the connection open with the rest of its answer unsent."""
    values = fill(broker, "quick", 3)
    disk.send_error = code
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("quick", {0: 0}, partition_max_bytes=10_000_000), 12, 1) + METADATA)
        assert values_in(receive_answer(connection)) == values
        assert correlation_ids(connection, 1) == [77]
    assert not disk.send_error, "it was never met"
    assert disk.waits > 0, "the pool has not read"


def test_a_log_that_is_deleted_while_it_is_sent_is_sent_whole(broker: Broker) -> None:
    with connected(broker) as admin:
        create_topic(admin, "short", 1, {"file.delete.delay.ms": 0})
        values = fill(broker, "short", 8)
        with raw_connection(broker) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(frame_of(fetch_request("short", {0: 0}, partition_max_bytes=10_000_000), 12, 1))
            size = struct.unpack(">i", receive_exactly(connection, 4))[0]
            admin.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="short")], topic_names=["short"]))
            wait_until(lambda: not list(broker.data.glob("short-0*")), "the files are still there")
            assert values_in(receive_exactly(connection, size)) == values
    logs = on_loop(broker, lambda: dict(broker.server.services.log_manager.current_logs))
    assert TopicPartition("short", 0) not in logs


# Who goes away.


def reset(connection: socket.socket) -> None:
    """End a connection as a machine does that lost its power."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_reset_at_any_stage_leaves_nothing_behind(broker: Broker, disk: OddFiles) -> None:
    fill(broker, "quick", 4)
    waiting = frame_of(fetch_request("quick", {0: 8}, max_wait_ms=600_000), 12)
    large = frame_of(fetch_request("quick", {0: 0}, partition_max_bytes=10_000_000), 12)
    half_batch = produce_frame("quick", 1, batch=bytes(batch_of(1000, size=900, timestamp=1)))[:600_000]
    stages = [b"", METADATA[:2], METADATA[:9], METADATA, half_batch, waiting, waiting + METADATA[:5], large, large * 50]
    for _ in range(3):
        for data in stages:
            with raw_connection(broker) as connection:
                connection.sendall(data)
                if data.startswith(large):
                    receive_exactly(connection, 100_000)
                reset(connection)
    disk.may_sync.clear()
    before = end_offset(broker, "durable")
    for number in range(5):
        with raw_connection(broker) as connection:
            connection.sendall(produce_frame("durable", number))
            wait_until(lambda number=number: end_offset(broker, "durable") == before + number + 1, "not appended")  # type: ignore[misc]
            reset(connection)
    disk.may_sync.set()
    server = broker.server
    # What was paused in the middle of something is noticed when it goes on, and all of it is gone in the end.
    wait_until(lambda: on_loop(broker, lambda: server.channel.unanswered) == 0, "requests are left")
    with raw_connection(broker) as connection:
        connection.sendall(produce_frame("quick", 1))  # It wakes the fetches that wait.
        assert correlation_ids(connection, 1) == [1]
    wait_until(lambda: on_loop(broker, lambda: server.sockets.connection_count) == 0, "connections are left")
    assert on_loop(broker, lambda: server.services.replica_manager.delayed_fetch.size) == 0
    assert on_loop(broker, lambda: server.sockets.shared_buffer.owner) is None
    assert is_served(broker)


def test_who_says_that_nothing_more_comes_is_answered_what_came(broker: Broker) -> None:
    with raw_connection(broker) as connection:
        connection.sendall(produce_frame("quick", 1) + METADATA)
        connection.shutdown(socket.SHUT_WR)
        assert correlation_ids(connection, 2) == [1, 77]
        assert receive_answer(connection) == b""


def test_who_says_so_while_a_large_answer_waits_gets_no_hole_in_it(broker: Broker) -> None:
    """Requests behind the fetch must not be answered in the middle of its answer."""
    fill(broker, "quick", 10)
    fetch = frame_of(fetch_request("quick", {0: 0}, partition_max_bytes=20_000_000), 12, 1)
    with raw_connection(broker) as connection:
        connection.sendall(fetch + METADATA * 3)
        stream = b"".join(
            struct.pack(">i", len(answer)) + answer for answer in [receive_answer(connection) for _ in range(4)]
        )
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.settimeout(30)
        slow.connect(address_of(broker))
        slow.sendall(fetch + METADATA * 3)
        wait_until(lambda: on_loop(broker, lambda: paused_connections(broker)) == 1, "it is all sent")
        slow.shutdown(socket.SHUT_WR)

        def is_closing() -> bool:
            return any(one._transport.is_closing() for one in broker.server.sockets._connections)

        wait_until(lambda: on_loop(broker, is_closing), "the end is not noticed")
        received = b""
        while data := slow.recv(1 << 20):
            received += data
    assert len(received) > SMALL_BYTES
    assert stream.startswith(received)


def test_a_fetch_that_waits_for_nobody_is_given_up(broker: Broker) -> None:
    purgatory = broker.server.services.replica_manager.delayed_fetch
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("quick", {0: 0}, max_wait_ms=600_000), 12))
        wait_until(lambda: on_loop(broker, lambda: purgatory.size) == 1, "it does not wait")
        connection.shutdown(socket.SHUT_WR)
        assert receive_answer(connection) == b""
    wait_until(lambda: on_loop(broker, lambda: purgatory.size) == 0, "it waits on")


def test_a_client_that_goes_away_in_the_middle_of_a_request_is_noted(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with raw_connection(broker) as connection:
        connection.sendall(METADATA[:-1])
    wait_until(lambda: "went away in the middle of a request" in caplog.text, "nothing was logged")
    assert is_served(broker)


# Who goes away while a request waits, and turns.


def waiting_fetches(broker: Broker) -> int:
    return on_loop(broker, lambda: broker.server.services.replica_manager.delayed_fetch.size)


def unhandled_bytes(broker: Broker) -> list[int]:
    """How much each connection has received and not handled."""
    received = [connection._received for connection in broker.server.sockets._connections]
    return [one.filled - one.start for one in received]


@pytest.mark.parametrize("behind", [METADATA, METADATA[:7], METADATA * 100])
def test_a_client_that_goes_away_with_requests_behind_a_fetch_that_waits_is_noticed(
    broker: Broker, behind: bytes
) -> None:
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("quick", {0: 0}, max_wait_ms=2_000_000_000), 12) + behind)
        wait_until(lambda: waiting_fetches(broker) == 1, "the fetch does not wait")
        connection.sendall(METADATA)
    wait_until(lambda: waiting_fetches(broker) == 0, "the fetch waits for nobody")
    wait_until(lambda: on_loop(broker, lambda: broker.server.sockets.connection_count) == 0, "it is still there")


def test_little_is_read_behind_a_fetch_that_waits_and_nothing_is_lost(broker: Broker) -> None:
    count = 20_000
    with raw_connection(broker) as connection:
        connection.sendall(frame_of(fetch_request("quick", {0: 0}, max_wait_ms=600_000), 12, 1))
        wait_until(lambda: waiting_fetches(broker) == 1, "the fetch does not wait")
        sending = threading.Thread(target=connection.sendall, args=(METADATA * count,))
        sending.start()
        wait_until(
            lambda: on_loop(broker, lambda: any(one.is_reading_paused for one in broker.server.sockets._connections)),
            "reading goes on",
        )
        (unhandled,) = on_loop(broker, lambda: unhandled_bytes(broker))
        assert SMALL_BYTES <= unhandled < 2 * SMALL_BYTES
        with raw_connection(broker) as other:
            other.sendall(produce_frame("quick", 5))
            assert correlation_ids(other, 1) == [5]
        assert correlation_ids(connection, 1 + count) == [1] + count * [77]
        sending.join()


@pytest.mark.parametrize("way", ["long", "short"])
def test_a_turn_ends_by_the_clock_after_a_request_that_took_long(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    compressed = produce_frame("quick", 77, batch=bytes(batch_of(1, timestamp=1, codec=Codec.GZIP)))
    frame = METADATA if way == "long" else compressed
    with raw_connection(broker) as connection:
        connection.sendall(frame * 2)  # After which the short way knows the topic.
        assert correlation_ids(connection, 2) == [77] * 2
    turns: list[int] = []
    count_turn = broker.server.channel.count_turn

    def note(seconds: float, short_answers: int) -> None:
        turns.append(1)
        count_turn(seconds, short_answers)

    monkeypatch.setattr("barnabas.server.connection.TURN_SECONDS", -1.0)
    on_loop(broker, lambda: monkeypatch.setattr(broker.server.channel, "count_turn", note))
    with raw_connection(broker) as connection:
        connection.sendall(frame * 50)
        assert correlation_ids(connection, 50) == [77] * 50
    # The last answer is there a moment before its turn is counted.
    wait_until(lambda: len(turns) >= 50, "each request to be a turn of its own")


def test_a_client_that_does_not_read_holds_about_one_large_answer(broker: Broker) -> None:
    with connected(broker) as admin:
        create_topic(admin, "wide", 3_000)
    with raw_connection(broker) as connection:
        ask = frame_of(MetadataRequest(topics=None), 9, 3)
        connection.sendall(ask)
        answer_bytes = len(receive_answer(connection))
        assert answer_bytes > SMALL_BYTES
        connection.sendall(ask * 500)

        def held() -> list[int]:
            sockets = broker.server.sockets
            return [
                one._transport.get_write_buffer_size() + sum(map(len, one._outgoing)) for one in sockets._connections
            ]

        wait_until(
            lambda: on_loop(broker, lambda: any(one._is_held for one in broker.server.sockets._connections)),
            "it is never held up",
        )
        assert max(on_loop(broker, held)) < 2 * answer_bytes + 1000
        assert correlation_ids(connection, 500) == [3] * 500
