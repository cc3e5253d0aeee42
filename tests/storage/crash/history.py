"""A log with a memory: History appends to a Log on a disk that may stop, and knows what must be there afterwards.

It plays the LogManager's part with the checkpoints: they move after a flush returned, and before a truncation begins.

Rule 1: what flush() returned for is promised: it is found after every crash, byte by byte.
Rule 2: what is found is the beginning of a history that happened. Until a truncation is flushed there are two of them:
with what was cut off, because the disk may not know of it yet, and without.
Rule 3: what follows from the batches (indexes, aborted transactions, producers, leader epochs) agrees with those found.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from barnabas.clock import ManualClock
from barnabas.config import LogConfig
from barnabas.records.builder import build_batch, end_transaction_marker
from barnabas.storage.files import Files, read_whole
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.log_types import LogOptions
from barnabas.storage.segment import LogSegment, OpenSegments
from barnabas.storage.transaction_index import AbortedTransaction

DIRECTORY = "/data/orders-0"
PRODUCER_EPOCH = 3
COORDINATOR_EPOCH = 5
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """A batch of a history: its bytes, and what they say."""

    base_offset: int
    count: int
    data: bytes
    timestamp: int
    leader_epoch: int
    producer_id: int = -1
    is_transactional: bool = False
    marker: str = ""

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.base_offset + self.count - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFacts:
    """What must be known of a producer after some batches."""

    last_sequence: int
    last_offset: int
    coordinator_epoch: int
    transaction_first_offset: int


def open_log(files: Files, config: LogConfig, last_known: LastKnown) -> Log:
    """Open the log of the histories."""
    options = LogOptions(
        files=files,
        clock=ManualClock(NOW_MS),
        directory=DIRECTORY,
        config=config,
        open_segments=OpenSegments(),
    )
    return load_log(options, last_known)


@dataclass(slots=True, kw_only=True)
class History:
    """What was done to a log so far, and what was promised."""

    files: Files
    config: LogConfig
    last_known: LastKnown = field(default_factory=LastKnown)
    leader_epoch: int = 0
    promised_end: int = 0
    deleted_to: int = 0
    batches: list[Appended] = field(default_factory=list)
    # The batches as they were before a truncation that is not durable yet.
    before_truncation: list[Appended] | None = None
    log: Log = field(init=False)

    def open(self) -> None:
        """Open the log."""
        self.log = open_log(self.files, self.config, self.last_known)

    def append(self, count: int, *, producer_id: int = -1, is_transactional: bool = False, size: int = 10) -> None:
        """Append one batch with `count` records of `size` bytes."""
        base_offset = self.log.log_end_offset
        # Every third batch is older than the one before it.
        number = len(self.batches)
        timestamp = NOW_MS + number - (2 if number % 3 == 2 else 0)
        value = bytes((number * 31 + self.leader_epoch * 7 + place) % 251 for place in range(size))
        data = build_batch(
            [(timestamp, b"key", value, ())] * count,
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH if producer_id >= 0 else -1,
            base_sequence=self._next_sequence(producer_id),
            transactional=is_transactional,
        )
        self._append(
            Appended(
                base_offset=base_offset,
                count=count,
                data=bytes(data),
                timestamp=timestamp,
                leader_epoch=self.leader_epoch,
                producer_id=producer_id,
                is_transactional=is_transactional,
            ),
            is_client=True,
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Append a marker."""
        base_offset, timestamp = self.log.log_end_offset, NOW_MS + len(self.batches)
        data = end_transaction_marker(
            commit=commit,
            timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH,
            coordinator_epoch=COORDINATOR_EPOCH,
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
        )
        marker = Appended(
            base_offset=base_offset,
            count=1,
            data=bytes(data),
            timestamp=timestamp,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            is_transactional=True,
            marker="commit" if commit else "abort",
        )
        self._append(marker, is_client=False)

    def _append(self, batch: Appended, *, is_client: bool) -> None:
        # It may be on the disk from here on, whether or not the append returns.
        self.batches.append(batch)
        info = self.log.append_as_leader(batch.data, self.leader_epoch, is_client=is_client)
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)

    def _next_sequence(self, producer_id: int) -> int:
        if producer_id < 0:
            return -1
        return sum(batch.count for batch in self.batches if batch.producer_id == producer_id and not batch.marker)

    def flush(self) -> None:
        """Flush, and checkpoint what is promised since."""
        self.log.flush()
        self.promised_end = self.log.log_end_offset
        self.before_truncation = None
        self.last_known = replace(self.last_known, recovery_point=self.log.recovery_point)

    def delete_records(self, offset: int) -> None:
        """Let the log start at `offset`, and remove the segments before it."""
        self.deleted_to = offset
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.delete_records(offset)
        self.last_known = replace(self.last_known, log_start_offset=offset)
        for segment in self.log.delete_old_segments(lambda _, end_offset: end_offset <= offset):
            segment.delete()

    def truncate_to(self, offset: int) -> None:
        """Cut off everything from the batch that holds `offset` on."""
        self._forget_from(offset)
        self.log.truncate_to(offset)

    def start_anew_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`."""
        self._forget_from(0)
        self.log.truncate_fully_and_start_at(offset)
        self.last_known = replace(self.last_known, log_start_offset=offset)

    def _forget_from(self, offset: int) -> None:
        # A batch is never cut in two: the one that holds the offset goes whole.
        held = [batch.base_offset for batch in self.batches if batch.last_offset >= offset]
        offset = min([offset, *held])
        self.promised_end = min(self.promised_end, offset)
        self.before_truncation = self.batches
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.last_known = replace(self.last_known, recovery_point=min(self.last_known.recovery_point, offset))

    def close(self) -> None:
        """Stop as one does who has time."""
        self.log.close()
        self.promised_end = self.log.log_end_offset
        self.before_truncation = None
        self.last_known = replace(self.last_known, recovery_point=self.promised_end, had_clean_shutdown=True)


# What must be found.


def check_log(log: Log, files: Files, history: History) -> None:
    """Check everything that is known of a log that was opened after a crash."""
    found = [batch for segment in log.segments for batch in segment_bytes(files, segment)]
    known = batches_of(log, found, history)
    end_offset = known[-1].last_offset + 1 if known else log.segments.first.base_offset
    assert end_offset >= history.promised_end, "what was flushed is gone"
    # A power cut may leave the name of a new segment without the records before it; offsets then go on from there.
    assert log.log_end_offset == max(end_offset, log.segments.last.base_offset)
    start = 0
    for segment in log.segments:
        count = len(segment_bytes(files, segment))
        check_segment(segment, known[start : start + count])
        start += count
    whole = whole_history(history, end_offset, known)
    check_aborted(log, whole)
    check_producers(log, whole)
    check_leader_epochs(log, whole, history.deleted_to, end_offset)
    check_reads(log, known)


def segment_bytes(files: Files, segment: LogSegment) -> list[bytes]:
    """Return the batches of a segment as the lengths in the file part them."""
    content = read_whole(files, segment.path)[: segment.size]
    assert len(content) == segment.size
    batches = []
    while content:
        size = 12 + int.from_bytes(content[8:12], "big")
        batches.append(content[:size])
        content = content[size:]
    return batches


def batches_of(log: Log, found: list[bytes], history: History) -> list[Appended]:
    """Return what the bytes found are in the history; they must be the beginning of one that happened."""
    for lineage in (history.batches, history.before_truncation or []):
        left = [batch for batch in lineage if batch.base_offset >= log.segments.first.base_offset]
        known = left[: len(found)]
        if [batch.data for batch in known] == found:
            return known
    offsets = [int.from_bytes(data[:8], "big") for data in found]
    raise AssertionError(f"batches at {offsets} are not the beginning of a history that happened")


def whole_history(history: History, end_offset: int, known: list[Appended]) -> list[Appended]:
    """Return all batches below `end_offset`, those that were deleted at the start too."""
    lineage = history.batches
    if known and known[-1] not in lineage:
        assert history.before_truncation is not None
        lineage = history.before_truncation
    return [batch for batch in lineage if batch.last_offset < end_offset]


def check_segment(segment: LogSegment, batches: list[Appended]) -> None:
    """Check both indexes and the largest timestamp of a segment."""
    assert all(batch.base_offset >= segment.base_offset for batch in batches)
    positions, position = {}, 0
    for batch in batches:
        positions[batch.last_offset] = position
        position += len(batch.data)
    entries = [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entry_count)]
    assert [positions.get(entry.offset) for entry in entries] == [entry.position for entry in entries]
    assert [entry.offset for entry in entries] == sorted({entry.offset for entry in entries})
    times = [segment.time_index.entry(slot) for slot in range(segment.time_index.entry_count)]
    for entry in times:
        assert entry == largest_of(batch for batch in batches if batch.last_offset <= entry.offset)
    assert [entry.timestamp for entry in times] == sorted({entry.timestamp for entry in times})
    assert segment.largest == (largest_of(batches) if batches else (-1, segment.base_offset))


def largest_of(batches: Iterable[Appended]) -> tuple[int, int]:
    """Return the largest timestamp, and the last offset of the first batch that has it."""
    newest = max(batches, key=lambda batch: batch.timestamp)
    return newest.timestamp, newest.last_offset


def check_aborted(log: Log, batches: list[Appended]) -> None:
    """Check the entries of all transaction indexes; transactions that were deleted at their start are of no use."""
    found = [entry for segment in log.segments for entry in segment.transaction_index.entries()]
    expected = aborted_in(batches)
    first_offset = log.segments.first.base_offset
    assert [it for it in found if it.first_offset >= first_offset] == [
        it for it in expected if it.first_offset >= first_offset
    ]
    assert set(found) <= set(expected)


def aborted_in(batches: list[Appended]) -> list[AbortedTransaction]:
    """Return the transactions that the markers among some batches aborted."""
    first_offsets: dict[int, int] = {}
    aborted = []
    for batch in batches:
        if batch.marker:
            first_offset = first_offsets.pop(batch.producer_id)
            stable = min(first_offsets.values(), default=batch.last_offset + 1)
            if batch.marker == "abort":
                aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.last_offset, stable))
        elif batch.is_transactional:
            first_offsets.setdefault(batch.producer_id, batch.base_offset)
    return aborted


def check_producers(log: Log, batches: list[Appended]) -> None:
    """Check the producers that have a batch in the log; of others the log may or may not still know."""
    present = {batch.producer_id for batch in batches if batch.last_offset >= log.log_start_offset} - {-1}
    assert present <= set(log.producers.producers)
    for producer_id in present:
        entry = log.producers.producers[producer_id]
        own = [batch for batch in batches if batch.producer_id == producer_id]
        data = [batch for batch in own if not batch.marker]
        after_marker = own[max((place + 1 for place, batch in enumerate(own) if batch.marker), default=0) :]
        opening = [batch.base_offset for batch in after_marker if batch.is_transactional]
        assert entry.epoch == PRODUCER_EPOCH
        assert entry.last_sequence == sum(batch.count for batch in data) - 1
        assert entry.batches[-1].last_offset == data[-1].last_offset
        assert entry.coordinator_epoch == (COORDINATOR_EPOCH if len(own) > len(data) else -1)
        assert entry.transaction_first_offset == (opening[0] if opening else -1)


def check_leader_epochs(log: Log, batches: list[Appended], deleted_to: int, end_offset: int) -> None:
    """Check that each epoch starts where its first batch does, and the first where the log starts or was to start."""
    starts: dict[int, int] = {}
    for batch in batches:
        starts.setdefault(batch.leader_epoch, batch.base_offset)
    possible = []
    for start_offset in {log.log_start_offset, max(log.log_start_offset, deleted_to)}:
        before = [epoch for epoch, start in starts.items() if start <= start_offset]
        left = [(epoch, max(start, start_offset)) for epoch, start in starts.items() if epoch not in before[:-1]]
        possible.append([entry for entry in left if entry[1] < end_offset])
    # An epoch that starts where the log ends has no records, and is no promise.
    assert [entry for entry in log.leader_epochs.entries if entry[1] < end_offset] in possible


def check_reads(log: Log, batches: list[Appended]) -> None:
    """Read every batch by its first and its last offset."""
    for batch in batches:
        for offset in {batch.base_offset, batch.last_offset}:
            if offset >= log.log_start_offset:
                found = log.read(offset, 1, log.log_end, min_one_message=True)
                assert found.records is not None
                assert found.records.file.read_at(found.records.size, found.records.position) == batch.data
    assert log.read(log.log_end_offset, 1, log.log_end).records is None
