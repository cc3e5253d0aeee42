"""Ranges of bytes: batches come whole and checked, in one range or another, and damage is said with file and byte."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.fetched import FetchedBatch, whole_batches
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.segments import range_reader
from barnabas.spark.segments.options import ReadOptions, read_read_options
from barnabas.spark.segments.planning import ByteRange
from barnabas.spark.segments.range_reader import BatchFilter, batches_of
from barnabas.storage.transaction_index import AbortedTransaction
from tests.spark.segments.writing import Directory
from tests.storage.builders import batch_of, marker_of, sent_by

EVERYTHING = BatchFilter(())


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of 40 batches of different sizes."""
    directory = Directory(tmp_path_factory.mktemp("ranges") / "data")
    directory.append(*[batch_of(1 + number % 7, size=number * 13 % 300) for number in range(40)])
    directory.close()
    return directory.path / "orders-0" / f"{0:020d}.log"


def starts_of(segment: Path) -> list[int]:
    positions, position = [], 0
    for batch in whole_batches(memoryview(segment.read_bytes())):
        positions.append(position)
        position += len(batch.data)
    return positions


def options(**given: str) -> ReadOptions:
    return read_read_options({"path": "/", **{name.replace("_", "."): value for name, value in given.items()}})


def read(path: Path, start: int, end: int, start_offset: int = 0, end_offset: int = 1 << 62, **given: str) -> list[int]:
    wanted = ByteRange(
        path=str(path), start_position=start, end_position=end, start_offset=start_offset, end_offset=end_offset
    )
    return [batch.last_offset for batch in batches_of(wanted, EVERYTHING, options(**given))]


@settings(max_examples=60)
@given(data=st.data())
def test_ranges_that_follow_each_other_have_every_batch_once(segment: Path, data: st.DataObject) -> None:
    """Whatever the cuts, and however small the pieces that are read."""
    starts, size = starts_of(segment), segment.stat().st_size
    cuts = sorted(data.draw(st.sets(st.sampled_from(starts[1:]))))
    places = [0, *cuts, size]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(range_reader, "CHUNK_BYTES", data.draw(st.integers(12, 5000)))
        found = [offset for start, end in pairwise(places) for offset in read(segment, start, end)]
        assert found == read(segment, 0, size)
    assert len(found) == 40


@settings(max_examples=40)
@given(offsets=st.tuples(st.integers(0, 160), st.integers(0, 160)).map(sorted))
def test_only_batches_with_wanted_offsets_are_read(segment: Path, offsets: list[int]) -> None:
    size = segment.stat().st_size
    batches = list(whole_batches(memoryview(segment.read_bytes())))
    start_offset, end_offset = offsets
    expected = [
        batch.last_offset
        for batch in batches
        if batch.header is not None and batch.last_offset >= start_offset and batch.header.base_offset < end_offset
    ]
    assert read(segment, 0, size, start_offset, end_offset) == expected


def test_damage_is_said_with_file_and_byte(segment: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.log"
    content = bytearray(segment.read_bytes())
    place = starts_of(segment)[3]
    content[place + 70] ^= 1
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=rf"{path} is damaged at byte {place}: The checksum"):
        read(path, 0, len(content))
    assert len(read(path, 0, len(content), kafka_check_crcs="false")) == 40
    content[place + 8 : place + 12] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=rf"{path} is damaged at byte {place}"):
        read(path, 0, len(content))


def test_a_range_that_ends_inside_a_batch_is_no_silent_end(segment: Path) -> None:
    with pytest.raises(PipelineError, match="a batch begins there that goes on behind byte"):
        read(segment, 0, starts_of(segment)[3] + 5)


def test_files_that_go_or_shrink_are_a_loss(segment: Path, tmp_path: Path) -> None:
    path = tmp_path / "gone.log"
    shutil.copy(segment, path)
    size = path.stat().st_size
    with pytest.raises(DataLossError, match="became shorter"):
        read(path, 0, size + 1)
    assert len(read(path, 0, size + 1, failOnDataLoss="false")) == 0
    path.unlink()
    with pytest.raises(DataLossError, match=f"{path} is gone since the query was planned"):
        read(path, 0, size)
    assert read(path, 0, size, failOnDataLoss="false") == []


def test_markers_and_aborted_transactions_are_not_shown() -> None:
    def shown(chosen: BatchFilter, batch: bytes | bytearray) -> bool:
        (found,) = whole_batches(memoryview(batch))
        assert isinstance(found, FetchedBatch)
        return chosen.shows(found)

    aborted = BatchFilter((AbortedTransaction(7, 10, 20, 20),))
    within = sent_by(7, 0, 3, transactional=True, base_offset=12)
    assert not shown(EVERYTHING, marker_of(7, commit=True))
    assert shown(EVERYTHING, within)
    assert not shown(aborted, within)
    assert shown(aborted, sent_by(8, 0, 3, transactional=True, base_offset=12))
    assert shown(aborted, sent_by(7, 0, 3, transactional=True, base_offset=21))
    assert shown(aborted, sent_by(7, 0, 3, base_offset=12))
