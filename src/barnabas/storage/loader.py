"""Opens a log: finds its segments on the disk, finishes what a crash interrupted, and recovers what is not trusted.

    1. remove what was on its way out (`.deleted`) or not finished (`.cleaned`), finish what was swapped in (`.swap`)
    2. open every segment; an index that is missing or damaged makes its segment one to recover
    3. after an unclean stop, recover every segment from the recovery point on
    4. bring leader epochs and producer state up to the log end

After a clean stop the files are trusted, and opening costs a few system calls a segment.

Rule 1: opening twice gives the same log, and the second time changes nothing.
Rule 2: a damaged segment that recovery cuts short is the last one; those after it would leave a hole and are removed.
A hole without damage is reported and kept: compaction makes such holes, and what lies behind them is good.
Rule 3: files that are not ours are left alone.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from barnabas.model import NO_OFFSET
from barnabas.records.batch import HEADER_SIZE, BatchHeader, CorruptRecordError
from barnabas.storage.batches import CorruptLogError, LogFile, read_any_header, scan_headers
from barnabas.storage.checkpoint import CheckpointError
from barnabas.storage.files import Files
from barnabas.storage.index import CorruptIndexError
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import OFFSET_END, Log
from barnabas.storage.log_types import LogOptions, LogState
from barnabas.storage.producer_replay import (
    apply_batch,
    rebuild_producers,
    remove_snapshots_after,
    replay,
    restore_snapshot,
    snapshot_offsets,
    snapshot_path,
)
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.recovery import OFFSET_MAX, recover_segment
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_KINDS,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    ActiveSegment,
    LogSegment,
)
from barnabas.storage.segments import LogSegments

KINDS = SEGMENT_KINDS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastKnown:
    """What the checkpoints of the log directory say of a log."""

    log_start_offset: int = 0
    recovery_point: int = 0
    first_dirty_offset: int = NO_OFFSET
    had_clean_shutdown: bool = False


def load_log(options: LogOptions, last_known: LastKnown, on_progress: Callable[[int], None] | None = None) -> Log:
    """Open the log in a folder, which is created where it does not exist.

    `on_progress` is called with bytes that recovery has read, now and then; what it raises stops the loading.
    """
    try:
        return _Loader(options, last_known, on_progress).load()
    except CorruptLogError as error:
        # The checkpoints vouched for this part of the log, so nothing they say is believed the second time.
        logger.warning("%s; the whole log is recovered", error)
        return _Loader(options, LastKnown(log_start_offset=last_known.log_start_offset), on_progress).load()


def segment_sizes(files: Files, directory: str, recovery_point: int) -> tuple[int, int]:
    """Return the bytes of a log's segments, and of those that are recovered after a stop that was not clean."""
    sizes = sorted(
        (base, entry.size)
        for entry in files.entries(directory)
        if entry.name.endswith(LOG_SUFFIX) and (base := _base_offset(entry.name)) is not None
    )
    # As in `_untrusted`: from the segment on that has the last offset below the recovery point.
    first = max((slot for slot, (base, _) in enumerate(sizes) if base < recovery_point), default=0)
    return sum(size for _, size in sizes), sum(size for _, size in sizes[first:])


def _base_offset(name: str) -> int | None:
    """Return the base offset that a file's name starts with, or None for a file that is not a segment's."""
    stem = name.split(".", 1)[0]
    if len(stem) != 20 or not stem.isdecimal():
        return None
    base_offset = int(stem)
    # What has 20 digits may be more than an offset can be.
    return base_offset if base_offset < OFFSET_END else None


def _check_belongs(segment: LogSegment) -> None:
    """Raise CorruptLogError for a file that is another segment's, or cut, as far as its ends tell.

    The first batch must not lie before the segment, and the last one that is indexed must be where the index says.
    """
    if not segment.size:
        return
    last = segment.offset_index.lookup(2**63 - 1)
    log = segment.log_file()
    for position in {0, last.position}:
        data = log.file.read_at(min(HEADER_SIZE, log.size - position), position)
        try:
            header = read_any_header(data, 0)
        except CorruptRecordError as error:
            raise CorruptLogError(log.path, position, error.reason) from None
        if header.base_offset < segment.base_offset:
            reason = f"the batch starts at offset {header.base_offset}, before its segment"
            raise CorruptLogError(log.path, position, reason)
        if position and header.last_offset != last.offset:
            reason = f"the batch ends at offset {header.last_offset}, but its index says {last.offset}"
            raise CorruptLogError(log.path, position, reason)


class _Loader:
    """The steps of opening one log, and what they have found so far."""

    def __init__(self, options: LogOptions, last_known: LastKnown, on_progress: Callable[[int], None] | None) -> None:
        self._options = options
        self._on_progress = on_progress
        self._files = options.files
        self._last_known = last_known
        self._segment_options = options.segment_options()
        self._segments = LogSegments()
        self._leader_epochs = LeaderEpochs(options.files, options.directory)
        self._is_changed = False
        # The producer state at the log end, where recovery went that far and came by it.
        self._producers: ProducerStateManager | None = None

    def load(self) -> Log:
        self._files.make_directory(self._options.directory)
        names = self._names()
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            self._finish_interrupted(names)
            names = self._names()
        damaged = self._open_segments(names)
        epochs_are_good = self._load_epochs()
        self._recover(damaged)
        log_end_offset = self._find_end()
        log_start_offset = max(self._last_known.log_start_offset, self._segments.first.base_offset)
        if not epochs_are_good:
            self._rebuild_epochs()
        remove_snapshots_after(self._files, self._options.directory, log_end_offset)
        self._leader_epochs.truncate_from_start(log_start_offset)
        self._leader_epochs.truncate_from_end(log_end_offset)
        if self._producers is None:
            self._producers = rebuild_producers(
                self._files, self._options.directory, self._segments, log_end_offset, log_start_offset
            )
        recovery_point = min(self._last_known.recovery_point, log_end_offset)
        log = Log(
            self._options,
            LogState(
                segments=self._segments,
                log_start_offset=log_start_offset,
                # Every file of a clean shutdown is on the disk, whatever the checkpoint was when it was last written.
                recovery_point=log_end_offset if self._is_trusted() else recovery_point,
                log_end_offset=log_end_offset,
                # What comes after the end was never cleaned, whatever was there before.
                first_dirty_offset=min(self._last_known.first_dirty_offset, log_end_offset),
                leader_epochs=self._leader_epochs,
                producers=self._producers,
                is_changed=self._is_changed,
            ),
        )
        if log.is_flush_due:
            # Readers see what is flushed, and what was acknowledged before a crash is to be read from the start on.
            log.flush()
        return log

    def _is_trusted(self) -> bool:
        return self._last_known.had_clean_shutdown and not self._is_changed

    def _names(self) -> dict[str, int]:
        return {
            entry.name: entry.size for entry in self._files.entries(self._options.directory) if not entry.is_directory
        }

    def _path(self, name: str) -> str:
        return os.path.join(self._options.directory, name)

    # 1. What a crash interrupted.

    def _finish_interrupted(self, names: dict[str, int]) -> None:
        self._is_changed = True
        cleaned = [base for name in names if name.endswith(CLEANED_SUFFIX) and (base := _base_offset(name)) is not None]
        # A clean that was still writing had not replaced anything: its output, from the first of it on, is dropped.
        oldest_cleaned = min(cleaned, default=None)
        swapped: list[str] = []
        # As long as there is a `.cleaned`, its `.swap` is one to drop: it goes last, in case this is interrupted too.
        for name in sorted(names, key=lambda name: (name.endswith(CLEANED_SUFFIX), name)):
            base = _base_offset(name)
            if base is None:
                continue
            is_unfinished = oldest_cleaned is not None and base >= oldest_cleaned
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) or (name.endswith(SWAP_SUFFIX) and is_unfinished):
                if name.endswith(LOG_SUFFIX + DELETED_SUFFIX) and name.removesuffix(DELETED_SUFFIX) not in names:
                    self._remove_indexes(name, names)
                self._files.remove(self._path(name))
            elif name.endswith(SWAP_SUFFIX):
                swapped.append(name)
        for name in swapped:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                self._remove_covered(name, names[name])
        if swapped:
            # What is replaced must be gone for good first: an old index beside new data would be believed.
            self._files.sync_directory(self._options.directory)
        # The data comes last: while it has its old name the swap is done again, with it everything is in place.
        for name in sorted(swapped, key=lambda name: name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            self._files.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))

    def _remove_indexes(self, name: str, names: dict[str, int]) -> None:
        """Remove the indexes of data that retention had set aside, which keep their names as long as it is there."""
        for kind in KINDS:
            if name[:20] + kind in names:
                self._files.remove(self._path(name[:20] + kind))

    def _remove_covered(self, name: str, size: int) -> None:
        """Remove the segments that a swapped one replaces: all whose base offset lies in its range."""
        base = _base_offset(name)
        assert base is not None
        path = self._path(name)
        last_offset = base  # Its own place it takes even when nothing is left in it.
        try:
            for _, batch in scan_headers(LogFile(self._files.open(path), path, size), 0):
                last_offset = batch.last_offset
        except CorruptLogError as error:
            logger.warning("%s; only what lies before it replaces other segments", error)
        for other in self._names():
            other_base = _base_offset(other)
            if other_base is not None and other.endswith(KINDS) and base <= other_base <= last_offset:
                self._files.remove(self._path(other))

    # 2. The segments.

    def _open_segments(self, names: dict[str, int]) -> list[LogSegment]:
        """Open all segments and return those that are trusted, but whose index must be made again."""
        for name, size in sorted(names.items()):
            base = _base_offset(name)
            if base is None or not name.endswith(KINDS):
                continue
            stem = name[:20]
            if not name.endswith(LOG_SUFFIX):
                if stem + LOG_SUFFIX not in names:
                    logger.warning("%s has no log file and is removed", self._path(name))
                    self._files.remove(self._path(name))
                    self._is_changed = True
                continue
            segment = LogSegment(self._segment_options, base, self._options.clock.now_ms())
            self._segments.add(segment)
            segment.size = size
        untrusted = set(self._untrusted())
        trusted = [segment for segment in self._segments if segment not in untrusted]
        return [segment for segment in trusted if not self._open_indexes(segment, names)]

    def _untrusted(self) -> list[LogSegment]:
        """Return the segments that an unclean stop leaves in doubt, which are recovered whatever their indexes say."""
        if self._last_known.had_clean_shutdown:
            return []
        # The one that ends at the recovery point may have been sealed since, without its indexes having been flushed.
        return self._segments.from_offset(self._last_known.recovery_point - 1)

    def _open_indexes(self, segment: LogSegment, names: dict[str, int]) -> bool:
        stem = f"{segment.base_offset:020d}"
        if stem + INDEX_SUFFIX not in names or stem + TIME_INDEX_SUFFIX not in names:
            logger.warning("%s has no index; it is made again", segment.path)
            return False
        try:
            segment.open(segment.size, names[stem + INDEX_SUFFIX], names[stem + TIME_INDEX_SUFFIX])
            if stem + TRANSACTION_INDEX_SUFFIX in names:
                self._check_aborted(segment)
            _check_belongs(segment)
        except CorruptIndexError as error:
            logger.warning("%s; the index is made again", error)
            return False
        except CorruptLogError as error:
            logger.warning("%s; the segment is recovered", error)
            return False
        return True

    def _check_aborted(self, segment: LogSegment) -> None:
        """Raise CorruptIndexError where the aborted transactions are not those of this segment."""
        following = self._segments.higher(segment.base_offset)
        entries = segment.transaction_index.entries()
        if following is not None and entries and entries[-1].last_offset >= following.base_offset:
            reason = f"the last entry ends at offset {entries[-1].last_offset}, behind its segment"
            raise CorruptIndexError(segment.transaction_index.path, 0, reason)

    # 3. Recovery.

    def _recover(self, damaged: list[LogSegment]) -> None:
        untrusted = self._untrusted()
        self._recover_each(damaged)
        if untrusted:
            self._recover_from(untrusted)
            self._remove_empty_behind_hole()
        if not len(self._segments):
            self._create_first()

    def _recover_each(self, damaged: list[LogSegment]) -> None:
        """Make the indexes of single segments again. What lies behind them is trusted, and stays even behind a hole."""
        for segment in damaged:
            self._recover_from([segment])
            segment.flush()  # It is trusted from here on, and no later flush comes by it.

    def _recover_from(self, run: list[LogSegment]) -> None:
        """Recover neighbouring segments, with the producer state as it was at their start."""
        self._is_changed = True
        producers = self._producers_before(run[0])
        last = run[-1]
        for segment in run:
            following = self._segments.higher(segment.base_offset)
            cut = recover_segment(
                segment,
                self._segment_options,
                self._options.config.index_interval_bytes,
                partial(self._observe, producers),
                self._on_progress,
                end_offset=OFFSET_MAX if following is None else following.base_offset,
            )
            if following is None or following.base_offset <= segment.next_offset():
                continue  # What was cut off, if anything, was room that had been allocated.
            if cut and segment is not run[-1]:
                self._remove_after(segment)
                last = segment
                break
            missing = f"offsets {segment.next_offset()} to {following.base_offset - 1}"
            level = logging.INFO if self._options.config.is_compacted else logging.WARNING
            logger.log(level, "%s lacks %s, by compaction, by damage or by a power cut", segment.path, missing)
        if last is self._segments.last:
            self._producers = producers

    def _producers_before(self, segment: LogSegment) -> ProducerStateManager:
        producers, offset = restore_snapshot(
            self._files, self._options.directory, segment.base_offset, self._last_known.log_start_offset
        )
        if offset < segment.base_offset:
            before = [other for other in self._segments.from_offset(offset) if other.base_offset < segment.base_offset]
            replay(producers, before, offset, segment.base_offset)
        return producers

    def _observe(
        self, producers: ProducerStateManager, segment: LogSegment, batch: BatchHeader, view: memoryview
    ) -> None:
        if batch.leader_epoch > self._leader_epochs.latest:
            self._leader_epochs.assign(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            apply_batch(producers, segment, batch, view)

    def _remove_after(self, segment: LogSegment) -> None:
        for other in reversed(self._segments.from_offset(segment.base_offset)[1:]):
            logger.warning("%s lies behind the damage in %s and is removed", other.path, segment.path)
            self._segments.remove(other)
            other.delete()

    def _remove_empty_behind_hole(self) -> None:
        """Remove new segments whose names outlived a power cut that took records before them: offsets stay dense.

        Nothing is lost with them. A compacted log may have lost its last records to the cleaner, and keeps the offset.
        """
        if self._options.config.is_compacted:
            return
        known = self._last_known
        while len(self._segments) > 1:
            before, last = list(self._segments)[-2:]
            end_offset = before.next_offset()
            is_hole = known.recovery_point <= end_offset < last.base_offset
            if last.size or not is_hole or known.log_start_offset >= last.base_offset:
                return
            logger.warning("%s is empty, lies behind a hole and is removed", last.path)
            self._segments.remove(last)
            last.delete()

    def _create_first(self) -> None:
        self._is_changed = True
        active = ActiveSegment.create(
            self._segment_options,
            self._last_known.log_start_offset,
            self._options.clock.now_ms(),
            self._options.config.index_interval_bytes,
        )
        if self._options.config.preallocate:
            active.preallocate(self._options.config.segment_bytes)
        self._segments.add(active.segment)

    # 4. Log end, leader epochs, producers.

    def _find_end(self) -> int:
        """Return the log end offset; a last segment in which no end can be found is recovered."""
        try:
            log_end_offset = self._segments.last.next_offset()
        except CorruptLogError as error:
            logger.warning("%s; the segment is recovered", error)
            self._recover_from([self._segments.last])
            log_end_offset = self._segments.last.next_offset()
        if log_end_offset >= self._last_known.log_start_offset:
            return log_end_offset
        logger.warning(
            "%s ends at offset %d, before its start at %d; it starts anew there",
            self._options.directory,
            log_end_offset,
            self._last_known.log_start_offset,
        )
        for segment in reversed(list(self._segments)):
            self._segments.remove(segment)
            segment.delete()
        for snapshot in snapshot_offsets(self._files, self._options.directory):
            self._files.remove(snapshot_path(self._options.directory, snapshot))
        self._producers = ProducerStateManager()
        self._create_first()
        return self._last_known.log_start_offset

    def _load_epochs(self) -> bool:
        is_older_than_a_flush = self._last_known.had_clean_shutdown or self._last_known.recovery_point > 0
        if is_older_than_a_flush and not self._leader_epochs.exist() and any(s.size for s in self._segments):
            logger.warning("%s has no leader epochs; they are read from the log", self._options.directory)
            return False
        try:
            self._leader_epochs.load()
        except CheckpointError as error:
            logger.warning("%s; the leader epochs are read from the log", error)
            return False
        return True

    def _rebuild_epochs(self) -> None:
        self._is_changed = True
        self._leader_epochs.clear()
        for segment in self._segments:
            for _, batch in scan_headers(segment.log_file(), 0):
                if batch.leader_epoch > self._leader_epochs.latest:
                    self._leader_epochs.assign(batch.leader_epoch, batch.base_offset)
