"""Log: the ordered segments of one partition, appended at the end and read from anywhere.

    log start offset        recovery point      last stable offset   high watermark    log end offset
          |                        |                     |                  |                 |
    [ 0 ... 4711 ) [ 4711 ... 9322 ) [ 9322 ...                                               )
      sealed         sealed            active: the only one that is appended to

Below the recovery point everything is on the disk. Consumers see what is below the high watermark, those that read
committed records only what is below the last stable offset. New batches go to the log end offset.

Rule 1: one thread owns a log. Only `PendingFlush.run` and `remove_files` may be called from another.
Rule 2: the log end offset moves after the bytes are in the segment, and never for an append that could not be written.
A flush that fails after it is a failure of the disk, which takes the directory offline.
Rule 3: what was flushed survives a crash of the machine, what was appended survives a crash of the process.
"""

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.config import LONG_MAX, LogConfig
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, LogOffsetMetadata, TimestampOffset
from barnabas.records.batch import LOG_APPEND_TIME, BatchHeader, CorruptRecordError
from barnabas.records.builder import OwnBatch, seal_own_batch
from barnabas.storage.batches import producer_batches
from barnabas.storage.files import PASSING_ERRORS
from barnabas.storage.leaving_segments import LeavingSegments
from barnabas.storage.log_end import LogEnd
from barnabas.storage.log_types import LogAppendInfo, LogOptions, LogState, PendingFlush
from barnabas.storage.producer_replay import (
    apply_batch,
    read_end_marker,
    rebuild_producers,
    remove_snapshots_after,
    remove_stray_snapshots,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from barnabas.storage.producers import BatchMetadata
from barnabas.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    ActiveSegment,
    FetchDataInfo,
    LogSegment,
    segment_file,
)
from barnabas.storage.segment_swap import put_in_place, swap_files
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.validator import (
    LeaderStamp,
    validate_for_follower,
    validate_for_leader,
)
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

OFFSET_END = 2**63 - 1
"""No record has this offset, so that the one after the last record always fits into 64 bits."""


def _newer_first(found: TimestampOffset) -> tuple[int, int]:
    return found.timestamp, -found.offset


class Log(LogEnd):
    """The log of one replica of a partition."""

    def __init__(self, options: LogOptions, state: LogState) -> None:
        self._options = options
        self._segment_options = options.segment_options()
        self.config = options.config
        self.segments = state.segments
        self.leader_epochs = state.leader_epochs
        self.producers = state.producers
        self.log_start_offset = state.log_start_offset
        self.recovery_point = state.recovery_point
        # Below it the cleaner was; -1 where it never was.
        self.first_dirty_offset = state.first_dirty_offset
        self.end_offset = state.log_end_offset
        self._activate(self._open_active())
        self.high_watermark = self.offset_metadata(self.log_start_offset)
        # How often files came or went since the folder was last synced, and whether anything changed since the start.
        self._name_changes = int(state.is_changed)
        self.is_touched = state.is_changed
        # A flush that was prepared before a truncation says nothing of what was appended after it.
        self._truncations = 0
        self.leaving = LeavingSegments()
        self.is_closed = False
        self.last_flush_seconds = options.clock.monotonic_seconds()

    # What it is and where.

    @property
    def directory(self) -> str:
        """The folder of the partition."""
        return self._options.directory

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.end_offset

    @property
    def truncations(self) -> int:
        """How often records were cut off its end since it was opened."""
        return self._truncations

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def update_config(self, config: LogConfig) -> None:
        """Apply changed settings to everything that is appended from now on."""
        self.config = config
        self._options = replace(self._options, config=config)
        self._segment_options = self._options.segment_options()
        self.active.index_writer.resize(config.index_interval_bytes, config.segment_index_bytes)
        self._activate(self.active)

    def _activate(self, active: ActiveSegment) -> None:
        """Make a segment the one that is appended to, and know what may be appended to it the short way."""
        config = self.config
        self.active, self.active_end = active, active.segment
        self.takes_plain = config.takes_plain
        self.refuses_keyless = config.is_compacted
        self.batch_bytes_max = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.interval_bytes = active.index_writer.interval_bytes
        self.offset_max = min(active.offset_max, OFFSET_END - 1)
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        # A random number that stays the same for the segment, also after a restart.
        segment_ms = self.config.segment_ms
        if self.config.is_compacted:
            # What is in the active segment is not cleaned.
            segment_ms = min(segment_ms, self.config.max_compaction_lag_ms)
        jitter_ms_max = min(self.config.segment_jitter_ms, segment_ms)
        jitter_ms = zlib.crc32(active.segment.path.encode()) % jitter_ms_max if jitter_ms_max else 0
        # Invariant: the segment is rolled before its records span more time than this.
        self._roll_ms = segment_ms - jitter_ms
        # A batch that is not newer than this does not make the segment too old. It is found out when first asked for.
        self.roll_after = NO_TIMESTAMP - 1

    def _open_active(self) -> ActiveSegment:
        return ActiveSegment(self.segments.last, self._segment_options, self.config.index_interval_bytes)

    def _check_open(self) -> None:
        """Raise ApiError for a log that somebody still holds after it was closed, deleted or lost with its disk."""
        if self.is_closed:
            message = f"{self.directory} is closed, deleted or on a failed disk"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    # Append.

    def append_as_leader(
        self,
        records: bytes | bytearray | memoryview,
        leader_epoch: int,
        *,
        is_client: bool = True,
    ) -> LogAppendInfo:
        """Validate batches, give them offsets and append them. A batch that was sent before is not appended again.

        Writable bytes are stamped in place. What this broker's coordinators write is not from a client. Raises ApiError
        with the answer for the client, or OSError from the disk.
        """
        leader = LeaderStamp(self.end_offset, leader_epoch, self._options.clock.now_ms(), is_client)
        data, batches = validate_for_leader(records, self.config, leader)
        if not batches:
            return self._nothing_appended()
        if batches[0].producer_id >= 0 or len(batches) > 1:
            for position, batch in producer_batches(batches):
                if is_client and len(batches) > 1:
                    # Each would be judged by what was there before the append, not by the one before it.
                    message = "an idempotent producer sends one batch a partition at a time"
                    raise ApiError(ErrorCode.INVALID_RECORD, message)
                duplicate = self._check_producer(data[position:], batch, is_client)
                if duplicate is not None:
                    return self._duplicate(duplicate)
        return self._append(data, batches)

    def append_own(self, own: OwnBatch, leader_epoch: int) -> int:
        """Append a batch that a coordinator of this broker makes, and return its size in bytes.

        It gets its offset before it is sealed, and what is sealed here is not checked again, unless the topic stores
        batches otherwise than they come.
        """
        size = self.append_own_plain(own, leader_epoch)
        if size >= 0:
            return size
        data, header = seal_own_batch(own, self.end_offset, leader_epoch)
        config = self.config
        if config.message_timestamp_type != "CreateTime" or config.compression_type not in ("producer", "uncompressed"):
            return self.append_as_leader(data, leader_epoch, is_client=False).size_bytes
        if header.producer_id >= 0:
            self._check_producer(data, header, is_client=False)
        return self._append(data, [header]).size_bytes

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> LogAppendInfo:
        """Append batches with the offsets that the leader gave them."""
        data, batches = validate_for_follower(records, self.end_offset)
        if not batches:
            return self._nothing_appended()
        return self._append(data, batches)

    def _check_producer(self, data: memoryview, batch: BatchHeader, is_client: bool) -> BatchMetadata | None:
        if batch.is_control:
            self.producers.check_marker(batch, read_end_marker(data, batch))
            return None
        return self.producers.check(batch, is_client=is_client)

    def _append(self, data: memoryview, batches: list[BatchHeader]) -> LogAppendInfo:
        first, last = batches[0], batches[-1]
        max_timestamp = first.max_timestamp
        record_count = first.count
        if first is not last:
            max_timestamp = max(batch.max_timestamp for batch in batches)
            record_count = sum(batch.count for batch in batches)
        size = len(data)
        if size > self.config.segment_bytes:
            message = f"the batches have {size} bytes, but segment.bytes is {self.config.segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        last_offset = last.base_offset + last.last_offset_delta
        if self.is_closed:
            self._check_open()
        if last_offset >= OFFSET_END:
            message = f"there is no offset {last_offset}: the last one is {OFFSET_END - 1}"
            raise ApiError(ErrorCode.INVALID_RECORD, message)
        if self._should_roll(size, max_timestamp, last_offset):
            self.roll(last_offset - RELATIVE_OFFSET_MAX)
        active = self.active
        active.append(data, batches)
        self.is_touched = True
        if first.producer_id >= 0 or first is not last:
            for position, batch in producer_batches(batches):
                self._apply(data[position:], batch, first.base_offset)
        self.end_offset = last_offset + 1
        if last.leader_epoch > self.leader_epochs.latest:
            for batch in batches:
                if batch.leader_epoch > self.leader_epochs.latest:
                    self.leader_epochs.assign(batch.leader_epoch, batch.base_offset)
        if last_offset + 1 - self.recovery_point >= self.config.flush_messages:
            self._flush_due()
        log_append_time = max_timestamp if first.attributes & LOG_APPEND_TIME else NO_TIMESTAMP
        start = self.log_start_offset
        # What the constructor of a NamedTuple does inside, at a third of its price.
        info = (first.base_offset, last_offset, max_timestamp, log_append_time, start, size, record_count, False)
        return tuple.__new__(LogAppendInfo, info)

    def _apply(self, data: memoryview, batch: BatchHeader, first_offset: int) -> None:
        try:
            apply_batch(self.producers, self.active.segment, batch, data)
        except (OSError, CorruptRecordError) as error:
            # A marker without its entry in the transaction index would show aborted records to readers.
            self.active.truncate_to(first_offset)
            self._ended_at(self.end_offset)
            if isinstance(error, CorruptRecordError):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from None
            raise

    def _nothing_appended(self) -> LogAppendInfo:
        return LogAppendInfo(NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, self.log_start_offset, 0, 0)

    def _duplicate(self, known: BatchMetadata) -> LogAppendInfo:
        if self.is_flush_due:
            # It is acknowledged once more, and that waits for the disk. Nobody may have asked for it the first time.
            self._flush_due()
        is_log_append_time = self.config.message_timestamp_type == "LogAppendTime"
        return LogAppendInfo(
            known.first_offset,
            known.last_offset,
            known.timestamp,
            known.timestamp if is_log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            0,
            0,
            True,
        )

    # Roll.

    def _should_roll(self, size: int, max_timestamp: int, last_offset: int) -> bool:
        active = self.active_end
        return (
            active.size + size > self.segment_bytes
            or last_offset > self.active.offset_max
            or active.is_index_full
            or (max_timestamp > self.roll_after and self._is_old(max_timestamp))
        )

    def _is_old(self, max_timestamp: int) -> bool:
        """Tell whether the segment spans too much time: by its records' timestamps or, without any, by the clock."""
        segment = self.active.segment
        if segment.size == 0:
            return False
        first = self.active.rolling_based_timestamp()
        if first >= 0:
            self.roll_after = min(first + self._roll_ms, LONG_MAX)
            return max_timestamp > self.roll_after
        return self._options.clock.now_ms() - segment.created_ms > self._roll_ms

    def roll(self, base_offset_min: int = 0) -> LogSegment:
        """Seal the active segment and open the next; return the new one.

        The new segment starts at the log end offset, or later where a follower's batch would otherwise lie too far
        from the start. An empty active segment that starts there is as good as a new one.
        """
        self._check_open()
        base_offset = max(self.end_offset, base_offset_min)
        if base_offset in self.segments:
            if self.active.segment.base_offset != base_offset or self.active.segment.size:
                raise AssertionError(f"{self.directory} has a segment at {base_offset} already")
            self.active.segment.created_ms = self._options.clock.now_ms()
            return self.active.segment
        self._remove_leftovers(base_offset)
        write_snapshot(self._options.files, self.directory, base_offset, self.producers, durable=False)
        new = self._create_segment(base_offset)
        try:
            self.active.seal()
        except BaseException:
            # The old segment goes on as the active one, and a file in the middle of it would not be understood.
            new.segment.unpin()
            new.segment.delete()
            raise
        self.segments.add(new.segment)
        self._activate(new)
        if self.high_watermark_offset == self.end_offset:
            self.watermark_to_end()
        if self._options.on_roll is not None:
            self._options.on_roll(self)
        return new.segment

    def give_room_back(self) -> None:
        """Let others have the room that is reserved for appends, because there is no other left."""
        if not self.is_closed:
            self.active.give_room_back()

    def _create_segment(self, base_offset: int) -> ActiveSegment:
        now_ms = self._options.clock.now_ms()
        new = ActiveSegment.create(self._segment_options, base_offset, now_ms, self.config.index_interval_bytes)
        self.is_touched = True
        self._name_changes += 1
        try:
            if self.config.preallocate:
                new.preallocate(self.config.segment_bytes)
        except OSError:
            new.segment.unpin()
            new.segment.delete()
            raise
        return new

    def adopt(self, sealed: Sequence[tuple[int, int, int, int]], end_offset: int, leader_epoch: int) -> None:
        """Take in sealed segments after a roll: base offset and sizes of each, whose files have their names already."""
        self.active.segment.unpin()  # It is empty, and the first of them has its name now.
        for base_offset, *sizes in sealed:
            segment = LogSegment(self._segment_options, base_offset, self._options.clock.now_ms())
            segment.open(*sizes)
            self.segments.add(segment)
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, sealed[0][0])
        write_snapshot(self._options.files, self.directory, end_offset, self.producers, durable=False)
        self._activate(self._create_segment(end_offset))
        self.segments.add(self.active.segment)
        self.end_offset = end_offset
        if self._options.on_roll is not None:
            self._options.on_roll(self)

    def _remove_leftovers(self, base_offset: int) -> None:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            path = segment_file(self.directory, base_offset, suffix)
            if self._options.files.exists(path):
                logger.warning("%s is in the place of a new segment and is removed", path)
                self._options.files.remove(path)

    # Flush.

    @property
    def is_flush_due(self) -> bool:
        """Whether the last appends wait for the disk."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    def _flush_due(self) -> None:
        if self._options.on_flush_due is None:
            self.flush()
        else:
            self._options.on_flush_due(self)

    def prepare_flush(self) -> PendingFlush | None:
        """Return what has to be written before the recovery point can move to the log end, or None if nothing."""
        if self.recovery_point >= self.end_offset and not self._name_changes:
            return None
        # The segment that ends at the recovery point was flushed while it was active: its indexes were not.
        sealed = self.segments.from_offset(self.recovery_point - 1)[:-1]
        return PendingFlush(self, self.end_offset, sealed, self.active, self._name_changes, self._truncations)

    def finish_flush(self, flush: PendingFlush) -> None:
        """Move the recovery point, after `run` returned."""
        if flush.truncations == self._truncations:
            # After the batches, which they must not run ahead of, and here, where nobody else changes them. Epochs
            # change so seldom that waiting for the disk does not matter.
            self.leader_epochs.flush(only_new=True)
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            self._name_changes -= flush.name_changes
        self.last_flush_seconds = self._options.clock.monotonic_seconds()

    def flush(self) -> None:
        """Return when everything appended so far is on the disk."""
        pending = self.prepare_flush()
        if pending is not None:
            pending.run()
            self.finish_flush(pending)

    def sync_directory(self) -> None:
        """Return when the names of its files are on the disk."""
        self._options.files.sync_directory(self.directory)

    # Read.

    def read(
        self, start_offset: int, max_size: int, limit: LogOffsetMetadata, *, min_one_message: bool = False
    ) -> FetchDataInfo:
        """Return the batches from the one that holds `start_offset` on, not beyond `limit`.

        The limit is `log_end` for followers, `high_watermark` for consumers, `last_stable` for those that read
        committed records. With `min_one_message` the first batch comes whole even when it is over `max_size`.
        """
        self._check_open()
        end_offset = self.end_offset
        if start_offset > end_offset or start_offset < self.log_start_offset:
            message = f"offset {start_offset} is not in [{self.log_start_offset}, {end_offset}] of {self.directory}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if start_offset >= limit.message_offset:
            return FetchDataInfo(self.offset_metadata(start_offset), None)
        segment = self.segments.floor(start_offset)
        while segment is not None and segment.base_offset <= limit.segment_base_offset:
            is_last = segment.base_offset == limit.segment_base_offset
            max_position = limit.position_in_segment if is_last else segment.size
            found = segment.read(start_offset, max_size, max_position, min_one_message=min_one_message)
            if found is not None:
                return found
            # Compaction may have removed everything from there on; the next segment has what comes after.
            segment = self.segments.higher(segment.base_offset)
        return FetchDataInfo(limit._replace(message_offset=start_offset), None)

    def offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return where an offset lies; one that compaction removed lies where the next batch starts."""
        if offset == self.end_offset:
            return self.log_end
        segment = self.segments.floor(offset)
        while segment is not None:
            found = segment.locate(offset)
            if found is not None:
                return LogOffsetMetadata(offset, segment.base_offset, found.position)
            segment = self.segments.higher(segment.base_offset)
        return self.log_end._replace(message_offset=offset)

    def update_high_watermark(self, offset: int) -> None:
        """Move the high watermark, kept between log start and log end."""
        offset = max(self.log_start_offset, min(offset, self.end_offset))
        self.high_watermark = self.offset_metadata(offset)
        self.producers.on_high_watermark(offset)

    def high_watermark_to_end(self) -> None:
        """Move the high watermark to the log end, which is where it goes after every append without other replicas."""
        self.watermark_to_end()
        if self.producers.unreplicated:
            self.producers.on_high_watermark(self.end_offset)

    @property
    def last_stable(self) -> LogOffsetMetadata:
        """The offset below which every transaction is decided, not above the high watermark."""
        first_unstable = self.producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark_offset:
            return self.high_watermark
        return self.offset_metadata(max(first_unstable, self.log_start_offset))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records in a range of offsets."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.from_offset(start_offset):
            aborted, is_complete = segment.transaction_index.collect(start_offset, end_offset)
            found += aborted
            if is_complete:
                break
        return found

    def find_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is at or past `timestamp`, or None when all are older."""
        for segment in self.segments:
            if segment.newest_ms() >= timestamp:
                found = segment.find_offset_by_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return found
        return None

    def find_offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp of all, or None when no record has one."""
        newest = max((segment.largest.timestamp for segment in self.segments), default=NO_TIMESTAMP)
        found = None if newest < 0 else self.find_offset_by_timestamp(newest)
        if found is not None or newest < 0:
            return found
        # That record was deleted, or cleaned away: what is there now has to be looked at.
        for segment in sorted(self.segments, key=lambda segment: segment.largest.timestamp, reverse=True):
            if found is None or segment.largest.timestamp > found.timestamp:
                other = segment.find_offset_of_max_timestamp(self.log_start_offset)
                found = max((one for one in (found, other) if one is not None), key=_newer_first, default=None)
        return found

    # Deletion and truncation.

    def delete_records(self, offset: int) -> int:
        """Let the log start at `offset`, and return where it starts now; files go when whole segments lie below."""
        if offset < 0 or offset > self.high_watermark_offset:
            message = f"records can be deleted up to the high watermark {self.high_watermark_offset}, not {offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
        return self.log_start_offset

    def delete_old_segments(self, is_deletable: Callable[[LogSegment, int], bool]) -> list[LogSegment]:
        """Take the oldest segments out while `is_deletable(segment, its end offset)` and return them.

        Their data is renamed to `.deleted`, oldest first, so that a crash leaves a log without a hole; whoever is
        reading them reads on, and `remove_files` of the segments returned removes them. A log is never without a
        segment: when all are to go, a new one is rolled first. A full disk, which this may be to make room on, keeps
        only what it would have to be written to for; it is an error when none could go.
        """
        self._check_open()
        deletable: list[LogSegment] = []
        for segment in self.segments:
            following = self.segments.higher(segment.base_offset)
            end_offset = following.base_offset if following else self.end_offset
            if end_offset > self.high_watermark_offset or not is_deletable(segment, end_offset):
                break
            if following is None and segment.size == 0:
                break
            deletable.append(segment)
        if deletable and deletable[-1] is self.segments.last:
            try:
                self.roll()
            except OSError as error:
                if error.errno not in PASSING_ERRORS or len(deletable) == 1:
                    raise
                deletable.pop()
        taken: list[LogSegment] = []
        for segment in deletable:
            if not self._set_aside(segment, is_first=not taken):
                break
            taken.append(segment)
        if taken:
            self._start_at_least(self.segments.first.base_offset)
        return taken

    def _set_aside(self, segment: LogSegment, *, is_first: bool) -> bool:
        """Take a segment out, and tell whether that could be done; what waits for room raises only when `is_first`."""
        segment.is_leaving = True
        try:
            self.leaving.make_way(segment.base_offset)
            segment.set_aside()
        except OSError as error:
            segment.is_leaving = False
            if error.errno not in PASSING_ERRORS or is_first:
                raise
            return False
        self.segments.remove(segment)
        self.leaving.add(segment)
        self._options.open_segments.forget(segment)
        self.is_touched = True
        self._name_changes += 1
        return True

    def _start_at_least(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def remove_files(self, segment: LogSegment) -> None:
        """Remove the files of a segment that was taken out; any thread may do it, since that can take long.

        Of a segment that was deleted the snapshot goes too, which has its offset in the name. One that a crash leaves
        behind does no harm until the next close removes it.
        """
        self.leaving.remove(segment, self._remove_snapshot)

    def _remove_snapshot(self, segment: LogSegment) -> None:
        first = next(iter(self.segments), None)
        if first is not None and segment.base_offset < first.base_offset:
            self._options.files.remove(snapshot_path(self.directory, segment.base_offset))

    def replace_segments(self, sources: Sequence[LogSegment], sizes: tuple[int, int, int]) -> None:
        """Put the cleaned segment, with a log and indexes of these sizes, in the place of those it was made from.

        What was there becomes `.deleted`, and `remove_files` of the segments removes it.
        """
        self._check_open()
        for source in sources:
            self.leaving.make_way(source.base_offset)
        cleaned = swap_files(self._segment_options, sources, sizes)
        put_in_place(self.segments, sources, cleaned)
        for source in sources:
            self.leaving.add(source)
            self._options.open_segments.forget(source)
        self.is_touched = True
        self._name_changes += 1
        # It may have pointed into a segment that is not there any more.
        self.update_high_watermark(self.high_watermark_offset)

    def truncate_to(self, offset: int) -> None:
        """Cut off everything from `offset` on, whole batches only; the log end offset says where it ends then.

        The newest segments go first, so that a crash in between leaves a log that is longer, and never one with a
        hole.
        """
        self._check_open()
        if offset < 0:
            raise ValueError(f"a log can not be cut at offset {offset}")
        if offset >= self.end_offset:
            # A leader may have noted its epoch at the end, and never written in it.
            self.leader_epochs.truncate_from_end(offset)
            return
        self._truncations += 1
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        doomed = [segment for segment in self.segments if segment.base_offset > offset]
        for segment in reversed(doomed):
            self.segments.remove(segment)
            segment.unpin()
            segment.delete()
        if doomed:
            # They must be gone for good before the one before them is cut: a crash could bring them back behind a hole.
            self.sync_directory()
            self._activate(self._open_active())
            self._name_changes += 1
        self.is_touched = True
        self._ended_at(self.active.truncate_to(offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records and go on at `offset`, as a follower does that is too far behind."""
        self._truncations += 1
        for segment in reversed(list(self.segments)):
            self.segments.remove(segment)
            segment.unpin()
            segment.delete()
        self.leaving.make_way_for_all()
        self._activate(self._create_segment(offset))
        self.segments.add(self.active.segment)
        self.log_start_offset = offset
        self.leader_epochs.clear()
        for snapshot in snapshot_offsets(self._options.files, self.directory):
            self._options.files.remove(snapshot_path(self.directory, snapshot))
        self._ended_at(offset)

    def _ended_at(self, offset: int) -> None:
        self.end_offset = offset
        self.roll_after = NO_TIMESTAMP - 1
        self.recovery_point = min(self.recovery_point, offset)
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        remove_snapshots_after(self._options.files, self.directory, offset)
        self.producers = rebuild_producers(
            self._options.files, self.directory, self.segments, offset, self.log_start_offset
        )
        self.update_high_watermark(self.high_watermark_offset)

    # Close.

    def close(self) -> None:
        """Flush, take a snapshot of the producers, and leave the files as a clean start expects them."""
        if self.is_touched and not self.is_closed:
            self.flush()
            self.leader_epochs.flush()
            self.active.close()
            remove_stray_snapshots(self._options.files, self.directory, self.segments)
            # This syncs the folder, and so makes the names of the indexes durable as well.
            write_snapshot(self._options.files, self.directory, self.log_end_offset, self.producers, durable=True)
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files without writing, because the log is deleted or its directory failed."""
        if self.is_closed:
            return
        self.is_closed = True
        self.leaving.close()
        self.active.release()
        for segment in self.segments:
            self._options.open_segments.forget(segment)
            segment.unpin()
            segment.release()
