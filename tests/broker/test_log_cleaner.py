"""LogCleaner: real brokers whose clock a test turns, real cleaning processes, and what goes wrong with them."""

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.broker.log_cleaner import Clean, LogCleaner
from barnabas.clock import ManualClock, SystemClock
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets
from barnabas.storage.cleaner.choice import cleanable_part
from barnabas.storage.cleaner.preparation import CleanerLimits, PreparedClean, log_view
from barnabas.storage.files import OsFiles
from barnabas.storage.log import Log
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.asking import connected, create_topic, fetch, incremental, offsets_of, produce, topic_changes
from tests.broker.coordinating import GROUP, TRANSACTION, commit, committed, end, find, init, produce_in
from tests.broker.loops import hand_loop
from tests.broker.turning import append, on_loop, until, until_on_loop
from tests.storage.builders import NOW_MS, batch_of
from tests.storage.memory_files import MemoryFiles
from tests.storage.test_log_manager import ORDERS_0, SMALL, A, Settings, names_in, started
from tests.storage.test_log_manager import fill as fill_log

BACKOFF_MS = 15_000
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": 1_000}
T_0 = TopicPartition("t", 0)
SLOW = {"log.cleaner.io.max.bytes.per.second": "1"}


@pytest.fixture
def clock() -> ManualClock:
    """The time by which the brokers go."""
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock, tmp_path: Path) -> Iterator[Broker]:
    """A broker with a compacted topic that has something to clean."""
    with Broker(in_process=True, clock=clock, data=tmp_path) as broker:
        fill(broker)
        yield broker


def fill(broker: Broker, name: str = "t", count: int = 30, config: Mapping[str, object] | None = None) -> None:
    with connected(broker) as connection:
        create_topic(connection, name, 1, {**COMPACTED, **(config or {})})
    for _ in range(count):
        append(broker, name, batch_of(3))
    flushed(broker, name)


def log_of(broker: Broker, name: str = "t", partition: int = 0) -> Log:
    return broker.server.services.replica_manager.partitions[name, partition].log


def flushed(broker: Broker, name: str = "t", partition: int = 0) -> None:
    """Wait until all but the active segment is on the disk."""
    log = log_of(broker, name, partition)
    on_loop(broker, lambda: broker.server.services.replica_manager.flusher.request(log))
    until_on_loop(broker, lambda: log.recovery_point == log.log_end_offset)


def cleaner_of(broker: Broker) -> LogCleaner:
    return broker.server.log_cleaner


def cleaned(broker: Broker, clock: ManualClock, name: str = "t", partition: int = 0) -> None:
    """Let the cleaner look, and wait until a log is clean up to its active segment."""
    log = log_of(broker, name, partition)
    clock.advance(BACKOFF_MS)
    until_on_loop(broker, lambda: log.first_dirty_offset == log.segments.last.base_offset)
    until_on_loop(broker, lambda: not cleaner_of(broker).running)


def sentence_of(broker: Broker, partition: TopicPartition = T_0) -> str | None:
    return on_loop(broker, lambda: cleaner_of(broker).cleaning_of(partition))


def fetched(broker: Broker, name: str = "t") -> list[int]:
    """All offsets that a consumer finds, fetching until the end."""
    found: list[int] = []
    with connected(broker) as connection:
        while True:
            data = fetch(connection, name, found[-1] + 1 if found else 0)
            offsets = [offset for offset in offsets_of(data) if not found or offset > found[-1]]
            if not offsets:
                return found
            found += offsets


def test_a_log_is_cleaned_by_a_process_and_stays_clean(
    broker: Broker, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.broker.log_cleaner")
    assert sentence_of(broker) == "it is cleaned next"
    cleaned(broker, clock)
    log = log_of(broker)
    active = log.segments.last.base_offset
    expected = [*range(active - 3, 90)]
    assert fetched(broker) == expected
    assert read_offsets(OsFiles(), str(tmp_path / CLEANER_OFFSET_CHECKPOINT)) == {T_0: active}
    assert on_loop(broker, lambda: cleaner_of(broker).first_dirty_offset_of(T_0)) == active
    reason = sentence_of(broker)
    assert reason is not None
    assert reason.startswith(f"not cleaned now: there is nothing to clean from offset {active} on")
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("log_cleaner")]
    assert line.startswith(f"t-0 is clean up to offset {active}: ")
    assert line.endswith(f"{active - 3} records removed")
    # The old files go after their time, and a restart finds the same.
    clock.advance(120_000)
    until(lambda: not list(tmp_path.rglob("*.deleted")))
    broker.stop()
    with Broker(in_process=True, clock=clock, data=tmp_path) as again:
        assert fetched(again) == expected
        assert log_of(again).first_dirty_offset == active


def test_a_log_that_is_not_compacted_is_left_alone(broker: Broker) -> None:
    with connected(broker) as connection:
        create_topic(connection, "plain")
    assert sentence_of(broker, TopicPartition("plain", 0)) is None
    assert sentence_of(broker, TopicPartition("none", 0)) is None
    assert on_loop(broker, lambda: cleaner_of(broker).first_dirty_offset_of(T_0)) is None


def test_the_cleaner_can_be_turned_off(clock: ManualClock) -> None:
    with Broker(in_process=True, clock=clock, settings={"log.cleaner.enable": "false"}) as broker:
        fill(broker, count=5)
        clock.advance(10 * BACKOFF_MS)
        assert sentence_of(broker) == "not cleaned, because log.cleaner.enable is false"
        assert not cleaner_of(broker).running


def test_a_process_that_is_killed_is_followed_by_another(
    clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(in_process=True, clock=clock, data=tmp_path, settings=SLOW) as broker:
        fill(broker)
        before = fetched(broker)
        clock.advance(BACKOFF_MS)
        until_on_loop(broker, lambda: T_0 in cleaner_of(broker).running)
        assert sentence_of(broker) == "it is being cleaned"
        until(lambda: cleaner_of(broker).running[T_0].process.process_id)
        process_id = cleaner_of(broker).running[T_0].process.process_id
        assert process_id is not None
        os.kill(process_id, 9)
        until_on_loop(broker, lambda: T_0 not in cleaner_of(broker).running)
        reason = "the cleaning process ended with status -9"
        assert sentence_of(broker) == f"its last clean failed, and is tried again in 15 s: {reason}"
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
            f"t-0 could not be cleaned, and is tried again in 15 s: {reason}"
        ]
        assert fetched(broker) == before
        assert not list(tmp_path.rglob("*.cleaned"))
        on_loop(broker, lambda: setattr(cleaner_of(broker), "_limits", CleanerLimits()))
        cleaned(broker, clock)
        assert len(fetched(broker)) < len(before)
        assert "failed" not in (sentence_of(broker) or "")


def test_a_clean_that_fails_is_tried_again_later_each_time(broker: Broker, clock: ManualClock) -> None:
    """Damage is named, with file and position; when it is mended, the log is cleaned without a restart."""
    path = log_of(broker).segments.first.path
    file = OsFiles().open(path, writable=True)
    good = file.read_at(1, 65)
    file.write_at(bytes([good[0] ^ 0xFF]), 65)
    clock.advance(BACKOFF_MS)
    for wait_seconds in (15, 30, 60):
        words = f"its last clean failed, and is tried again in {wait_seconds} s: {path}, position 0: The checksum"
        until(lambda: (sentence_of(broker) or "").startswith(words))  # noqa: B023 (it is called before the next turn)
        if wait_seconds < 60:
            clock.advance(wait_seconds * 1_000)
    file.write_at(good, 65)
    clock.advance(45_000)
    cleaned(broker, clock)


def test_a_broker_that_stops_ends_the_process(clock: ManualClock, tmp_path: Path) -> None:
    with Broker(in_process=True, clock=clock, data=tmp_path, settings=SLOW) as broker:
        fill(broker)
        clock.advance(BACKOFF_MS)
        until(lambda: (clean := cleaner_of(broker).running.get(T_0)) and clean.process.process_id)
        process_id = cleaner_of(broker).running[T_0].process.process_id
        broker.stop()
    assert not os.path.exists(f"/proc/{process_id}")
    assert not list(tmp_path.rglob("*.cleaned"))


def test_a_topic_that_is_deleted_meanwhile_is_no_failure(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(in_process=True, clock=clock, settings=SLOW) as broker:
        fill(broker)
        clock.advance(BACKOFF_MS)
        until(lambda: (clean := cleaner_of(broker).running.get(T_0)) and clean.process.process_id)
        with connected(broker) as connection:
            answer = connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000), 6)
            assert answer.responses[0].error_code == ErrorCode.NONE
        # Its process, which is throttled to a byte a second, is ended, and others have their turn.
        until_on_loop(broker, lambda: not cleaner_of(broker).running)
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_clean_ends_when_the_topic_is_not_compacted_any_more(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.broker.log_cleaner")
    with Broker(in_process=True, clock=clock, settings=SLOW) as broker:
        fill(broker)
        before = fetched(broker)
        clock.advance(BACKOFF_MS)
        until(lambda: (clean := cleaner_of(broker).running.get(T_0)) and clean.process.process_id)
        with connected(broker) as connection:
            connection.request(incremental(topic_changes("t", ("cleanup.policy", 0, "delete"))))
        clock.advance(BACKOFF_MS)
        until_on_loop(broker, lambda: not cleaner_of(broker).running)
        assert "t-0 is not to be compacted any more" in caplog.text
        assert fetched(broker) == before


def test_retention_waits_for_a_clean_and_comes_before_the_next(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What a clean reads is not deleted under it, or it would never come to its end on a busy topic."""
    with Broker(in_process=True, clock=clock, settings={**SLOW, "log.retention.check.interval.ms": 1_000}) as broker:
        both = {"cleanup.policy": "compact,delete", "retention.bytes": 3_000}
        fill(broker, config=both)
        log, retention = log_of(broker), broker.server.services.log_retention
        until_on_loop(broker, lambda: not retention.is_running)
        first = log.segments.first
        clock.advance(BACKOFF_MS)
        until(lambda: (clean := cleaner_of(broker).running.get(T_0)) and clean.process.process_id)
        for _ in range(20):
            append(broker, "t", batch_of(3))
        clock.advance(1_000)
        until_on_loop(broker, lambda: not retention.is_running)
        assert log.segments.first is first
        # Without the throttle, and as if the process had been killed: the clean ends, and retention has its turn.
        on_loop(broker, lambda: setattr(cleaner_of(broker), "_limits", CleanerLimits()))
        process_id = cleaner_of(broker).running[T_0].process.process_id
        assert process_id is not None
        os.kill(process_id, 9)
        until_on_loop(broker, lambda: log.segments.first is not first)
        assert on_loop(broker, lambda: log.size_bytes) < 3_000 + 2 * 1_000


def test_a_full_disk_does_not_wait_for_a_clean(clock: ManualClock) -> None:
    with Broker(in_process=True, clock=clock, settings=SLOW) as broker:
        fill(broker, config={"cleanup.policy": "compact,delete"})
        log, services = log_of(broker), broker.server.services
        clock.advance(BACKOFF_MS)
        until(lambda: (clean := cleaner_of(broker).running.get(T_0)) and clean.process.process_id)
        first = log.segments.first
        with connected(broker) as connection:
            connection.request(incremental(topic_changes("t", ("retention.bytes", 0, "2000"))))
        directory = services.log_manager.directory_of(T_0)
        on_loop(broker, lambda: services.log_retention.make_room(directory))
        until_on_loop(broker, lambda: log.segments.first is not first)
        # Its segments are gone, so nothing can come of the clean.
        on_loop(broker, lambda: cleaner_of(broker).tick())
        until_on_loop(broker, lambda: cleaner_of(broker).running.get(T_0) is None or not first.is_leaving)


def test_a_disk_that_fails_when_the_cleaner_closes_a_segment_is_offline(tmp_path: Path, clock: ManualClock) -> None:
    disk = MemoryFiles()
    (tmp_path / "a").mkdir()  # SQLite sees the real disk.
    with Broker(in_process=True, clock=clock, files=disk, data=f"{tmp_path}/a,{tmp_path}/b") as broker:
        fill(broker, count=2, config={"max.compaction.lag.ms": 60_000, "segment.bytes": 1_000_000})
        clock.advance(61_000)
        disk.fail("open", code=errno.EIO, under=log_of(broker).directory, once=False)
        on_loop(broker, lambda: cleaner_of(broker).tick())
        manager = broker.server.services.log_manager
        assert T_0 in on_loop(broker, lambda: dict(manager.offline_partitions))


def test_what_was_replaced_is_removed_though_the_clean_is_given_up_right_after() -> None:
    files, clock = MemoryFiles(), ManualClock()
    manager = started(files, A, clock=clock, settings=Settings(**SMALL, cleanup_policy=("compact",)))
    log = manager.get_or_create_log(ORDERS_0)
    fill_log(log, 20)
    log.flush()
    waiting: list[tuple[Callable[[], None], Callable[[object, object], None]]] = []
    with hand_loop() as hand:
        pool = SimpleNamespace(submit=lambda work, done: waiting.append((work, done)))
        flusher = SimpleNamespace(is_running=lambda _: False)
        options: Any = SimpleNamespace(
            loop=hand.loop, files=files, clock=clock, pool=pool, logs=manager, flusher=flusher
        )
        prepared = PreparedClean(log, cleanable_part(log_view(log), clock.now_ms()), CleanerLimits(), clock.now_ms())
        clean = Clean(options, ORDERS_0, prepared, lambda *_: None)
        deadline = SystemClock().monotonic_seconds() + 30
        while not waiting:
            assert SystemClock().monotonic_seconds() < deadline
            hand.turn()
        clean.give_up()
        work, done = waiting.pop()
        work()
        done(None, None)
    clock.advance(60_000)
    manager.remove_due()
    assert [name for name in names_in(files, f"{A}/orders-0") if name.endswith(".deleted")] == []


def test_a_module_beside_the_broker_is_not_taken_for_one_of_pythons(
    broker: Broker, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit('nobody asked for this')\n", encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    cleaned(broker, clock)


def test_the_dirtiest_log_comes_first(clock: ManualClock) -> None:
    with Broker(in_process=True, clock=clock) as broker:
        fill(broker, "half", 40)
        cleaned(broker, clock, "half")
        for _ in range(40):
            append(broker, "half", batch_of(3))
        flushed(broker, "half")
        fill(broker, "all", 10)
        chosen = on_loop(broker, lambda: cleaner_of(broker)._choose())
        assert chosen is not None
        assert chosen[0] == TopicPartition("all", 0)


def test_the_active_segment_is_closed_when_its_records_wait_too_long(clock: ManualClock) -> None:
    with Broker(in_process=True, clock=clock) as broker:
        fill(broker, count=2, config={"max.compaction.lag.ms": 60_000, "segment.bytes": 1_000_000})
        assert len(log_of(broker).segments) == 1
        clock.advance(59_000)
        on_loop(broker, lambda: cleaner_of(broker).tick())
        assert len(log_of(broker).segments) == 1
        clock.advance(2_000)
        on_loop(broker, lambda: cleaner_of(broker).tick())
        assert len(log_of(broker).segments) == 2
        flushed(broker)
        cleaned(broker, clock)
        assert fetched(broker) == [3, 4, 5]


def test_coordinators_know_the_same_after_their_logs_were_cleaned(tmp_path: Path, clock: ManualClock) -> None:
    settings = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "offsets.topic.segment.bytes": 1_000,
        "transaction.state.log.segment.bytes": 1_000,
    }
    with Broker(in_process=True, clock=clock, data=tmp_path, settings=settings) as broker:
        with connected(broker) as connection:
            create_topic(connection, "t")
            find(connection, "g", GROUP)
            find(connection, "tx", TRANSACTION)
            for number in range(40):
                assert commit(connection, "g", {("t", 0): number}) == [0]
            producer = init(connection, "tx")
            for number in range(8):
                assert produce_in(connection, producer, "t", timestamp=NOW_MS) == ErrorCode.NONE
                assert end(connection, producer, is_commit=number % 2 == 0) is ErrorCode.NONE
        names = (GROUP_TOPIC, TRANSACTION_TOPIC)
        for name in names:
            flushed(broker, name)
            assert len(log_of(broker, name).segments) > 2
        before = {name: log_of(broker, name).size_bytes for name in names}
        for name in names:
            cleaned(broker, clock, name)
            assert log_of(broker, name).size_bytes < before[name] / 2
    with Broker(in_process=True, clock=clock, data=tmp_path, settings=settings) as broker:
        services = broker.server.services
        until(lambda: not services.transactions.shards.is_loading and not services.groups.shards.is_loading)
        with connected(broker) as connection:
            assert committed(connection, "g", "t") == (39, 0)
            assert produce_in(connection, producer, "t", timestamp=NOW_MS) == ErrorCode.NONE
            assert end(connection, producer) is ErrorCode.NONE


def test_a_broker_that_is_killed_takes_the_process_with_it(tmp_path: Path) -> None:
    """A real process of a real broker, killed in the middle of a clean; the next one cleans what is there."""
    settings = {**SLOW, "log.cleaner.backoff.ms": 10}
    batches = b"".join(bytes(batch_of(3)) for _ in range(1))
    with Broker(data=tmp_path, settings=settings) as broker:
        with connected(broker) as connection:
            create_topic(connection, "t", 1, COMPACTED)
            for _ in range(30):
                assert produce(connection, "t", batches).error_code == ErrorCode.NONE
        until(lambda: workers_of(broker.pid))
        (worker,) = workers_of(broker.pid)
        before = fetched(broker)
        broker.kill()
        until(lambda: not os.path.exists(f"/proc/{worker}/cmdline") or not Path(f"/proc/{worker}/cmdline").read_bytes())
    with Broker(data=tmp_path, settings={"log.cleaner.backoff.ms": 10}) as broker:
        until(lambda: len(fetched(broker)) < len(before))
        found = fetched(broker)
        assert found == before[-len(found) :]
        assert not list(tmp_path.rglob("*.swap"))


def workers_of(pid: int) -> list[int]:
    """The children of a process that clean."""
    children = [int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in _read(task / "children").split()]
    return [child for child in children if b"cleaner.worker" in _read(Path(f"/proc/{child}/cmdline"))]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
