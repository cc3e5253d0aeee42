"""Words for whole logs: `a_log(files, folder)`, `fill(log, 10)`, `consume(log, 0)`; batches are in `builders`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from barnabas.clock import ManualClock
from barnabas.config import LogConfig
from barnabas.records.batch import LOG_OVERHEAD, BatchHeader
from barnabas.records.builder import build_batch
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, Record
from barnabas.storage.batches import ENTRY_SIZE_MIN, LogFile, read_any_header, records_of, scan_batches
from barnabas.storage.files import Files
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.segment import LogSegment, OpenSegments
from tests.storage.builders import NOW_MS, log_options


def records(count: int, *, timestamp: int = NOW_MS, value_bytes: int = 20, **fields: Any) -> bytearray:
    """A batch of `count` records with keys k0, k1, ... and values of some bytes."""
    rows = [(timestamp, b"k%d" % index, bytes([97 + index % 26]) * value_bytes, ()) for index in range(count)]
    return build_batch(rows, **fields)


def a_log(
    files: Files,
    directory: str,
    known: LastKnown | None = None,
    *,
    clock: ManualClock | None = None,
    config: LogConfig | None = None,
    **settings: Any,
) -> Log:
    """Open the log in a folder; settings are fields of LogConfig."""
    options = log_options(files, directory, config or LogConfig(**settings), clock)
    # So few that every test of several segments closes and opens them again.
    options = replace(options, open_segments=OpenSegments(limit=2))
    return load_log(options, known or LastKnown())


def fill(log: Log, batches: int, *, count: int = 3, **fields: Any) -> None:
    """Append some batches."""
    for _ in range(batches):
        log.append_as_leader(records(count, **fields), 0)
    log.update_high_watermark(log.log_end_offset)


def segment_batches(segment: LogSegment) -> list[tuple[int, BatchHeader, list[Record]]]:
    """Position, header and records of every batch in a segment."""
    file = LogFile(segment.file(), segment.path, segment.size)
    return [
        (position, header, records_of(view, header, DECOMPRESSED_BYTES_MAX))
        for position, header, view in scan_batches(file)
    ]


def all_records(log: Log) -> list[Record]:
    """Every record of a log, in order."""
    return [record for segment in log.segments for _, _, found in segment_batches(segment) for record in found]


def consume(log: Log, start_offset: int, *, max_size: int = 1) -> list[Record]:
    """Every record from an offset up to the high watermark, fetched step by step as a consumer would."""
    found: list[Record] = []
    offset = start_offset
    while True:
        info = log.read(offset, max_size, log.high_watermark, min_one_message=True)
        if info.records is None:
            return found
        data = memoryview(info.records.file.read_at(info.records.size, info.records.position))
        batches = whole_batches(data)
        assert batches, "a read must bring at least one whole batch"
        for header, batch in batches:
            found += [record for record in records_of(batch, header, DECOMPRESSED_BYTES_MAX) if record.offset >= offset]
            offset = header.last_offset + 1


def whole_batches(data: memoryview) -> list[tuple[BatchHeader, memoryview]]:
    """The batches in fetched bytes, without the part of one at the end."""
    found = []
    position = 0
    while len(data) - position >= ENTRY_SIZE_MIN:
        # The part of a batch at the end may not even have all of its header.
        if int.from_bytes(data[position + 8 : position + 12], "big") + LOG_OVERHEAD > len(data) - position:
            break
        header = read_any_header(data, position)
        found.append((header, data[position : position + header.size]))
        position += header.size
    return found


def bases(log: Log) -> Sequence[int]:
    """The base offsets of the segments."""
    return [segment.base_offset for segment in log.segments]
