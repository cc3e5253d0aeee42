"""What lies in log directories, as far as a reader without a broker needs it; nothing is ever written.

    partitions_in      the partitions below some paths, each with its segments and where its log starts
    end_of             the offset after the last whole batch
    last_stable_offset the offset before which every transaction is decided, for readers of committed records
    aborted_in         the transactions that were aborted

Rule 1: files that are on their way in or out are none: `.deleted`, `.cleaned`, `.swap`, folders of deleted, future and
stray logs, and folders of bulk loads.
Rule 2: the directory of a running broker, or a copy of it, is read like any other. What is in the files is read, up to
the last whole batch: with one replica that is what the broker serves, but for records that wait for `flush.messages`.
Rule 3: an index is only believed where the batches agree with it.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.model import TopicPartition
from barnabas.records.batch import CorruptRecordError
from barnabas.spark.errors import PipelineError
from barnabas.storage.batches import CorruptLogError, LogFile, checked_header, read_any_header, scan_headers
from barnabas.storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, CheckpointError, read_offsets
from barnabas.storage.files import File, FileTooLargeError, OsFiles, read_whole
from barnabas.storage.index import OFFSET_ENTRY, CorruptIndexError
from barnabas.storage.log_directory import FOREIGN_FOLDERS, FolderKind, parse_folder
from barnabas.storage.producer_replay import SNAPSHOT_BYTES_MAX, read_end_marker, snapshot_offsets, snapshot_path
from barnabas.storage.producers import CorruptSnapshotError, ProducerStateManager
from barnabas.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from barnabas.storage.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.storage.verifier import holds_logs, segment_base_offsets

INDEX_BYTES_MAX = 1 << 30
_HEADER_BYTES = 61

_files = OsFiles()


class SegmentFile(NamedTuple):
    """A `.log` file, and how long it was when it was looked at."""

    path: str
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """A partition on the disk."""

    partition: TopicPartition
    directory: str
    log_start_offset: int
    segments: tuple[SegmentFile, ...]

    def segments_from(self, offset: int) -> tuple[SegmentFile, ...]:
        """Return the segment that has an offset, and all after it."""
        slot = bisect_right([segment.base_offset for segment in self.segments], offset) - 1
        return self.segments[max(0, slot) :]


class IndexEntry(NamedTuple):
    """A place at which a batch starts, and an offset that is in it or after it."""

    offset: int
    position: int


def partitions_in(paths: Sequence[str]) -> dict[TopicPartition, PartitionFiles]:
    """Return every partition below these paths; raises PipelineError for a path that has none or can not be read."""
    found: dict[TopicPartition, PartitionFiles] = {}
    for path in paths:
        try:
            _check_path(path)
            for partition, folder in _folders(path):
                if partition in found:
                    other = found[partition].directory
                    raise PipelineError(f"{partition} is in {other} and in {folder}: only one of them can be read")
                files = _partition_files(partition, folder)
                if files is not None:
                    found[partition] = files
        except CheckpointError as error:
            raise PipelineError(f"{error.path} can not be read: {error.reason} (line {error.line})") from None
        except OSError as error:
            raise PipelineError(f"{error.filename or path} can not be read: {error.strerror or error}") from None
    return found


def _check_path(path: str) -> None:
    if not os.path.exists(path):
        raise PipelineError(f"{path} does not exist")
    if not os.path.isdir(path):
        raise PipelineError(f"{path} is no folder: a log directory is needed, or the folder of a partition in one")
    if not holds_logs(_files, path):
        raise PipelineError(f"{path} is no log directory: nothing in it is a partition, such as orders-0")


def _folders(path: str) -> Iterator[tuple[TopicPartition, str]]:
    own = parse_folder(os.path.basename(path))
    if own is not None and segment_base_offsets(_files, path):
        yield own.partition, path
        return
    for entry in _files.entries(path):
        folder = parse_folder(entry.name) if entry.is_directory and entry.name not in FOREIGN_FOLDERS else None
        if folder is not None and folder.kind is FolderKind.CURRENT:
            yield folder.partition, os.path.join(path, entry.name)


def _partition_files(partition: TopicPartition, folder: str) -> PartitionFiles | None:
    segments = []
    for base_offset in segment_base_offsets(_files, folder):
        path = segment_file(folder, base_offset, LOG_SUFFIX)
        try:
            segments.append(SegmentFile(path, base_offset, os.stat(path).st_size))
        except FileNotFoundError:
            continue  # A running broker deleted it just now.
    if not segments:
        return None
    known = read_offsets(_files, os.path.join(os.path.dirname(folder), LOG_START_OFFSET_CHECKPOINT))
    return PartitionFiles(
        partition=partition,
        directory=folder,
        log_start_offset=max(known.get(partition, 0), segments[0].base_offset),
        segments=tuple(segments),
    )


def index_entries(segment: SegmentFile) -> list[IndexEntry]:
    """Return what the offset index of a segment says, as far as it can be right; nothing where there is no index."""
    path = segment.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
    try:
        data = read_whole(_files, path, INDEX_BYTES_MAX)
    except (FileNotFoundError, FileTooLargeError):
        return []
    entries: list[IndexEntry] = []
    last = IndexEntry(segment.base_offset - 1, -1)
    for relative, position in OFFSET_ENTRY.iter_unpack(data[: len(data) - len(data) % OFFSET_ENTRY.size]):
        entry = IndexEntry(segment.base_offset + relative, position)
        # Zeros at the end are room that Kafka allocated.
        if entry.offset <= last.offset or entry.position <= last.position or entry.position >= segment.size:
            break
        entries.append(entry)
        last = entry
    return entries


def batch_at(file: File, entry: IndexEntry) -> int | None:
    """Return the first offset of the batch at an entry of the index; None when no batch starts there that can be it.

    The checksum is looked at as well: bytes in the middle of a batch may look like the beginning of another.
    """
    try:
        size = read_any_header(file.read_at(_HEADER_BYTES, entry.position), 0).size
        if size > file.size() - entry.position:
            return None
        header = checked_header(file.read_at(size, entry.position), 0)
    except CorruptRecordError:
        return None
    return header.base_offset if header.base_offset <= entry.offset else None


def place_before(segment: SegmentFile, file: File, offset: int) -> int:
    """Return a position at which a batch starts and that no record from `offset` on lies before."""
    entries = index_entries(segment)
    slot = bisect_right([entry.offset for entry in entries], offset) - 1
    return entries[slot].position if slot >= 0 and batch_at(file, entries[slot]) is not None else 0


def end_of(files: PartitionFiles) -> int:
    """Return the offset after the last whole batch of a log."""
    last = files.segments[-1]
    file = _open(last)
    end_offset = last.base_offset
    try:
        for _, header in scan_headers(LogFile(file, last.path, last.size), place_before(last, file, (1 << 63) - 1)):
            end_offset = header.last_offset + 1
    except CorruptLogError:
        pass  # A batch that is being written, or what a crash left of one: the log ends before it.
    return end_offset


def _open(segment: SegmentFile) -> File:
    try:
        return _files.open(segment.path)
    except OSError as error:
        raise PipelineError(f"{segment.path} can not be read: {error.strerror}") from None


def last_stable_offset(files: PartitionFiles, end_offset: int) -> int:
    """Return where the first open transaction starts, or the end: from a snapshot, and the batches after it.

    A broker leaves a snapshot of its producers at every roll and every clean stop, so that little is left to walk over.
    """
    producers, start_offset = _newest_snapshot(files, end_offset)
    for segment in files.segments_from(start_offset):
        file = _open(segment)
        log = LogFile(file, segment.path, segment.size)
        try:
            for position, header in scan_headers(log, place_before(segment, file, start_offset)):
                if header.base_offset >= end_offset:
                    break
                if header.producer_id < 0 or header.base_offset < start_offset:
                    continue
                if not header.is_control:
                    producers.update(header)
                elif header.is_transactional and header.count:
                    producers.complete(header, read_end_marker(file.read_at(header.size, position), header))
        except CorruptRecordError as error:
            raise PipelineError(f"{segment.path} is damaged: {error.reason}") from None
        except CorruptLogError as error:
            if segment is not files.segments[-1]:
                raise PipelineError(f"{error.path} is damaged at byte {error.position}: {error.reason}") from None
    producers.on_high_watermark(end_offset)
    first = producers.first_unstable_offset
    return end_offset if first is None else min(first, end_offset)


def _newest_snapshot(files: PartitionFiles, end_offset: int) -> tuple[ProducerStateManager, int]:
    producers = ProducerStateManager()
    for offset in snapshot_offsets(_files, files.directory):
        if offset > end_offset:
            continue
        try:
            producers.restore(read_whole(_files, snapshot_path(files.directory, offset), SNAPSHOT_BYTES_MAX))
        except (CorruptSnapshotError, FileTooLargeError, FileNotFoundError):
            continue  # An older one serves, or the log alone.
        return producers, offset
    return producers, files.segments[0].base_offset


def aborted_in(files: PartitionFiles, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that have records in a range; raises PipelineError for an index that is damaged.

    A transaction is in the index of the segment that has its marker, which may be any after that of its records.
    """
    found: list[AbortedTransaction] = []
    for segment in files.segments_from(start_offset):
        path = segment.path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX
        try:
            aborted, is_complete = TransactionIndex(_files, path, segment.base_offset).collect(start_offset, end_offset)
        except CorruptIndexError as error:
            raise PipelineError(f"{path} is damaged at byte {error.position}: {error.reason}") from None
        except OSError as error:
            raise PipelineError(f"{path} can not be read: {error.strerror}") from None
        found += aborted
        if is_complete:
            break
    return found
