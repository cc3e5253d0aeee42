"""A staged load: what is claimed, what is refused and why, and that stamping and placing can be done again."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.config import LogConfig
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.storage.files import read_whole, write_whole
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.log import Log
from barnabas.storage.staged_load import (
    LoadError,
    StagedPartition,
    adopt_into,
    adopting_folder,
    check,
    check_load_id,
    claim,
    clear,
    place,
    staging_folder,
    stamp,
    unclaim,
)
from barnabas.storage.verifier import Fault, verify_partition
from tests.storage.builders import NOW_MS, after_clean_stop, batch_of, marker_of, sent_by, with_fields
from tests.storage.building import a_log, all_records, bases, consume, fill
from tests.storage.conftest import Disk
from tests.storage.loading import stage
from tests.storage.memory_files import EVERYTHING, MemoryFiles

ORDERS = TopicPartition("orders", 0)
FOLDER = "/data/orders-0"


def claimed(files: MemoryFiles, *segments: Any, folder: str = FOLDER) -> StagedPartition:
    """A load that was written and claimed."""
    files.make_directory(folder)
    stage(files, folder, ORDERS, "one", segments or [[batch_of(3), batch_of(2)], [batch_of(4)]])
    return claim(files, folder, ORDERS, "one")


@pytest.mark.parametrize("load_id", ["", ".", "..", "../x", "a/b", "a\0b", "-a", "a" * 101, "ä", "a b"])
def test_a_load_id_is_one_word(load_id: str) -> None:
    with pytest.raises(LoadError, match="is no load id"):
        check_load_id(load_id)


def test_a_load_is_claimed_so_that_its_writer_can_not_take_it_away(memory_files: MemoryFiles) -> None:
    staged = claimed(memory_files)
    assert [(segment.name, segment.records) for segment in staged.segments] == [("s0", 5), ("s1", 4)]
    assert staged.records == 9
    assert not memory_files.exists(staging_folder(FOLDER, "one"))
    assert claim(memory_files, FOLDER, ORDERS, "one") == staged  # A broker that was killed meanwhile does it again.
    unclaim(memory_files, FOLDER, "one")
    assert memory_files.exists(staging_folder(FOLDER, "one"))
    unclaim(memory_files, FOLDER, "one")  # There is nothing left to give back.


def test_what_was_written_again_counts_more_than_an_old_claim(memory_files: MemoryFiles) -> None:
    claimed(memory_files)
    stage(memory_files, FOLDER, ORDERS, "one", [[batch_of(1)]])
    assert claim(memory_files, FOLDER, ORDERS, "one").records == 1


def with_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[MemoryFiles], None]:
    def run(files: MemoryFiles) -> None:
        path = f"{staging_folder(FOLDER, 'one')}/manifest.json"
        content = json.loads(read_whole(files, path))
        changed = change(content)
        write_whole(files, path, json.dumps(content if changed is None else changed).encode())

    return run


def named(name: str) -> Callable[[MemoryFiles], None]:
    return with_manifest(lambda content: content["segments"][0].update(name=name))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda files: files.remove_tree(staging_folder(FOLDER, "one")), "does not exist"),
        (lambda files: files.remove(f"{staging_folder(FOLDER, 'one')}/manifest.json"), "was not finished"),
        (lambda files: write_whole(files, f"{staging_folder(FOLDER, 'one')}/manifest.json", b"{"), "can not be read"),
        (lambda files: write_whole(files, f"{staging_folder(FOLDER, 'one')}/manifest.json", b"\xff"), "can not be"),
        (with_manifest(lambda content: [1]), "is no manifest"),
        (with_manifest(lambda content: content.update(version=2)), "version, load, topic and partition"),
        (with_manifest(lambda content: content.update(load_id="two")), "version, load, topic and partition"),
        (with_manifest(lambda content: content.update(topic="other")), "version, load, topic and partition"),
        (with_manifest(lambda content: content.update(segments=[])), "names no segment"),
        (with_manifest(lambda content: content.update(segments=7)), "a segment that is none"),
        (with_manifest(lambda content: content["segments"][0].update(records=0)), "0 records"),
        (with_manifest(lambda content: content["segments"][0].update(size="1")), "a segment that is none"),
        (with_manifest(lambda content: content["segments"].append(content["segments"][0])), "twice"),
        (named("../../other-0/00000000000000000000"), "a segment that is none"),
        (named("/etc/passwd"), "a segment that is none"),
        (named(""), "a segment that is none"),
    ],
)
def test_a_manifest_that_is_not_right_is_refused(
    memory_files: MemoryFiles, damage: Callable[[MemoryFiles], None], words: str
) -> None:
    memory_files.make_directory(FOLDER)
    stage(memory_files, FOLDER, ORDERS, "one", [[batch_of(3)], [batch_of(2)]])
    damage(memory_files)
    with pytest.raises(LoadError, match=words):
        claim(memory_files, FOLDER, ORDERS, "one")


GOOD = LogConfig()
BIG = batch_of(50, size=200)
KEYLESS = build_batch([(NOW_MS, None, b"v", ())])


@pytest.mark.parametrize(
    ("batch", "config", "words"),
    [
        (sent_by(7, 0), GOOD, "only they themselves may append"),
        (marker_of(7, commit=True), GOOD, "only they themselves may append"),
        (with_fields(batch_of(3), last_offset_delta=4), GOOD, "3 records for 5 offsets"),
        (with_fields(batch_of(3), crc=5), GOOD, "checksum"),
        (BIG, LogConfig(max_message_bytes=1000), "max.message.bytes of the topic is 1000"),
        (KEYLESS, LogConfig(cleanup_policy=("compact",)), "has no key, but the topic is compacted"),
        (KEYLESS, LogConfig(message_timestamp_type="LogAppendTime"), "records of a load keep their own times"),
        (b"\x00" * 61, GOOD, "position 0"),
    ],
)
def test_batches_that_the_topic_can_not_have_are_refused(
    memory_files: MemoryFiles, batch: bytes, config: LogConfig, words: str
) -> None:
    if batch == b"\x00" * 61:
        staged = claimed(memory_files)
        write_whole(memory_files, staged.file(staged.segments[0], ".log"), bytes(staged.segments[0].size))
    else:
        staged = claimed(memory_files, [batch])
    with pytest.raises(LoadError, match=words):
        check(memory_files, staged, config, check_crcs=True)


def test_without_the_checksums_everything_else_is_still_checked(memory_files: MemoryFiles) -> None:
    staged = claimed(memory_files, [with_fields(batch_of(3), crc=5)])
    check(memory_files, staged, GOOD, check_crcs=False)
    with pytest.raises(LoadError, match="3 records for 5 offsets"):
        check(
            memory_files, claimed(memory_files, [with_fields(batch_of(3), last_offset_delta=4)]), GOOD, check_crcs=False
        )


@pytest.mark.parametrize(
    ("suffix", "content", "words"),
    [
        (".index", OFFSET_ENTRY.pack(4, 100), "which no batch has"),
        (".index", b"123", "not a multiple"),
        (".timeindex", b"", "the last entry has time -1"),
        (".timeindex", TIME_ENTRY.pack(NOW_MS, 1), "which it is not"),
        (".log", b"1234", "the file has 4 bytes"),
    ],
)
def test_files_that_contradict_the_batches_are_refused(
    memory_files: MemoryFiles, suffix: str, content: bytes, words: str
) -> None:
    staged = claimed(memory_files)
    path = staged.file(staged.segments[0], suffix)
    write_whole(memory_files, path, content)
    with pytest.raises(LoadError, match=words) as raised:
        check(memory_files, staged, GOOD, check_crcs=True)
    assert path in str(raised.value)


def test_what_would_be_deleted_at_once_is_refused(memory_files: MemoryFiles) -> None:
    staged = claimed(memory_files, [batch_of(3, timestamp=NOW_MS)])
    week = LogConfig(retention_ms=7 * 86_400_000)
    last_ms = NOW_MS + week.retention_ms
    check(memory_files, staged, week, check_crcs=True, now_ms=last_ms)
    last_ms += 10  # Records of a batch follow each other by a millisecond.
    with pytest.raises(LoadError, match=r"from 20\d\d-\d\d-\d\d, and topic \w+ has retention.ms=604800000"):
        check(memory_files, staged, week, check_crcs=True, now_ms=last_ms)
    for config in (LogConfig(retention_ms=-1), LogConfig(cleanup_policy=("compact",), retention_ms=1)):
        check(memory_files, staged, config, check_crcs=True, now_ms=last_ms)
    check(memory_files, staged, week, check_crcs=True)


def test_a_file_that_is_missing_is_named(memory_files: MemoryFiles) -> None:
    staged = claimed(memory_files)
    path = staged.file(staged.segments[1], ".timeindex")
    memory_files.remove(path)
    with pytest.raises(LoadError, match=r"s1\.timeindex can not be adopted"):
        check(memory_files, staged, GOOD, check_crcs=True)


def adopt(log: Log, disk: Disk, staged: StagedPartition, leader_epoch: int = 3) -> None:
    check(disk.files, staged, log.config, check_crcs=True)
    stamp(disk.files, staged, log.log_end_offset, leader_epoch)
    adopt_into(log, disk.files, staged, leader_epoch)
    clear(disk.files, staged)


@pytest.mark.parametrize("before", [0, 2])
def test_a_log_has_the_records_of_a_load_and_goes_on_behind_it(disk: Disk, before: int) -> None:
    folder = disk.path("orders-0")
    log = a_log(disk.files, folder)
    log.append_as_leader(sent_by(7, 0), 0)
    log.truncate_fully_and_start_at(0)
    fill(log, before)
    start = log.log_end_offset
    stage(disk.files, folder, ORDERS, "one", [[batch_of(3), batch_of(2)], [batch_of(4, timestamp=NOW_MS + 50)]])
    staged = claim(disk.files, folder, ORDERS, "one")
    adopt(log, disk, staged)
    assert log.log_end_offset == start + 9
    assert bases(log)[-3:] == [start, start + 5, start + 9]
    for _ in range(2):
        log.append_as_leader(batch_of(3), 3)
    log.update_high_watermark(log.log_end_offset)
    assert [record.offset for record in all_records(log)] == list(range(start + 15))
    assert [record.offset for record in consume(log, 1)] == list(range(1, start + 15))
    found = log.find_offset_by_timestamp(NOW_MS + 50)
    assert found is not None
    assert found.offset == start + 5
    assert log.leader_epochs.latest == 3
    assert not disk.files.exists(adopting_folder(folder, "one"))
    log.close()
    faults: list[Fault] = []
    assert sum(seen.records for seen in verify_partition(disk.files, folder, faults.append)) == start + 15
    assert faults == []
    again = a_log(disk.files, folder, after_clean_stop(log))
    assert again.log_end_offset == start + 15
    assert [record.offset for record in all_records(again)] == list(range(start + 15))


def test_producers_and_their_transactions_know_nothing_of_a_load(memory_files: MemoryFiles) -> None:
    log = a_log(memory_files, FOLDER)
    log.append_as_leader(sent_by(7, 0, 2, transactional=True), 0)
    log.update_high_watermark(log.log_end_offset)
    adopt(log, Disk(memory_files, "/data"), claimed(memory_files), 0)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable.message_offset == 0
    assert log.append_as_leader(sent_by(7, 2, 1, transactional=True), 0).first_offset == 11
    assert log.append_as_leader(sent_by(7, 2, 1, transactional=True), 0).is_duplicate
    log.append_as_leader(marker_of(7, commit=False), 0, is_client=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable.message_offset == 13
    assert [(one.first_offset, one.last_offset) for one in log.aborted_transactions(0, 13)] == [(0, 12)]
    reopened = a_log(memory_files.crash(EVERYTHING), FOLDER)
    assert reopened.producers.snapshot() == log.producers.snapshot()


def test_stamping_and_placing_can_be_done_again(memory_files: MemoryFiles) -> None:
    staged = claimed(memory_files)
    stamp(memory_files, staged, 100, 1)
    stamp(memory_files, staged, 40, 2)
    place(memory_files, staged, 40)
    stamp(memory_files, staged, 40, 2)
    place(memory_files, staged, 40)
    log = a_log(memory_files, FOLDER)
    assert [record.offset for record in all_records(log)] == list(range(40, 49))
    assert log.leader_epochs.entries == [(2, 40)]
