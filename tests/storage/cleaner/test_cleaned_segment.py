"""CleanedSegment: files that end in `.cleaned`, durable when they are finished, gone when they are not."""

import pytest

from barnabas.records.batch import read_header
from barnabas.storage.cleaner import cleaned_segment
from barnabas.storage.cleaner.cleaned_segment import CleanedSegment
from barnabas.storage.cleaner.job import CleaningError, CleaningJob
from barnabas.storage.transaction_index import AbortedTransaction
from tests.storage.builders import NOW_MS, batch_of
from tests.storage.memory_files import SYNCED_ONLY, MemoryFiles

FOLDER = "/data/t-0"
JOB = CleaningJob(
    directory=FOLDER,
    segments=(),
    end_offset=0,
    first_dirty_offset=0,
    now_ms=NOW_MS,
    delete_retention_ms=0,
    segment_bytes=1 << 20,
    segment_index_bytes=1 << 20,
    index_interval_bytes=100,
    decompressed_bytes_max=1 << 20,
    dedupe_buffer_size=0,
    io_buffer_size=300,
    load_factor=0.9,
    bytes_per_second_max=1e9,
)


def a_segment() -> tuple[MemoryFiles, CleanedSegment, bytes]:
    files = MemoryFiles()
    files.make_directory(FOLDER)
    files.sync_everything()
    segment = CleanedSegment(files, JOB, 10)
    data = b""
    for number in range(10):
        batch = batch_of(2, base_offset=10 + 5 * number, timestamp=NOW_MS + number)
        segment.append(read_header(batch), batch)
        data += batch
    return files, segment, data


def test_what_is_finished_outlives_a_power_cut() -> None:
    files, segment, data = a_segment()
    segment.transaction_index.append(AbortedTransaction(1, 10, 12, 13))
    size, index_bytes, time_index_bytes = segment.finish(4711)
    assert files.modified_ms(f"{FOLDER}/00000000000000000010.log.cleaned") == 4711
    found = files.crash(SYNCED_ONLY).contents()
    assert found.pop(f"{FOLDER}/00000000000000000010.log.cleaned") == data
    assert size == len(data)
    sizes = {path.removeprefix(FOLDER): len(content) for path, content in found.items() if content is not None}
    assert sizes == {
        "/00000000000000000010.index.cleaned": index_bytes,
        "/00000000000000000010.timeindex.cleaned": time_index_bytes,
        "/00000000000000000010.txnindex.cleaned": 34,
    }
    assert index_bytes > 8
    assert time_index_bytes > 12


def test_what_is_discarded_is_gone() -> None:
    files, segment, _ = a_segment()
    segment.transaction_index.append(AbortedTransaction(1, 10, 12, 13))
    segment.discard()
    assert files.names(FOLDER) == []


def test_a_segment_never_has_positions_that_an_index_can_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    _, segment, data = a_segment()
    monkeypatch.setattr(cleaned_segment, "POSITION_MAX", len(data) + 10)
    batch = batch_of(base_offset=100)
    with pytest.raises(CleaningError, match="would have more than"):
        segment.append(read_header(batch), batch)
