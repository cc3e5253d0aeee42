"""Checks log directories without changing them: every batch and record, every index entry, every checkpoint.

It is what `barnabas verify` runs. It trusts nothing and no other part: where a broker would mend a damaged index or cut
a torn tail at its next start, this says so as a fault.

Rule 1: a fault has a path, a position (a byte of the file, or a line of a text) and a reason.
Rule 2: nothing is written, not even where that would mend something.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP, TopicPartition
from barnabas.records.batch import LEADER_EPOCH_POSITION, MAGIC, BatchHeader, CorruptRecordError
from barnabas.records.legacy import iterate_messages
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, batch_records, check_body, records_body
from barnabas.storage.batches import CorruptLogError, LogFile, scan_batches
from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    CheckpointError,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_properties,
)
from barnabas.storage.files import Files, FileTooLargeError, read_whole
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndexError, check_length
from barnabas.storage.log_directory import FOREIGN_FOLDERS, FolderKind, parse_folder
from barnabas.storage.producer_replay import SNAPSHOT_BYTES_MAX, read_end_marker, snapshot_offsets, snapshot_path
from barnabas.storage.producers import CorruptSnapshotError, decode_snapshot
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from barnabas.storage.transaction_index import ABORTED_ENTRY, TransactionIndex


class Fault(NamedTuple):
    """Something that is not as it should be, and where."""

    path: str
    position: int
    reason: str
    unit: str = "position"
    """What the position counts: "position" for bytes, "line" for lines."""

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.position}: {self.reason}"


class Verified(NamedTuple):
    """How much was checked of one segment."""

    path: str
    size: int
    batches: int
    records: int
    next_offset: int
    leader_epoch: int
    """The largest leader epoch of a batch, or -1."""
    is_complete: bool
    """Whether the walk came to the end of the file; else the offsets behind the damage are not known."""


Report = Callable[[Fault], None]
Advance = Callable[[str, int], None]
"""Told of a path and how many more of its bytes were checked."""

ADVANCE_BYTES = 8 << 20
INDEX_BYTES_MAX = 1 << 30
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def segment_base_offsets(files: Files, directory: str) -> list[int]:
    """Return the base offsets of the segments in a partition's folder, in order."""
    return sorted(base_offset for base_offset, suffix in _segment_files(files, directory) if suffix == LOG_SUFFIX)


def _segment_files(files: Files, directory: str) -> list[tuple[int, str]]:
    """Return base offset and suffix of every log and index in a folder."""
    names = (os.path.splitext(entry.name) for entry in files.entries(directory) if not entry.is_directory)
    return [
        (int(stem), suffix)
        for stem, suffix in names
        if suffix in (LOG_SUFFIX, *INDEX_SUFFIXES) and len(stem) == 20 and stem.isdecimal()
    ]


class _Awaited(NamedTuple):
    """An entry of the offset index whose batch was seen, but not yet the batch that ends at its offset."""

    slot: int
    offset: int


class SegmentVerifier:
    """Walks one segment once and holds its indexes against what it sees."""

    def __init__(self, files: Files, directory: str, base_offset: int, report: Report) -> None:
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._report = report
        # What leader-epoch-checkpoint says of this log; batches before its first entry are not told of.
        self._epochs: list[tuple[int, int]] = []
        with contextlib.suppress(CheckpointError):
            epochs = read_epochs(files, os.path.join(directory, LEADER_EPOCH_CHECKPOINT))
            # Epochs in disorder are a fault of that file, and say nothing of batches.
            self._epochs = epochs if all(map(_is_after, epochs, epochs[1:])) else []
        # The abort markers seen, by offset, with their producer.
        self._aborts: dict[int, int] = {}
        self._offset_entries = self._entries(INDEX_SUFFIX, OFFSET_ENTRY)
        self._time_entries = self._entries(TIME_INDEX_SUFFIX, TIME_ENTRY)
        self._offset_slot = self._time_slot = 0
        self._awaited: _Awaited | None = None
        self._max_timestamp = NO_TIMESTAMP

    def _path(self, suffix: str) -> str:
        return segment_file(self._directory, self._base_offset, suffix)

    def _entries(self, suffix: str, entry: Struct) -> list[tuple[int, ...]]:
        path = self._path(suffix)
        if not self._files.exists(path):
            return []
        try:
            data = read_whole(self._files, path, INDEX_BYTES_MAX)
        except FileTooLargeError as error:
            self._report(Fault(path, 0, error.reason))
            return []
        try:
            check_length(path, len(data), entry)
        except CorruptIndexError as error:
            self._report(Fault(path, error.position, error.reason))
            data = data[: error.position]
        # Kafka allocates its index files in full; the zeros that are left after a crash are no entries.
        used = -(-len(data.rstrip(b"\0")) // entry.size)
        entries = list(entry.iter_unpack(data[: used * entry.size]))
        for slot in range(1, len(entries)):
            # The offset index grows in both columns, and so does the time index.
            if any(after <= before for before, after in zip(entries[slot - 1], entries[slot], strict=True)):
                reason = f"entry {entries[slot]} does not lie after {entries[slot - 1]}"
                self._report(Fault(path, slot * entry.size, reason))
                return entries[:slot]
        return entries

    def verify(self, is_clean: bool, advance: Advance) -> Verified:
        """Check every batch, record and index entry, and return what was seen."""
        path = self._path(LOG_SUFFIX)
        if is_clean:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                if not self._files.exists(self._path(suffix)):
                    self._report(Fault(self._path(suffix), 0, "the index is missing"))
        file = self._files.open(path)
        size = file.size()
        batches = records = end = told = 0
        next_offset = self._base_offset
        leader_epoch = NO_LEADER_EPOCH
        is_complete = False
        try:
            for position, batch, view in scan_batches(LogFile(file, path, size)):
                self._check_offsets(path, position, batch, next_offset)
                self._check_epoch(path, position, batch)
                records += self._check_records(path, position, batch, view)
                self._check_offset_index(position, batch, view, next_offset)
                self._check_time_index(batch)
                batches += 1
                next_offset = batch.last_offset + 1
                leader_epoch = max(leader_epoch, batch.leader_epoch)
                end = position + batch.size
                if end - told >= ADVANCE_BYTES:
                    advance(path, end - told)
                    told = end
            self._check_rest(end, next_offset)
            is_complete = True
        except CorruptLogError as error:
            self._report(Fault(path, error.position, error.reason))
        finally:
            file.close()
        advance(path, size - told)
        if is_complete:
            self._check_transactions()
        return Verified(path, size, batches, records, next_offset, leader_epoch, is_complete)

    @staticmethod
    def _check_offsets(path: str, position: int, batch: BatchHeader, next_offset: int) -> None:
        if batch.base_offset < next_offset:
            reason = f"the batch starts at offset {batch.base_offset}, but {next_offset} or more comes next"
            raise CorruptLogError(path, position, reason)

    def _check_epoch(self, path: str, position: int, batch: BatchHeader) -> None:
        while len(self._epochs) > 1 and self._epochs[1][1] <= batch.base_offset:
            del self._epochs[0]
        if not self._epochs or batch.leader_epoch < 0 or self._epochs[0][1] > batch.base_offset:
            return
        expected = self._epochs[0][0]
        if batch.leader_epoch != expected:
            reason = f"the batch has leader epoch {batch.leader_epoch}, but {LEADER_EPOCH_CHECKPOINT} says {expected}"
            self._report(Fault(path, position + LEADER_EPOCH_POSITION, reason))

    def _check_records(self, path: str, position: int, batch: BatchHeader, view: memoryview) -> int:
        try:
            if batch.magic < MAGIC:
                return sum(1 for _ in iterate_messages(view, DECOMPRESSED_BYTES_MAX))
            check_body(records_body(view, batch), batch)
            if (
                batch.is_control
                and batch.is_transactional
                and batch.count
                and not read_end_marker(view, batch).is_commit
            ):
                self._aborts[batch.base_offset] = batch.producer_id
        except CorruptRecordError as error:
            self._report(Fault(path, position + error.position, error.reason))
        return batch.count

    def _check_offset_index(self, position: int, batch: BatchHeader, view: memoryview, next_offset: int) -> None:
        """Hold the entries up to a batch against it.

        We and Kafka since 4.0 note a batch's own last offset. Kafka before wrote one entry an append: the position of
        its first batch, and the last offset of its last. With batches 3-5 at 200 and 6-11 at 300, (5, 200) is right and
        so is (11, 200), but not (8, 200). Kafka before 0.10.1 noted the first offset, so (3, 200) is right as well.
        """
        # A compressed set of an old format counts as its last offset; it starts where the one before it ended.
        first_offset = batch.base_offset if batch.magic >= MAGIC else next_offset
        while self._offset_slot < len(self._offset_entries) and self._offset_entries[self._offset_slot][1] <= position:
            slot = self._offset_slot
            self._offset_slot += 1
            if self._awaited is not None:
                self._never_came(f"the batches before the next entry's end at {next_offset - 1}")
            relative, indexed = self._offset_entries[slot]
            offset = self._base_offset + relative
            if indexed < position:
                self._offset_fault(slot, f"no batch starts at position {indexed}")
            elif offset < first_offset:
                offsets = f"{batch.base_offset} to {batch.last_offset}"
                self._offset_fault(slot, f"the entry says offset {offset}, but its batch has {offsets}")
            elif offset not in (first_offset, batch.base_offset):
                self._awaited = _Awaited(slot, offset)
        if self._awaited is not None and self._awaited.offset <= batch.last_offset:
            if not _ends_at(batch, view, self._awaited.offset):
                self._never_came("no batch ends there")
            self._awaited = None

    def _never_came(self, why: str) -> None:
        assert self._awaited is not None
        self._offset_fault(self._awaited.slot, f"the entry says offset {self._awaited.offset}, but {why}")
        self._awaited = None

    def _check_time_index(self, batch: BatchHeader) -> None:
        """Hold the entries up to the end of a batch against the largest timestamp so far."""
        last = batch.last_offset - self._base_offset
        self._max_timestamp = max(self._max_timestamp, batch.max_timestamp)
        while self._time_slot < len(self._time_entries) and self._time_entries[self._time_slot][1] <= last:
            timestamp = self._time_entries[self._time_slot][0]
            if timestamp != self._max_timestamp:
                self._time_fault(
                    f"the entry says timestamp {timestamp}, but the largest up to its offset is {self._max_timestamp}"
                )
            self._time_slot += 1

    def _check_rest(self, end: int, next_offset: int) -> None:
        if self._awaited is not None:
            self._never_came(f"the log ends at {next_offset - 1}")
        if self._offset_slot < len(self._offset_entries):
            indexed = self._offset_entries[self._offset_slot][1]
            self._offset_fault(self._offset_slot, f"the entry says position {indexed}, but the log ends at {end}")
        if self._time_slot < len(self._time_entries):
            offset = self._base_offset + self._time_entries[self._time_slot][1]
            self._time_fault(f"the entry says offset {offset}, but the log ends before")

    def _offset_fault(self, slot: int, reason: str) -> None:
        self._report(Fault(self._path(INDEX_SUFFIX), slot * OFFSET_ENTRY.size, reason))

    def _time_fault(self, reason: str) -> None:
        self._report(Fault(self._path(TIME_INDEX_SUFFIX), self._time_slot * TIME_ENTRY.size, reason))

    def _check_transactions(self) -> None:
        path = self._path(TRANSACTION_INDEX_SUFFIX)
        try:
            for slot, aborted in enumerate(TransactionIndex(self._files, path, self._base_offset).entries()):
                if self._aborts.get(aborted.last_offset) != aborted.producer_id:
                    reason = (
                        f"the entry says that producer {aborted.producer_id} aborted a transaction at offset"
                        f" {aborted.last_offset}, but there is no such marker"
                    )
                    self._report(Fault(path, slot * ABORTED_ENTRY.size, reason))
        except CorruptIndexError as error:
            self._report(Fault(path, error.position, error.reason))


def _ends_at(batch: BatchHeader, view: memoryview, offset: int) -> bool:
    """Tell whether an offset is the last of a batch, or that of the last record which compaction left in it."""
    if offset == batch.last_offset:
        return True
    if offset < batch.base_offset or batch.magic < MAGIC or batch.count > batch.last_offset - batch.base_offset:
        return False
    # Records are missing. Kafka before 4.0 noted the last record of a compacted batch, not the batch's last offset.
    try:
        records = batch_records(view, batch)
    except CorruptRecordError:
        return True  # The batch is reported; what its records say of the index is not known.
    return bool(records) and records[-1].offset == offset


def verify_partition(
    files: Files,
    directory: str,
    report: Report,
    *,
    is_clean: bool = True,
    advance: Advance = lambda _path, _size: None,
) -> Iterator[Verified]:
    """Check the folder of one partition; yield what was seen of each segment.

    `is_clean` says that a clean shutdown is claimed: then the files that a start would make again must be there.
    """
    seen = []
    for base_offset in segment_base_offsets(files, directory):
        seen.append(SegmentVerifier(files, directory, base_offset, report).verify(is_clean, advance))
        yield seen[-1]
    verify_folder(files, directory, seen, report, is_clean=is_clean)


def verify_folder(
    files: Files, directory: str, seen: Sequence[Verified], report: Report, *, is_clean: bool = True
) -> None:
    """Check what the segments of a partition, each of which was checked, say together, and the small files beside."""
    found = sorted(_segment_files(files, directory))
    bases = [base_offset for base_offset, suffix in found if suffix == LOG_SUFFIX]
    if not bases:
        report(Fault(directory, 0, "there is no segment"))
    for base_offset, suffix in found:
        log_path = segment_file(directory, base_offset, LOG_SUFFIX)
        # Indexes of data that is to be removed go with it.
        if base_offset not in bases and not files.exists(log_path + DELETED_SUFFIX):
            report(Fault(segment_file(directory, base_offset, suffix), 0, "the index has no log file"))
    for before, after in pairwise(seen):
        base_offset = int(os.path.basename(after.path).removesuffix(LOG_SUFFIX))
        if base_offset < before.next_offset:
            reason = f"the segment starts at offset {base_offset}, but the one before it ends at {before.next_offset}"
            report(Fault(after.path, 0, reason))
    leader_epoch = max((one.leader_epoch for one in seen), default=NO_LEADER_EPOCH)
    _verify_small_files(files, directory, report, leader_epoch if is_clean else NO_LEADER_EPOCH)


def _verify_small_files(files: Files, directory: str, report: Report, leader_epoch: int) -> None:
    """Check snapshots and texts; where there is a `leader_epoch`, the epochs must be told of."""
    for offset in snapshot_offsets(files, directory):
        path = snapshot_path(directory, offset)
        try:
            decode_snapshot(read_whole(files, path, SNAPSHOT_BYTES_MAX))
        except (CorruptSnapshotError, FileTooLargeError) as error:
            report(Fault(path, 0, str(error)))
    epochs: list[tuple[int, int]] = []
    epochs_path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
    with _reporting(report):
        read_partition_metadata(files, os.path.join(directory, PARTITION_METADATA))
    with _reporting(report):
        epochs = read_epochs(files, epochs_path)
        if leader_epoch >= 0 and not epochs:
            reason = "has no entries" if files.exists(epochs_path) else "is missing"
            report(Fault(epochs_path, 0, f"the file {reason}, but batches have leader epochs up to {leader_epoch}"))
    for line, (before, after) in enumerate(pairwise(epochs), 4):
        if not _is_after(before, after):
            report(Fault(epochs_path, line, f"epoch and offset {after} do not lie after {before}", "line"))


def _is_after(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Tell whether an epoch and its start offset both lie after those of another."""
    return after[0] > before[0] and after[1] > before[1]


@contextlib.contextmanager
def _reporting(report: Report) -> Iterator[None]:
    """Report a text file that does not say what it should, and go on."""
    try:
        yield
    except CheckpointError as error:
        report(Fault(error.path, error.line, error.reason, "line"))


def partition_folders(files: Files, path: str, report: Report) -> list[str]:
    """Return the folders of partitions to check below `path`, which may itself be one."""
    if _is_partition(files, path):
        return [path]
    found = []
    for entry in files.entries(path):
        if not entry.is_directory or entry.name in FOREIGN_FOLDERS:
            continue
        inner = os.path.join(path, entry.name)
        folder = parse_folder(entry.name)
        if folder is None:
            report(Fault(inner, 0, "the folder's name is not that of a partition"))
        elif folder.kind is FolderKind.CURRENT:  # A copy on its way is not complete, and believed by nobody.
            found.append(inner)
    return sorted(found)


def _is_partition(files: Files, path: str) -> bool:
    """Tell whether a folder is that of a partition, by its name and by something in it."""
    if parse_folder(os.path.basename(path)) is None:
        return False
    own = (os.path.join(path, name) for name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT))
    return bool(_segment_files(files, path)) or any(map(files.exists, own))


def holds_logs(files: Files, path: str) -> bool:
    """Tell whether there is anything to check: `path` is a log directory, even without a partition, or a partition."""
    own = (os.path.join(path, name) for name in (META_PROPERTIES, *OFFSET_CHECKPOINTS))
    if any(map(files.exists, own)) or _is_partition(files, path):
        return True
    return any(entry.is_directory and parse_folder(entry.name) is not None for entry in files.entries(path))


def was_shut_down_cleanly(files: Files, path: str) -> bool:
    """Tell whether the files below a log directory, or next to a partition's folder, are claimed to be complete."""
    parents = (path, os.path.dirname(path))
    return any(files.exists(os.path.join(parent, CLEAN_SHUTDOWN_MARKER)) for parent in parents)


def verify_checkpoints(files: Files, path: str, ends: Mapping[TopicPartition, int], report: Report) -> None:
    """Check the checkpoints of a log directory against the ends of the logs that were found in it."""
    with _reporting(report):
        read_properties(files, os.path.join(path, META_PROPERTIES))
    for name in OFFSET_CHECKPOINTS:
        offsets: dict[TopicPartition, int] = {}
        checkpoint = os.path.join(path, name)
        with _reporting(report):
            offsets = read_offsets(files, checkpoint)
        for line, (partition, offset) in enumerate(offsets.items(), 3):
            if offset > ends.get(partition, offset):
                reason = f"{partition} is at offset {offset}, but its log ends at {ends[partition]}"
                report(Fault(checkpoint, line, reason, "line"))
