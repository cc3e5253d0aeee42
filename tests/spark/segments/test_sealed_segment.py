"""Sealed segments: batches and indexes as a broker's own segment has them."""

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.config import LogConfig
from barnabas.model import TopicPartition
from barnabas.spark.segments import sealed_segment
from barnabas.spark.segments.sealed_segment import SealedSegment
from barnabas.storage import files
from barnabas.storage.files import OsFiles
from barnabas.storage.log_end import AHEAD_BYTES_MIN
from barnabas.storage.staged_load import StagedPartition, check, claim, staging_folder, write_manifest
from barnabas.storage.verifier import Fault, SegmentVerifier
from tests.storage.builders import NOW_MS, batch_of

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def syncs() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def test_a_segment_is_what_a_broker_would_have_written(tmp_path: Path, syncs: ThreadPoolExecutor) -> None:
    folder = Path(staging_folder(str(tmp_path), "one"))
    folder.mkdir()
    segment = SealedSegment(str(folder), "a", syncs)
    times = [NOW_MS, NOW_MS + 9, NOW_MS + 5, NOW_MS + 20, NOW_MS + 1]
    for time in times * 10:
        segment.append(batch_of(3, timestamp=time, size=600))
    written = segment.close()
    assert written.records == 150
    assert written.size == (folder / "a.log").stat().st_size
    assert (folder / "a.index").stat().st_size > 8
    load = StagedPartition(load_id="one", partition=ORDERS, directory=str(tmp_path), segments=(written,))
    write_manifest(OsFiles(), load)
    check(OsFiles(), claim(OsFiles(), str(tmp_path), ORDERS, "one"), LogConfig(), check_crcs=True)
    for path in (tmp_path / ".adopting-one").glob("a.*"):
        path.rename(tmp_path / f"{0:020d}{path.suffix}")
    faults: list[Fault] = []
    seen = SegmentVerifier(OsFiles(), str(tmp_path), 0, faults.append).verify(True, lambda _path, _size: None)
    assert (seen.records, seen.is_complete, faults) == (150, True, [])


def test_there_is_room_for_one_batch_and_for_more_up_to_the_limit(tmp_path: Path, syncs: ThreadPoolExecutor) -> None:
    segment = SealedSegment(str(tmp_path), "a", syncs)
    batch = batch_of(3)
    assert segment.has_room(batch, 1)
    segment.append(batch)
    assert segment.has_room(batch, 2 * len(batch))
    assert not segment.has_room(batch, 2 * len(batch) - 1)
    segment.abandon()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_goes_to_the_disk_before_the_segment_is_closed(
    tmp_path: Path, syncs: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(3)
    monkeypatch.setattr(sealed_segment, "SYNC_BYTES", 2 * len(batch))
    is_there, may_go_on = threading.Event(), threading.Event()
    sizes = []

    def sync_late(file: int) -> None:
        sizes.append(os.fstat(file).st_size)
        is_there.set()
        assert may_go_on.wait(60)

    monkeypatch.setattr(os, "fdatasync", sync_late)
    segment = SealedSegment(str(tmp_path), "a", syncs)
    segment.append(batch)
    assert sizes == []
    segment.append(batch)
    assert is_there.wait(60)
    # While a sync is under way, nobody waits for it and none is asked for besides.
    for _ in range(4):
        segment.append(batch)
    is_there.clear()
    may_go_on.set()
    syncs.submit(int).result()
    segment.append(batch)
    assert is_there.wait(60)
    assert segment.close().size == 7 * len(batch)
    assert sizes == [2 * len(batch), 7 * len(batch)]


def test_room_is_reserved_ahead_of_a_segment_that_grows_and_given_back(
    tmp_path: Path, syncs: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_gains_by_room_ahead", lambda device: True)
    file = OsFiles().open(str(tmp_path / "a.log"), writable=True)
    segment = SealedSegment(str(tmp_path), "a", syncs)
    batch = batch_of(2, size=500_000)
    while segment.size + len(batch) <= AHEAD_BYTES_MIN:
        segment.append(batch)
    assert not file.has_room_ahead(), "segments of a load into many partitions stay small"
    segment.append(batch)
    assert file.has_room_ahead()
    assert file.size() == segment.size, "what a file has is what was written to it"
    assert segment.close().size == file.size()
    assert not file.has_room_ahead()


def test_a_file_of_an_attempt_that_died_is_written_anew(tmp_path: Path, syncs: ThreadPoolExecutor) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * 10_000)
    batch = batch_of(3)
    segment = SealedSegment(str(tmp_path), "a", syncs)
    segment.append(batch)
    assert segment.close().size == len(batch) == (tmp_path / "a.log").stat().st_size


@pytest.mark.parametrize("more", [0, 2])
def test_a_sync_that_fails_on_the_way_is_not_lost(
    tmp_path: Path, syncs: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    batch = batch_of(3)
    monkeypatch.setattr(sealed_segment, "SYNC_BYTES", len(batch))
    monkeypatch.setattr(os, "fdatasync", fail)
    segment = SealedSegment(str(tmp_path), "a", syncs)
    segment.append(batch)
    syncs.submit(int).result()
    with pytest.raises(OSError, match="the disk is broken"):
        for _ in range(more):
            segment.append(batch)
        segment.close()
    segment.abandon()
