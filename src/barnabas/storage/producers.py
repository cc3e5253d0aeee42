"""ProducerStateManager: what a log remembers of its idempotent and transactional producers.

For every producer id the last batches are known by their sequence numbers. So a batch that is sent twice is found and
answered with the offsets of the first, a batch that is missing shows as a gap, and a producer that was replaced is
fenced by its epoch. For transactions it knows where each open one starts, which gives the last stable offset.

The state is a function of the log. A snapshot of it, up to and without offset N, is the file `N.snapshot`:

    0         2          6           10
    | version | crc32c   | number    | entries of 46 bytes each ...
    | 1       | of 6..   | of entries|

    0             8       10         14            22        26          34            38              46
    | producer id | epoch | last     | last offset | offset  | timestamp | coordinator | first offset  |
    |             |       | sequence |             | delta   |           | epoch       | of its open   |
    |             |       |          |             |         |           |             | transaction   |

Rule 1: `check` judges a batch without changing anything; `update` changes the state after the batch was appended.
Rule 2: a snapshot is checked when it is read. A damaged one is dropped, and an older one, or the log alone, serves.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import crc32c

from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.errors import ApiError, ErrorCode

SNAPSHOT_HEADER = Struct(">hIi")
assert SNAPSHOT_HEADER.size == 10
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
assert SNAPSHOT_ENTRY.size == 46
SNAPSHOT_VERSION = 1
CRC_END = 6

BATCHES_KEPT = 5
"""As many as a client has in flight at most, so that each of them can be sent again."""

SEQUENCE_MAX = 2**31 - 1
NO_COORDINATOR_EPOCH = -1


class CorruptSnapshotError(Exception):
    """A producer snapshot is damaged; the state has to come from elsewhere."""


class BatchMetadata(NamedTuple):
    """What is remembered of a batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of its first record; numbers go on at 0 after the largest."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """The state of one producer."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_first_offset")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[BatchMetadata] = []
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 when the epoch has none yet."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, batch: BatchHeader) -> BatchMetadata | None:
        """Return what is known of the same batch, appended before."""
        if batch.producer_epoch != self.epoch:
            return None
        last_sequence = batch.last_sequence
        for known in self.batches:
            if known.last_sequence == last_sequence and known.offset_delta == batch.last_offset_delta:
                return known
        return None

    def begin_epoch(self, epoch: int) -> None:
        """Sequence numbers start anew with a new epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []

    def add(self, batch: BatchHeader) -> None:
        """Remember a batch that was appended."""
        self.begin_epoch(batch.producer_epoch)
        self.remember(batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp)

    def remember(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Remember a batch of the current epoch."""
        batches = self.batches
        # What the constructor of a NamedTuple does inside, at a third of its price.
        batches.append(tuple.__new__(BatchMetadata, (last_sequence, last_offset, offset_delta, timestamp)))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self.last_timestamp = timestamp


class Marker(NamedTuple):
    """The end of a transaction, as its control batch says it."""

    is_commit: bool
    coordinator_epoch: int


class ProducerStateManager:
    """The producers of one log."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # Invariant: the first offset of every transaction without a marker, increasing, by producer id.
        self._ongoing: dict[int, int] = {}
        # Transactions whose marker lies above the high watermark: readers must not see them as decided yet.
        self.unreplicated: list[CompletedTransaction] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset that belongs to a transaction which is not decided for readers, or None."""
        candidates = [*self._ongoing.values(), *(completed.first_offset for completed in self.unreplicated)]
        return min(candidates, default=None)

    def check(self, batch: BatchHeader, *, is_client: bool) -> BatchMetadata | None:
        """Return the earlier batch of which this is a repetition, or None; raises ApiError when it may not be appended.

        Only clients have sequence numbers; what a coordinator writes for a producer is judged by the epoch alone, and
        its markers by `check_marker`. A follower takes what its leader took.
        """
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            return None
        if not is_client:
            self._check_epoch(entry, batch.producer_epoch)
            return None
        duplicate = entry.find_duplicate(batch)
        if duplicate is not None:
            return duplicate
        self._check_epoch(entry, batch.producer_epoch)
        self._check_sequence(entry, batch)
        if entry.transaction_first_offset != NO_OFFSET and not batch.is_transactional:
            message = f"producer {batch.producer_id} has an open transaction and must go on writing in it"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
        return None

    def find_next(
        self, producer_id: int, epoch: int, base_sequence: int, is_transactional: bool, is_admitted: bool
    ) -> ProducerEntry | None:
        """Return the producer of a batch that follows its last one in the same epoch.

        It must be in the transaction that is open, if there is one, or begin one that it was admitted to.
        """
        entry = self.producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        is_open = entry.transaction_first_offset != NO_OFFSET
        if is_open is not is_transactional and (is_open or not is_admitted):
            return None
        return entry if (entry.last_sequence + 1) & SEQUENCE_MAX == base_sequence else None

    def find_open(self, producer_id: int, epoch: int, coordinator_epoch: int) -> ProducerEntry | None:
        """Return the producer whose open transaction a marker of these epochs ends."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.transaction_first_offset == NO_OFFSET:
            return None
        return entry if epoch >= entry.epoch and coordinator_epoch >= entry.coordinator_epoch else None

    @staticmethod
    def _check_epoch(entry: ProducerEntry, epoch: int) -> None:
        if epoch < entry.epoch:
            message = f"epoch {epoch} of producer {entry.producer_id} is over; the current one is {entry.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)

    @staticmethod
    def _check_sequence(entry: ProducerEntry, batch: BatchHeader) -> None:
        if batch.producer_epoch != entry.epoch:
            expected = 0
            if entry.epoch == NO_PRODUCER_EPOCH:
                return
        else:
            expected = (entry.last_sequence + 1) & SEQUENCE_MAX
        if batch.base_sequence != expected:
            message = (
                f"producer {batch.producer_id} sent sequence number {batch.base_sequence} in epoch"
                f" {batch.producer_epoch}, but {expected} comes next"
            )
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def check_marker(self, batch: BatchHeader, marker: Marker) -> None:
        """Raise ApiError when a coordinator that was replaced ends a transaction."""
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, batch.producer_epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            message = (
                f"coordinator epoch {marker.coordinator_epoch} is over for producer {batch.producer_id};"
                f" the current one is {entry.coordinator_epoch}"
            )
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)

    def update(self, batch: BatchHeader) -> None:
        """Take in a batch of records that was appended."""
        entry = self._entry(batch.producer_id)
        entry.add(batch)
        if batch.is_transactional:
            self.begin_transaction(entry, batch.base_offset)

    def begin_transaction(self, entry: ProducerEntry, first_offset: int) -> None:
        """Note where the transaction of a producer begins, unless it has begun before."""
        if entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = first_offset
            self._ongoing[entry.producer_id] = first_offset

    def _entry(self, producer_id: int) -> ProducerEntry:
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        return entry

    def complete(self, batch: BatchHeader, marker: Marker) -> CompletedTransaction | None:
        """Take in a marker that was appended, and return the transaction it ended, if there was one."""
        entry = self._entry(batch.producer_id)
        return self.end_transaction(entry, batch.producer_epoch, marker, batch.last_offset, batch.max_timestamp)

    def end_transaction(
        self, entry: ProducerEntry, epoch: int, marker: tuple[bool, int], last_offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """Do the same with what matters of the marker's batch."""
        is_commit, entry.coordinator_epoch = marker
        entry.begin_epoch(epoch)
        entry.last_timestamp = timestamp
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        del self._ongoing[entry.producer_id]
        completed = CompletedTransaction(entry.producer_id, first_offset, last_offset, not is_commit)
        self.unreplicated.append(completed)
        return completed

    def aborted(self, completed: CompletedTransaction) -> AbortedTransaction:
        """Return the index entry of an aborted transaction, before the high watermark passes its marker."""
        others = [first for producer, first in self._ongoing.items() if producer != completed.producer_id]
        last_stable_offset = min(others, default=completed.last_offset + 1)
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
        )

    def on_high_watermark(self, high_watermark: int) -> None:
        """Let readers see the end of transactions whose marker is below the high watermark."""
        self.unreplicated = [done for done in self.unreplicated if done.last_offset >= high_watermark]

    def remove_expired(self, oldest_timestamp: int) -> None:
        """Forget producers that were last heard of before a point in time and have no open transaction."""
        for producer_id, entry in list(self.producers.items()):
            if entry.transaction_first_offset == NO_OFFSET and entry.last_timestamp < oldest_timestamp:
                del self.producers[producer_id]

    def clear(self) -> None:
        """Forget everything."""
        self.producers.clear()
        self._ongoing.clear()
        self.unreplicated.clear()

    def snapshot(self) -> bytes:
        """Return the state as the bytes of a snapshot file."""
        rows = b"".join(map(_encode_entry, self.producers.values()))
        content = SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, 0, len(self.producers)) + rows
        return content[:2] + crc32c.crc32c(content[CRC_END:]).to_bytes(4, "big") + content[CRC_END:]

    def restore(self, data: bytes) -> None:
        """Make the state that of a snapshot; raises CorruptSnapshotError and changes nothing when it is damaged."""
        entries = list(decode_snapshot(data))
        self.clear()
        for entry in entries:
            self.producers[entry.producer_id] = entry
            if entry.transaction_first_offset != NO_OFFSET:
                self._ongoing[entry.producer_id] = entry.transaction_first_offset


def _encode_entry(entry: ProducerEntry) -> bytes:
    # A producer whose epoch has no batch yet, only markers, has no last batch to tell of.
    last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp)
    return SNAPSHOT_ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def decode_snapshot(data: bytes) -> Iterator[ProducerEntry]:
    """Yield the producers of a snapshot; raises CorruptSnapshotError before the first when it is damaged."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise CorruptSnapshotError(f"the snapshot has {len(data)} bytes, fewer than its header")
    version, crc, count = SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"the snapshot has version {version}, but only {SNAPSHOT_VERSION} is known")
    found = crc32c.crc32c(data[CRC_END:])
    if found != crc:
        raise CorruptSnapshotError(f"the checksum is {found:08x}, but {crc:08x} was stored")
    if len(data) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries are announced, but the snapshot has {len(data)} bytes")
    return _decode_entries(data)


def _decode_entries(data: bytes) -> Iterator[ProducerEntry]:
    rows = memoryview(data)[SNAPSHOT_HEADER.size :]
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first in SNAPSHOT_ENTRY.iter_unpack(rows):
        entry = ProducerEntry(producer_id)
        entry.epoch = epoch
        # A coordinator's batch has an offset and no sequence number; a producer with markers only has neither.
        if offset != NO_OFFSET:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator
        entry.transaction_first_offset = first
        yield entry
