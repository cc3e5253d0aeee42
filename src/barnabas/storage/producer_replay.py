"""Brings the producer state of a log up to an offset: from a snapshot file, and from the batches after it.

Appending, recovery and truncation all feed batches through `apply_batch`, so that the state after a restart is the
state before it. Snapshot files are named by the offset up to which, and without which, they tell: `N.snapshot`.
"""

import logging
import os
from collections.abc import Container, Iterable

from barnabas.records.batch import BatchHeader, CorruptRecordError
from barnabas.records.builder import MARKER_SIZE, read_marker, read_usual_marker
from barnabas.records.record import batch_records
from barnabas.storage.batches import CorruptLogError, scan_headers
from barnabas.storage.files import Files, FileTooLargeError, read_whole, write_whole
from barnabas.storage.producers import CorruptSnapshotError, Marker, ProducerStateManager
from barnabas.storage.segment import LogSegment
from barnabas.storage.segments import LogSegments

SNAPSHOT_SUFFIX = ".snapshot"
# Room for five million producers, which is more than memory has.
SNAPSHOT_BYTES_MAX = 256 * 1024 * 1024

logger = logging.getLogger(__name__)


def snapshot_path(directory: str, offset: int) -> str:
    """Return the name of the snapshot up to an offset."""
    return os.path.join(directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """Return the offsets of all snapshots in a folder, newest first."""
    stems = [name[: -len(SNAPSHOT_SUFFIX)] for name in files.names(directory) if name.endswith(SNAPSHOT_SUFFIX)]
    return sorted((int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal()), reverse=True)


def write_snapshot(
    files: Files, directory: str, offset: int, producers: ProducerStateManager, *, durable: bool
) -> None:
    """Write the state as it is now, at `offset`."""
    write_whole(files, snapshot_path(directory, offset), producers.snapshot(), durable=durable)


def read_end_marker(data: bytes | bytearray | memoryview, batch: BatchHeader) -> Marker:
    """Return what the control batch at the start of `data` says of its transaction."""
    usual = read_usual_marker(data) if batch.size == MARKER_SIZE and not batch.codec else None
    return Marker(*(usual or read_marker(batch_records(data, batch)[0])))


def apply_batch(
    producers: ProducerStateManager, segment: LogSegment, batch: BatchHeader, data: bytes | bytearray | memoryview
) -> None:
    """Take one appended batch of a producer into the state, and an aborted transaction into the segment's index."""
    if not batch.is_control:
        producers.update(batch)
    elif batch.is_transactional and batch.count:
        # A control batch without records is what compaction leaves of a marker that nobody needs any more.
        completed = producers.complete(batch, read_end_marker(data, batch))
        if completed is not None and completed.is_aborted:
            segment.transaction_index.append(producers.aborted(completed))


def restore_snapshot(
    files: Files, directory: str, offset: int, log_start_offset: int
) -> tuple[ProducerStateManager, int]:
    """Return the state at the newest good snapshot at or below `offset`, and where batches have to be read from."""
    producers = ProducerStateManager()
    for candidate in snapshot_offsets(files, directory):
        if candidate > offset:
            continue
        path = snapshot_path(directory, candidate)
        try:
            producers.restore(read_whole(files, path, SNAPSHOT_BYTES_MAX))
        except (CorruptSnapshotError, FileTooLargeError) as error:
            logger.warning("%s is dropped: %s", path, error)
            files.remove(path)
        else:
            return producers, candidate
    return producers, log_start_offset


def replay(producers: ProducerStateManager, segments: Iterable[LogSegment], start_offset: int, end_offset: int) -> None:
    """Feed the batches from `start_offset` up to `end_offset` to the state; the aborted ones are indexed already."""
    for segment in segments:
        log = segment.log_file()
        for position, batch in scan_headers(log, segment.offset_index.lookup(start_offset).position):
            if batch.base_offset >= end_offset:
                return
            if batch.producer_id < 0 or batch.base_offset < start_offset:
                continue
            if not batch.is_control:
                producers.update(batch)
            elif batch.is_transactional and batch.count:
                try:
                    marker = read_end_marker(log.file.read_at(batch.size, position), batch)
                except CorruptRecordError as error:
                    raise CorruptLogError(log.path, position, error.reason) from None
                producers.complete(batch, marker)


def remove_stray_snapshots(files: Files, directory: str, kept: Container[int]) -> None:
    """Remove the snapshots that earlier shutdowns took in the middle of a segment."""
    for candidate in snapshot_offsets(files, directory):
        if candidate not in kept:
            files.remove(snapshot_path(directory, candidate))


def remove_snapshots_after(files: Files, directory: str, offset: int) -> None:
    """Remove the snapshots that tell of records which are gone; the offset may be reached again by others."""
    for candidate in snapshot_offsets(files, directory):
        if candidate > offset:
            files.remove(snapshot_path(directory, candidate))


def rebuild_producers(
    files: Files, directory: str, segments: LogSegments, end_offset: int, log_start_offset: int
) -> ProducerStateManager:
    """Return the state at `end_offset`."""
    producers, start_offset = restore_snapshot(files, directory, end_offset, log_start_offset)
    if start_offset < end_offset:
        replay(producers, segments.from_offset(start_offset), start_offset, end_offset)
    return producers
