"""What lies in log directories: partitions, where logs start and end, open and aborted transactions."""

import shutil
from pathlib import Path

import pytest

from barnabas.model import TopicPartition
from barnabas.spark.errors import PipelineError
from barnabas.spark.segments.log_files import (
    PartitionFiles,
    aborted_in,
    end_of,
    index_entries,
    last_stable_offset,
    partitions_in,
)
from barnabas.storage.index import OFFSET_ENTRY
from tests.spark.segments.writing import Directory
from tests.storage.builders import batch_of, marker_of, sent_by

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data", segment_bytes=2000, index_interval_bytes=100)


def found(directory: Directory) -> PartitionFiles:
    return partitions_in([str(directory.path)])[ORDERS]


def test_partitions_are_found_in_directories_in_their_folders_and_in_copies(
    directory: Directory, tmp_path: Path
) -> None:
    directory.append(*[batch_of(5) for _ in range(30)])
    directory.append(batch_of(1), topic="payments", partition=3)
    known = partitions_in([str(directory.path)])
    assert sorted(known) == [ORDERS, TopicPartition("payments", 3)]
    assert len(known[ORDERS].segments) > 2
    copy = tmp_path / "elsewhere" / "orders-0"
    shutil.copytree(directory.path / "orders-0", copy)
    assert list(partitions_in([str(copy)])) == [ORDERS]
    with pytest.raises(PipelineError, match=f"orders-0 is in {directory.path}/orders-0 and in {copy}"):
        partitions_in([str(directory.path), str(copy)])
    directory.close()


def test_files_on_their_way_in_or_out_are_none(directory: Directory) -> None:
    directory.append(*[batch_of(5) for _ in range(30)])
    before = found(directory)
    folder = directory.path / "orders-0"
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000003.log.cleaned",
        "00000000000000000004.log.swap",
    ):
        shutil.copy(folder / "00000000000000000000.log", folder / name)
    (folder / ".load-one").mkdir()
    for kind in ("delete", "future", "stray"):
        shutil.copytree(folder, directory.path / f"gone-0.{'0' * 32}-{kind}")
    assert partitions_in([str(directory.path)]) == {ORDERS: before}
    directory.close()


def test_a_log_starts_where_its_checkpoint_says(directory: Directory) -> None:
    directory.append(*[batch_of(5) for _ in range(30)])
    directory.log().delete_records(7)
    directory.checkpoint()
    assert found(directory).log_start_offset == 7
    (directory.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 x\n")
    with pytest.raises(
        PipelineError, match=r"log-start-offset-checkpoint can not be read: 'x' is not a number \(line 3\)"
    ):
        found(directory)
    directory.close()


@pytest.mark.parametrize("torn", [b"", b"\x00", bytes(100), b"\xff" * 200, bytes(batch_of(9))[:-1]])
def test_a_log_ends_after_its_last_whole_batch(directory: Directory, torn: bytes) -> None:
    directory.append(*[batch_of(5) for _ in range(3)])
    path = directory.path / "orders-0" / f"{0:020d}.log"
    with path.open("ab") as file:
        file.write(torn)
    assert end_of(found(directory)) == 15
    shutil.rmtree(directory.path / "orders-0")


def test_an_index_is_believed_as_far_as_it_can_be_right(directory: Directory) -> None:
    directory.append(*[batch_of(5) for _ in range(30)])
    directory.close()
    segment = found(directory).segments[0]
    path = Path(segment.path).with_suffix(".index")
    good = index_entries(segment)
    assert len(good) > 3
    data = path.read_bytes()
    for damaged, expected in (
        (data + bytes(800), good),
        (data + OFFSET_ENTRY.pack(10**6, 10**6), good),
        (data[:-3], good[:-1]),
        (data[:8] + data, good[:1]),
        (b"", []),
    ):
        path.write_bytes(damaged)
        assert index_entries(segment) == expected
    path.unlink()
    assert index_entries(segment) == []
    assert end_of(found(directory)) == 150


@pytest.mark.parametrize("is_closed", [False, True])
def test_open_transactions_end_what_is_stable_and_aborted_ones_are_known(directory: Directory, is_closed: bool) -> None:
    directory.append(sent_by(7, 0, 3, transactional=True), batch_of(2))
    directory.mark(marker_of(7, commit=False))
    directory.append(*[batch_of(5) for _ in range(40)])
    directory.append(sent_by(8, 0, 2, transactional=True))
    end = directory.log().log_end_offset
    directory.append(batch_of(1), sent_by(9, 0, 2, transactional=True))
    directory.mark(marker_of(9, commit=True))
    assert directory.log().last_stable.message_offset == end - 2
    if is_closed:
        directory.close()
    files = found(directory)
    assert last_stable_offset(files, end_of(files)) == end - 2
    for snapshot in (directory.path / "orders-0").glob("*.snapshot"):
        snapshot.write_bytes(b"damaged")
    assert last_stable_offset(files, end_of(files)) == end - 2
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in aborted_in(files, 0, end)] == [(7, 0, 5)]
    index = directory.path / "orders-0" / f"{0:020d}.txnindex"
    index.write_bytes(index.read_bytes() + b"x")
    with pytest.raises(PipelineError, match=r"00000000000000000000\.txnindex is damaged at byte 34"):
        aborted_in(files, 0, end)
    if not is_closed:
        directory.log().abandon()


def test_what_is_no_log_directory_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, words in (("missing", "does not exist"), ("file", "is no folder"), ("empty", "is no log directory")):
        with pytest.raises(PipelineError, match=f"{tmp_path / name} {words}"):
            partitions_in([str(tmp_path / name)])
