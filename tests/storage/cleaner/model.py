"""A compacted log beside a model of it: `History` does the same to both, and `check` holds one against the other.

The model knows every record that was ever appended, by batch. A clean of the model is what the rules say, in the
plainest words: of each key the last that counts is kept, tombstones until their horizon has passed, nothing of aborted
transactions, and nothing changes from the end of the clean on.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.clock import ManualClock
from barnabas.config import LogConfig
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import build_batch, end_transaction_marker
from barnabas.records.codecs import Codec
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, Record
from barnabas.storage.batches import records_of
from barnabas.storage.cleaner.job import CleaningResult
from barnabas.storage.cleaner.preparation import CleanerLimits
from barnabas.storage.files import Files, write_whole
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.producer_replay import read_end_marker, replay
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import LOG_SUFFIX, segment_file
from barnabas.storage.verifier import Fault, verify_partition
from tests.records.message_sets import build_message_set
from tests.storage.builders import log_options
from tests.storage.building import segment_batches, whole_batches
from tests.storage.cleaner.cleaning_words import SMALL, clean
from tests.storage.memory_files import Keep, MemoryFiles

DIRECTORY = "/data/orders-0"
RETENTION_MS = 1_000
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=600, delete_retention_ms=RETENTION_MS, index_interval_bytes=100
)


class ModelRecord(NamedTuple):
    """A record as it was appended."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None


@dataclass
class ModelBatch:
    """A batch, with what is left of it."""

    base_offset: int
    last_offset: int
    records: list[ModelRecord]
    transaction: int = -1
    """The number of its transaction, or -1."""
    horizon_ms: int | None = None


@dataclass
class Transaction:
    """A transaction of the model; its marker is known when it was ended."""

    producer_id: int
    is_aborted: bool = False
    marker_offset: int | None = None


@dataclass
class History:
    """What happened to a log."""

    files: Files
    directory: str = DIRECTORY
    clock: ManualClock = field(default_factory=ManualClock)
    limits: CleanerLimits = SMALL
    batches: list[ModelBatch] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    open_transactions: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    first_dirty_offset: int = -1

    def __post_init__(self) -> None:
        self.log = self._load(LastKnown())

    def _load(self, known: LastKnown) -> Log:
        return load_log(log_options(self.files, self.directory, CONFIG, self.clock), known)

    # What happens.

    def _rows(self, keys: list[tuple[int, bool]]) -> list[tuple[int, bytes, bytes | None, tuple[()]]]:
        now_ms = self.clock.now_ms()
        number = self.log.log_end_offset
        return [
            (now_ms + index, b"key-%d" % key, None if is_tombstone else b"value-%d-%d" % (number, index), ())
            for index, (key, is_tombstone) in enumerate(keys)
        ]

    def append(
        self,
        keys: list[tuple[int, bool]],
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        *,
        transactional: bool = False,
    ) -> None:
        """Append a batch of keys, each with a value or as a tombstone."""
        rows = self._rows(keys)
        sequence, transaction = -1, -1
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(rows)
        if transactional:
            if producer_id not in self.open_transactions:
                self.open_transactions[producer_id] = len(self.transactions)
                self.transactions.append(Transaction(producer_id))
            transaction = self.open_transactions[producer_id]
        batch = build_batch(
            rows,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0) if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        info = self.log.append_as_leader(batch, 0)
        self._note(info.first_offset, rows, transaction)
        self.log.high_watermark_to_end()

    def _note(self, first: int, rows: list[tuple[int, bytes, bytes | None, tuple[()]]], transaction: int = -1) -> None:
        records = [ModelRecord(first + index, row[0], row[1], row[2]) for index, row in enumerate(rows)]
        self.batches.append(ModelBatch(first, records[-1].offset, records, transaction))

    def fence(self, producer_id: int) -> None:
        """Abort what a producer has open, if anything, with a marker of the next epoch, in which it goes on."""
        self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
        self.sequences[producer_id] = 0
        if producer_id not in self.open_transactions:
            self.open_transactions[producer_id] = len(self.transactions)
            self.transactions.append(Transaction(producer_id))
        self.end_transaction(producer_id, commit=False)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Append the marker of a producer's transaction, if it has one open."""
        number = self.open_transactions.pop(producer_id, None)
        if number is None:
            return
        marker = end_transaction_marker(
            commit=commit,
            timestamp=self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0),
            coordinator_epoch=len(self.transactions),
        )
        info = self.log.append_as_leader(marker, 0, is_client=False)
        self.transactions[number].is_aborted = not commit
        self.transactions[number].marker_offset = info.first_offset
        self.log.high_watermark_to_end()

    def append_old_format(self, sets: list[tuple[int, Codec, list[tuple[int, bool]]]]) -> None:
        """Let the log begin with a segment of message sets, as a Kafka before 0.11 wrote it."""
        assert self.log.log_end_offset == 0
        data, offset, plain_magic = bytearray(), 0, -1
        for magic, codec, keys in sets:
            stamped = [(row[0] if magic else -1, row[1], row[2], ()) for row in self._rows(keys)]
            messages = [(offset + index, *row[:3]) for index, row in enumerate(stamped)]
            data += build_message_set(magic, messages, codec=codec)
            self._note(offset, stamped)
            if codec is Codec.NONE and plain_magic == magic:
                # Neighbours that are not compressed become one batch, and share its horizon.
                later = self.batches.pop()
                self.batches[-1].records += later.records
                self.batches[-1].last_offset = later.last_offset
            plain_magic = magic if codec is Codec.NONE else -1
            offset += len(stamped)
        self.log.abandon()
        write_whole(self.files, segment_file(self.directory, 0, LOG_SUFFIX), data)
        self.log = self._load(LastKnown())
        assert self.log.log_end_offset == offset
        self.log.high_watermark_to_end()

    def clean(self) -> CleaningResult | None:
        """Close the active segment and clean the log, then the model."""
        self.log.roll()
        self.log.flush()
        first_dirty = max(self.log.first_dirty_offset, 0)
        result = clean(self.log, self.files, self.clock.now_ms(), self.limits)
        if result is not None:
            self.first_dirty_offset = result.end_offset
            self.clean_model(first_dirty, result.end_offset)
        return result

    def clean_model(self, first_dirty: int, end_offset: int) -> None:
        """What a clean leaves of the records, by the rules."""
        last: dict[bytes, int] = {}
        for batch in self.batches:
            for record in batch.records:
                if first_dirty <= record.offset < end_offset and not self._is_aborted(batch):
                    last[record.key] = record.offset
        for batch in self.batches:
            if self._is_aborted(batch) and batch.base_offset < end_offset:
                batch.records = []
            is_over = batch.horizon_ms is not None and batch.horizon_ms <= self.clock.now_ms()
            batch.records = [
                record
                for record in batch.records
                if record.offset >= end_offset
                or (last.get(record.key, -1) <= record.offset and (record.value is not None or not is_over))
            ]
            tombstones = [it for it in batch.records if it.value is None and it.offset < end_offset]
            if tombstones and batch.horizon_ms is None:
                batch.horizon_ms = self.clock.now_ms() + RETENTION_MS

    def restart(self, *, is_clean: bool = False) -> None:
        """Stop and start, in order or by a kill."""
        known = self.last_known(is_clean=is_clean)
        if is_clean:
            self.log.close()
        else:
            self.log.abandon()
        self.log = self._load(known)
        self.log.high_watermark_to_end()

    def last_known(self, *, is_clean: bool = False) -> LastKnown:
        """What the checkpoints say."""
        return LastKnown(
            log_start_offset=self.log.log_start_offset,
            recovery_point=self.log.recovery_point,
            first_dirty_offset=self.log.first_dirty_offset,
            had_clean_shutdown=is_clean,
        )

    def after_crash(self, keep: Keep, known: LastKnown) -> "History":
        """The same history with the log that is found on the disk after a crash."""
        assert isinstance(self.files, MemoryFiles)
        files = self.files.crash(keep)
        found = History.__new__(History)
        found.__dict__.update(self.__dict__)
        found.files = files
        found.batches = [ModelBatch(**{**vars(batch), "records": list(batch.records)}) for batch in self.batches]
        found.log = found._load(known)
        found.log.high_watermark_to_end()
        return found

    # What must hold.

    def _is_aborted(self, batch: ModelBatch) -> bool:
        return batch.transaction >= 0 and self.transactions[batch.transaction].is_aborted

    def alive(self) -> list[ModelRecord]:
        """The records that the model has left."""
        return [record for batch in self.batches for record in batch.records]

    def committed(self) -> list[ModelRecord]:
        """Those that a reader of committed records sees, below the last stable offset."""
        end = self.log.last_stable.message_offset
        shown = [batch for batch in self.batches if not self._is_aborted(batch)]
        return [record for batch in shown for record in batch.records if record.offset < end]

    def check(self) -> None:
        """Hold the log against the model."""
        assert plain(all_data(self.log)) == self.alive()
        self.check_rest()

    def check_rest(self) -> None:
        """What must hold also while the records are not the model's."""
        assert plain(read_committed(self.log)) == [
            record
            for record in plain(all_data(self.log))
            if record.offset < self.log.last_stable.message_offset and not self._is_aborted_at(record.offset)
        ]
        for offset in range(0, self.log.log_end_offset + 1, 3):
            assert plain(read_from(self.log, offset)) == [it for it in plain(all_data(self.log)) if it.offset >= offset]
        self._check_markers()
        self._check_producers()
        faults: list[Fault] = []
        self.log.flush()
        list(verify_partition(self.files, self.directory, faults.append, is_clean=False))
        # A snapshot that a roll took is not synced: after a power cut it may be damaged, and is not believed then.
        faults = [fault for fault in faults if not fault.path.endswith(".snapshot")]
        assert not faults, faults

    def _is_aborted_at(self, offset: int) -> bool:
        return any(
            batch.base_offset <= offset <= batch.last_offset and self._is_aborted(batch) for batch in self.batches
        )

    def _check_markers(self) -> None:
        """The marker of a transaction is there as long as a batch of it is, be it an empty one."""
        present = {
            header.base_offset: header for segment in self.log.segments for _, header, _ in segment_batches(segment)
        }
        for number, transaction in enumerate(self.transactions):
            has_batches = any(batch.transaction == number and batch.base_offset in present for batch in self.batches)
            if has_batches and transaction.marker_offset is not None:
                assert transaction.marker_offset in present

    def _check_producers(self) -> None:
        """The state of the producers is the same when it is made from nothing but the log."""
        rebuilt = ProducerStateManager()
        replay(rebuilt, self.log.segments, 0, self.log.log_end_offset)
        for producer_id, entry in rebuilt.producers.items():
            known = self.log.producers.producers[producer_id]
            if entry.batches and entry.coordinator_epoch < known.coordinator_epoch:
                # As in Kafka, a marker before the last records of its producer goes with its transaction, and with it
                # who wrote it. Snapshots remember that; only a state that is read from the log alone does not.
                entry.coordinator_epoch = known.coordinator_epoch
        assert facts(rebuilt) == facts(self.log.producers)


def facts(producers: ProducerStateManager) -> dict[int, tuple[object, ...]]:
    """What a snapshot would keep of each producer."""
    return {
        entry.producer_id: (
            entry.epoch,
            [batch[:3] for batch in entry.batches[-1:]],  # A snapshot has one timestamp, and it is the last of all.
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.transaction_first_offset,
        )
        for entry in producers.producers.values()
    }


def plain(records: list[Record]) -> list[ModelRecord]:
    """Records as the model has them."""
    return [ModelRecord(record.offset, record.timestamp, record.key or b"", record.value) for record in records]


def all_data(log: Log) -> list[Record]:
    """Every record of a log that is not a marker."""
    return [
        record
        for segment in log.segments
        for _, header, found in segment_batches(segment)
        if not header.is_control or header.magic < 2
        for record in found
    ]


def _fetch(log: Log, offset: int, *, is_committed: bool) -> list[tuple[BatchHeader, memoryview]]:
    limit = log.last_stable if is_committed else log.high_watermark
    info = log.read(offset, 400, limit, min_one_message=True)
    if info.records is None:
        return []
    return whole_batches(memoryview(info.records.file.read_at(info.records.size, info.records.position)))


def read_from(log: Log, start_offset: int) -> list[Record]:
    """What a consumer of all records finds from an offset on."""
    found: list[Record] = []
    offset = start_offset
    while batches := _fetch(log, offset, is_committed=False):
        for header, view in batches:
            if header.magic < 2 or not header.is_control:
                rows = records_of(view, header, DECOMPRESSED_BYTES_MAX)
                found += [record for record in rows if record.offset >= offset]
            offset = header.last_offset + 1
    return found


def read_committed(log: Log) -> list[Record]:
    """What a consumer of committed records finds, by the algorithm of Kafka's clients."""
    found: list[Record] = []
    offset = log.log_start_offset
    while batches := _fetch(log, offset, is_committed=True):
        end = batches[-1][0].last_offset + 1
        waiting = sorted(log.aborted_transactions(offset, end), key=lambda one: one.first_offset)
        aborted: set[int] = set()
        for header, view in batches:
            offset = header.last_offset + 1
            if header.magic < 2:
                found += records_of(view, header, DECOMPRESSED_BYTES_MAX)
                continue
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if header.is_control:
                if header.count and not read_end_marker(view, header).is_commit:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += records_of(view, header, DECOMPRESSED_BYTES_MAX)
    return found
