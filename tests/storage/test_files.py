"""The disk, and the one that stands in for it in tests: one list of behaviour for both, then what the real one adds."""

import errno
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage import files as files_module
from barnabas.storage.files import (
    LOCK_FILE,
    DirectoryLockedError,
    Entry,
    Files,
    FileTooLargeError,
    OsFiles,
    file_system_of,
    read_whole,
    write_whole,
)
from tests.storage.conftest import Disk
from tests.storage.memory_files import KEEPS, DiskStoppedError, Keep, MemoryFiles, prefix


def put(disk: Disk, name: str, data: bytes = b"") -> str:
    """Create a file and return its path."""
    path = disk.path(name)
    file = disk.files.open(path, writable=True)
    file.write_at(data, 0)
    file.close()
    return path


def listed(disk: Disk, name: str = ".") -> set[Entry]:
    return set(disk.files.entries(disk.path(name)))


# Bytes.


def test_bytes_are_read_where_they_were_written(disk: Disk) -> None:
    file = disk.files.open(disk.path("a"), writable=True)
    file.write_at(b"hello", 0)
    file.write_at(bytearray(b"J"), 0)
    file.write_at(memoryview(b"-y!-")[1:3], 4)
    assert file.read_at(6, 0) == b"Jelly!"
    assert file.read_at(2, 1) == b"el"
    assert file.size() == 6


def test_a_read_is_short_only_at_the_end_of_the_file(disk: Disk) -> None:
    file = disk.files.open(put(disk, "a", b"0123456789"))
    assert file.read_at(4, 8) == b"89"
    assert file.read_at(4, 10) == b""
    assert file.read_at(4, 99) == b""
    assert file.read_at(0, 3) == b""


def test_read_into_says_how_much_there_was(disk: Disk) -> None:
    file = disk.files.open(put(disk, "a", b"0123456789"))
    buffer = bytearray(b"......")
    assert file.read_into(memoryview(buffer)[1:5], 2) == 4
    assert buffer == b".2345."
    assert file.read_into(memoryview(buffer), 8) == 2
    assert buffer == b"89345."
    assert file.read_into(memoryview(buffer), 10) == 0
    assert file.read_into(memoryview(buffer)[:0], 0) == 0


def test_bytes_are_sent_as_far_as_the_socket_takes_them(disk: Disk) -> None:
    content = os.urandom(3_000_000)
    file = disk.files.open(put(disk, "a", content))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sent = received = 0
        while received < len(content) - 100:
            try:
                count = file.send_cached(ours.fileno(), min(1 << 20, len(content) - 100 - sent), 100 + sent)
                assert count > 0
                sent += count
            except BlockingIOError:
                pass
            data = theirs.recv(1 << 20)
            assert data == content[100 + received : 100 + received + len(data)]
            received += len(data)
        assert sent == received
        assert file.send_cached(ours.fileno(), 10, len(content)) == 0


def test_a_socket_that_takes_nothing_says_so(disk: Disk) -> None:
    file = disk.files.open(put(disk, "a", bytes(1 << 20)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                assert file.send_cached(ours.fileno(), 1 << 20, 0) > 0


def test_a_write_past_the_end_leaves_zeros_between(disk: Disk) -> None:
    path = put(disk, "a", b"ab")
    disk.files.open(path, writable=True).write_at(b"z", 5)
    assert read_whole(disk.files, path) == b"ab\0\0\0z"


def test_a_write_of_nothing_changes_nothing(disk: Disk) -> None:
    path = put(disk, "a", b"ab")
    disk.files.open(path, writable=True).write_at(b"", 1)
    assert read_whole(disk.files, path) == b"ab"


def test_truncate_cuts_and_extends(disk: Disk) -> None:
    path = put(disk, "a", b"abcdef")
    file = disk.files.open(path, writable=True)
    file.truncate(3)
    assert read_whole(disk.files, path) == b"abc"
    file.truncate(5)
    assert read_whole(disk.files, path) == b"abc\0\0"


def test_allocate_extends_and_never_cuts(disk: Disk) -> None:
    path = put(disk, "a", b"abc")
    file = disk.files.open(path, writable=True)
    file.allocate(5)
    assert read_whole(disk.files, path) == b"abc\0\0"
    file.allocate(2)
    assert file.size() == 5


def test_a_reserve_leaves_the_file_as_it_is_and_a_truncation_gives_it_back(disk: Disk) -> None:
    path = put(disk, "a", b"abc")
    file = disk.files.open(path, writable=True)
    assert not file.has_room_ahead()
    # Where the disk gains nothing by it there is none, and that is told.
    assert file.reserve_ahead(3, 4 << 20) is file.has_room_ahead()
    assert read_whole(disk.files, path) == b"abc"
    file.write_at(b"def", 3)
    assert read_whole(disk.files, path) == b"abcdef"
    file.truncate(6)
    assert not file.has_room_ahead()
    assert read_whole(disk.files, path) == b"abcdef"


def test_only_file_systems_that_gain_by_it_are_asked_for_a_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles().open(str(tmp_path / "a"), writable=True)
    monkeypatch.setattr(files_module, "_gains_by_room_ahead", lambda device: False)
    assert not file.reserve_ahead(0, 4 << 20)
    monkeypatch.setattr(files_module, "_gains_by_room_ahead", lambda device: True)
    assert not file.reserve_ahead(0, 1 << 60), "no disk has so much room"
    read_only = OsFiles().open(str(tmp_path / "a"))
    assert not read_only.reserve_ahead(0, 4 << 20)
    assert file.size() == 0
    assert not file.has_room_ahead()


def test_what_kind_of_file_system_a_device_has_is_read_from_the_list_of_mounts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:21 / /tmp rw - tmpfs tmpfs rw\n"
        "24 22 254:1 /a /b rw - xfs /dev/vdb rw\n"
    )
    kinds = {numbers: file_system_of(os.makedev(*numbers), str(mounts)) for numbers in [(254, 0), (0, 21), (9, 9)]}
    assert kinds == {(254, 0): "ext4", (0, 21): "tmpfs", (9, 9): ""}
    assert file_system_of(os.makedev(254, 0), str(tmp_path / "nothing")) == ""


def test_what_was_written_is_there_after_a_sync(disk: Disk) -> None:
    path = put(disk, "a", b"abc")
    disk.files.open(path, writable=True).sync()
    disk.files.sync_directory(disk.root)
    assert read_whole(disk.files, path) == b"abc"


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_map_gives_the_whole_file(disk: Disk, data: bytes) -> None:
    mapped = disk.files.map(put(disk, "a", data))
    assert len(mapped) == len(data)
    assert mapped[:] == data


def test_an_open_file_follows_its_name(disk: Disk) -> None:
    path = put(disk, "a", b"old")
    reader = disk.files.open(path)
    writer = disk.files.open(path, writable=True)
    disk.files.rename(path, disk.path("b"))
    writer.write_at(b"new", 0)
    assert reader.read_at(3, 0) == b"new"
    assert read_whole(disk.files, disk.path("b")) == b"new"


def test_a_reader_of_a_removed_file_reads_on(disk: Disk) -> None:
    path = put(disk, "a", b"abc")
    reader = disk.files.open(path)
    disk.files.remove(path)
    put(disk, "a", b"other")
    assert reader.read_at(9, 0) == b"abc"


def test_a_file_is_closed_once_and_then_of_no_use(disk: Disk) -> None:
    file = disk.files.open(put(disk, "a", b"abc"), writable=True)
    file.close()
    file.close()
    for use in (lambda: file.read_at(1, 0), lambda: file.write_at(b"x", 0), file.size):
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_a_file_opened_for_reading_takes_no_bytes(disk: Disk) -> None:
    file = disk.files.open(put(disk, "a", b"abc"))
    with pytest.raises(OSError):
        file.write_at(b"x", 0)
    with pytest.raises(OSError):
        file.truncate(0)
    assert file.read_at(3, 0) == b"abc"


# Names.


def test_opening_for_writing_creates_and_keeps_what_is_there(disk: Disk) -> None:
    assert not disk.files.exists(disk.path("a"))
    put(disk, "a", b"abc")
    assert disk.files.exists(disk.path("a"))
    assert disk.files.open(disk.path("a"), writable=True).size() == 3


def test_entries_tell_files_with_their_size_from_folders(disk: Disk) -> None:
    put(disk, "a", b"abc")
    put(disk, "empty")
    disk.files.make_directory(disk.path("folder/inner"))
    assert listed(disk) == {Entry("a", False, 3), Entry("empty", False, 0), Entry("folder", True, 0)}
    assert listed(disk, "folder") == {Entry("inner", True, 0)}
    assert listed(disk, "folder/inner") == set()


def test_make_directory_makes_those_above_and_may_be_repeated(disk: Disk) -> None:
    disk.files.make_directory(disk.path("a/b/c"))
    disk.files.make_directory(disk.path("a/b/c"))
    disk.files.make_directory(disk.path("a/b/d"))
    assert {entry.name for entry in listed(disk, "a/b")} == {"c", "d"}


def test_rename_replaces_a_file(disk: Disk) -> None:
    put(disk, "new", b"new")
    put(disk, "old", b"old")
    disk.files.rename(disk.path("new"), disk.path("old"))
    assert listed(disk) == {Entry("old", False, 3)}
    assert read_whole(disk.files, disk.path("old")) == b"new"


def test_rename_moves_a_folder_with_all_that_is_in_it(disk: Disk) -> None:
    disk.files.make_directory(disk.path("a/inner"))
    disk.files.make_directory(disk.path("ab"))
    put(disk, "a/inner/file", b"abc")
    disk.files.rename(disk.path("a"), disk.path("b"))
    assert {entry.name for entry in listed(disk)} == {"ab", "b"}
    assert read_whole(disk.files, disk.path("b/inner/file")) == b"abc"


def test_remove_of_what_is_not_there_is_no_error(disk: Disk) -> None:
    path = put(disk, "a")
    disk.files.remove(path)
    disk.files.remove(path)
    disk.files.remove_tree(disk.path("no folder"))
    assert listed(disk) == set()


def test_remove_tree_removes_everything_below_and_nothing_beside(disk: Disk) -> None:
    disk.files.make_directory(disk.path("a/inner"))
    put(disk, "a/inner/file", b"abc")
    put(disk, "ab")
    disk.files.remove_tree(disk.path("a"))
    assert listed(disk) == {Entry("ab", False, 0)}


def test_the_time_of_the_last_write_is_known(disk: Disk) -> None:
    assert disk.files.modified_ms(put(disk, "a")) > 1_500_000_000_000


BAD_CALLS: list[tuple[str, Callable[[Files, str], Any], int]] = [
    ("open", lambda files, root: files.open(f"{root}/none"), errno.ENOENT),
    ("create", lambda files, root: files.open(f"{root}/none/a", writable=True), errno.ENOENT),
    ("create-below-file", lambda files, root: files.open(f"{root}/file/a", writable=True), errno.ENOTDIR),
    ("write-folder", lambda files, root: files.open(f"{root}/folder", writable=True), errno.EISDIR),
    ("read-folder", lambda files, root: files.open(f"{root}/folder").read_at(1, 0), errno.EISDIR),
    ("map", lambda files, root: files.map(f"{root}/none"), errno.ENOENT),
    ("entries", lambda files, root: list(files.entries(f"{root}/none")), errno.ENOENT),
    ("entries-of-file", lambda files, root: list(files.entries(f"{root}/file")), errno.ENOTDIR),
    ("modified", lambda files, root: files.modified_ms(f"{root}/none"), errno.ENOENT),
    ("folder-over-file", lambda files, root: files.make_directory(f"{root}/file"), errno.EEXIST),
    ("folder-below-file", lambda files, root: files.make_directory(f"{root}/file/a"), errno.ENOTDIR),
    ("rename", lambda files, root: files.rename(f"{root}/none", f"{root}/b"), errno.ENOENT),
    ("rename-to-nowhere", lambda files, root: files.rename(f"{root}/file", f"{root}/none/b"), errno.ENOENT),
    ("file-over-folder", lambda files, root: files.rename(f"{root}/file", f"{root}/empty"), errno.EISDIR),
    ("folder-onto-file", lambda files, root: files.rename(f"{root}/folder", f"{root}/file"), errno.ENOTDIR),
    ("folder-onto-full", lambda files, root: files.rename(f"{root}/empty", f"{root}/folder"), errno.ENOTEMPTY),
    ("folder-into-itself", lambda files, root: files.rename(f"{root}/folder", f"{root}/folder/a"), errno.EINVAL),
    ("remove-folder", lambda files, root: files.remove(f"{root}/folder"), errno.EISDIR),
    ("tree-of-file", lambda files, root: files.remove_tree(f"{root}/file"), errno.ENOTDIR),
    ("sync-directory", lambda files, root: files.sync_directory(f"{root}/none"), errno.ENOENT),
    ("sync-file-as-directory", lambda files, root: files.sync_directory(f"{root}/file"), errno.ENOTDIR),
    ("lock", lambda files, root: files.lock_directory(f"{root}/none"), errno.ENOENT),
    ("allocate-nothing", lambda files, root: files.open(f"{root}/file", writable=True).allocate(0), errno.EINVAL),
]


@pytest.mark.parametrize(("call", "code"), [case[1:] for case in BAD_CALLS], ids=[case[0] for case in BAD_CALLS])
def test_what_can_not_be_done_is_the_same_error_and_changes_nothing(
    disk: Disk, call: Callable[[Files, str], Any], code: int
) -> None:
    put(disk, "file", b"abc")
    disk.files.make_directory(disk.path("empty"))
    disk.files.make_directory(disk.path("folder/inner"))
    before = listed(disk)
    with pytest.raises(OSError) as caught:
        call(disk.files, disk.root)
    assert caught.value.errno == code
    assert listed(disk) == before


# Both disks, with whatever calls come to mind.

names = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x"])
sizes = st.integers(0, 20)
calls = st.one_of(
    st.tuples(st.just("write"), names, st.binary(max_size=12), sizes),
    st.tuples(st.just("truncate"), names, sizes),
    st.tuples(st.just("allocate"), names, st.integers(1, 20)),
    st.tuples(st.just("make_directory"), names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("remove_tree"), names),
)


def perform(files: Files, root: str, call: tuple[Any, ...]) -> str:
    """Carry out a call and return how it ended; which of several errors wins is of no importance."""
    operation, name, *arguments = call
    path = f"{root}/{name}"
    try:
        match operation:
            case "write":
                files.open(path, writable=True).write_at(*arguments)
            case "truncate" | "allocate":
                getattr(files.open(path, writable=True), operation)(*arguments)
            case "rename":
                files.rename(path, f"{root}/{arguments[0]}")
            case _:
                getattr(files, operation)(path)
    except OSError:
        return "failed"
    return "done"


def tree(files: Files, path: str) -> dict[str, Any]:
    """Return everything below a folder."""
    return {
        entry.name: tree(files, f"{path}/{entry.name}")
        if entry.is_directory
        else read_whole(files, f"{path}/{entry.name}")
        for entry in files.entries(path)
    }


@given(st.lists(calls, max_size=25))
def test_memory_is_like_the_real_disk(script: list[tuple[Any, ...]]) -> None:
    memory = MemoryFiles()
    memory.make_directory("/root")
    with tempfile.TemporaryDirectory() as root:
        for call in script:
            assert perform(memory, "/root", call) == perform(OsFiles(), root, call), call
            assert tree(memory, "/root") == tree(OsFiles(), root)


# read_whole.


def test_read_whole_refuses_a_file_that_is_larger_than_it_can_be(disk: Disk) -> None:
    path = disk.path("checkpoint")
    write_whole(disk.files, path, b"abcd")
    assert read_whole(disk.files, path, 4) == b"abcd"
    with pytest.raises(FileTooLargeError, match="checkpoint: the file has 4 bytes, but one of its kind has at most 3"):
        read_whole(disk.files, path, 3)


def test_read_whole_does_not_read_a_file_with_a_hole_of_gigabytes(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    OsFiles().open(path, writable=True).truncate(3 * 2**30)
    with pytest.raises(FileTooLargeError):
        read_whole(OsFiles(), path)


# write_whole.


@pytest.mark.parametrize("durable", [True, False])
def test_write_whole_makes_or_replaces_a_file(disk: Disk, durable: bool) -> None:
    path = disk.path("checkpoint")
    write_whole(disk.files, path, b"a long first version", durable=durable)
    write_whole(disk.files, path, b"second", durable=durable)
    assert read_whole(disk.files, path) == b"second"
    assert listed(disk) == {Entry("checkpoint", False, 6)}


def test_write_whole_is_not_misled_by_the_rest_of_an_earlier_try(disk: Disk) -> None:
    put(disk, "checkpoint.tmp", b"a longer text than the new one")
    write_whole(disk.files, disk.path("checkpoint"), b"new")
    assert listed(disk) == {Entry("checkpoint", False, 3)}


def test_write_whole_keeps_the_old_file_when_the_disk_is_full(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, "/data/checkpoint", b"old")
    memory_files.fail_next_write(after_bytes=2)
    with pytest.raises(OSError, match="No space left"):
        write_whole(memory_files, "/data/checkpoint", b"new")
    assert read_whole(memory_files, "/data/checkpoint") == b"old"


def written_whole(stop_at_step: int | None) -> tuple[MemoryFiles, bool]:
    """Write an old and then a new version, and tell whether the new one was reported as written."""
    disk = MemoryFiles()
    disk.make_directory("/data")
    write_whole(disk, "/data/checkpoint", b"old" * 2000)
    disk.stop_at_step = None if stop_at_step is None else disk.steps + stop_at_step
    disk.stop_torn = True
    try:
        write_whole(disk, "/data/checkpoint", b"new" * 2000)
    except DiskStoppedError:
        return disk, False
    return disk, True


@pytest.mark.parametrize("keep", [*KEEPS, *map(prefix, range(8))], ids=str)
def test_write_whole_is_old_or_new_after_a_crash_at_every_step(keep: Keep) -> None:
    step, finished = 0, False
    while not finished:
        step += 1
        disk, finished = written_whole(step)
        found = read_whole(disk.crash(keep), "/data/checkpoint")
        assert found == b"new" * 2000 or (found == b"old" * 2000 and not finished)
    assert step == 7, "create, truncate, write, sync, rename, sync_directory, and the run that was not stopped"


# Locks.


def test_a_folder_is_locked_once_and_free_after_release(disk: Disk) -> None:
    lock = disk.files.lock_directory(disk.root)
    with pytest.raises(DirectoryLockedError, match="another broker in this process") as caught:
        disk.files.lock_directory(disk.root + "/.")
    assert disk.root in str(caught.value)
    lock.release()
    lock.release()
    disk.files.lock_directory(disk.root).release()
    assert disk.files.exists(disk.path(LOCK_FILE))


def test_releasing_twice_does_not_take_the_lock_from_the_next_holder(disk: Disk) -> None:
    first = disk.files.lock_directory(disk.root)
    first.release()
    second = disk.files.lock_directory(disk.root)
    first.release()
    with pytest.raises(DirectoryLockedError):
        disk.files.lock_directory(disk.root)
    second.release()


def test_folders_are_locked_apart(disk: Disk) -> None:
    locks = []
    for name in ("a", "b"):
        disk.files.make_directory(disk.path(name))
        locks.append(disk.files.lock_directory(disk.path(name)))
    for lock in locks:
        lock.release()


# Locks the file as Java does, says so, and holds it until it is told to end.
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def start_holder(directory: Path) -> "subprocess.Popen[str]":
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory / LOCK_FILE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    return holder


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_a_folder_held_by_another_process_is_refused_and_names_it(tmp_path: Path, end: str) -> None:
    with start_holder(tmp_path) as holder:
        for _ in range(2):
            with pytest.raises(DirectoryLockedError, match=f"process {holder.pid};") as caught:
                OsFiles().lock_directory(str(tmp_path))
            assert caught.value.path == str(tmp_path)
        if end == "kill":
            holder.kill()
            holder.wait()
        else:
            holder.communicate("")
    OsFiles().lock_directory(str(tmp_path)).release()


TAKER = """
import sys
from barnabas.storage.files import DirectoryLockedError, OsFiles
try:
    OsFiles().lock_directory(sys.argv[1])
except DirectoryLockedError as error:
    sys.exit(str(error))
"""


def test_another_process_is_refused_even_after_a_second_try_of_our_own(tmp_path: Path) -> None:
    """A lock of this kind is lost when any descriptor of the file is closed, so the second try must not open it."""
    lock = OsFiles().lock_directory(str(tmp_path))
    with pytest.raises(DirectoryLockedError):
        OsFiles().lock_directory(str(tmp_path))
    command = [sys.executable, "-c", TAKER, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"in use by process {os.getpid()}" in refused.stderr
    lock.release()
    assert subprocess.run(command, check=False).returncode == 0


# What only the real disk has.


def test_a_forgotten_file_gives_its_descriptor_back(tmp_path: Path) -> None:
    file = OsFiles().open(str(tmp_path / "a"), writable=True)
    descriptor = file.fileno()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError) as caught:
        os.fstat(descriptor)
    assert caught.value.errno == errno.EBADF


def test_short_writes_and_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread, preadv = os.pwrite, os.pread, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, memoryview(data)[:3], position))
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 3), position))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, position: preadv(fd, [buffers[0][:3]], position))
    file = OsFiles().open(str(tmp_path / "a"), writable=True)
    file.write_at(b"0123456789", 0)
    assert file.read_at(10, 0) == b"0123456789"
    buffer = bytearray(12)
    assert file.read_into(memoryview(buffer), 0) == 10
    assert buffer == b"0123456789\0\0"


@pytest.mark.parametrize("missing_at", [0, 512 << 10, (1 << 20) - 1])
def test_what_is_not_in_memory_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing_at: int) -> None:
    file = OsFiles().open(str(tmp_path / "a"), writable=True)
    file.write_at(bytes(1 << 20), 0)

    def preadv(descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags and position <= missing_at < position + len(buffers[0]):
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return len(buffers[0])

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert file.send_cached(ours.fileno(), 1 << 20, 0) > 0
        monkeypatch.setattr(os, "preadv", preadv)
        assert file.send_cached(ours.fileno(), 1 << 20, 0) == 0


def test_a_file_system_that_can_not_send_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sendfile(out: int, in_: int, position: int, size: int) -> int:
        raise OSError(errno.EINVAL, "can not")

    monkeypatch.setattr(os, "sendfile", sendfile)
    file = OsFiles().open(str(tmp_path / "a"), writable=True)
    content = os.urandom(100_000)
    file.write_at(content, 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        count = file.send_cached(ours.fileno(), 99_990, 10)
        assert 0 < count < 99_990
        assert theirs.recv(count, socket.MSG_WAITALL) == content[10 : 10 + count]


def test_a_disk_that_takes_no_bytes_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles().open(str(tmp_path / "a"), writable=True)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: 0)
    with pytest.raises(OSError, match="takes no more bytes"):
        file.write_at(b"abc", 0)


def test_a_link_to_nowhere_does_not_hide_the_other_names(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a").write_bytes(b"abc")
    assert Entry("a", False, 3) in set(OsFiles().entries(str(tmp_path)))


def test_the_disk_tells_its_size_and_its_room(tmp_path: Path) -> None:
    total, free = OsFiles().disk_space(str(tmp_path))
    assert 0 < free <= total
    with pytest.raises(FileNotFoundError):
        OsFiles().disk_space(str(tmp_path / "nowhere"))
    memory = MemoryFiles()
    memory.capacity_bytes = 100
    write_whole(memory, "/file", b"x" * 30)
    assert memory.disk_space("/") == (100, 70)
