"""Sealed segments: batches and indexes as a broker's own segment has them."""

from pathlib import Path

from barnabas.config import LogConfig
from barnabas.model import TopicPartition
from barnabas.spark.segments.sealed_segment import SealedSegment
from barnabas.storage.files import OsFiles
from barnabas.storage.staged_load import StagedPartition, check, claim, staging_folder, write_manifest
from barnabas.storage.verifier import Fault, SegmentVerifier
from tests.storage.builders import NOW_MS, batch_of

ORDERS = TopicPartition("orders", 0)


def test_a_segment_is_what_a_broker_would_have_written(tmp_path: Path) -> None:
    folder = Path(staging_folder(str(tmp_path), "one"))
    folder.mkdir()
    segment = SealedSegment(str(folder), "a")
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


def test_there_is_room_for_one_batch_and_for_more_up_to_the_limit(tmp_path: Path) -> None:
    segment = SealedSegment(str(tmp_path), "a")
    batch = batch_of(3)
    assert segment.has_room(batch, 1)
    segment.append(batch)
    assert segment.has_room(batch, 2 * len(batch))
    assert not segment.has_room(batch, 2 * len(batch) - 1)
    segment.abandon()
    assert list(tmp_path.iterdir()) == []
