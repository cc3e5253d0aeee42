"""A failed fsync is never tried again: nobody is acknowledged, and its log directory is offline until a restart."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.broker_config import resolve
from barnabas.client.connection import Connection
from barnabas.client.options import Address, ClientOptions
from barnabas.embedded import Broker
from barnabas.server.broker_server import BrokerServer
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceResponse
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce
from tests.broker.turning import on_loop, until
from tests.durability.gated_files import Gate, GatedFiles
from tests.storage.builders import batch_of

TOPIC = "records"
PRODUCERS = 4
FLUSHED = 3


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def broker(gate: Gate, tmp_path: Path) -> Iterator[Broker]:
    """A broker with two log directories."""
    data = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with Broker(data=data, in_process=True, settings={"flush.messages": 1}, files=GatedFiles(gate)) as broker:
        yield broker


def test_whoever_waits_is_refused_and_other_directories_go_on(broker: Broker, gate: Gate, tmp_path: Path) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(broker)) for _ in range(PRODUCERS)]
        create_topic(connections[0], TOPIC, partitions=2)
        for partition in (0, 1):
            assert produce(connections[0], TOPIC, batch_of(FLUSHED), partition).error_code == ErrorCode.NONE
        manager = broker.server.services.replica_manager
        bad = next(partition for partition in (0, 1) if (tmp_path / "two" / f"{TOPIC}-{partition}").exists())
        log = manager.partitions[TOPIC, bad].log
        gate.close()
        with ThreadPoolExecutor(PRODUCERS) as pool:
            answers = [pool.submit(produce, connection, TOPIC, batch_of(1), bad) for connection in connections]
            until(lambda: on_loop(broker, lambda: log.log_end_offset) == FLUSHED + PRODUCERS)
            gate.open(failing=str(tmp_path / "two"))
            found = [answer.result() for answer in answers]
        assert {(answer.error_code, answer.base_offset) for answer in found} == {(ErrorCode.KAFKA_STORAGE_ERROR, -1)}
        assert gate.syncs == 1, "a failed fsync was tried again"
        again = produce(connections[0], TOPIC, batch_of(1), bad)
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(connections[0], TOPIC, 0, bad).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        good = produce(connections[0], TOPIC, batch_of(1), 1 - bad)
        assert (good.error_code, good.base_offset) == (ErrorCode.NONE, FLUSHED)
        assert offsets_of(fetch(connections[0], TOPIC, 0, 1 - bad)) == list(range(FLUSHED + 1))
    assert not (tmp_path / "two" / ".kafka_cleanshutdown").exists()
    check_comes_back(broker, gate, bad)


def check_comes_back(broker: Broker, gate: Gate, bad: int) -> None:
    """After a restart the directory is in service again, with everything that was acknowledged."""
    broker.stop()
    gate.open()
    broker.start()
    with connected(broker) as connection:
        assert offsets_of(fetch(connection, TOPIC, 0, bad))[:FLUSHED] == list(range(FLUSHED))
        assert produce(connection, TOPIC, batch_of(1), bad).error_code == ErrorCode.NONE
        assert offsets_of(fetch(connection, TOPIC, 0, 1 - bad)) == list(range(FLUSHED + 1))


def test_a_broker_without_any_directory_left_says_so(gate: Gate, tmp_path: Path) -> None:
    reasons: list[str] = []

    def ask(address: Address) -> PartitionProduceResponse:
        with Connection(address, ClientOptions()) as connection:
            create_topic(connection, TOPIC)
            assert produce(connection, TOPIC, batch_of(FLUSHED)).error_code == ErrorCode.NONE
            gate.open(failing=str(tmp_path))
            return produce(connection, TOPIC, batch_of(1))

    async def run() -> PartitionProduceResponse:
        settings = resolve(
            {
                "log.dirs": str(tmp_path / "data"),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.flush.interval.messages": "1",
            }
        )
        server = BrokerServer(settings, files=GatedFiles(gate), on_fatal=reasons.append)
        await server.start()
        try:
            (endpoint,) = server.listening.values()
            return await asyncio.to_thread(ask, Address(endpoint.host, endpoint.port))
        finally:
            await server.stop()

    answer = asyncio.run(run())
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    (reason,) = reasons
    assert reason.startswith("no log directory is left")
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
