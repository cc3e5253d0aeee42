"""One transactional id: its producer, and how far its transaction has come.

                     +------------------ InitProducerId -------------------+
                     v                                                     |
    (new) --------> Empty ---> Ongoing ---> PrepareCommit ---> CompleteCommit
                     |          ^  |                                |
                     |          +--|----- AddPartitionsToTxn -------+-----+
                     |             v                                      |
                     +--------> PrepareAbort -------------------> CompleteAbort

A transaction is decided when its Prepare record is safe; what follows (a marker on every partition) only carries out
what was decided, and is done again after a crash. Complete means that every partition has its marker.

Rule 1: every change of state is a method here, goes through `_move`, and `_move` obeys PREVIOUS_STATUSES.
Rule 2: everything but `last_producer_epoch` is in the record, so the record alone brings a transactional id back.
Kafka's record has no place for it either: whoever repeats an InitProducerId over a crash is fenced.
Rule 3: no client ever holds EPOCH_MAX. It is there so that the last epoch of a producer id can still be fenced.

Errors and answers are not here, but in coordination/transaction_coordinator.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordination.timers import TimerKey
from barnabas.coordination.transaction_records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.wire.primitives import DecodeError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
EPOCH_MAX = 32_767

TRANSACTION_VERSION_BUMPS_EPOCH = 2
"""From this `transaction.version` on every end of a transaction bumps the epoch (KIP-890)."""


class TransactionStatus(IntEnum):
    """How far a transaction has come. The numbers are those of the record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired: the next record deletes it."""
    PREPARE_EPOCH_FENCE = 7
    """On the way to PREPARE_ABORT, when not the client but the coordinator ends the transaction. Never in a record."""


EMPTY = TransactionStatus.EMPTY
ONGOING = TransactionStatus.ONGOING
PREPARE_COMMIT = TransactionStatus.PREPARE_COMMIT
PREPARE_ABORT = TransactionStatus.PREPARE_ABORT
COMPLETE_COMMIT = TransactionStatus.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionStatus.COMPLETE_ABORT
DEAD = TransactionStatus.DEAD
PREPARE_EPOCH_FENCE = TransactionStatus.PREPARE_EPOCH_FENCE

PREVIOUS_STATUSES: Mapping[TransactionStatus, tuple[TransactionStatus, ...]] = {
    EMPTY: (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    ONGOING: (ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    PREPARE_COMMIT: (ONGOING,),
    # Not from Ongoing only since KIP-890: the client may not know whether its first produce arrived.
    PREPARE_ABORT: (ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    PREPARE_EPOCH_FENCE: (ONGOING,),
}

_RECORDED_STATUSES = range(EMPTY, DEAD)

STATUS_NAMES: Mapping[TransactionStatus, str] = {
    status: "".join(word.capitalize() for word in status.name.split("_")) for status in TransactionStatus
}
"""As DescribeTransactions and ListTransactions spell them: `PrepareCommit`."""


class Initialization(Enum):
    """What an InitProducerId brings about."""

    ABORT = "abort the transaction that is under way; the client comes again"
    NEW_PRODUCER_ID = "the epochs of the producer id are used up"
    BUMP_EPOCH = "the next epoch"
    REPEAT = "it was done before, and the answer was lost"
    FENCE = "the client is older than the producer that the transactional id belongs to now"


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Tell whether an epoch is the last one that a client may hold, or the one after it."""
    return producer_epoch >= EPOCH_MAX - 1


@dataclass(slots=True)
class TransactionMetadata:
    """The state of one transactional id."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_timestamp_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """Who it was before the last change; tells a retry from a stranger when a producer id was replaced."""
    next_producer_id: int = NO_PRODUCER_ID
    """Who it will be when the transaction is complete, because the epochs are used up."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    status: TransactionStatus = EMPTY
    # A dictionary because it keeps its order, and so records and answers are the same in every run.
    # Invariant: while markers are written, those partitions that have none yet.
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    timer_key: TimerKey = field(init=False, compare=False, repr=False)
    log_key: TransactionLogKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.timer_key = TimerKey("transaction", self.transactional_id)
        self.log_key = TransactionLogKey(transactional_id=self.transactional_id)

    @property
    def is_ending(self) -> bool:
        """Whether it is decided how the transaction ends, and markers are under way."""
        status = self.status
        return status is PREPARE_COMMIT or status is PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        """Whether there was a transaction, and it is over."""
        status = self.status
        return status is COMPLETE_COMMIT or status is COMPLETE_ABORT

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way; only then a transactional id expires."""
        return self.status is EMPTY or self.is_complete

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next epoch is one that no client may hold."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def client_identity(self) -> tuple[int, int]:
        """The producer id and epoch for the client's next transaction, also while this one is being ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def initialization_for(self, expected_id: int, expected_epoch: int) -> Initialization:
        """Tell what an InitProducerId means for this id, unless markers are under way.

        Args:
            expected_id: who the client believes to be (KIP-360), or NO_PRODUCER_ID if it just started.
            expected_epoch: likewise.
        """
        assert not self.is_ending
        is_new_client = expected_id == NO_PRODUCER_ID
        if not is_new_client and not self._was_ever(expected_id, expected_epoch):
            return Initialization.FENCE
        is_current = is_new_client or expected_epoch == self.producer_epoch
        if self.status is ONGOING:
            return Initialization.ABORT if is_current else Initialization.FENCE
        if is_current and self.is_epoch_exhausted:
            return Initialization.NEW_PRODUCER_ID
        if is_current:
            return Initialization.BUMP_EPOCH
        # A new client would have set the last epoch to none, so this can only be the client that was answered before.
        if expected_epoch == self.last_producer_epoch and self.producer_epoch != EPOCH_MAX:
            return Initialization.REPEAT
        return Initialization.FENCE

    def _was_ever(self, producer_id: int, producer_epoch: int) -> bool:
        if producer_id == self.producer_id:
            return True
        # The answer with a new producer id may have been lost.
        return producer_id == self.previous_producer_id and is_epoch_exhausted(producer_epoch)

    def bump_epoch(self, timeout_ms: int, now_ms: int, *, is_new_client: bool) -> None:
        """Begin anew under the next epoch."""
        assert self.producer_epoch < EPOCH_MAX - 1
        last = NO_PRODUCER_EPOCH if is_new_client else self.producer_epoch
        self._initialize(timeout_ms, now_ms, self.producer_id, self.producer_epoch + 1, last)

    def replace_producer_id(self, producer_id: int, timeout_ms: int, now_ms: int, *, is_new_client: bool) -> None:
        """Begin anew under another producer id, because the epochs of this one are used up."""
        last = NO_PRODUCER_EPOCH if is_new_client else self.producer_epoch
        self._initialize(timeout_ms, now_ms, producer_id, 0, last)

    def repeat_initialization(self, timeout_ms: int, now_ms: int) -> None:
        """Stay who it is, since the client only did not hear of it."""
        self._initialize(timeout_ms, now_ms, self.producer_id, self.producer_epoch, self.last_producer_epoch)

    def _initialize(self, timeout_ms: int, now_ms: int, producer_id: int, producer_epoch: int, last_epoch: int) -> None:
        self._move(EMPTY, now_ms)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = last_epoch
        self.timeout_ms = timeout_ms
        self.partitions.clear()
        self.start_timestamp_ms = NO_TIMESTAMP

    def add_partitions(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> None:
        """Make partitions part of the transaction, which starts with the first of them."""
        if self.status is not ONGOING:
            self.start_timestamp_ms = now_ms
        self._move(ONGOING, now_ms)
        self.client_transaction_version = client_version
        mine = self.partitions
        for partition in partitions:
            mine[partition] = None

    def prepare(self, is_commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> None:
        """Decide how the transaction ends."""
        bumps_epoch = client_version >= TRANSACTION_VERSION_BUMPS_EPOCH
        if self.status is not ONGOING and self.status is not PREPARE_EPOCH_FENCE:
            assert bumps_epoch, "only a client of KIP-890 may abort what never began"
            self.start_timestamp_ms = now_ms
        self._move(PREPARE_COMMIT if is_commit else PREPARE_ABORT, now_ms)
        if bumps_epoch:
            self.last_producer_epoch = self.producer_epoch
            # An older Kafka may have left a transaction of the last epoch in the log; it can still be ended.
            self.producer_epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        self.next_producer_id = next_producer_id
        self.client_transaction_version = client_version

    def fence_and_abort(self, now_ms: int) -> None:
        """Abort a transaction that its client does not end, and leave that client behind by one epoch."""
        self._move(PREPARE_EPOCH_FENCE, now_ms)
        self.prepare(False, TRANSACTION_VERSION_BUMPS_EPOCH, NO_PRODUCER_ID, now_ms)

    def complete(self, now_ms: int) -> None:
        """Close the transaction; every partition has its marker."""
        assert not self.partitions
        self._move(COMPLETE_COMMIT if self.status is PREPARE_COMMIT else COMPLETE_ABORT, now_ms)
        if self.next_producer_id != NO_PRODUCER_ID:
            # The last epoch stays: it is what the client knows to be the one before this.
            self.producer_id = self.next_producer_id
            self.producer_epoch = 0
            self.next_producer_id = NO_PRODUCER_ID

    def expire(self, now_ms: int) -> CoordinatorRecord:
        """End the transactional id itself, and return the record that deletes it."""
        self._move(DEAD, now_ms)
        return CoordinatorRecord(self.log_key, None)

    def _move(self, status: TransactionStatus, now_ms: int) -> None:
        assert self.status in PREVIOUS_STATUSES[status], f"{self.transactional_id}: {self.status!r} to {status!r}"
        self.status = status
        self.last_update_timestamp_ms = now_ms
        self.previous_producer_id = self.producer_id

    def record(self) -> CoordinatorRecord:
        """Return the record of what is now."""
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            known = topics.get(topic)
            if known is None:
                topics[topic] = [partition]
            else:
                known.append(partition)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.status,
            # Kafka writes null for Empty, and a list for all others.
            transaction_partitions=None
            if self.status is EMPTY
            else [TransactionPartitions(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
            transaction_last_update_timestamp_ms=self.last_update_timestamp_ms,
            transaction_start_timestamp_ms=self.start_timestamp_ms,
            client_transaction_version=self.client_transaction_version,
        )
        return CoordinatorRecord(self.log_key, value)

    @classmethod
    def from_record(cls, transactional_id: str, value: TransactionLogValue) -> "TransactionMetadata":
        """Return what a record says; raises DecodeError for a status that no Kafka writes."""
        if value.transaction_status not in _RECORDED_STATUSES:
            raise DecodeError(f"transactional id {transactional_id!r} has the status {value.transaction_status}")
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            timeout_ms=value.transaction_timeout_ms,
            last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            producer_epoch=value.producer_epoch,
            status=TransactionStatus(value.transaction_status),
            partitions={
                TopicPartition(topic.topic, partition): None
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            },
            start_timestamp_ms=value.transaction_start_timestamp_ms,
            client_transaction_version=value.client_transaction_version,
        )
