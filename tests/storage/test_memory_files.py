"""The rules of the disk that crashes, as its docstring states them. That it is like the real one is in test_files."""

import errno
from collections.abc import Callable

import pytest

from barnabas.clock import ManualClock
from barnabas.storage.files import DirectoryLockedError, read_whole
from tests.storage.memory_files import (
    BYTES_ONLY,
    EVERYTHING,
    KEEPS,
    NAMES_ONLY,
    PAGE_BYTES,
    SYNCED_ONLY,
    TORN_GARBAGE,
    TORN_SHORT,
    TORN_ZEROS,
    ZEROED,
    DiskStoppedError,
    Keep,
    MemoryFile,
    MemoryFiles,
    garbage,
    prefix,
)

POWER_CUTS = [keep for keep in KEEPS if keep is not EVERYTHING]


def put(files: MemoryFiles, path: str, data: bytes = b"") -> MemoryFile:
    """Write a file and return it open."""
    file = files.open(path, writable=True)
    file.write_at(data, 0)
    return file


def data_folder(files: MemoryFiles) -> dict[str, bytes | None]:
    """Return what is in `/data`, by name."""
    found = files.contents()
    return {path.removeprefix("/data/"): found[path] for path in found if path.startswith("/data/")}


# Rules 1 to 3: what a sync makes durable.


@pytest.mark.parametrize("keep", POWER_CUTS, ids=str)
def test_bytes_and_name_that_were_synced_outlive_every_crash(memory_files: MemoryFiles, keep: Keep) -> None:
    put(memory_files, "/data/a", b"abc").sync()
    memory_files.sync_directory("/data")
    put(memory_files, "/data/b", b"later")
    assert data_folder(memory_files.crash(keep))["a"] == b"abc"


def test_a_synced_file_without_its_name_is_lost(memory_files: MemoryFiles) -> None:
    put(memory_files, "/data/a", b"abc").sync()
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {}


def test_a_synced_name_without_its_bytes_is_an_empty_file(memory_files: MemoryFiles) -> None:
    put(memory_files, "/data/a", b"abc")
    memory_files.sync_directory("/data")
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {"a": b""}


def test_bytes_come_back_that_were_overwritten_or_cut_without_a_sync(memory_files: MemoryFiles) -> None:
    file = put(memory_files, "/data/a", b"abcdef")
    file.sync()
    memory_files.sync_directory("/data")
    file.write_at(b"X", 0)
    file.truncate(3)
    file.allocate(8)
    assert file.read_at(9, 0) == b"Xbc\0\0\0\0\0"
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {"a": b"abcdef"}


def test_a_sync_is_of_one_file(memory_files: MemoryFiles) -> None:
    a, b = put(memory_files, "/data/a", b"a"), put(memory_files, "/data/b", b"b")
    memory_files.sync_directory("/data")
    b.sync()
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {"a": b"", "b": b"b"}
    a.sync()
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {"a": b"a", "b": b"b"}


def test_a_sync_of_any_folder_makes_all_earlier_names_durable(memory_files: MemoryFiles) -> None:
    put(memory_files, "/data/a")
    memory_files.rename("/data/a", "/data/b")
    memory_files.make_directory("/data/c/d")
    memory_files.sync_directory("/data/c")
    memory_files.remove("/data/b")
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {"b": b"", "c": None, "c/d": None}


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files.rename("/data/a", "/data/b"),
        lambda files: files.remove("/data/a"),
        lambda files: files.remove_tree("/data/folder"),
        lambda files: files.rename("/data/folder", "/data/other"),
        lambda files: files.make_directory("/data/new"),
        lambda files: files.open("/data/new", writable=True),
    ],
)
def test_a_name_changed_without_a_sync_is_as_before(
    memory_files: MemoryFiles, change: Callable[[MemoryFiles], None]
) -> None:
    put(memory_files, "/data/a", b"abc")
    memory_files.make_directory("/data/folder")
    put(memory_files, "/data/folder/b", b"b")
    memory_files.sync_everything()
    before = memory_files.contents()
    change(memory_files)
    assert memory_files.contents() != before
    assert memory_files.crash(SYNCED_ONLY).contents() == before


# Rule 4: steps and the one at which the disk stops.


def history(files: MemoryFiles) -> None:
    """Every kind of change once; calls that change nothing lie between."""
    files.make_directory("/data/folder")
    files.make_directory("/data/folder")
    file = files.open("/data/folder/a", writable=True)
    files.open("/data/folder/a", writable=True).close()
    file.write_at(b"abcdef", 0)
    file.truncate(4)
    file.allocate(8)
    file.sync()
    file.read_at(8, 0)
    files.rename("/data/folder/a", "/data/folder/b")
    files.remove("/data/folder/none")
    files.remove_tree("/data/none")
    files.sync_directory("/data/folder")
    files.open("/data/c", writable=True).close()
    files.remove("/data/c")
    files.remove_tree("/data/folder")


HISTORY = [
    "make_directory /data/folder",
    "create /data/folder/a",
    "write /data/folder/a 0+6",
    "truncate /data/folder/a 4",
    "allocate /data/folder/a 8",
    "sync /data/folder/a",
    "rename /data/folder/a /data/folder/b",
    "sync_directory /data/folder",
    "create /data/c",
    "remove /data/c",
    "remove_tree /data/folder",
]


def started(stop_at_step: int | None = None, *, torn: bool = False) -> MemoryFiles:
    """Return a disk with `/data` on it, of which no step counts."""
    empty = MemoryFiles()
    empty.make_directory("/data")
    files = empty.crash(prefix(1))
    files.stop_at_step, files.stop_torn = stop_at_step, torn
    return files


def test_steps_are_the_changes() -> None:
    files = started()
    history(files)
    assert files.performed == HISTORY
    assert files.steps == len(HISTORY)


@pytest.mark.parametrize("step", range(1, len(HISTORY) + 1))
def test_the_disk_stops_before_a_step_and_stays_so(step: int) -> None:
    files = started(step)
    with pytest.raises(DiskStoppedError, match=HISTORY[step - 1].split(" ")[0]):
        history(files)
    assert files.performed == HISTORY[:step]
    found = files.crash(EVERYTHING).contents()
    for use in (lambda: files.open("/data/x", writable=True), lambda: files.exists("/data"), lambda: history(files)):
        with pytest.raises(DiskStoppedError):
            use()
    assert files.steps == step
    assert files.crash(EVERYTHING).contents() == found


def test_a_stopped_disk_refuses_reads_and_lets_files_be_closed(memory_files: MemoryFiles) -> None:
    file = put(memory_files, "/data/a", b"abc")
    memory_files.stop_at_step = memory_files.steps + 1
    assert file.read_at(3, 0) == b"abc"
    with pytest.raises(DiskStoppedError):
        file.sync()
    with pytest.raises(DiskStoppedError):
        file.read_at(3, 0)
    with pytest.raises(DiskStoppedError):
        file.size()
    file.close()


@pytest.mark.parametrize(("torn", "left"), [(False, b""), (True, b"abc")])
def test_the_write_at_which_the_disk_stops_may_leave_its_first_half(torn: bool, left: bytes) -> None:
    files = started(3, torn=torn)
    with pytest.raises(DiskStoppedError):
        history(files)
    for _ in range(2):
        assert data_folder(files.crash(EVERYTHING)) == {"folder": None, "folder/a": left}
        with pytest.raises(DiskStoppedError):
            history(files)


def test_the_removal_at_which_the_disk_stops_may_leave_half_a_tree() -> None:
    files = started(len(HISTORY), torn=True)
    with pytest.raises(DiskStoppedError):
        history(files)
    assert data_folder(files.crash(EVERYTHING)) == {"folder": None}


# Rule 5: crashes.


@pytest.fixture
def unsynced(memory_files: MemoryFiles) -> MemoryFiles:
    """A disk with `old` durable, and pending: `old` changed, `new` created and written, `old` renamed."""
    put(memory_files, "/data/old", b"old").sync()
    memory_files.sync_directory("/data")
    memory_files.open("/data/old", writable=True).write_at(b"OLD!", 0)
    put(memory_files, "/data/new", b"newest")
    memory_files.rename("/data/old", "/data/older")
    return memory_files


@pytest.mark.parametrize(
    ("keep", "found"),
    [
        (EVERYTHING, {"older": b"OLD!", "new": b"newest"}),
        (SYNCED_ONLY, {"old": b"old"}),
        (NAMES_ONLY, {"older": b"old", "new": b""}),
        (BYTES_ONLY, {"old": b"OLD!"}),
        (ZEROED, {"older": bytes(4), "new": bytes(6)}),
        (TORN_SHORT, {"older": b"OLD!", "new": b"new"}),
        (TORN_ZEROS, {"older": b"OLD!", "new": b"new\0\0\0"}),
        (TORN_GARBAGE, {"older": b"OLD!", "new": b"new" + garbage(3)}),
        (prefix(0), {"old": b"old"}),
        (prefix(1), {"old": b"OLD!"}),
        (prefix(2), {"old": b"OLD!", "new": b""}),
        (prefix(3), {"old": b"OLD!", "new": b"newest"}),
        (prefix(4), {"older": b"OLD!", "new": b"newest"}),
        (prefix(99), {"older": b"OLD!", "new": b"newest"}),
    ],
    ids=str,
)
def test_what_a_crash_keeps(unsynced: MemoryFiles, keep: Keep, found: dict[str, bytes]) -> None:
    before = unsynced.contents()
    assert data_folder(unsynced.crash(keep)) == found
    assert unsynced.contents() == before
    assert len(unsynced.pending) == 4


@pytest.mark.parametrize("keep", POWER_CUTS, ids=str)
def test_what_is_left_after_a_power_cut_is_durable(unsynced: MemoryFiles, keep: Keep) -> None:
    found = unsynced.crash(keep)
    assert found.pending == []
    assert found.crash(SYNCED_ONLY).contents() == found.contents()


def test_what_is_left_after_a_kill_can_still_be_lost(unsynced: MemoryFiles) -> None:
    found = unsynced.crash(EVERYTHING)
    assert data_folder(found.crash(SYNCED_ONLY)) == {"old": b"old"}
    found.open("/data/older").sync()
    assert data_folder(found.crash(SYNCED_ONLY)) == {"old": b"OLD!"}
    assert data_folder(unsynced.crash(SYNCED_ONLY)) == {"old": b"old"}, "the disk that crashed knows nothing of this"


def test_a_long_write_is_torn_at_the_start_of_its_last_page(memory_files: MemoryFiles) -> None:
    put(memory_files, "/data/a", b"x" * 100)
    memory_files.open("/data/a", writable=True).write_at(b"y" * (2 * PAGE_BYTES), 100)
    memory_files.rename("/data/a", "/data/b")
    assert data_folder(memory_files.crash(TORN_SHORT)) == {"b": b"x" * 100 + b"y" * (2 * PAGE_BYTES - 100)}
    torn = data_folder(memory_files.crash(TORN_ZEROS))["b"]
    assert torn == b"x" * 100 + b"y" * (2 * PAGE_BYTES - 100) + bytes(100)


def test_a_torn_overwrite_leaves_what_was_there(memory_files: MemoryFiles) -> None:
    put(memory_files, "/data/a", b"abcdef").sync()
    memory_files.sync_directory("/data")
    memory_files.open("/data/a", writable=True).write_at(b"ABCDEF", 0)
    assert data_folder(memory_files.crash(TORN_SHORT)) == {"a": b"ABCdef"}


def test_half_removed_trees_are_found(memory_files: MemoryFiles) -> None:
    memory_files.make_directory("/data/folder")
    for name in ("a", "b", "c"):
        put(memory_files, f"/data/folder/{name}")
    memory_files.sync_everything()
    memory_files.remove_tree("/data/folder")
    assert [sorted(data_folder(memory_files.crash(prefix(count)))) for count in (1, 3, 4)] == [
        ["folder", "folder/a", "folder/b"],
        ["folder"],
        [],
    ]


def test_locks_last_until_a_crash(memory_files: MemoryFiles) -> None:
    lock = memory_files.lock_directory("/data")
    with pytest.raises(DirectoryLockedError):
        memory_files.lock_directory("/data")
    found = memory_files.crash(EVERYTHING)
    found.lock_directory("/data")
    lock.release()
    with pytest.raises(DirectoryLockedError):
        found.lock_directory("/data")


# Rule 6, and the other faults.


def test_a_full_disk_takes_some_bytes_and_then_none(memory_files: MemoryFiles) -> None:
    file = put(memory_files, "/data/a", b"abc")
    memory_files.fail_next_write(after_bytes=2)
    with pytest.raises(OSError) as caught:
        file.write_at(b"defg", 3)
    assert caught.value.errno == errno.ENOSPC
    assert read_whole(memory_files, "/data/a") == b"abcde"
    file.write_at(b"defg", 3)
    assert read_whole(memory_files, "/data/a") == b"abcdefg"


def test_a_failed_sync_drops_the_bytes_for_good(memory_files: MemoryFiles) -> None:
    file = put(memory_files, "/data/a", b"abc")
    memory_files.sync_directory("/data")
    memory_files.fail_next_sync()
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    assert file.read_at(3, 0) == b"abc"
    file.sync()
    assert data_folder(memory_files.crash(SYNCED_ONLY)) == {"a": b""}


def test_a_failed_folder_fails_alone_and_until_it_is_healed(memory_files: MemoryFiles) -> None:
    memory_files.make_directory("/data/a")
    memory_files.make_directory("/data/ab")
    file = put(memory_files, "/data/a/file", b"abc")
    memory_files.fail_directory("/data/a")
    for use in (
        lambda: file.read_at(1, 0),
        lambda: file.write_at(b"x", 0),
        file.sync,
        lambda: list(memory_files.entries("/data/a")),
        lambda: memory_files.rename("/data/a/file", "/data/a/other"),
        lambda: memory_files.sync_directory("/data/a"),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            use()
    put(memory_files, "/data/ab/file", b"abc").sync()
    memory_files.heal()
    assert file.read_at(3, 0) == b"abc"


def test_single_operations_fail_by_name_and_path(memory_files: MemoryFiles) -> None:
    memory_files.fail("rename", "create", code=errno.EDQUOT, under="/data/a", once=False)
    put(memory_files, "/data/b")
    with pytest.raises(OSError) as caught:
        put(memory_files, "/data/a")
    assert caught.value.errno == errno.EDQUOT
    assert data_folder(memory_files) == {"b": b""}


# Rule 7, and time.


def test_folders_are_listed_in_an_order_of_their_own(memory_files: MemoryFiles) -> None:
    created = [f"{number:03d}" for number in range(20)]
    for name in created:
        put(memory_files, f"/data/{name}")
    listed = [entry.name for entry in memory_files.entries("/data")]
    assert sorted(listed) == created
    assert listed not in (created, created[::-1])
    assert listed == [entry.name for entry in memory_files.entries("/data")]


def test_the_time_of_the_last_write_is_that_of_the_clock() -> None:
    clock = ManualClock(1000)
    files = MemoryFiles(clock=clock)
    file = put(files, "/a", b"abc")
    clock.advance(5)
    file.sync()
    assert files.modified_ms("/a") == 1000
    file.truncate(1)
    assert files.modified_ms("/a") == 1005
