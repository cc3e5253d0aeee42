"""ReplicaMoves: brokers with several log directories whose logs move while somebody writes to them."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker import replica_moves
from barnabas.broker.replica_moves import Move
from barnabas.client.client import Client
from barnabas.client.producer import Producer
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.storage import future_log
from barnabas.storage.files import OsFiles
from barnabas.storage.future_log import CopyStep, FutureLog
from barnabas.storage.log import Log
from barnabas.storage.log_directory import FolderKind, LogDirectory, parse_folder
from barnabas.storage.verifier import Fault, verify_partition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce, records_of
from tests.broker.coordinating import TRANSACTION, end, find, init, produce_in
from tests.broker.turning import append, on_loop, until, until_on_loop
from tests.storage.builders import batch_of, sent_by

T_0 = TopicPartition("t", 0)
SMALL = {"segment.bytes": 2_000, "file.delete.delay.ms": 0}


def folders_of(tmp_path: Path) -> str:
    return ",".join(str(tmp_path / name) for name in "abc")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with three log directories, and `t` with some segments in the first."""
    with Broker(in_process=True, data=folders_of(tmp_path)) as broker:
        fill(broker)
        yield broker


def fill(broker: Broker, config: dict[str, object] | None = None) -> None:
    with connected(broker) as connection:
        create_topic(connection, "t", 1, {**SMALL, **(config or {})})
    for _ in range(30):
        append(broker, "t", batch_of(3, size=100))


def log_of(broker: Broker) -> Log:
    return broker.server.services.replica_manager.partitions[T_0].log


def directory(broker: Broker, name: str) -> LogDirectory:
    (found,) = [it for it in broker.server.services.log_manager.directories if Path(it.path).name == name]
    return found


def ask(broker: Broker, name: str) -> Move | None:
    """Ask for a move, and return it."""
    services = broker.server.services

    def run() -> Move | None:
        services.replica_moves.request(services.replica_manager.partitions[T_0], directory(broker, name))
        return services.replica_moves.running.get(T_0)

    return on_loop(broker, run)


def ended(broker: Broker) -> None:
    until_on_loop(broker, lambda: not broker.server.services.replica_moves.running)


def place(broker: Broker) -> str:
    """The name of the log directory that the log is in."""
    log_manager = broker.server.services.log_manager
    return on_loop(broker, lambda: Path(log_manager.directory_of(T_0).path).name)


def kinds(tmp_path: Path) -> list[tuple[str, FolderKind]]:
    """The folders of the topic."""
    found = [(path.parent.name, parse_folder(path.name)) for path in tmp_path.glob("[abc]/t-0*")]
    return sorted((name, folder.kind) for name, folder in found if folder is not None)


def gone(tmp_path: Path, *left: tuple[str, FolderKind]) -> None:
    """Wait until only these folders are left."""
    until(lambda: [it for it in kinds(tmp_path) if it[1] is not FolderKind.DELETE] == list(left))


def fetched(broker: Broker) -> list[int]:
    found: list[int] = []
    with connected(broker) as connection:
        while offsets := offsets_of(fetch(connection, "t", found[-1] + 1 if found else 0)):
            found += [it for it in offsets if not found or it > found[-1]]
    return found


def verified(tmp_path: Path, name: str) -> list[Fault]:
    found: list[Fault] = []
    assert list(verify_partition(OsFiles(), str(tmp_path / name / "t-0"), found.append))
    return found


class Gate:
    """Holds the copying at its first step, until a test opens it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        run = CopyStep.run

        def wait(step: CopyStep) -> None:
            self.reached.set()
            assert self.opened.wait(60)
            run(step)

        monkeypatch.setattr(CopyStep, "run", wait)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.opened.set()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == replica_moves.__name__]


def test_a_log_moves_and_says_so(broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, replica_moves.__name__)
    old = log_of(broker)
    expected = fetched(broker)
    ask(broker, "b")
    ended(broker)
    assert place(broker) == "b"
    assert fetched(broker) == expected == [*range(90)]
    assert old.is_closed
    gone(tmp_path, ("b", FolderKind.CURRENT))
    until(lambda: kinds(tmp_path) == [("b", FolderKind.CURRENT)])
    begin, finish = lines(caplog)
    assert begin == f"t-0: {old.size_bytes} bytes are moved from {tmp_path}/a to {tmp_path}/b"
    assert finish.startswith(f"t-0 is in {tmp_path}/b now: {old.size_bytes} bytes were moved in ")
    assert [on_loop(broker, lambda: directory(broker, it).log_count) for it in "ab"] == [0, 1]  # noqa: B023
    assert ask(broker, "b") is None  # It is there.
    ask(broker, "a")
    ended(broker)
    assert (place(broker), fetched(broker)) == ("a", expected)
    broker.stop()
    assert verified(tmp_path, "a") == []
    with Broker(in_process=True, data=folders_of(tmp_path)) as again:
        assert (place(again), fetched(again)) == ("a", expected)


@pytest.mark.parametrize("flush_messages", [None, 1])
def test_clients_write_and_read_all_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_messages: int | None
) -> None:
    """An idempotent producer and a consumer, with a log that goes from directory to directory."""
    monkeypatch.setattr(replica_moves, "TAIL_BYTES_MAX", 50_000)
    config: dict[str, object] = {} if flush_messages is None else {"flush.messages": flush_messages}
    with Broker(in_process=True, data=folders_of(tmp_path)) as broker:
        fill(broker, {**config, "segment.bytes": 200_000})
        stop, sent = threading.Event(), [0]

        def write() -> None:
            with Client(broker.bootstrap_servers) as client, Producer(client) as producer:
                while not stop.is_set():
                    for _ in range(20):
                        producer.send("t", b"%08d" % sent[0] + bytes(200), partition=0)
                        sent[0] += 1
                    producer.flush()

        seen: list[bytes] = []

        def read() -> None:
            offset = 90
            with connected(broker) as connection:
                while not (stop.is_set() and not writer.is_alive() and len(seen) >= sent[0]):
                    data = fetch(connection, "t", offset, max_wait_ms=50)
                    assert data.error_code == ErrorCode.NONE
                    for record in records_of(data):
                        if record.offset >= offset:
                            assert record.value is not None
                            seen.append(record.value[:8])
                            offset = record.offset + 1

        writer, reader = threading.Thread(target=write), threading.Thread(target=read)
        writer.start()
        reader.start()
        try:
            for name in "bcab":
                before = sent[0]
                until(lambda: sent[0] > before + 40)  # noqa: B023 (it is called before the next turn)
                ask(broker, name)
                ended(broker)
                assert place(broker) == name
        finally:
            stop.set()
            writer.join(60)
            reader.join(60)
        assert not writer.is_alive()
        assert not reader.is_alive()
        assert seen == [b"%08d" % number for number in range(sent[0])]
    assert verified(tmp_path, "b") == []


def test_a_transaction_that_is_open_ends_in_the_other_directory(broker: Broker) -> None:
    with connected(broker) as connection:
        find(connection, "one", TRANSACTION)
        producer = init(connection, "one")
        assert produce_in(connection, producer, "t") == ErrorCode.NONE
        ask(broker, "b")
        ended(broker)
        assert place(broker) == "b"
        assert offsets_of(fetch(connection, "t", 88, isolation_level=1)) == [87, 88, 89]
        assert produce_in(connection, producer, "t") == ErrorCode.NONE
        assert end(connection, producer, is_commit=False) == ErrorCode.NONE
        ask(broker, "c")
        ended(broker)
        found = fetch(connection, "t", 88, isolation_level=1)
        assert found.aborted_transactions is not None
        assert [(it.producer_id, it.first_offset) for it in found.aborted_transactions] == [(producer.producer_id, 90)]
        assert found.last_stable_offset == found.high_watermark


def test_a_batch_that_is_sent_again_is_known_in_the_other_directory(broker: Broker) -> None:
    with connected(broker) as connection:
        for sequence in range(5):
            produce(connection, "t", sent_by(7, sequence))
        ask(broker, "b")
        ended(broker)
        assert produce(connection, "t", sent_by(7, 1)).base_offset == 91
        assert produce(connection, "t", sent_by(7, 5)).base_offset == 95


def test_a_move_is_described_while_it_lasts(broker: Broker, gate: Gate, tmp_path: Path) -> None:
    ask(broker, "b")
    assert gate.reached.wait(60)
    with connected(broker) as connection:
        answer = connection.request(DescribeLogDirsRequest(topics=None))
    found = {Path(it.log_dir).name: [one for topic in it.topics for one in topic.partitions] for it in answer.results}
    (current,), (future,), nothing = found["a"], found["b"], found["c"]
    assert nothing == []
    assert (current.partition_size, current.offset_lag, current.is_future_key) == (log_of(broker).size_bytes, 0, False)
    assert (future.partition_size, future.offset_lag, future.is_future_key) == (0, 90, True)
    assert kinds(tmp_path) == [("a", FolderKind.CURRENT), ("b", FolderKind.FUTURE)]


def test_another_wish_replaces_the_first(broker: Broker, gate: Gate, tmp_path: Path) -> None:
    first = ask(broker, "b")
    assert gate.reached.wait(60)
    assert ask(broker, "b") is first
    assert ask(broker, "c") is not first
    gate.opened.set()
    ended(broker)
    assert place(broker) == "c"
    gone(tmp_path, ("c", FolderKind.CURRENT))


def test_the_wish_to_stay_ends_a_move(broker: Broker, gate: Gate, tmp_path: Path) -> None:
    ask(broker, "b")
    assert gate.reached.wait(60)
    assert ask(broker, "a") is None
    gate.opened.set()
    gone(tmp_path, ("a", FolderKind.CURRENT))
    assert fetched(broker) == [*range(90)]
    assert not on_loop(broker, lambda: broker.server.services.log_manager.moving)


def test_a_topic_that_is_deleted_takes_its_copy_along(broker: Broker, gate: Gate, tmp_path: Path) -> None:
    ask(broker, "b")
    assert gate.reached.wait(60)
    with connected(broker) as connection:
        connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000))
        gate.opened.set()
        ended(broker)
        gone(tmp_path)
        create_topic(connection, "t")
    assert fetched(broker) == []


def test_records_that_are_deleted_meanwhile_stay_deleted(broker: Broker, gate: Gate, tmp_path: Path) -> None:
    """By DeleteRecords, and by retention, which takes away the very segment that is being copied."""
    ask(broker, "b")
    assert gate.reached.wait(60)
    services = broker.server.services
    partition = services.replica_manager.partitions[T_0]

    def delete() -> None:
        partition.delete_records(50)
        services.replica_manager.on_records_deleted([partition])
        taken = partition.log.delete_old_segments(lambda _, end_offset: end_offset <= 50)
        assert taken
        services.log_manager.delete_segments(T_0, taken, at_once=True)
        services.log_manager.remove_due()

    on_loop(broker, delete)
    gate.opened.set()
    ended(broker)
    assert place(broker) == "b"
    assert on_loop(broker, lambda: log_of(broker).log_start_offset) == 50
    broker.stop()
    assert verified(tmp_path, "b") == []
    with Broker(in_process=True, data=folders_of(tmp_path)) as again, connected(again) as connection:
        assert place(again) == "b"
        assert fetch(connection, "t", 49).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert offsets_of(fetch(connection, "t", 50, max_bytes=1))[-1] >= 50


def test_a_log_that_moves_is_not_cleaned(tmp_path: Path, gate: Gate) -> None:
    with Broker(in_process=True, data=folders_of(tmp_path)) as broker:
        fill(broker, {"cleanup.policy": "compact"})
        ask(broker, "b")
        assert gate.reached.wait(60)
        cleaner = broker.server.log_cleaner
        on_loop(broker, cleaner.tick)
        assert not on_loop(broker, lambda: T_0 in cleaner.running)
        sentence = "not cleaned now: it is being moved to another log directory"
        assert on_loop(broker, lambda: cleaner.cleaning_of(T_0)) == sentence
        gate.opened.set()
        ended(broker)
        assert on_loop(broker, lambda: cleaner.cleaning_of(T_0)) != sentence


@pytest.mark.parametrize("code", [28, 5])
def test_a_disk_that_can_not_take_the_copy_ends_the_move(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """A full one has its room back; one that fails is offline. The log stays in service where it is."""

    def fail(step: CopyStep) -> None:
        raise OSError(code, "as the test wants it")

    monkeypatch.setattr(CopyStep, "run", fail)
    ask(broker, "b")
    ended(broker)
    assert lines(caplog) == [f"t-0 is not moved to {tmp_path}/b: [Errno {code}] as the test wants it"]
    assert (place(broker), fetched(broker)) == ("a", [*range(90)])
    assert append(broker, "t", batch_of(1)) == 90
    assert on_loop(broker, lambda: directory(broker, "b").failure is not None) == (code == 5)
    if code == 28:
        gone(tmp_path, ("a", FolderKind.CURRENT))


def test_a_disk_that_can_not_be_read_takes_its_partitions_offline(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(step: CopyStep) -> None:
        raise future_log.SourceError(OSError(5, "as the test wants it"))

    monkeypatch.setattr(CopyStep, "run", fail)
    ask(broker, "b")
    ended(broker)
    with connected(broker) as connection:
        assert produce(connection, "t", batch_of(1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert on_loop(broker, lambda: directory(broker, "a").failure is not None)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_directory_that_goes_offline_meanwhile_ends_the_move(
    broker: Broker, gate: Gate, caplog: pytest.LogCaptureFixture, tmp_path: Path, name: str
) -> None:
    ask(broker, "b")
    assert gate.reached.wait(60)
    manager = broker.server.services.replica_manager
    on_loop(broker, lambda: manager.fail_directory(directory(broker, name), OSError(5, "test")))
    gate.opened.set()
    ended(broker)
    assert lines(caplog) == [f"t-0 is not moved to {tmp_path}/b: {tmp_path}/{name} is offline"]
    # Where the log itself went offline, its copy waits for the next start.
    assert ("b", FolderKind.FUTURE) in kinds(tmp_path)
    if name == "b":
        assert fetched(broker) == [*range(90)]


def test_a_directory_without_room_is_refused_before_anything_is_copied(broker: Broker, tmp_path: Path) -> None:
    room = broker.server.services.log_manager.disk_room
    on_loop(broker, lambda: setattr(room, "free_bytes", lambda _: 1_000))
    with pytest.raises(ApiError, match="has 1000 bytes free, too few for the"):
        ask(broker, "b")
    assert kinds(tmp_path) == [("a", FolderKind.CURRENT)]


def test_a_log_that_runs_away_from_its_copy_is_caught_in_the_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_moves, "TAIL_BYTES_MAX", 0)
    monkeypatch.setattr(replica_moves, "ATTEMPTS_MAX", 3)
    sync, syncs = FutureLog.sync, []

    def slow(future: FutureLog) -> None:
        sync(future)
        syncs.append(append(broker, "t", batch_of(1)))

    monkeypatch.setattr(FutureLog, "sync", slow)
    ask(broker, "b")
    ended(broker)
    assert syncs == [90, 91, 92, 93]
    assert (place(broker), fetched(broker)) == ("b", [*range(94)])


def test_a_move_waits_for_a_bulk_load(broker: Broker, gate: Gate) -> None:
    ask(broker, "b")
    assert gate.reached.wait(60)
    loads = broker.server.services.bulk_loads
    asked = threading.Event()

    def is_loading(topic: str) -> bool:
        assert topic == "t"
        asked.set()
        return True

    on_loop(broker, lambda: setattr(loads, "is_loading", is_loading))
    gate.opened.set()
    assert asked.wait(60)
    assert place(broker) == "a"
    on_loop(broker, lambda: delattr(loads, "is_loading"))
    ended(broker)
    assert place(broker) == "b"


def test_a_broker_that_starts_again_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        gate = Gate(patched)
        with Broker(in_process=True, data=folders_of(tmp_path)) as broker:
            fill(broker)
            ask(broker, "b")
            assert gate.reached.wait(60)
            on_loop(broker, broker.server.services.replica_moves.stop)
            gate.opened.set()
            broker.stop()
    assert kinds(tmp_path) == [("a", FolderKind.CURRENT), ("b", FolderKind.FUTURE)]
    # Two that nobody waits for: of a partition that moves already, and of a topic that is not there.
    hexadecimal = "0123456789abcdef0123456789abcdef"
    for name in ("t-0", "unknown-3"):
        (tmp_path / "c" / f"{name}.{hexadecimal}-future").mkdir()
    with Broker(in_process=True, data=folders_of(tmp_path)) as broker:
        ended(broker)
        assert (place(broker), fetched(broker)) == ("b", [*range(90)])
        gone(tmp_path, ("b", FolderKind.CURRENT))
        until(lambda: not list(tmp_path.glob("c/unknown*")))
