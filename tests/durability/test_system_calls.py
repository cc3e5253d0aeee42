"""A trace of the system calls shows that with flush.messages=1 the disk has a batch before the producer is told.

Without it no fsync comes between: that is Kafka's default, and what makes it fast.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import until
from tests.durability.tracing import SENDS, SYNCS, WRITES, Call, traced
from tests.storage.builders import batch_of

TOPIC = "records"
PRODUCES = 20
PRODUCERS = 16
SYNC_DELAY_US = 300_000


def words_of(calls: list[Call]) -> list[str]:
    """Tell the story of one client's produces, in words: what happened to segments and to the connection."""
    words = []
    for call in calls:
        is_segment = call.target.endswith(".log")
        if call.name in WRITES and is_segment and call.is_return:
            words.append("written")
        elif call.name in SYNCS and is_segment:
            words.append("synced" if call.is_return and call.result == 0 else "syncing")
        elif call.name in SENDS and call.target.startswith("TCP") and not call.is_return:
            words.append("answered")
    return words


def produce_all(connection: Connection, acks: int) -> None:
    """Produce one after the other, and one more: the trace may end before the last answer is in it."""
    for _ in range(PRODUCES + 1):
        assert produce(connection, TOPIC, batch_of(3), acks=acks).error_code == ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
def test_fdatasync_returns_before_the_answer_is_sent(tmp_path: Path, acks: int) -> None:
    with Broker(data=tmp_path / "data", settings={"flush.messages": 1}) as broker, connected(broker) as connection:
        create_topic(connection, TOPIC)
        with traced(broker, tmp_path) as trace:
            produce_all(connection, acks)
        expected = ["written", "syncing", "synced", "answered"] * PRODUCES
        assert words_of(trace.calls())[: len(expected)] == expected


@pytest.mark.parametrize("acks", [1, -1])
def test_by_default_no_fsync_comes_between(tmp_path: Path, acks: int) -> None:
    with Broker(data=tmp_path / "data") as broker, connected(broker) as connection:
        create_topic(connection, TOPIC)
        with traced(broker, tmp_path) as trace:
            produce_all(connection, acks)
        expected = ["written", "answered"] * PRODUCES
        assert words_of(trace.calls())[: len(expected)] == expected


def test_sixteen_producers_share_fsyncs(tmp_path: Path) -> None:
    """On a disk that takes its time, which strace makes of any: the requests that come meanwhile share the next."""
    with Broker(data=tmp_path / "data", settings={"flush.messages": 1}) as broker, ExitStack() as stack:
        connections = [stack.enter_context(connected(broker)) for _ in range(PRODUCERS)]
        create_topic(connections[0], TOPIC)
        for connection in connections:
            connection.version_of("Produce")
        with (
            traced(broker, tmp_path, "-e", f"inject=fdatasync:delay_enter={SYNC_DELAY_US}") as trace,
            ThreadPoolExecutor(PRODUCERS) as pool,
        ):
            answers = list(pool.map(lambda connection: produce(connection, TOPIC, batch_of(1)), connections))
            produce(connections[0], TOPIC, batch_of(1))  # The trace may end before the last answer is in it.
        words = words_of(trace.calls())
    words = words[: len(words) - 1 - words[::-1].index("written")]  # Without that one, which came after all answers.
    assert sorted(answer.base_offset for answer in answers) == list(range(PRODUCERS))
    assert words.count("written") == words.count("answered") == PRODUCERS
    assert words.count("synced") <= PRODUCERS // 4
    assert words.index("synced") < words.index("answered")


def test_a_failed_fsync_of_the_last_log_directory_stops_the_broker(tmp_path: Path) -> None:
    """Nothing is acknowledged, and the broker says why it goes. What was acknowledged before is there afterwards."""
    with Broker(data=tmp_path / "data", settings={"flush.messages": 1}) as broker:
        with connected(broker) as connection:
            create_topic(connection, TOPIC)
            assert produce(connection, TOPIC, batch_of(2)).base_offset == 0
            segment = tmp_path / "data" / f"{TOPIC}-0" / f"{0:020d}.log"
            with traced(broker, tmp_path, "-P", str(segment), "-e", "inject=fdatasync:error=EIO"):
                answer = produce(connection, TOPIC, batch_of(3))
                until(lambda: not broker.is_running)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "no log directory is left" in broker.log
        broker.start()
        with connected(broker) as connection:
            assert offsets_of(fetch(connection, TOPIC, 0))[:2] == [0, 1]
