"""`barnabas verify`: every kind of fault is found, named with path, position and reason, and nothing is changed."""

import json
import os
import pty
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cli.main import main
from barnabas.records.batch import restamp_crc
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from tests.cli.conftest import LAST_SEGMENT, SEGMENT
from tests.cli.test_main import BARNABAS
from tests.storage.interop.written import NOW_MS

SECOND_SEGMENT = "00000000000000000015"


class Damage(NamedTuple):
    """Something done to the directory, and the one fault that must be found: file, position, words of the reason."""

    name: str
    do: Callable[[Path], object]
    path: str
    place: str
    reason: str


def put(name: str, position: int, content: bytes) -> Callable[[Path], None]:
    """Overwrite bytes of a file."""

    def do(data_dir: Path) -> None:
        with open(data_dir / name, "r+b") as file:
            file.seek(position)
            file.write(content)

    return do


def text(name: str, content: str) -> Callable[[Path], object]:
    """Replace a text."""
    return lambda data_dir: (data_dir / name).write_text(content, encoding="utf-8")


def cut(name: str, size: int) -> Callable[[Path], object]:
    """Shorten a file."""
    return lambda data_dir: os.truncate(data_dir / name, size)


def append(name: str, content: bytes) -> Callable[[Path], None]:
    """Lengthen a file."""

    def do(data_dir: Path) -> None:
        with open(data_dir / name, "ab") as file:
            file.write(content)

    return do


def remove(name: str) -> Callable[[Path], object]:
    """Take a file away."""
    return lambda data_dir: (data_dir / name).unlink()


def bad_record_under_a_right_checksum(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{LAST_SEGMENT}.log"
    data = bytearray(path.read_bytes())
    data[176 + 61] = 0x7E
    restamp_crc(data, 176, 181)
    path.write_bytes(data)


def batch_that_goes_back(data_dir: Path) -> None:
    path = data_dir / "orders-0" / f"{LAST_SEGMENT}.log"
    data = bytearray(path.read_bytes())
    # The base offset is not covered by the checksum.
    data[357:365] = (53).to_bytes(8, "big")
    path.write_bytes(data)


def segment_that_overlaps(data_dir: Path) -> None:
    """The first segment gets a batch that belongs to the second."""
    append(f"orders-0/{SEGMENT}.log", bytes(build_batch([(NOW_MS, None, None, ())], base_offset=15, leader_epoch=0)))(
        data_dir
    )


ORDERS = f"orders-0/{LAST_SEGMENT}"
PAYMENTS = f"payments-0/{SEGMENT}"
LOOP = "00000000000000000060.log"
SNAPSHOT = "payments-0/00000000000000000011.snapshot"

# The offset index of ORDERS is [(9, 176), (14, 357)], its time index ends at offsets 54 and 59.
DAMAGES = [
    Damage("a wrong checksum", put(f"{ORDERS}.log", 530, b"\xff"), f"{ORDERS}.log", "position 357", "checksum"),
    Damage("a torn end", append(f"{ORDERS}.log", b"torn"), f"{ORDERS}.log", "position 538", "only 4 bytes are left"),
    Damage("a record", bad_record_under_a_right_checksum, f"{ORDERS}.log", "position 237", "The record at byte 0"),
    Damage("an offset that goes back", batch_that_goes_back, f"{ORDERS}.log", "position 357", "but 55 or more comes"),
    Damage("a wrong position", put(f"{ORDERS}.index", 4, struct.pack(">i", 177)), f"{ORDERS}.index", "position 0",
           "no batch starts at position 177"),
    Damage("a wrong offset", put(f"{ORDERS}.index", 0, struct.pack(">i", 3)), f"{ORDERS}.index", "position 0",
           "says offset 48, but its batch has 50 to 54"),
    Damage("an offset at which no batch ends", put(f"{ORDERS}.index", 0, struct.pack(">i", 7)), f"{ORDERS}.index",
           "position 0", "says offset 52, but no batch ends there"),
    Damage("an entry past the end", append(f"{ORDERS}.index", struct.pack(">ii", 20, 600)), f"{ORDERS}.index",
           "position 16", "says position 600, but the log ends at 538"),
    Damage("an odd length", append(f"{ORDERS}.index", b"\1\2\3"), f"{ORDERS}.index", "position 16", "19 bytes"),
    Damage("not increasing", put(f"{ORDERS}.index", 8, struct.pack(">i", 9)), f"{ORDERS}.index", "position 8",
           "(9, 357) does not lie after (9, 176)"),
    Damage("a wrong time", put(f"{ORDERS}.timeindex", 0, struct.pack(">q", NOW_MS)), f"{ORDERS}.timeindex",
           "position 0", f"says timestamp {NOW_MS}, but the largest"),
    Damage("a time past the end", append(f"{ORDERS}.timeindex", struct.pack(">qi", NOW_MS * 2, 99)),
           f"{ORDERS}.timeindex", "position 24", "says offset 144, but the log ends before"),
    Damage("an odd time index", cut(f"{ORDERS}.timeindex", 23), f"{ORDERS}.timeindex", "position 12", "23 bytes"),
    Damage("a missing index", remove(f"{ORDERS}.index"), f"{ORDERS}.index", "position 0", "the index is missing"),
    Damage("emptied leader epochs", cut("orders-0/leader-epoch-checkpoint", 0), "orders-0/leader-epoch-checkpoint",
           "position 0", "the file has no entries, but batches have leader epochs up to 1"),
    Damage("missing leader epochs", remove("orders-0/leader-epoch-checkpoint"), "orders-0/leader-epoch-checkpoint",
           "position 0", "the file is missing, but batches have leader epochs up to 1"),
    Damage("a version of an abort", put(f"{PAYMENTS}.txnindex", 34, b"\0\1"), f"{PAYMENTS}.txnindex", "position 34",
           "version 1"),
    Damage("an abort past the end", put(f"{PAYMENTS}.txnindex", 34 + 18, struct.pack(">q", 70)),
           f"{PAYMENTS}.txnindex", "position 34", "at offset 70, but there is no such marker"),
    Damage("an abort of another producer", put(f"{PAYMENTS}.txnindex", 2, struct.pack(">q", 999)),
           f"{PAYMENTS}.txnindex", "position 0", "producer 999 aborted"),
    Damage("the leader epoch of a batch", put(f"{ORDERS}.log", 12, struct.pack(">i", 77)), f"{ORDERS}.log",
           "position 12", "the batch has leader epoch 77, but leader-epoch-checkpoint says"),
    Damage("an odd transaction index", cut(f"{PAYMENTS}.txnindex", 40), f"{PAYMENTS}.txnindex", "position 34",
           "40 bytes"),
    Damage("a snapshot", put(SNAPSHOT, 50, b"\xff\xff"), SNAPSHOT, "position 0", "the checksum is"),
    Damage("a short snapshot", cut(SNAPSHOT, 3), SNAPSHOT, "position 0", "3 bytes"),
    Damage("a checkpoint's version", text("replication-offset-checkpoint", "7\n0\n"), "replication-offset-checkpoint",
           "line 1", "the version is '7'"),
    Damage("a checkpoint past the end", text("recovery-point-offset-checkpoint", "0\n1\norders 0 61\n"),
           "recovery-point-offset-checkpoint", "line 3", "orders-0 is at offset 61, but its log ends at 60"),
    Damage("leader epochs", text("orders-0/leader-epoch-checkpoint", "0\n2\n4 0\n3 30\n"),
           "orders-0/leader-epoch-checkpoint", "line 4", "(3, 30) do not lie after (4, 0)"),
    Damage("a leader epoch", text("orders-0/leader-epoch-checkpoint", "0\n1\nfour 0\n"),
           "orders-0/leader-epoch-checkpoint", "line 3", "'four' is not a number"),
    Damage("a topic id", text("orders-0/partition.metadata", "version: 0\ntopic_id: x"), "orders-0/partition.metadata",
           "line 2", "is not a topic id"),
    Damage("properties", text("meta.properties", "nonsense\n"), "meta.properties", "line 1", "not of the form"),
    Damage("a foreign folder", lambda data_dir: (data_dir / "photos").mkdir(), "photos", "position 0",
           "not that of a partition"),
    Damage("a folder without segments", lambda data_dir: (data_dir / "empty-0").mkdir(), "empty-0", "position 0",
           "there is no segment"),
    Damage("a segment that overlaps", segment_that_overlaps, f"orders-0/{SECOND_SEGMENT}.log", "position 0",
           "starts at offset 15, but the one before it ends at 16"),
    Damage("a file that can not be read", lambda data_dir: (data_dir / "orders-0" / LOOP).symlink_to(LOOP),
           f"orders-0/{LOOP}", "position 0", "can not be read: Too many levels of symbolic links"),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_every_kind_of_fault_is_found(data_dir: Path, damage: Damage, capsys: pytest.CaptureFixture[str]) -> None:
    damage.do(data_dir)
    assert main(["verify", str(data_dir)]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    [fault, summary] = captured.out.splitlines()
    assert fault.startswith(f"{data_dir / damage.path}, {damage.place}: ")
    assert damage.reason in fault
    assert summary.endswith(": 1 fault")


def test_faults_as_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text("replication-offset-checkpoint", "7\n0\n")(data_dir)
    append(f"{ORDERS}.log", b"torn")(data_dir)
    assert main(["verify", "--json", str(data_dir)]) == 1
    [first, second, last] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["fault"]["path"] == str(data_dir / f"{ORDERS}.log")
    assert (first["fault"]["position"], first["fault"]["unit"]) == (538, "position")
    assert (second["fault"]["position"], second["fault"]["unit"]) == (1, "line")
    assert last["summary"]["faults"] == 2


def test_a_sound_directory(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(data_dir)]) == 0
    [summary] = capsys.readouterr().out.splitlines()
    assert summary.startswith("2 partitions, 5 segments, 17 batches, 71 records, 0.0 MB in ")
    assert summary.endswith(" s: no faults")
    assert main(["verify", "--json", str(data_dir)]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    del summary["seconds"]
    assert summary == {"partitions": 2, "segments": 5, "batches": 17, "records": 71, "bytes": 2_533, "faults": 0}


@pytest.mark.parametrize("ending", ["", "/"])
def test_one_partition(payments: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", f"{payments}{ending}"]) == 0
    assert capsys.readouterr().out.startswith("1 partition, 1 segment, 5 batches, 11 records, ")


def test_several_directories(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(data_dir, tmp_path / "other")
    cut(f"{ORDERS}.log", 500)(tmp_path / "other")
    assert main(["verify", str(data_dir), str(tmp_path / "other")]) == 1
    out = capsys.readouterr().out
    assert f"{tmp_path / 'other' / ORDERS}.log, position 357: " in out
    assert "\n4 partitions, 10 segments, " in out


def test_a_relative_path(data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(data_dir.parent)
    assert main(["verify", data_dir.name]) == 0
    monkeypatch.chdir(data_dir)
    assert main(["verify", "."]) == 0


def test_what_is_not_a_folder_is_refused_before_anything_is_checked(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(data_dir), str(tmp_path / "a"), str(data_dir / "meta.properties")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"barnabas verify: {tmp_path / 'a'} is not a folder",
        f"barnabas verify: {data_dir / 'meta.properties'} is not a folder",
    ]


def test_indexes_may_be_missing_after_a_crash(data_dir: Path) -> None:
    """The next start makes them again; only where a clean shutdown is claimed they must be there."""
    remove(f"{ORDERS}.index")(data_dir)
    remove(f"{ORDERS}.timeindex")(data_dir)
    assert main(["verify", str(data_dir)]) == 1
    remove(".kafka_cleanshutdown")(data_dir)
    assert main(["verify", str(data_dir)]) == 0
    assert main(["verify", str(data_dir / "orders-0")]) == 0


def test_leader_epochs_may_be_missing_after_a_crash(data_dir: Path) -> None:
    remove(".kafka_cleanshutdown")(data_dir)
    remove("orders-0/leader-epoch-checkpoint")(data_dir)
    assert main(["verify", str(data_dir)]) == 0


@pytest.mark.parametrize("marker", [True, False])
def test_a_log_that_vanished_is_missed_by_its_indexes(
    data_dir: Path, marker: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    remove(f"orders-0/{SECOND_SEGMENT}.log")(data_dir)
    if not marker:
        remove(".kafka_cleanshutdown")(data_dir)
    assert main(["verify", str(data_dir)]) == 1
    [first, second, _] = capsys.readouterr().out.splitlines()
    missed = data_dir / "orders-0" / SECOND_SEGMENT
    assert first == f"{missed}.index, position 0: the index has no log file"
    assert second == f"{missed}.timeindex, position 0: the index has no log file"


def test_a_partition_whose_logs_are_all_gone(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in [*orders.glob("*.log"), *orders.glob("*index")]:
        path.unlink()
    for target in (orders, orders.parent):
        assert main(["verify", str(target)]) == 1
        assert capsys.readouterr().out.startswith(f"{orders}, position 0: there is no segment\n")


@pytest.mark.parametrize("kind", ["empty", "foreign"])
def test_a_folder_that_is_no_log_directory_is_refused(
    data_dir: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "notes-1"
    folder.mkdir()
    if kind == "foreign":
        (folder / "photos").mkdir()
        (folder / "notes.txt").write_text("x")
    assert main(["verify", str(data_dir), str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"barnabas verify: {folder} is not a log directory:"
        " there is no partition, no checkpoint and no meta.properties in it\n"
    )


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_a_log_directory_without_partitions_is_sound(
    data_dir: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    shutil.copy(data_dir / name, folder)
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("0 partitions, ")


def test_zeros_that_kafka_left_after_a_crash_are_no_fault(data_dir: Path) -> None:
    remove(".kafka_cleanshutdown")(data_dir)
    cut(f"{ORDERS}.index", 10_485_760)(data_dir)
    cut(f"{ORDERS}.timeindex", 10_485_756)(data_dir)
    assert main(["verify", str(data_dir)]) == 0


def test_nothing_is_blamed_for_what_lies_behind_damage(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Index, transaction index and checkpoints tell of records that can not be seen any more."""
    put(f"{PAYMENTS}.log", 120, b"\xff")(data_dir)
    put(f"{ORDERS}.log", 100, b"\xff")(data_dir)
    assert main(["verify", str(data_dir)]) == 1
    [first, second, _] = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{data_dir / ORDERS}.log, position 0: ")
    assert second.startswith(f"{data_dir / PAYMENTS}.log, position 85: ")


def test_folders_on_their_way_out_are_not_looked_at(data_dir: Path) -> None:
    for kind in ("delete", "stray"):
        folder = data_dir / f"orders-0.{'0' * 32}-{kind}"
        folder.mkdir()
        (folder / f"{SEGMENT}.log").write_bytes(b"torn")
    for foreign in ("lost+found", "remote-log-index-cache", "__cluster_metadata-0"):
        (data_dir / foreign).mkdir()
    assert main(["verify", str(data_dir)]) == 0


def test_a_copy_of_a_log_that_is_being_moved_here_is_left_alone(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is compared with the log byte for byte before anybody reads it."""
    future = data_dir / f"orders-0.{'0' * 32}-future"
    future.mkdir()
    for path in (data_dir / "orders-0").glob(f"{SEGMENT}.*"):
        shutil.copy(path, future)
    shutil.copy(data_dir / "orders-0" / "leader-epoch-checkpoint", future)
    assert main(["verify", str(data_dir)]) == 0
    assert capsys.readouterr().out.startswith("2 partitions, 5 segments, ")


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: when it was changed, how it may be used, and what is in it."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def test_nothing_is_changed(data_dir: Path) -> None:
    for damage in DAMAGES:
        if damage.name != "a file that can not be read":
            damage.do(data_dir)
    before = tree(data_dir)
    assert main(["verify", str(data_dir)]) == 1
    assert tree(data_dir) == before


def test_people_who_wait_see_progress(data_dir: Path) -> None:
    """On a terminal there is a bar, which is gone at the end; the faults and the summary are on stdout as ever."""
    # Enough work for the bar to be drawn, since it is drawn at most ten times a second: small files that unpack large.
    batch = bytes(build_batch([(NOW_MS, None, bytes(900_000), ())], codec=Codec.GZIP, leader_epoch=0))
    folder = data_dir / "large-0"
    folder.mkdir()
    (data_dir / ".kafka_cleanshutdown").unlink()
    for number in range(400):
        stamped = number.to_bytes(8, "big") + batch[8:]
        (folder / f"{number:020d}.log").write_bytes(stamped)
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen([BARNABAS, "verify", str(data_dir)], stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)
        shown = b""
        while chunk := read_terminal(master):
            shown += chunk
        out, _ = process.communicate(timeout=60)
    finally:
        os.close(master)
    assert process.returncode == 0
    assert out.startswith("3 partitions, 405 segments, ")
    assert b"verify [" in shown
    assert b"MB/s" in shown
    assert shown.endswith(b"\r\x1b[K")


def read_terminal(master: int) -> bytes:
    """What the process wrote, or nothing when it has closed its end."""
    try:
        return os.read(master, 4_096)
    except OSError:  # So Linux says that the other end of a terminal is closed.
        return b""


@given(data=st.data())
@settings(max_examples=100)
def test_no_damage_is_answered_with_a_traceback(
    sound_directory: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    target = tmp_path_factory.mktemp("damaged") / "data"
    shutil.copytree(sound_directory, target)
    files = sorted(path for path in target.rglob("*") if path.is_file() and not path.name.startswith("."))
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    if content:
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content + data.draw(st.binary(max_size=70)))
    assert main(["verify", str(target)]) in (0, 1)
    shutil.rmtree(target)
