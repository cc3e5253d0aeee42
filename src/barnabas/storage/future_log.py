"""FutureLog: the copy of a log in another log directory, made file by file while the log goes on.

    /disks/a/orders-0                   the log; clients read and write it until the very end
    /disks/b/orders-0.<id>-future       the copy: the same segments, byte for byte, under the same names

The end is one step for everybody else, and these for the disks (`LogManager.take_over_future` does them):

    1. the last bytes are copied and synced, and `.moved-here` says so in the copy     the log is still the old one
    2. /disks/a/orders-0 becomes -delete                                               this decides
    3. /disks/b/orders-0.<id>-future becomes /disks/b/orders-0                         both folders are synced
    4. `.moved-here` goes

Rule 1: a copy is believed only with `.moved-here`. Without it the next start goes on with the copying, and compares
what is there already instead of writing it again: a power cut may have left anything in files that were not synced.
Rule 2: the thread that owns the log plans and takes over; `CopyStep.run` and `sync` may run on any thread.
Rule 3: what was copied counts while the log has that very segment. Retention, truncation and cleaning put others in its
place or take it out, and the copy follows.
Rule 4: after a crash in the middle of the end `settle_moves` leaves one folder, which is the one that was appended to.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    write_epochs,
    write_partition_metadata,
)
from barnabas.storage.files import File, Files, read_whole, write_whole
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndexError
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import Log
from barnabas.storage.log_directory import FolderKind, LogDirectory, PartitionFolder, folder_name
from barnabas.storage.log_types import LogOptions, LogState
from barnabas.storage.producer_replay import SNAPSHOT_BYTES_MAX, SNAPSHOT_SUFFIX
from barnabas.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_KINDS,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    LogSegment,
    SegmentOptions,
    segment_file,
)
from barnabas.storage.segments import LogSegments
from barnabas.storage.transaction_index import FILE_BYTES_MAX

logger = logging.getLogger(__name__)

MOVED_MARKER = ".moved-here"
"""In a copy that is complete, until the log that it was made from is gone for good."""
UNDONE_MARKER = ".move-undone"
"""In a log that was to be replaced by its copy, and goes on because the copy's disk failed in that moment."""
STEP_BYTES = 16 << 20
"""So much is copied before the owner of the log is asked what comes next."""
CHUNK_BYTES = 1 << 20
INDEX_BYTES_MAX = 1 << 30


class SourceError(Exception):
    """The disk of the log failed, and not that of its copy."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _of_source() -> Iterator[None]:
    """Tell errors of the log's own disk apart."""
    try:
        yield
    except OSError as error:
        raise SourceError(error) from error


@dataclass(slots=True, eq=False)
class _Copy:
    """How far one segment is copied."""

    segment: LogSegment
    size: int = 0
    # Whether it is sealed, and there with its indexes.
    is_complete: bool = False
    # Whether it is complete and on the disk.
    is_synced: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class CopyStep:
    """The next part of the copying; `run` may be called on any thread."""

    options: SegmentOptions
    """Of the copy."""
    source: str
    copy: _Copy
    data: File
    """The open `.log` of the segment, which can be read whatever becomes of its name."""
    end: int
    is_active: bool
    """Whether the segment is still appended to."""
    is_last: bool
    """Whether this is the last part of a sealed segment."""
    index_sizes: tuple[int, int]
    gone: list[int]
    """Base offsets of segments that the log has no more."""

    def run(self) -> None:
        """Copy; raises OSError of the copy's disk, or SourceError."""
        base_offset = self.copy.segment.base_offset
        for gone in self.gone:
            _remove_segment(self.options.files, self.options.directory, gone)
        if self.copy.size == 0:
            self._copy_whole(SNAPSHOT_SUFFIX, SNAPSHOT_BYTES_MAX)
        file = self.options.files.open(segment_file(self.options.directory, base_offset, LOG_SUFFIX), writable=True)
        try:
            copy_bytes(self.data, file, self.copy.size, self.end)
            if self.is_last and file.size() != self.end:
                file.truncate(self.end)
        finally:
            file.close()
        if self.is_last:
            self._copy_whole(INDEX_SUFFIX, INDEX_BYTES_MAX, is_needed=True)
            self._copy_whole(TIME_INDEX_SUFFIX, INDEX_BYTES_MAX, is_needed=True)
            self._copy_whole(TRANSACTION_INDEX_SUFFIX, FILE_BYTES_MAX)
            LogSegment(self.options, base_offset, 0).open(self.end, *self.index_sizes)  # It is looked at once.

    def _copy_whole(self, kind: str, size_max: int, *, is_needed: bool = False) -> None:
        source = segment_file(self.source, self.copy.segment.base_offset, kind)
        target = segment_file(self.options.directory, self.copy.segment.base_offset, kind)
        copy_whole(self.options.files, source, target, size_max, is_needed=is_needed)


def copy_whole(files: Files, source: str, target: str, size_max: int, *, is_needed: bool = False) -> None:
    """Copy a small file; where it is not there and not needed, there is none in the copy either."""
    with _of_source():
        data = read_whole(files, source, size_max) if is_needed or files.exists(source) else None
    if data is None:
        files.remove(target)
        return
    file = files.open(target, writable=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
    finally:
        file.close()


def copy_bytes(source: File, target: File, start: int, end: int) -> None:
    """Make a part of a file the same as that of another; what is the same already is not written again."""
    there = target.size()
    while start < end:
        size = min(CHUNK_BYTES, end - start)
        with _of_source():
            data = source.read_at(size, start)
            if len(data) < size:
                raise OSError(5, f"a segment ends at {start + len(data)}, before its size")
        if there < start + size or target.read_at(size, start) != data:
            target.write_at(data, start)
        start += size


def _remove_segment(files: Files, directory: str, base_offset: int) -> None:
    for kind in (*SEGMENT_KINDS, SNAPSHOT_SUFFIX):
        files.remove(segment_file(directory, base_offset, kind))


class Takeover(NamedTuple):
    """A copy that took the place of its log."""

    log: Log
    aside: str
    """Where the old log is, until it is removed."""
    error: OSError | None
    """Why its disk does not say for sure that it is gone."""


@dataclass(slots=True)
class FutureLog:
    """A log on its way into another log directory."""

    partition: TopicPartition
    source: Log
    options: LogOptions
    """Of the copy."""
    _copies: dict[int, _Copy] = field(default_factory=dict)
    # Base offsets of copies that are to be removed, until that is done.
    _gone: list[int] = field(default_factory=list)
    _truncations: int = 0
    _epochs: list[tuple[int, int]] | None = None

    @property
    def files(self) -> Files:
        """The disks."""
        return self.options.files

    @property
    def directory(self) -> str:
        """The folder of the copy."""
        return self.options.directory

    # What is told of it.

    @property
    def size_bytes(self) -> int:
        """How many bytes of segments are copied."""
        return sum(copy.size for copy in self._copies.values())

    @property
    def lag_bytes(self) -> int:
        """How many bytes of segments are not copied."""
        return self.source.size_bytes - sum(
            copy.size for segment in self.source.segments if (copy := self._copy_of(segment)) is not None
        )

    @property
    def offset_lag(self) -> int:
        """How many offsets are not copied; inside of a segment that is an estimate by bytes."""
        lag = 0
        for segment in self.source.segments:
            following = self.source.segments.higher(segment.base_offset)
            end = self.source.log_end_offset if following is None else following.base_offset
            copy = self._copy_of(segment)
            left = segment.size - (0 if copy is None else copy.size)
            if left > 0:
                lag += max(1, (end - segment.base_offset) * left // segment.size)
        return lag

    def _copy_of(self, segment: LogSegment) -> _Copy | None:
        copy = self._copies.get(segment.base_offset)
        return copy if copy is not None and copy.segment is segment else None

    # Copying.

    def prepare(self, target: LogDirectory, topic_id: UUID | None) -> None:
        """Make the folder, or clear up the one that an earlier attempt left, on any thread."""
        self.files.make_directory(self.directory)
        self._clear_strays()
        if topic_id is not None:
            write_partition_metadata(self.files, os.path.join(self.directory, PARTITION_METADATA), topic_id)
        self.files.sync_directory(target.path)

    def _clear_strays(self) -> None:
        bases = {f"{segment.base_offset:020d}" for segment in self.source.segments}
        for name in self.files.names(self.directory):
            is_ours = name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)
            if not is_ours and not (name[:20] in bases and name[20:] in SEGMENT_KINDS):
                self.files.remove(os.path.join(self.directory, name))

    def next_step(self) -> CopyStep | None:
        """Return what has to be copied next, or None when nothing is left."""
        log = self.source
        if log.truncations != self._truncations:
            self._truncations = log.truncations
            self._gone += self._copies  # What was cut off may have been followed by other records.
            self._copies.clear()
        for base in [base for base in self._copies if base not in log.segments]:
            del self._copies[base]
            self._gone.append(base)
        for segment in log.segments:
            copy = self._copy_of(segment)
            if copy is None:
                copy = self._copies[segment.base_offset] = _Copy(segment)
            is_sealed = segment is not log.segments.last
            if not copy.is_complete and (is_sealed or copy.size < segment.size):
                return self._step(copy, is_sealed=is_sealed)
        self.remove_gone()
        return None

    def remove_gone(self) -> None:
        """Remove the copies of segments that the log does not have any more."""
        while self._gone:
            _remove_segment(self.files, self.directory, self._gone[-1])
            self._gone.pop()

    def _step(self, copy: _Copy, *, is_sealed: bool) -> CopyStep:
        segment = copy.segment
        end = min(segment.size, copy.size + STEP_BYTES)
        with _of_source():
            data = segment.file()
        return CopyStep(
            options=self.options.segment_options(),
            source=self.source.directory,
            copy=copy,
            data=data,
            end=end,
            is_active=not is_sealed,
            is_last=is_sealed and end == segment.size,
            index_sizes=_index_sizes(segment),
            gone=list(self._gone),
        )

    def stepped(self, step: CopyStep) -> None:
        """Take in a step that ran."""
        step.copy.size = step.end
        step.copy.is_complete = step.is_last
        self._gone = [base for base in self._gone if base not in step.gone]

    def is_wanted(self, step: CopyStep) -> bool:
        """Tell whether the segment of a step is still one of the log's."""
        return self.source.segments.floor(step.copy.segment.base_offset) is step.copy.segment

    def sync(self) -> None:
        """Return when what was copied is on the disk, on any thread; so the end has little left to wait for."""
        self._sync_copies()
        self._write_epochs()
        self.files.sync_directory(self.directory)

    def _sync_copies(self) -> None:
        """Return when the bytes of all segments, and the indexes of the sealed ones, are on the disk.

        Segments are synced together at the end and not one by one: small ones would be sealed faster than that.
        """
        for copy in list(self._copies.values()):
            if copy.is_synced:
                continue
            is_complete = copy.is_complete
            for kind in (*SEGMENT_KINDS, SNAPSHOT_SUFFIX) if is_complete else (LOG_SUFFIX,):
                path = segment_file(self.directory, copy.segment.base_offset, kind)
                # A segment that the log has no more may be on its way out.
                if self.files.exists(path):
                    file = self.files.open(path, writable=True)
                    try:
                        file.sync()
                    finally:
                        file.close()
            copy.is_synced = is_complete

    def _write_epochs(self) -> None:
        entries = list(self.source.leader_epochs.entries)
        if entries != self._epochs:
            write_epochs(self.files, os.path.join(self.directory, LEADER_EPOCH_CHECKPOINT), entries)
            self._epochs = entries

    # The end.

    def finish(self) -> None:
        """Copy what is left and say that all is there; the log must not change from here on until it is replaced."""
        while (step := self.next_step()) is not None:
            step.run()
            self.stepped(step)
        active = self.source.segments.last
        # The indexes of the active segment are partly in memory, and its disk may have no room for them.
        indexes = ((INDEX_SUFFIX, active.offset_index.content()), (TIME_INDEX_SUFFIX, active.time_index.content()))
        for kind, content in indexes:
            path = segment_file(self.directory, active.base_offset, kind)
            write_whole(self.files, path, content, durable=False)
        aborted = segment_file(self.directory, active.base_offset, TRANSACTION_INDEX_SUFFIX)
        copy_whole(self.files, active.transaction_index.path, aborted, FILE_BYTES_MAX)
        file = self.files.open(segment_file(self.directory, active.base_offset, LOG_SUFFIX), writable=True)
        try:
            if file.size() != active.size:
                file.truncate(active.size)
        finally:
            file.close()
        self._sync_copies()
        LogSegment(self.options.segment_options(), active.base_offset, 0).open(active.size, *_index_sizes(active))
        self._write_epochs()
        with _of_source():
            self._remove_marks()
        write_whole(self.files, os.path.join(self.directory, MOVED_MARKER), str(self.source.log_end_offset).encode())

    def _remove_marks(self) -> None:
        """Let the log have no mark of an earlier move, which would speak for it after a crash in this one."""
        marks = [os.path.join(self.source.directory, name) for name in (MOVED_MARKER, UNDONE_MARKER)]
        found = [path for path in marks if self.files.exists(path)]
        for path in found:
            self.files.remove(path)
        if found:
            self.files.sync_directory(self.source.directory)

    def take_over(self, source: LogDirectory, target: LogDirectory, options: LogOptions) -> Takeover:
        """Put the copy into the place of the log, after `finish`; `options` are those of its last folder.

        An error of the copy's disk leaves everything as it was.
        """
        aside = os.path.join(source.path, folder_name(self.partition, FolderKind.DELETE))
        with _of_source():
            self.files.rename(self.source.directory, aside)
        try:
            self.files.rename(self.directory, options.directory)
            self.files.sync_directory(target.path)
            log = self._open(options)
        except (OSError, CorruptIndexError):
            self._undo(source, aside, options.directory)
            raise
        try:
            self.files.sync_directory(source.path)
        except OSError as error:
            # A crash may bring the old folder back, so the mark stays.
            return Takeover(log, aside, error)
        with contextlib.suppress(OSError):
            self.files.remove(os.path.join(options.directory, MOVED_MARKER))
        return Takeover(log, aside, None)

    def _undo(self, source: LogDirectory, aside: str, taken: str) -> None:
        with contextlib.suppress(OSError):
            self.files.remove(os.path.join(taken, MOVED_MARKER))
            self.files.rename(taken, self.directory)
        with _of_source():
            self.files.rename(aside, self.source.directory)
            # Nobody knows what the other disk shows after a crash.
            write_whole(self.files, os.path.join(self.source.directory, UNDONE_MARKER), b"")
            self.files.sync_directory(source.path)

    def _open(self, options: LogOptions) -> Log:
        """Return the log in its last folder, as it is in memory: producers and open transactions go over with it."""
        source = self.source
        segments = LogSegments()
        for old in source.segments:
            segment = LogSegment(options.segment_options(), old.base_offset, old.created_ms)
            segment.open(old.size, *_index_sizes(old))
            segment.largest = old.largest
            segments.add(segment)
        epochs = LeaderEpochs(self.files, options.directory)
        epochs.entries = list(source.leader_epochs.entries)
        state = LogState(
            segments=segments,
            log_start_offset=source.log_start_offset,
            recovery_point=source.log_end_offset,
            log_end_offset=source.log_end_offset,
            first_dirty_offset=source.first_dirty_offset,
            leader_epochs=epochs,
            producers=source.producers,
            is_changed=True,
        )
        log = Log(options, state)
        log.update_high_watermark(source.high_watermark.message_offset)
        return log


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """A folder that may have to do with a move that a crash cut off."""

    directory: LogDirectory
    folder: PartitionFolder

    @property
    def path(self) -> str:
        """Where it is."""
        return os.path.join(self.directory.path, self.folder.name)


def settle_moves(
    files: Files, directories: Iterable[LogDirectory], *, are_all_live: bool
) -> Iterator[tuple[LogDirectory, Callable[[], None]]]:
    """Yield what has to be done in which directory, so that every log is in one place; they must be listed.

    The copy that is complete becomes the log where there is no other. That is not known while a directory is offline.
    """
    found: dict[TopicPartition, list[FoundFolder]] = {}
    for directory in directories:
        for folder in directory.listed or ():
            if folder.kind in (FolderKind.CURRENT, FolderKind.FUTURE):
                found.setdefault(folder.partition, []).append(FoundFolder(directory, folder))
    for partition, folders in found.items():
        current = [one for one in folders if one.folder.kind is FolderKind.CURRENT]
        if len(current) > 1:
            yield from _settle_twice(files, partition, current)
        elif not current and are_all_live:
            for one in folders:
                yield one.directory, partial(_promote, files, partition, one)


def _settle_twice(
    files: Files, partition: TopicPartition, current: list[FoundFolder]
) -> Iterator[tuple[LogDirectory, Callable[[], None]]]:
    for marker in (UNDONE_MARKER, MOVED_MARKER):
        good = [one for one in current if files.exists(os.path.join(one.path, marker))]
        if len(good) == 1:
            for one in current:
                if one is not good[0]:
                    yield one.directory, partial(_drop, files, partition, one, good[0])
            return


def _drop(files: Files, partition: TopicPartition, one: FoundFolder, good: FoundFolder) -> None:
    files.rename(one.path, os.path.join(one.directory.path, folder_name(partition, FolderKind.DELETE)))
    files.sync_directory(one.directory.path)
    logger.warning("%s was moved to %s before the crash; the old log in %s is removed", partition, good.path, one.path)


def _promote(files: Files, partition: TopicPartition, one: FoundFolder) -> None:
    if files.exists(os.path.join(one.path, MOVED_MARKER)):
        files.rename(one.path, os.path.join(one.directory.path, str(partition)))
        files.sync_directory(one.directory.path)
        logger.warning("%s was moved to %s before the crash, and is taken into service there", partition, one.path)


def _index_sizes(segment: LogSegment) -> tuple[int, int]:
    return segment.offset_index.entry_count * OFFSET_ENTRY.size, segment.time_index.entry_count * TIME_ENTRY.size
