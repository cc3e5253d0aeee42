"""Opening a log: what a crash interrupted is finished, what is not trusted is recovered, what is not ours is left."""

from typing import Any

import pytest

from barnabas.model import TimestampOffset
from barnabas.storage.files import read_whole, write_whole
from barnabas.storage.loader import LastKnown
from barnabas.storage.log import Log
from tests.records.message_sets import build_message
from tests.storage.builders import NOW_MS
from tests.storage.building import a_log, all_records, bases, consume, fill, records
from tests.storage.conftest import Disk

FOLDER = "orders-0"
CLEAN = LastKnown(had_clean_shutdown=True)


def log_on(disk: Disk, known: LastKnown | None = None, **settings: Any) -> Log:
    return a_log(disk.files, disk.path(FOLDER), known, **{"segment_bytes": 300, "index_interval_bytes": 0, **settings})


def file_of(disk: Disk, base_offset: int, suffix: str) -> str:
    return disk.path(f"{FOLDER}/{base_offset:020d}{suffix}")


def names(disk: Disk) -> set[str]:
    return {entry.name for entry in disk.files.entries(disk.path(FOLDER))}


def overwrite(disk: Disk, path: str, position: int, data: bytes) -> None:
    disk.files.open(path, writable=True).write_at(data, position)


@pytest.fixture
def closed(disk: Disk) -> Disk:
    """A disk with a log of 18 records in the segments 0, 6 and 12, shut down cleanly."""
    log = log_on(disk)
    for index in range(6):
        fill(log, 1, timestamp=NOW_MS + index)
    assert bases(log) == [0, 6, 12]
    log.close()
    return disk


def offsets(log: Log) -> list[int]:
    return [record.offset for record in all_records(log)]


def test_a_folder_that_is_not_there_becomes_an_empty_log(disk: Disk) -> None:
    log = log_on(disk)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (0, 0, [0])


def test_a_new_log_starts_where_its_checkpoint_says(disk: Disk) -> None:
    assert bases(log_on(disk, LastKnown(log_start_offset=40))) == [40]


@pytest.mark.parametrize("clean", [True, False])
def test_reopening_gives_the_same_log(closed: Disk, clean: bool) -> None:
    log = log_on(closed, LastKnown(had_clean_shutdown=clean))
    assert offsets(log) == list(range(18))
    assert log.log_end_offset == 18
    assert log.leader_epochs.entries == [(0, 0)]
    assert log.recovery_point == (18 if clean else 0)
    assert [segment.largest for segment in log.segments] == [
        TimestampOffset(NOW_MS + 1, 5),
        TimestampOffset(NOW_MS + 3, 11),
        TimestampOffset(NOW_MS + 5, 17),
    ]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, 6, 12])
@pytest.mark.parametrize("damage", ["missing", "odd length", "backwards", "below the base"])
def test_an_index_that_can_not_be_right_is_made_again(closed: Disk, base: int, suffix: str, damage: str) -> None:
    path = file_of(closed, base, suffix)
    before = read_whole(closed.files, path)
    if damage == "missing":
        closed.files.remove(path)
    elif damage == "odd length":
        overwrite(closed, path, len(before), b"abc")
    elif damage == "below the base":
        overwrite(closed, path, len(before), b"\xff" * (8 if suffix == ".index" else 12))
    else:
        overwrite(closed, path, len(before), bytes([0x80]) * (8 if suffix == ".index" else 12))
    log = log_on(closed, CLEAN)
    log.update_high_watermark(18)
    assert [record.offset for record in consume(log, 0)] == list(range(18))
    for index in range(6):
        assert log.find_offset_by_timestamp(NOW_MS + index) == TimestampOffset(NOW_MS + index, 3 * index)
    log.close()
    assert read_whole(closed.files, path) == before


def test_the_zeros_that_kafka_leaves_in_an_index_are_cut(closed: Disk) -> None:
    before = read_whole(closed.files, file_of(closed, 12, ".index"))
    overwrite(closed, file_of(closed, 12, ".index"), len(before), bytes(8 * 1000))
    log_on(closed, CLEAN)
    assert read_whole(closed.files, file_of(closed, 12, ".index")) == before


def test_a_torn_tail_is_cut_off(closed: Disk, caplog: pytest.LogCaptureFixture) -> None:
    path = file_of(closed, 12, ".log")
    size = len(read_whole(closed.files, path))
    closed.files.open(path, writable=True).truncate(size - 1)
    log = log_on(closed)
    assert offsets(log) == list(range(15))
    assert f"{path}, position {size // 2}" in caplog.text
    fill(log, 1)
    assert offsets(log) == list(range(18))


def test_what_lies_behind_damage_is_removed(closed: Disk, caplog: pytest.LogCaptureFixture) -> None:
    overwrite(closed, file_of(closed, 6, ".log"), 100, b"\xff\xff\xff")
    log = log_on(closed)
    assert offsets(log) == list(range(6))
    assert bases(log) == [0, 6]
    assert "lies behind the damage" in caplog.text
    fill(log, 1)
    log.close()
    assert offsets(log_on(closed, CLEAN)) == list(range(9))


def test_only_what_lies_past_the_recovery_point_is_looked_at(closed: Disk) -> None:
    """Damage before it is found when it is read, or by `barnabas verify`; a start does not read everything."""
    overwrite(closed, file_of(closed, 0, ".log"), 100, b"\xff\xff\xff")
    log = log_on(closed, LastKnown(recovery_point=13))
    assert bases(log) == [0, 6, 12]
    assert log.log_end_offset == 18


def test_damage_that_stops_a_clean_start_makes_everything_be_recovered(closed: Disk) -> None:
    overwrite(closed, file_of(closed, 12, ".log"), 8, b"\xff\xff\xff\xff")
    for suffix in (".index", ".timeindex"):
        closed.files.open(file_of(closed, 12, suffix), writable=True).truncate(0)
    log = log_on(closed, CLEAN)
    assert log.log_end_offset == 12
    assert offsets(log) == list(range(12))


def test_files_that_were_on_their_way_out_are_removed(closed: Disk) -> None:
    before = names(closed)
    for name in ("00000000000000000000.log.deleted", "00000000000000000003.timeindex.deleted"):
        overwrite(closed, closed.path(f"{FOLDER}/{name}"), 0, b"x")
    for suffix in (".log", ".index"):
        overwrite(closed, file_of(closed, 6, suffix + ".cleaned"), 0, b"x")
    log = log_on(closed)
    assert offsets(log) == list(range(18))
    assert names(closed) == before


def test_an_index_without_a_log_is_removed(closed: Disk, caplog: pytest.LogCaptureFixture) -> None:
    overwrite(closed, file_of(closed, 3, ".index"), 0, bytes(8))
    assert offsets(log_on(closed, CLEAN)) == list(range(18))
    assert not closed.files.exists(file_of(closed, 3, ".index"))
    assert "has no log file" in caplog.text


def test_foreign_files_are_left_alone(closed: Disk) -> None:
    for name in ("README", "123.log", "00000000000000000000.remote", "x.log", "00000000000000000000"):
        overwrite(closed, closed.path(f"{FOLDER}/{name}"), 0, b"mine")
    closed.files.make_directory(closed.path(f"{FOLDER}/folder"))
    assert offsets(log_on(closed)) == list(range(18))
    assert {"README", "123.log", "00000000000000000000.remote", "x.log", "folder"} <= names(closed)


def compacted(disk: Disk, suffix: str) -> None:
    """Write a segment with offsets 0, 5 and 11, which replaces segments 0 and 6, under other names."""
    for base in (0, 5, 11):
        data = records(1, base_offset=base)
        path = file_of(disk, 0, ".log" + suffix)
        overwrite(disk, path, disk.files.open(path, writable=True).size(), bytes(data))
    for kind in (".index", ".timeindex"):
        disk.files.open(file_of(disk, 0, kind + suffix), writable=True)


@pytest.mark.parametrize("removed_already", [(), (0,), (0, 6)])
def test_a_swap_that_was_interrupted_is_finished(closed: Disk, removed_already: tuple[int, ...]) -> None:
    compacted(closed, ".swap")
    for base in removed_already:
        closed.files.remove(file_of(closed, base, ".log"))
    log = log_on(closed)
    assert bases(log) == [0, 12]
    assert offsets(log) == [0, 5, 11, *range(12, 18)]
    assert not any(name.endswith(".swap") for name in names(closed))


def test_a_swap_whose_data_has_its_name_already_takes_its_indexes_along(closed: Disk) -> None:
    """Kafka renames the data first."""
    compacted(closed, ".swap")
    for base in (0, 6):
        for suffix in (".log", ".index", ".timeindex"):
            closed.files.remove(file_of(closed, base, suffix))
    closed.files.rename(file_of(closed, 0, ".log.swap"), file_of(closed, 0, ".log"))
    log = log_on(closed)
    assert offsets(log) == [0, 5, 11, *range(12, 18)]
    assert not any(name.endswith(".swap") for name in names(closed))


def test_a_swap_is_dropped_while_its_clean_was_still_writing(closed: Disk) -> None:
    compacted(closed, ".swap")
    overwrite(closed, file_of(closed, 0, ".log.cleaned"), 0, b"x")
    log = log_on(closed)
    assert offsets(log) == list(range(18))
    assert not any(name.endswith((".swap", ".cleaned")) for name in names(closed))


def test_a_hole_without_damage_is_reported_and_kept(closed: Disk, caplog: pytest.LogCaptureFixture) -> None:
    closed.files.remove(file_of(closed, 6, ".log"))
    log = log_on(closed)
    assert offsets(log) == [*range(6), *range(12, 18)]
    assert "lacks offsets 6 to 11" in caplog.text
    log.update_high_watermark(18)
    assert [record.offset for record in consume(log, 4)] == [4, 5, *range(12, 18)]


@pytest.mark.parametrize("content", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\nzero 0\n", b"\xff\xfe", b"0\n1\n0 0"])
def test_leader_epochs_that_can_not_be_read_come_from_the_log(closed: Disk, content: bytes) -> None:
    path = closed.path(f"{FOLDER}/leader-epoch-checkpoint")
    closed.files.remove(path)
    overwrite(closed, path, 0, content)
    assert log_on(closed, CLEAN).leader_epochs.entries == [(0, 0)]


def test_leader_epochs_past_the_end_are_forgotten(closed: Disk) -> None:
    overwrite(closed, closed.path(f"{FOLDER}/leader-epoch-checkpoint"), 0, b"0\n2\n0 0\n7 18\n")
    assert log_on(closed, CLEAN).leader_epochs.entries == [(0, 0)]


def test_a_log_that_ends_before_its_start_starts_anew(closed: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log = log_on(closed, LastKnown(log_start_offset=100, recovery_point=100))
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (100, 100, [100])
    assert "before its start at 100" in caplog.text


def test_a_start_inside_a_segment_is_kept(closed: Disk) -> None:
    log = log_on(closed, LastKnown(log_start_offset=8, had_clean_shutdown=True))
    assert (log.log_start_offset, bases(log)) == (8, [0, 6, 12])
    log.update_high_watermark(18)
    assert [record.offset for record in consume(log, 8)] == list(range(8, 18))


@pytest.mark.parametrize("clean", [True, False])
def test_a_preallocated_segment_ends_where_its_records_do(disk: Disk, clean: bool) -> None:
    log = log_on(disk, preallocate=True, segment_bytes=1000)
    fill(log, 2)
    log.close() if clean else log.abandon()
    log = log_on(disk, LastKnown(had_clean_shutdown=clean), preallocate=True, segment_bytes=1000)
    assert offsets(log) == list(range(6))
    fill(log, 20)
    assert offsets(log) == list(range(66))
    log.close()
    total = sum(len(read_whole(disk.files, segment.path)) for segment in log.segments)
    assert total == log.size_bytes


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_in_a_segment_are_read(disk: Disk, magic: int) -> None:
    disk.files.make_directory(disk.path(FOLDER))
    position = 0
    for offset in (3, 4, 9):
        data = bytes(build_message(magic=magic, offset=offset, timestamp=NOW_MS + offset, key=b"k", value=b"old"))
        overwrite(disk, file_of(disk, 0, ".log"), position, data)
        position += len(data)
    log = log_on(disk)
    assert log.log_end_offset == 10
    fill(log, 1)
    assert [(record.offset, record.value) for record in consume(log, 4)][:2] == [(4, b"old"), (9, b"old")]
    assert offsets(log) == [3, 4, 9, 10, 11, 12]
    if magic:
        assert log.find_offset_by_timestamp(NOW_MS + 5) == TimestampOffset(NOW_MS + 9, 9)
    log.close()
    assert offsets(log_on(disk, CLEAN)) == [3, 4, 9, 10, 11, 12]


def test_a_kill_is_no_reason_to_complain_of_missing_indexes(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log = log_on(disk)
    fill(log, 3)
    log.flush()
    fill(log, 2)
    log.abandon()
    assert offsets(log_on(disk, LastKnown(recovery_point=9))) == list(range(15))
    assert caplog.text == ""


def test_damage_before_the_recovery_point_costs_nothing_behind_it(closed: Disk) -> None:
    """An index is missing and its segment damaged; what was flushed after it is kept, and no offset is given twice."""
    closed.files.remove(file_of(closed, 0, ".index"))
    overwrite(closed, file_of(closed, 0, ".log"), 100, b"\xff\xff\xff")
    log = log_on(closed, LastKnown(recovery_point=13))
    assert bases(log) == [0, 6, 12]
    assert offsets(log) == list(range(6, 18))
    log.append_as_leader(records(1), 0)
    log.flush()
    log.abandon()
    log = log_on(closed, LastKnown(recovery_point=19))
    assert (log.log_end_offset, offsets(log)) == (19, list(range(6, 19)))


@pytest.mark.parametrize("position", [-1, 10**6])
@pytest.mark.parametrize("clean", [True, False])
def test_an_index_that_points_outside_of_the_log_is_made_again(closed: Disk, position: int, clean: bool) -> None:
    path = file_of(closed, 12, ".index")
    before = read_whole(closed.files, path)
    overwrite(closed, path, len(before), (5).to_bytes(4, "big") + position.to_bytes(4, "big", signed=True))
    log = log_on(closed, LastKnown(had_clean_shutdown=clean))
    assert log.log_end_offset == 18
    log.update_high_watermark(18)
    assert [record.offset for record in consume(log, 0)] == list(range(18))


def test_a_log_that_lost_its_end_after_a_clean_stop_goes_on_where_it_ends(closed: Disk) -> None:
    path = file_of(closed, 12, ".log")
    size = len(read_whole(closed.files, path))
    closed.files.open(path, writable=True).truncate(size // 2)
    log = log_on(closed, CLEAN)
    assert log.log_end_offset == 15
    fill(log, 1)
    assert offsets(log) == list(range(18))
    log.close()


def test_a_missing_file_of_leader_epochs_is_made_again(closed: Disk) -> None:
    closed.files.remove(closed.path(f"{FOLDER}/leader-epoch-checkpoint"))
    assert log_on(closed, CLEAN).leader_epochs.entries == [(0, 0)]


@pytest.mark.parametrize(
    ("known", "settings", "end_offset"),
    [
        (LastKnown(), {}, 18),
        (LastKnown(recovery_point=18), {}, 18),
        # It was there when the log was last flushed, so that no power cut made the hole.
        (LastKnown(recovery_point=40), {}, 40),
        # Everything before it was deleted.
        (LastKnown(log_start_offset=40), {}, 40),
        # The cleaner may have removed the last records.
        (LastKnown(), {"cleanup_policy": ("compact",)}, 40),
    ],
    ids=["never-flushed", "flushed-before", "flushed-behind", "deleted", "compacted"],
)
def test_an_empty_segment_behind_a_hole_that_a_power_cut_made_is_removed(
    closed: Disk, known: LastKnown, settings: dict[str, Any], end_offset: int
) -> None:
    """The name of a new segment may be on the disk before the last records of the one before it."""
    overwrite(closed, file_of(closed, 40, ".log"), 0, b"")
    log = log_on(closed, known, **settings)
    assert (log.log_end_offset, 40 in log.segments) == (end_offset, end_offset == 40)
    fill(log, 1)
    log.close()


def test_what_is_recovered_is_flushed_where_flush_messages_asks_for_the_disk(disk: Disk) -> None:
    """Readers see what is flushed, and must not wait for the next append."""
    fill(log_on(disk), 2)
    assert log_on(disk).recovery_point == 0
    assert log_on(disk, flush_messages=7).recovery_point == 0
    assert log_on(disk, flush_messages=6).recovery_point == 6


# Files that were swapped while nobody looked.


@pytest.mark.parametrize(("target", "source"), [(6, 0), (6, 12), (12, 6), (0, 12)])
def test_a_segment_with_the_file_of_another_is_noticed(
    closed: Disk, caplog: pytest.LogCaptureFixture, target: int, source: int
) -> None:
    write_whole(
        closed.files, file_of(closed, target, ".log"), read_whole(closed.files, file_of(closed, source, ".log"))
    )
    log = log_on(closed, CLEAN)
    assert f"{target:020d}.log" in caplog.text
    assert "the segment is recovered" in caplog.text
    found = offsets(log)
    assert found == sorted(set(found))
    again = log_on(closed, CLEAN)
    assert offsets(again) == found


def test_a_segment_that_was_cut_between_two_batches_is_noticed(closed: Disk, caplog: pytest.LogCaptureFixture) -> None:
    content = read_whole(closed.files, file_of(closed, 6, ".log"))
    write_whole(closed.files, file_of(closed, 6, ".log"), content[: len(content) // 2])
    assert offsets(log_on(closed, CLEAN)) == [*range(9), *range(12, 18)]
    assert "00000000000000000006" in caplog.text


def test_a_file_whose_name_is_more_than_an_offset_is_no_segment(closed: Disk) -> None:
    for name in (str(2**63 - 1), str(10**20 - 1)):
        closed.files.open(closed.path(f"{FOLDER}/{name:0>20}.log"), writable=True).close()
    log = log_on(closed, LastKnown(had_clean_shutdown=True))
    assert bases(log) == [0, 6, 12]
    assert log.log_end_offset == 18
