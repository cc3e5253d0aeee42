"""The journal of bulk loads: what it remembers, and that a load which a crash interrupts is whole or not there."""

from uuid import UUID

import pytest

from barnabas.clock import ManualClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.records.record import Record
from barnabas.storage.files import write_whole
from barnabas.storage.load_journal import (
    JOURNAL,
    AdoptedLoad,
    AdoptedPartition,
    LoadJournal,
    LoadJournalError,
)
from barnabas.storage.log_directory import LogDirectoryError
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.storage.staged_load import StagedSegment, adopt_into, check, claim, clear, stamp
from barnabas.storage.verifier import Fault, verify_partition
from tests.storage.builders import batch_of
from tests.storage.building import all_records
from tests.storage.loading import stage
from tests.storage.memory_files import EVERYTHING, SYNCED_ONLY, ZEROED, DiskStoppedError, Keep, MemoryFiles

TOPIC_ID = UUID(int=77)
PARTITIONS = [TopicPartition("orders", index) for index in range(2)]
BEFORE = 2
LOADED = 9
each_keep = pytest.mark.parametrize("keep", [EVERYTHING, SYNCED_ONLY, ZEROED], ids=str)


def a_load(load_id: str = "one", *, topic_id: UUID | None = TOPIC_ID) -> AdoptedLoad:
    segments = (StagedSegment("s0", 100, 5), StagedSegment("s1", 50, 4))
    one = AdoptedPartition(partition=0, base_offset=7, end_offset=16, leader_epoch=2, segments=segments)
    return AdoptedLoad(load_id=load_id, topic="orders", topic_id=topic_id, partitions=(one,))


def reread(files: MemoryFiles) -> LoadJournal:
    journal = LoadJournal(files, "/data")
    journal.read()
    return journal


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
def test_a_decision_is_remembered_and_a_complete_load_for_good(
    memory_files: MemoryFiles, topic_id: UUID | None
) -> None:
    journal = reread(memory_files)
    assert journal.find("one") is None
    journal.decide(a_load(topic_id=topic_id))
    assert reread(memory_files).find("one") == a_load(topic_id=topic_id)
    journal.decide(a_load("two"))
    journal.complete("one")
    found = reread(memory_files).find("one")
    assert found is not None
    assert found.is_complete
    assert [(one.base_offset, one.end_offset, one.segments) for one in found.partitions] == [(7, 16, ())]
    again = reread(memory_files).find("two")
    assert again is not None
    assert not again.is_complete


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"version": 2, "loads": []}',
        b'{"version": 1}',
        b'{"version": 1, "loads": [{}]}',
        b"\xff",
    ],
)
def test_a_journal_that_can_not_be_read_is_no_reason_to_guess(memory_files: MemoryFiles, content: bytes) -> None:
    write_whole(memory_files, f"/data/{JOURNAL}", content)
    with pytest.raises(LoadJournalError, match=r"/data/bulk-loads\.json can not be read"):
        reread(memory_files)
    with pytest.raises(LogDirectoryError, match=r"bulk-loads\.json can not be read"):
        a_manager(memory_files).start()


def test_a_load_of_a_topic_that_is_gone_or_another_needs_nothing(memory_files: MemoryFiles) -> None:
    journal = reread(memory_files)
    journal.decide(a_load())
    journal.decide(a_load("two"))
    journal.finish(["/data"], offline=1)
    assert journal.find("one") == a_load()  # The log may be in a folder that can not be seen now.
    manager = a_manager(memory_files)
    manager.start()
    log = manager.get_or_create_log(PARTITIONS[0], UUID(int=1))
    log.append_as_leader(batch_of(3), 0)
    manager.shutdown()
    again = reread(memory_files)
    again.finish(["/data"])
    assert all(found is not None and found.is_complete for found in map(again.find, ("one", "two")))


def a_manager(files: MemoryFiles) -> LogManager:
    return LogManager(
        LogManagerOptions(
            files=files,
            clock=ManualClock(),
            config=LogManagerConfig(log_dirs=("/data",)),
            topic_config=lambda _: LogConfig(),
        )
    )


def start(files: MemoryFiles) -> LogManager:
    manager = a_manager(files)
    manager.start()
    return manager


def prepared() -> MemoryFiles:
    """A disk with a topic that has records, and a load for both of its partitions beside it."""
    files = MemoryFiles()
    files.make_directory("/data")
    manager = start(files)
    for name in PARTITIONS:
        log = manager.get_or_create_log(name, TOPIC_ID)
        log.append_as_leader(batch_of(BEFORE), 0)
        log.flush()
        stage(files, log.directory, name, "one", [[batch_of(3), batch_of(2)], [batch_of(4)]])
    manager.shutdown()
    files.sync_everything()
    return files


def adopt(files: MemoryFiles) -> None:
    """What a broker does to adopt a load, step by step; then it appends, and is stopped."""
    manager = start(files)
    logs = [manager.current_logs[name].log for name in PARTITIONS]
    staged = [claim(files, log.directory, name, "one") for log, name in zip(logs, PARTITIONS, strict=True)]
    for log, one in zip(logs, staged, strict=True):
        check(files, one, log.config, check_crcs=True)
        log.flush()
        stamp(files, one, log.log_end_offset, 1)
    partitions = tuple(
        AdoptedPartition(
            partition=one.partition.partition,
            base_offset=log.log_end_offset,
            end_offset=log.log_end_offset + one.records,
            leader_epoch=1,
            segments=one.segments,
        )
        for log, one in zip(logs, staged, strict=True)
    )
    load = AdoptedLoad(load_id="one", topic="orders", topic_id=TOPIC_ID, partitions=partitions)
    manager.load_journal.decide(load)
    for log, one in zip(logs, staged, strict=True):
        adopt_into(log, files, one, 1)
    for one in staged:
        clear(files, one)
    manager.load_journal.complete("one")
    for log in logs:
        log.append_as_leader(batch_of(1), 1)
    manager.shutdown()


def found_after(files: MemoryFiles) -> tuple[bool, list[list[Record]]]:
    """Whether the load is in the journal of a broker that starts on a disk, and the records of its logs."""
    manager = start(files)
    logs = [manager.current_logs[name].log for name in PARTITIONS]
    records = [all_records(log) for log in logs]
    for log, those in zip(logs, records, strict=True):
        assert [record.offset for record in those] == list(range(log.log_end_offset))
    is_adopted = manager.load_journal.find("one") is not None
    manager.shutdown()
    faults: list[Fault] = []
    for log in logs:
        list(verify_partition(files, log.directory, faults.append))
    # A power cut may leave a snapshot of the producers empty; it is made anew when it is needed.
    assert [fault for fault in faults if not fault.path.endswith(".snapshot")] == []
    return is_adopted, records


@each_keep
def test_a_crash_at_every_step_leaves_all_of_a_load_or_nothing(keep: Keep) -> None:
    step, outcomes = 0, set()
    while True:
        step += 1
        files = prepared()
        files.stop_at_step = files.steps + step
        try:
            adopt(files)
            break
        except DiskStoppedError:
            pass
        left = files.crash(keep)
        is_adopted, records = found_after(left)
        counts = [len(those) for those in records]
        if is_adopted:
            # What was appended behind the load is promised only after the flush of the stop.
            assert all(BEFORE + LOADED <= count <= BEFORE + LOADED + 1 for count in counts), (step, counts)
        else:
            assert counts == [BEFORE, BEFORE], (step, counts)
        outcomes.add(is_adopted)
        if step % 7 == 0:
            assert found_after(left)[1] == records, "a second start finds the same"
    assert outcomes == {True, False}


def test_a_crash_while_a_load_is_finished_at_the_start_loses_nothing_either() -> None:
    files = prepared()
    steps = len(files.performed)
    adopt(files)
    journal = [number for number, line in enumerate(files.performed) if "bulk-loads.json.tmp" in line]
    files = prepared()
    decided = next(number for number in journal if number >= steps) + 6
    files.stop_at_step = decided
    with pytest.raises(DiskStoppedError):
        adopt(files)
    crashed = files.crash(EVERYTHING)
    step, is_finished = 0, False
    while not is_finished:
        step += 1
        again = crashed.crash(EVERYTHING)
        again.stop_at_step, again.stop_torn = step, True
        try:
            start(again)
            is_finished = True
        except DiskStoppedError:
            pass
        is_adopted, records = found_after(again.crash(EVERYTHING))
        assert (is_adopted, [len(those) for those in records]) == (True, [BEFORE + LOADED] * 2)
    assert step > 10
