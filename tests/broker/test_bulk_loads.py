"""Bulk loads on a running broker: adopted whole or refused whole, while producers and consumers go on."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.broker.bulk_loads import LoadRequest, RepeatedLoadError
from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.records.record import Record
from barnabas.storage.files import Buffer, Files, OsFile, OsFiles
from barnabas.storage.load_journal import JOURNAL, AdoptedLoad
from barnabas.storage.staged_load import STAGING_PREFIX
from barnabas.wire.errors import ApiError, ErrorCode
from tests.broker.asking import connected, create_topic, fetch, offsets_of, produce, records_of
from tests.broker.turning import append, on_loop, until
from tests.kafka_peer.peer import complaints_of, dump_log
from tests.storage.builders import batch_of, refused, sent_by, with_fields
from tests.storage.loading import stage


class StoppingFile(OsFile):
    """A file on the real disk that tells its test what is about to be done to it."""

    __slots__ = ("_before", "_path")

    def __init__(self, descriptor: int, path: str, before: Callable[[str, str], None]) -> None:
        super().__init__(descriptor)
        self._path = path
        self._before = before

    def write_at(self, data: Buffer, position: int) -> None:
        """Write, after the test had its way."""
        self._before("write", self._path)
        super().write_at(data, position)

    def sync(self) -> None:
        """Sync, after the test had its way."""
        self._before("sync", self._path)
        super().sync()


class StoppingFiles(OsFiles):
    """The real disk; a test can have it fail, or do something, when a file is renamed, opened, written or synced."""

    def __init__(self) -> None:
        self.before_change: Callable[[str, str], None] = lambda _, __: None
        self.before_rename: Callable[[str], None] = lambda _: None
        self.before_open: Callable[[str], None] = lambda _: None

    def rename(self, source: str, target: str) -> None:
        """Rename, after the test had its way."""
        self.before_rename(target)
        super().rename(source, target)

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        """Open, after the test had its way."""
        self.before_open(path)
        opened = super().open(path, writable=writable)
        descriptor = os.dup(opened.fileno())
        opened.close()
        return StoppingFile(descriptor, path, lambda what, of: self.before_change(what, of))


@pytest.fixture
def files() -> StoppingFiles:
    return StoppingFiles()


@pytest.fixture
def broker(files: Files) -> Iterator[Broker]:
    with Broker(in_process=True, files=files) as broker:
        with connected(broker) as connection:
            # What is loaded here is old.
            create_topic(connection, "orders", 2, {"retention.ms": -1})
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with connected(broker) as connection:
        yield connection


def stage_orders(broker: Broker, load_id: str, *partitions: int, batch: bytes | bytearray | None = None) -> None:
    """Nine records for each partition, in two segments."""
    for index in partitions:
        name = TopicPartition("orders", index)
        segments: list[list[bytes | bytearray]] = [[batch_of(3), batch or batch_of(2)], [batch_of(4)]]
        stage(OsFiles(), str(broker.data / str(name)), name, load_id, segments)


def adopt(broker: Broker, load_id: str, *partitions: int, topic: str = "orders") -> AdoptedLoad:
    """Adopt a load, without a request; raises the ApiError that it is refused with."""
    results: list[AdoptedLoad | ApiError] = []
    done = threading.Event()

    def take(result: AdoptedLoad | ApiError) -> None:
        results.append(result)
        done.set()

    request = LoadRequest(load_id=load_id, topic=topic, partitions=partitions)
    on_loop(broker, lambda: broker.server.services.bulk_loads.adopt(request, take))
    assert done.wait(60)
    if isinstance(results[0], ApiError):
        raise results[0]
    return results[0]


def leftovers(broker: Broker) -> list[str]:
    return sorted(path.name for path in broker.data.glob("orders-*/.*"))


def offsets(connection: Connection, partition: int = 0) -> list[int]:
    """All offsets of a partition; a fetch brings those of one segment."""
    found: list[int] = []
    while more := offsets_of(fetch(connection, "orders", len(found), partition)):
        found += more
    return found


def test_a_load_is_there_in_all_its_partitions(broker: Broker, connection: Connection) -> None:
    assert produce(connection, "orders", batch_of(2)).error_code == ErrorCode.NONE
    stage_orders(broker, "one", 0, 1)
    load = adopt(broker, "one", 0, 1)
    assert [(one.partition, one.base_offset, one.end_offset) for one in load.partitions] == [(0, 2, 11), (1, 0, 9)]
    assert (offsets(connection, 0), offsets(connection, 1)) == (list(range(11)), list(range(9)))
    assert produce(connection, "orders", batch_of(2)).base_offset == 11
    assert offsets(connection) == list(range(13))
    assert leftovers(broker) == []


def test_partitions_are_checked_and_synced_at_the_same_time(
    broker: Broker, connection: Connection, files: StoppingFiles
) -> None:
    """A partition waits for the other one at its first file, but for the third time, when batches are stamped."""
    met = {time: threading.Barrier(2) for time in (1, 2, 4)}
    times: dict[str, int] = {}

    def meet(path: str) -> None:
        if path.endswith("/.adopting-one/s0.log"):
            times[path] = times.get(path, 0) + 1
            if times[path] in met:
                met[times[path]].wait(60)

    files.before_open = meet
    stage_orders(broker, "one", 0, 1)
    adopt(broker, "one", 0, 1)
    assert sorted(times.values()) == [4, 4]
    assert (offsets(connection, 0), offsets(connection, 1)) == (list(range(9)), list(range(9)))


def test_all_is_on_the_disk_before_the_decision(broker: Broker, connection: Connection, files: StoppingFiles) -> None:
    append(broker, "orders", batch_of(2))
    stage_orders(broker, "one", 0, 1)
    changes: list[tuple[str, str]] = []
    files.before_change = lambda what, path: changes.append((what, path))
    files.before_rename = lambda path: changes.append(("rename", path))
    adopt(broker, "one", 0, 1)
    decision = next(number for number, (_, path) in enumerate(changes) if path.endswith(JOURNAL))
    places = {change: number for number, change in enumerate(changes[:decision])}
    stamped = [path for what, path in places if what == "write" and "/.adopting-one/" in path]
    assert len(stamped) == 4
    for path in stamped:
        assert places["sync", path] > places["write", path]
    log = str(broker.data / "orders-0" / "00000000000000000000.log")
    assert ("sync", log) in places, "a power cut would leave a hole before the load"


@pytest.mark.parametrize("where", ["orders-0/.adopting-one/s0.log", "orders-1/.adopting-one/s1.log"])
@pytest.mark.parametrize(("what", "times"), [("write", 1), ("sync", 2)])
def test_a_disk_that_fails_while_batches_are_stamped_refuses_the_load(
    broker: Broker, files: StoppingFiles, what: str, times: int, where: str
) -> None:
    """The first sync of a file is that of the check."""
    seen: list[str] = []
    renamed: list[str] = []

    def fail(changed: str, path: str) -> None:
        if changed == what and path.endswith(where):
            seen.append(path)
            if len(seen) == times:
                raise OSError(errno.EIO, "Input/output error")

    files.before_change, files.before_rename = fail, renamed.append
    stage_orders(broker, "one", 0, 1)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "Input/output error"):
        adopt(broker, "one", 0, 1)
    assert len(seen) == times
    assert not [path for path in renamed if path.endswith(JOURNAL)], "it was decided"
    assert leftovers(broker) == [".load-one", ".load-one"]
    files.before_change = lambda _, __: None
    broker.stop()
    broker.start()
    with connected(broker) as again:
        assert offsets(again, 0) == offsets(again, 1) == []
        adopt(broker, "one", 0, 1)
        assert offsets(again, 0) == offsets(again, 1) == list(range(9))


def test_a_machine_without_threads_checks_and_stamps_one_partition_after_the_other(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("barnabas-load"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    stage_orders(broker, "load-1", 0, 1)
    adopt(broker, "load-1", 0, 1)
    assert offsets(connection, 0) == offsets(connection, 1) == list(range(9))


def test_the_same_load_is_refused_also_after_a_restart(broker: Broker) -> None:
    stage_orders(broker, "one", 0)
    adopt(broker, "one", 0)
    for _ in range(2):
        stage_orders(broker, "one", 1)
        with refused(ErrorCode.DUPLICATE_RESOURCE, "load one was adopted before, into topic orders") as _:
            adopt(broker, "one", 1)
        broker.stop()
        broker.start()
    with pytest.raises(RepeatedLoadError) as raised:
        adopt(broker, "one", 1)
    assert [one.end_offset for one in raised.value.load.partitions] == [9]


def test_a_load_is_refused_whole_when_one_partition_is_not_right(broker: Broker, connection: Connection) -> None:
    stage_orders(broker, "one", 0)
    stage_orders(broker, "one", 1, batch=with_fields(batch_of(2), crc=1))
    with refused(ErrorCode.INVALID_REQUEST, r"orders-1/\.adopting-one/s0\.log can not be adopted: .*checksum"):
        adopt(broker, "one", 0, 1)
    assert offsets(connection) == []
    assert leftovers(broker) == [f"{STAGING_PREFIX}one"] * 2, "what was claimed is given back"
    shutil.rmtree(broker.data / "orders-1" / f"{STAGING_PREFIX}one")
    with refused(ErrorCode.INVALID_REQUEST, "has nothing for orders-1"):
        adopt(broker, "one", 0, 1)
    stage_orders(broker, "one", 1)
    adopt(broker, "one", 0, 1)
    assert offsets(connection, 1) == list(range(9))


@pytest.mark.parametrize(
    ("load_id", "topic", "partitions", "code"),
    [
        ("../one", "orders", (0,), ErrorCode.INVALID_REQUEST),
        ("", "orders", (0,), ErrorCode.INVALID_REQUEST),
        ("one", "orders", (), ErrorCode.INVALID_REQUEST),
        ("one", "orders", (0, 0), ErrorCode.INVALID_REQUEST),
        ("one", "orders", (0, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("one", "orders", (-1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("one", "other", (0,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("one", "../orders", (0,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("one", "__consumer_offsets", (0,), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", "orders", (0,), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    broker: Broker, load_id: str, topic: str, partitions: tuple[int, ...], code: ErrorCode
) -> None:
    stage_orders(broker, "one", 0, 1)
    with refused(code):
        adopt(broker, load_id, *partitions, topic=topic)
    assert leftovers(broker) == [f"{STAGING_PREFIX}one"] * 2


def test_a_waiting_consumer_is_woken(broker: Broker, connection: Connection) -> None:
    stage_orders(broker, "one", 0)
    found: list[Record] = []

    def wait() -> None:
        with connected(broker) as other:
            found.extend(records_of(fetch(other, "orders", 0, max_wait_ms=60_000)))

    thread = threading.Thread(target=wait)
    thread.start()
    manager = broker.server.services.replica_manager
    until(lambda: on_loop(broker, lambda: manager.delayed_fetch.is_watching(("orders", 0))))
    adopt(broker, "one", 0)
    thread.join(60)
    assert [record.offset for record in found] == list(range(5)), "the first segment"


@pytest.mark.parametrize("appends", [1, 2, 20])
def test_producers_that_are_faster_only_move_the_load(
    broker: Broker, connection: Connection, files: StoppingFiles, appends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the batches are stamped a producer appends, until that is done where none can be faster."""
    stage_orders(broker, "one", 0)
    loads = broker.server.services.bulk_loads
    stamp, left = loads._stamp, [appends]

    def stamp_and_append(late: object) -> None:
        stamp(late)  # type: ignore[arg-type]
        if threading.current_thread().name.startswith("barnabas-io") and left[0]:
            left[0] -= 1
            append(broker, "orders", sent_by(7, appends - left[0] - 1))

    monkeypatch.setattr(loads, "_stamp", stamp_and_append)
    load = adopt(broker, "one", 0)
    before = load.partitions[0].base_offset
    assert before == min(appends, 3)
    assert offsets(connection) == list(range(before + 9))
    assert append(broker, "orders", sent_by(7, before)) == before + 9


def test_loads_wait_for_each_other(broker: Broker, connection: Connection) -> None:
    results: list[object] = []
    names = [f"load-{number}" for number in range(5)]
    for name in names:
        stage_orders(broker, name, 0)

    def begin() -> None:
        for name in names:
            request = LoadRequest(load_id=name, topic="orders", partitions=(0,))
            broker.server.services.bulk_loads.adopt(request, results.append)

    on_loop(broker, begin)
    until(lambda: len(results) == 5)
    assert [load.load_id for load in results if isinstance(load, AdoptedLoad)] == names
    assert offsets(connection) == list(range(45))


def test_a_topic_that_is_deleted_in_between_is_no_target(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_orders(broker, "one", 0)
    loads, manager = broker.server.services.bulk_loads, broker.server.services.replica_manager
    stamp = loads._stamp

    def stamp_and_delete(late: object) -> None:
        stamp(late)  # type: ignore[arg-type]
        on_loop(broker, lambda: manager.stop_replicas([TopicPartition("orders", 0)]))

    monkeypatch.setattr(loads, "_stamp", stamp_and_delete)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "went away while load one was checked"):
        adopt(broker, "one", 0)


def test_a_disk_that_fails_after_the_decision_is_offline_until_a_start_finishes_the_load(
    broker: Broker, files: StoppingFiles
) -> None:
    with connected(broker) as connection:
        produce(connection, "orders", batch_of(2))
    stage_orders(broker, "one", 0, 1)

    def fail(target: str) -> None:
        if target.endswith("orders-0/00000000000000000007.log"):
            raise OSError(5, "Input/output error")

    files.before_rename = fail
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        adopt(broker, "one", 0, 1)
    files.before_rename = lambda _: None
    broker.stop()
    broker.start()
    with connected(broker) as connection:
        assert offsets(connection, 0) == list(range(11))
        assert offsets(connection, 1) == list(range(9))
    with refused(ErrorCode.DUPLICATE_RESOURCE):
        adopt(broker, "one", 0, 1)
    assert leftovers(broker) == []


def test_a_full_disk_before_the_decision_refuses_the_load_and_can_take_it_when_there_is_room(
    broker: Broker, connection: Connection, files: StoppingFiles
) -> None:
    """From the failed write on the directory is full, for everybody, until the next look at it finds room."""
    stage_orders(broker, "one", 0)

    def fail(target: str) -> None:
        if target.endswith(JOURNAL):
            raise OSError(28, "No space left on device")

    files.before_rename = fail
    with refused(ErrorCode.KAFKA_STORAGE_ERROR, "No space left"):
        adopt(broker, "one", 0)
    files.before_rename = lambda _: None
    until(lambda: produce(connection, "orders", batch_of(1)).error_code == ErrorCode.NONE)
    adopt(broker, "one", 0)
    assert offsets(connection) == list(range(10))


def test_with_flush_messages_a_load_is_read_once_it_is_on_the_disk(tmp_path: Path) -> None:
    with Broker(in_process=True, settings={"flush.messages": 1}) as broker, connected(broker) as connection:
        create_topic(connection, "orders", 2)
        stage_orders(broker, "one", 0)
        adopt(broker, "one", 0)
        until(lambda: offsets(connection) == list(range(9)))
        assert produce(connection, "orders", batch_of(1)).base_offset == 9


def test_a_broker_that_is_killed_right_after_the_decision_has_the_load(tmp_path: Path) -> None:
    """What kill -9 leaves: the files as they are when the first segment is renamed, copied away under the broker."""
    files, copy = StoppingFiles(), tmp_path / "copy"
    with Broker(in_process=True, files=files, data=tmp_path / "data") as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
            produce(connection, "orders", batch_of(2))
        stage_orders(broker, "one", 0, 1)

        def kill(target: str) -> None:
            if target.endswith("orders-0/00000000000000000007.log") and not copy.exists():
                shutil.copytree(broker.data, copy)

        files.before_rename = kill
        adopt(broker, "one", 0, 1)
    with Broker(in_process=True, data=copy) as again, connected(again) as connection:
        assert offsets(connection, 0) == list(range(11))
        assert offsets(connection, 1) == list(range(9))
        assert produce(connection, "orders", batch_of(1)).base_offset == 11
        with refused(ErrorCode.DUPLICATE_RESOURCE):
            adopt(again, "one", 0, 1)
        assert leftovers(again) == []


@pytest.mark.kafka
def test_kafka_s_own_tool_finds_nothing_wrong_with_an_adopted_load(broker: Broker, kafka_jars: Path) -> None:
    append(broker, "orders", batch_of(2))
    stage_orders(broker, "one", 0)
    adopt(broker, "one", 0)
    broker.stop()
    files = [path for suffix in ("log", "index", "timeindex") for path in broker.data.glob(f"orders-0/*.{suffix}")]
    output = dump_log("--deep-iteration", "--files", ",".join(map(str, sorted(files))))
    assert complaints_of(output) == []
    assert "baseOffset: 7 lastOffset: 10" in output
