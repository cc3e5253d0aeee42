"""LogCleaning: one clean of one log, over the Files seam: segments in, `.cleaned` segments out.

    1. the keys of the dirty part go into the offset map, until the end or until it is full
    2. group by group, the segments up to there are written anew without what is out of date

What goes: a record whose key has a later offset in the map; a record without a key; records of aborted transactions; a
tombstone, and a marker whose transaction has no batch left, whose delete horizon has passed.

The delete horizon (KIP-534) is set when a clean first comes by such a tombstone or marker: `delete.retention.ms` from
then on. It stands in the place of the base timestamp, and bit 6 of the attributes says so. Consumers that are not
further behind than that see every tombstone.

Rule 1: offsets never change. A batch that loses records keeps its base offset and last offset delta; one that loses
nothing is copied byte for byte; one that loses everything goes.
Rule 2: what the state of a producer that is still remembered was made of stays: its last batch, empty if need be, and
its last marker.
Rule 3: the same job gives the same files. What is ready is on the disk, names included, before it is told of.
Rule 4: damage ends a clean with the file and the position. Nothing was replaced then.

It does not swap anything in: see `segment_swap`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from barnabas.records import compaction, kernel
from barnabas.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    CorruptRecordError,
)
from barnabas.records.builder import seal_batch
from barnabas.records.codecs import Codec
from barnabas.records.legacy import LOG_APPEND_TIME_TYPE, LegacyMessage, iterate_messages
from barnabas.records.record import records_body
from barnabas.storage.batches import CorruptLogError, LogFile, scan_batches
from barnabas.storage.cleaner.cleaned_segment import CleanedSegment
from barnabas.storage.cleaner.grouping import group_segments
from barnabas.storage.cleaner.job import (
    ActiveProducer,
    CleanedGroup,
    CleaningError,
    CleaningJob,
    CleaningResult,
    SourceSegment,
)
from barnabas.storage.cleaner.offset_map import OffsetMap
from barnabas.storage.cleaner.transactions import CleanedTransactions
from barnabas.storage.files import Files
from barnabas.storage.producer_replay import read_end_marker
from barnabas.storage.segment import LOG_SUFFIX, segment_file
from barnabas.storage.segment_swap import remove_cleaned

HORIZON_MAX = 2**62
"""A horizon that never comes; the distance from every timestamp to it fits into 64 bits."""

THROTTLE_BYTES = 64 * 1024
LEGACY_RUN_BYTES = 64 * 1024
# What `shift_timestamps` may need more for every record.
SHIFT_BYTES = 14


class _Kept(NamedTuple):
    """What is left of the records of a batch."""

    record_count: int
    body: memoryview
    max_timestamp: int
    has_tombstones: bool


class LogCleaning:
    """One clean; `run` yields what is ready, group by group, and then the result."""

    def __init__(self, files: Files, job: CleaningJob, throttle: Callable[[int], None] = lambda size: None) -> None:
        self._files = files
        self._job = job
        self._throttle = throttle
        self._unthrottled = 0
        self._map = OffsetMap(job.dedupe_buffer_size, job.load_factor)
        # Below this offset records are cleaned; the map decides how far that is.
        self._end_offset = job.end_offset
        self._producers: dict[int, ActiveProducer] = {one.producer_id: one for one in job.producers}
        self._transactions = CleanedTransactions(job.aborted)
        self._horizon = min(job.now_ms + job.delete_retention_ms, HORIZON_MAX)
        self._out = memoryview(bytearray(job.io_buffer_size))
        self._shifted = memoryview(bytearray(0))
        self._legacy_run: list[LegacyMessage] = []
        self._legacy_bytes = 0
        self._target: CleanedSegment
        self._is_changed = False
        self._bytes_in = 0
        self._bytes_out = 0
        self._removed = 0
        self._keyless = 0

    def run(self) -> Iterator[CleanedGroup | CleaningResult]:
        """Clean everything; raises CleaningError, and OSError from the disk, with the unfinished files removed."""
        self._end_offset = self._build_map()
        sources = [source for source in self._job.segments if source.base_offset < self._end_offset]
        # What a clean that was killed left behind would be taken for a part of this one.
        remove_cleaned(self._files, self._job.directory, [source.base_offset for source in sources])
        behind = self._job.segments[len(sources) :]
        end_offset = behind[0].base_offset if behind else self._job.end_offset
        for group in group_segments(sources, end_offset, self._job.segment_bytes, self._job.segment_index_bytes):
            yield self._clean_group(group)
        yield CleaningResult(self._end_offset, self._bytes_in, self._bytes_out, self._removed, self._keyless)

    def _batches(self, source: SourceSegment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield the batches of a segment, and let time pass for them."""
        path = segment_file(self._job.directory, source.base_offset, LOG_SUFFIX)
        file = self._files.open(path)
        try:
            for position, header, view in scan_batches(LogFile(file, path, source.size)):
                self._spend(header.size)
                yield position, header, view
        except CorruptLogError as error:
            raise CleaningError(str(error)) from None
        finally:
            file.close()

    def _damage(self, source: SourceSegment, position: int, error: CorruptRecordError) -> CleaningError:
        path = segment_file(self._job.directory, source.base_offset, LOG_SUFFIX)
        return CleaningError(str(CorruptLogError(path, position, error.reason)))

    def _spend(self, size: int) -> None:
        self._unthrottled += size
        if self._unthrottled >= THROTTLE_BYTES:
            self._throttle(self._unthrottled)
            self._unthrottled = 0

    # 1. The offset map.

    def _build_map(self) -> int:
        """Take in the keys of the dirty part, and return the offset up to which all are in the map."""
        job = self._job
        transactions = CleanedTransactions(job.aborted)
        ends = [*(source.base_offset for source in job.segments[1:]), job.end_offset]
        for source, end in zip(job.segments, ends, strict=True):
            if end <= job.first_dirty_offset:
                continue
            for position, header, view in self._batches(source):
                if header.last_offset < job.first_dirty_offset:
                    continue
                try:
                    full_at = self._put_batch(transactions, header, view)
                except CorruptRecordError as error:
                    raise self._damage(source, position, error) from None
                if full_at is not None:
                    return full_at
        return job.end_offset

    def _put_batch(self, transactions: CleanedTransactions, header: BatchHeader, view: memoryview) -> int | None:
        start_offset = self._job.first_dirty_offset
        if header.magic < MAGIC:
            for message in iterate_messages(view, self._job.decompressed_bytes_max):
                is_new = message.key is not None and message.offset >= start_offset
                if is_new and not self._map.put(message.key or b"", message.offset):
                    return message.offset
            return None
        if header.is_control:
            if header.is_transactional and header.count:
                transactions.on_marker(header, is_commit=read_end_marker(view, header).is_commit)
            return None
        if transactions.on_records(header):
            return None
        body = records_body(view, header, 0, self._job.decompressed_bytes_max)
        return self._map.put_records(body, header.count, header.base_offset, start_offset)

    # 2. The groups.

    def _clean_group(self, group: Sequence[SourceSegment]) -> CleanedGroup:
        """Write the segments of a group as one."""
        self._target = CleanedSegment(self._files, self._job, group[0].base_offset)
        self._is_changed = len(group) > 1
        try:
            for source in group:
                self._bytes_in += source.size
                self._clean_segment(source)
            bases = tuple(source.base_offset for source in group)
            if self._is_changed:
                sizes = self._target.finish(max(self._modified_ms(source) for source in group))
                self._bytes_out += sizes[0]
                return CleanedGroup(bases, *sizes, True)
        except BaseException:
            self._target.discard()
            raise
        self._target.discard()
        self._bytes_out += group[0].size
        return CleanedGroup(bases, group[0].size, group[0].index_bytes, group[0].time_index_bytes, False)

    def _modified_ms(self, source: SourceSegment) -> int:
        return self._files.modified_ms(segment_file(self._job.directory, source.base_offset, LOG_SUFFIX))

    def _clean_segment(self, source: SourceSegment) -> None:
        for position, header, view in self._batches(source):
            try:
                self._clean_batch(header, view)
            except CorruptRecordError as error:
                raise self._damage(source, position, error) from None
        self._end_legacy_run()

    def _clean_batch(self, header: BatchHeader, view: memoryview) -> None:
        if header.magic < MAGIC:
            self._clean_legacy(header, view)
            return
        self._end_legacy_run()
        if header.is_control:
            self._clean_control(header, view)
        else:
            self._clean_records(header, view)

    def _write(self, header: BatchHeader, batch: memoryview | bytearray) -> None:
        self._spend(header.size)
        self._target.append(header, batch)

    def _rewrite(self, header: BatchHeader, body: memoryview | bytearray) -> None:
        """Write a batch with other records or another header than it had."""
        self._is_changed = True
        batch = seal_batch(header, body)
        self._write(header._replace(batch_length=len(batch) - LOG_OVERHEAD), batch)

    # Records.

    def _clean_records(self, header: BatchHeader, view: memoryview) -> None:
        is_aborted = self._transactions.on_records(header)
        if header.base_offset >= self._end_offset:
            self._write(header, view)
            return
        producer = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        is_last = producer is not None and producer.last_offset == header.last_offset
        if is_aborted or not header.count:
            self._removed += header.count
            self._leave_empty(header, view, is_last=is_last)
            return
        body = records_body(view, header, 0, self._job.decompressed_bytes_max)
        kept = self._filter(header, body)
        needs_horizon = kept.has_tombstones and not header.has_delete_horizon
        if kept.record_count == header.count and not needs_horizon:
            self._write(header, view)
        elif not kept.record_count:
            self._leave_empty(header, view, is_last=is_last)
        else:
            # The state of the producer has the time of its last batch, and must find it again.
            max_timestamp = header.max_timestamp if is_last else kept.max_timestamp
            header = header._replace(count=kept.record_count, max_timestamp=max_timestamp)
            if needs_horizon:
                self._set_horizon(header, kept.body)
            else:
                self._rewrite(header, kept.body)

    def _leave_empty(self, header: BatchHeader, view: memoryview, *, is_last: bool) -> None:
        """Drop a batch that has no records left, or all but its header when that is the last of its producer."""
        if not is_last:
            self._is_changed = True
        elif not header.count:
            self._write(header, view)
        else:
            attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
            empty = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, count=0)
            self._rewrite(empty, bytearray())

    def _filter(self, header: BatchHeader, body: memoryview) -> _Kept:
        if len(self._out) < len(body):
            self._out = memoryview(bytearray(len(body)))
        drop_tombstones = header.has_delete_horizon and header.base_timestamp <= self._job.now_ms
        fault, count, size, time_delta, tombstones, keyless = compaction.filter_records(
            self._map.table,
            self._map.seeds,
            self._map.hashes(min(header.count, len(body))),
            body,
            header.count,
            header.base_offset,
            self._end_offset,
            drop_tombstones,
            self._out,
        )
        if fault:
            raise CorruptRecordError(f"A record {kernel.FAULTS[fault]}.", 0)
        self._removed += header.count - count
        self._keyless += keyless
        max_timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + time_delta
        return _Kept(count, self._out[:size], max_timestamp, tombstones > 0)

    def _set_horizon(self, header: BatchHeader, body: memoryview) -> None:
        """Write a batch with the delete horizon in the place of its base timestamp."""
        room = len(body) + SHIFT_BYTES * header.count
        if len(self._shifted) < room:
            self._shifted = memoryview(bytearray(room))
        shift = header.base_timestamp - self._horizon
        fault, size = compaction.shift_timestamps(body, header.count, shift, self._shifted)
        if fault:
            raise CorruptRecordError(f"A record {kernel.FAULTS[fault]}.", 0)
        attributes = header.attributes | DELETE_HORIZON
        header = header._replace(attributes=attributes, base_timestamp=self._horizon)
        self._rewrite(header, self._shifted[:size])

    # Markers.

    def _clean_control(self, header: BatchHeader, view: memoryview) -> None:
        if not header.is_transactional or not header.count:
            # Not a marker, and nobody knows whether it is needed; or an empty one, as Kafka leaves it: it says nothing.
            if header.count:
                self._write(header, view)
            else:
                self._is_changed = True
            return
        marker = read_end_marker(view, header)
        can_go, aborted = self._transactions.on_marker(header, is_commit=marker.is_commit)
        if aborted is not None:
            self._target.transaction_index.append(aborted)
        is_kept = not can_go or header.base_offset >= self._end_offset
        if is_kept or self._is_last_marker(header, marker.coordinator_epoch):
            self._write(header, view)
        elif not header.has_delete_horizon:
            body = records_body(view, header, 0, self._job.decompressed_bytes_max)
            self._set_horizon(header, body)
        elif header.base_timestamp > self._job.now_ms:
            self._write(header, view)
        else:
            self._removed += header.count
            self._is_changed = True

    def _is_last_marker(self, header: BatchHeader, coordinator_epoch: int) -> bool:
        """Tell whether a marker may be the last that its producer had, which gives the producer its epochs."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return False
        return coordinator_epoch == producer.coordinator_epoch and header.max_timestamp == producer.last_timestamp

    # Old formats.

    def _clean_legacy(self, header: BatchHeader, view: memoryview) -> None:
        """Take in a message set of magic 0 or 1. Plain messages wait for others, so that not each becomes a batch."""
        messages = list(iterate_messages(view, self._job.decompressed_bytes_max))
        if not messages:
            raise CorruptRecordError("a message is cut off", 0)
        first = messages[0]
        if header.codec:
            self._end_legacy_run()
            self._convert(messages)
            return
        if self._legacy_run:
            last = self._legacy_run[-1]
            is_same = last.timestamp_type == first.timestamp_type and (
                first.timestamp_type != LOG_APPEND_TIME_TYPE or last.timestamp == first.timestamp
            )
            if not is_same or self._legacy_bytes + header.size > LEGACY_RUN_BYTES:
                self._end_legacy_run()
        self._legacy_run.append(first)
        self._legacy_bytes += header.size

    def _end_legacy_run(self) -> None:
        if self._legacy_run:
            run, self._legacy_run, self._legacy_bytes = self._legacy_run, [], 0
            self._convert(run)

    def _convert(self, messages: list[LegacyMessage]) -> None:
        """Write messages as a batch of magic 2, without those that are out of date."""
        self._is_changed = True
        kept = [message for message in messages if self._is_kept(message)]
        self._removed += len(messages) - len(kept)
        if not kept:
            return
        first, last = messages[0], messages[-1]
        attributes = int(Codec(first.codec))
        if first.timestamp_type == LOG_APPEND_TIME_TYPE:
            attributes |= LOG_APPEND_TIME
        base_timestamp = kept[0].timestamp
        if any(message.value is None and message.offset < self._end_offset for message in kept):
            base_timestamp = self._horizon
            attributes |= DELETE_HORIZON
        header = BatchHeader(
            base_offset=first.offset,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=last.offset - first.offset,
            base_timestamp=base_timestamp,
            max_timestamp=max(message.timestamp for message in kept),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            count=len(kept),
        )
        rows = [
            (message.timestamp - base_timestamp, message.offset - first.offset, message.key, message.value, ())
            for message in kept
        ]
        self._rewrite(header, kernel.encode_records(rows))

    def _is_kept(self, message: LegacyMessage) -> bool:
        if message.offset >= self._end_offset:
            return True
        if message.key is None:
            self._keyless += 1
            return False
        return self._map.find(message.key) <= message.offset
