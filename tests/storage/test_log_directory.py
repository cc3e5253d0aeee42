"""One folder of log.dirs: its lock, its identity, its checkpoints, and what the names in it mean."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    decode_topic_id,
    read_properties,
)
from barnabas.storage.files import DirectoryLockedError, OsFiles, read_whole, write_whole
from barnabas.storage.log_directory import (
    FolderKind,
    LogDirectory,
    LogDirectoryError,
    PartitionFolder,
    folder_name,
    parse_folder,
)
from tests.storage.conftest import Disk
from tests.storage.memory_files import SYNCED_ONLY, MemoryFiles

ORDERS_0 = TopicPartition("orders", 0)
HEX = "0123456789abcdef0123456789abcdef"
IDENTITY = {"node.id": "1", "cluster.id": "c"}


def taken(files: MemoryFiles, path: str = "/data") -> LogDirectory:
    directory = LogDirectory(files, path)
    directory.take()
    return directory


# Names.


@pytest.mark.parametrize(
    ("name", "partition", "kind"),
    [
        ("orders-0", ("orders", 0), FolderKind.CURRENT),
        ("orders-2147483647", ("orders", 2**31 - 1), FolderKind.CURRENT),
        ("a-b-1-23", ("a-b-1", 23), FolderKind.CURRENT),
        ("a.b_C-9", ("a.b_C", 9), FolderKind.CURRENT),
        ("__consumer_offsets-49", ("__consumer_offsets", 49), FolderKind.CURRENT),
        (f"orders-0.{HEX}-delete", ("orders", 0), FolderKind.DELETE),
        (f"orders-0.{HEX}-future", ("orders", 0), FolderKind.FUTURE),
        (f"orders-0.{HEX}-stray", ("orders", 0), FolderKind.STRAY),
        (f"a.b-c-7.{HEX}-delete", ("a.b-c", 7), FolderKind.DELETE),
    ],
)
def test_the_folder_of_a_partition_is_known_by_its_name(
    name: str, partition: tuple[str, int], kind: FolderKind
) -> None:
    assert parse_folder(name) == PartitionFolder(name, TopicPartition(*partition), kind)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "orders-",
        "-0",
        "orders-x",
        "orders 0",
        "or/ders-0",
        "ordärs-0",
        f"orders-0.{HEX}-gone",
        "backup-0 (copy)",
        "orders-0\n",
        f"orders-0.{HEX}",
    ],
)
def test_other_names_are_no_partition(name: str) -> None:
    assert parse_folder(name) is None


@pytest.mark.parametrize("kind", list(FolderKind))
def test_a_name_that_is_given_is_understood(kind: FolderKind) -> None:
    name = folder_name(ORDERS_0, kind)
    assert parse_folder(name) == PartitionFolder(name, ORDERS_0, kind)
    assert (name == folder_name(ORDERS_0, kind)) is (kind is FolderKind.CURRENT)


@pytest.mark.parametrize("partition", [0, 2**31 - 1])
def test_the_name_of_a_deleted_log_fits_and_is_understood_however_long_its_topic_is(partition: int) -> None:
    name = folder_name(TopicPartition("t" * 249, partition), FolderKind.DELETE)
    assert len(name) == 255
    folder = parse_folder(name)
    assert folder is not None
    assert (folder.kind, folder.partition.partition) == (FolderKind.DELETE, partition)
    assert set(folder.partition.topic) == {"t"}


# Taking a folder.


def test_a_missing_folder_is_made(disk: Disk) -> None:
    directory = LogDirectory(disk.files, disk.path("some/where/data"))
    directory.take()
    assert disk.files.exists(disk.path("some/where/data/.lock"))
    directory.release()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_is_no_folder(disk: Disk, name: str) -> None:
    write_whole(disk.files, disk.path("file"), b"")
    with pytest.raises(LogDirectoryError, match=r"file.* is not a folder"):
        LogDirectory(disk.files, disk.path(name)).take()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_a_folder_that_may_not_be_used_is_refused(memory_files: MemoryFiles, code: int) -> None:
    memory_files.fail_directory("/data", code)
    with pytest.raises(LogDirectoryError, match="/data can not be used: "):
        taken(memory_files)


def test_a_folder_is_held_against_others_until_it_is_released(disk: Disk) -> None:
    first, second = LogDirectory(disk.files, disk.root), LogDirectory(disk.files, disk.root)
    first.take()
    with pytest.raises(DirectoryLockedError, match="in use"):
        second.take()
    first.release()
    second.take()
    second.release()
    second.release()


HOLDER = """
import sys
from barnabas.storage.files import OsFiles
from barnabas.storage.log_directory import LogDirectory
directory = LogDirectory(OsFiles(), sys.argv[1])
directory.take()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_held_against_other_processes(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        directory = LogDirectory(OsFiles(), str(tmp_path))
        with pytest.raises(DirectoryLockedError, match=f"{tmp_path} is in use by .*process"):
            directory.take()
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait()
    directory.take()
    directory.release()


# Identity.


def test_a_new_folder_gets_an_identity(memory_files: MemoryFiles) -> None:
    wanted = taken(memory_files).identify(IDENTITY)
    found = read_properties(memory_files.crash(SYNCED_ONLY), f"/data/{META_PROPERTIES}")
    assert found == wanted
    assert {name: found[name] for name in ("version", "node.id", "cluster.id")} == {"version": "1", **IDENTITY}
    assert decode_topic_id(found["directory.id"]) != ZERO_TOPIC_ID


def test_an_identity_is_kept_and_not_written_again(memory_files: MemoryFiles) -> None:
    directory = taken(memory_files)
    wanted = directory.identify(IDENTITY)
    steps = memory_files.steps
    assert directory.identify(IDENTITY) == wanted
    assert memory_files.steps == steps


def test_what_a_kafka_wrote_is_kept_and_the_directory_id_added(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, f"/data/{META_PROPERTIES}", b"#\n#Tue Sep 02\nversion=1\nnode.id=1\nextra=x\n")
    found = taken(memory_files).identify(IDENTITY)
    assert (found["extra"], found["cluster.id"], found["version"]) == ("x", "c", "1")
    assert "directory.id" in found


@pytest.mark.parametrize("name", ["node.id", "cluster.id"])
def test_the_folder_of_another_broker_is_refused_and_not_touched(memory_files: MemoryFiles, name: str) -> None:
    directory = taken(memory_files)
    directory.identify({**IDENTITY, name: "other"})
    before = memory_files.contents()
    with pytest.raises(LogDirectoryError, match=f"has {name}=other, but this broker has {name}="):
        directory.identify(IDENTITY)
    assert memory_files.contents() == before


def test_a_damaged_identity_is_an_error_with_path_and_line(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, f"/data/{META_PROPERTIES}", b"version=1\ngarbage\n")
    with pytest.raises(CheckpointError, match="line 2"):
        taken(memory_files).identify(IDENTITY)


# The clean-shutdown marker.


def test_a_new_folder_was_not_stopped_cleanly(memory_files: MemoryFiles) -> None:
    directory = taken(memory_files)
    directory.begin()
    assert not directory.had_clean_shutdown


def test_the_marker_is_there_once_and_gone_for_good(memory_files: MemoryFiles) -> None:
    directory = taken(memory_files)
    directory.mark_clean()
    assert memory_files.crash(SYNCED_ONLY).exists(f"/data/{CLEAN_SHUTDOWN_MARKER}")
    directory.begin()
    assert directory.had_clean_shutdown
    assert not memory_files.crash(SYNCED_ONLY).exists(f"/data/{CLEAN_SHUTDOWN_MARKER}")
    directory.begin()
    assert not directory.had_clean_shutdown


def test_the_empty_marker_of_an_older_kafka_counts(memory_files: MemoryFiles) -> None:
    write_whole(memory_files, f"/data/{CLEAN_SHUTDOWN_MARKER}", b"")
    directory = taken(memory_files)
    directory.begin()
    assert directory.had_clean_shutdown


# What is in it.


def test_folders_of_partitions_are_listed_in_order_and_files_are_not(memory_files: MemoryFiles) -> None:
    foreign = ("lost+found", "remote-log-index-cache", "__cluster_metadata-0")
    for name in ("orders-1", "orders-0", f"orders-0.{HEX}-delete", *foreign):
        memory_files.make_directory(f"/data/{name}")
    for name in ("notes.txt", "bootstrap.checkpoint", HIGH_WATERMARK_CHECKPOINT, "orders-7"):
        write_whole(memory_files, f"/data/{name}", b"")
    assert [folder.name for folder in taken(memory_files).folders()] == [
        "orders-0",
        f"orders-0.{HEX}-delete",
        "orders-1",
    ]


def test_a_foreign_folder_is_refused_by_name(memory_files: MemoryFiles) -> None:
    memory_files.make_directory("/data/photos")
    with pytest.raises(LogDirectoryError, match="/data/photos can not be loaded: its name is not that of a partition"):
        taken(memory_files).folders()


# Checkpoints.


def test_a_checkpoint_is_read_as_it_was_written(memory_files: MemoryFiles) -> None:
    directory = taken(memory_files)
    directory.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, {ORDERS_0: 5})
    assert read_whole(memory_files, f"/data/{HIGH_WATERMARK_CHECKPOINT}") == b"0\n1\norders 0 5\n"
    assert directory.read_checkpoint(HIGH_WATERMARK_CHECKPOINT) == {ORDERS_0: 5}
    assert directory.read_checkpoint(RECOVERY_POINT_CHECKPOINT) == {}


@pytest.mark.parametrize(("name", "is_clean"), [(HIGH_WATERMARK_CHECKPOINT, True), (RECOVERY_POINT_CHECKPOINT, False)])
def test_a_damaged_checkpoint_is_empty_and_without_recovery_points_nothing_is_trusted(
    memory_files: MemoryFiles, caplog: pytest.LogCaptureFixture, name: str, is_clean: bool
) -> None:
    directory = taken(memory_files)
    directory.mark_clean()
    directory.begin()
    write_whole(memory_files, f"/data/{name}", b"0\n2\norders 0 5\n")
    assert directory.read_checkpoint(name) == {}
    assert directory.had_clean_shutdown is is_clean
    assert f"/data/{name}, line 2: " in caplog.text
