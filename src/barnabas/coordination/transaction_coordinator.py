"""All transactional ids of one partition of `__transaction_state` (a shard).

    InitProducerId, AddPartitionsToTxn, EndTxn, time --> TransactionCoordinator --> TransactionStep
                                                                  ^                  records, replies, markers
                                                                  |                              |
                                                           markers_written  <--- partitions <----+

A transaction in two steps: EndTxn writes the Prepare record, which decides, and is answered as soon as that is safe.
The markers go to the partitions then, and when the last of them is written the Complete record closes the transaction.

Rule 1: nothing waits here. While markers are under way every other request is answered CONCURRENT_TRANSACTIONS, and
clients come again. So each ticket is answered in the step that it was given in.
Rule 2: markers may go out only after the records of their step are safe, and go out until they are written. After a
crash `finish_loading` gives them again, all of them; to write a marker twice does no harm.
Rule 3: a report of markers, like a request, counts only for the producer id and epoch that it names, so a late one
can not touch the next transaction. A client without KIP-890 has the same epoch again, though: once a marker is
reported, whoever sends markers neither sends nor reports it again, and tells only the coordinator that gave it out.
Rule 4: producer ids come from outside. `needs_producer_id` and `needs_producer_id_to_end` tell whether a request needs
one; if it has none all the same, the answer is COORDINATOR_LOAD_IN_PROGRESS, and the client comes again.

Errors are told by the newest name: PRODUCER_FENCED and TRANSACTION_ABORTABLE. `fenced_error` and `abortable_error` turn
them into what older versions of the APIs know; here that is done only where the whole answer is made here.

Where this differs from Kafka 4.3 (TransactionCoordinator.scala, TransactionMetadata.java):
- There is no pending state, because appending is part of the step. What Kafka answers while one is pending is answered
  in the Prepare states, which Kafka never leaves without a pending state either.
- A KIP-360 InitProducerId with an old epoch is fenced at once, also while a transaction is Ongoing; Kafka aborts the
  transaction of the newer epoch first and fences afterwards.
- The coordinator's own aborts (time-outs, InitProducerId) never take a new producer id. If they use up the last epoch,
  the next InitProducerId takes one, and until then the old client is fenced; Kafka lets it go on under a new id.
- EndTxn with the epoch before is a retry only if the last end bumped the epoch. Kafka does not ask, and gives a client
  of KIP-890 that was fenced by one without the epoch of that one.
- An abort that has no partitions is Prepare and Complete in one batch.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.coordination.step import CoordinatorRecord, Reply, Step
from barnabas.coordination.timers import Timers
from barnabas.coordination.transaction import (
    COMPLETE_COMMIT,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_COMMIT,
    TRANSACTION_VERSION_BUMPS_EPOCH,
    Initialization,
    TransactionMetadata,
)
from barnabas.coordination.transaction_admin import (
    ListedTransactions,
    TransactionalIdPattern,
    describe_transaction,
    list_transactions,
)
from barnabas.coordinator_config import TransactionConfig
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.transaction_admin import TransactionState
from barnabas.wire.messages.transactions import EndTxnRequest, EndTxnResponse

INIT_PRODUCER_ID_KNOWS_FENCED_SINCE = 4
END_TXN_KNOWS_FENCED_SINCE = 2
ADD_PARTITIONS_KNOWS_FENCED_SINCE = 2
"""Also of AddOffsetsToTxn."""

END_TXN_BUMPS_EPOCH_SINCE = 5

CHANGES_PER_TICK_MAX = 500
"""How many transactional ids one tick changes, because their records must fit into one batch."""

_NONE = ErrorCode.NONE
_Replies = list[Reply]


class TransactionMarkers(NamedTuple):
    """Markers to be written, one on each partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(slots=True)
class TransactionStep(Step):
    """What is to be done now; the markers last."""

    markers: list[TransactionMarkers] = field(default_factory=list)

    @property
    def has_consequences(self) -> bool:
        """Whether there is anything to do when the records are safe."""
        return bool(self.replies or self.markers)

    def add(self, other: Step) -> None:
        """Take in what another part brought about, after what is here."""
        Step.add(self, other)
        if isinstance(other, TransactionStep):
            self.markers += other.markers


def fenced_error(error: ErrorCode, version: int, known_since: int) -> ErrorCode:
    """Return the error by the name that a version of an API has for it."""
    if error is ErrorCode.PRODUCER_FENCED and version < known_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def abortable_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return what a produce is answered whose partition `verify` did not find.

    Args:
        knows_abortable: whether the client sent Produce of version 11 or later, or TxnOffsetCommit of 4 or later.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


class TransactionCoordinator:
    """The coordinator of one shard."""

    def __init__(self, config: TransactionConfig, coordinator_epoch: int) -> None:
        """Args:
        coordinator_epoch: the leader epoch of the shard's partition; markers carry it, so that an old
            coordinator's are refused.
        """
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timeouts = Timers()
        self._expirations = Timers()
        # Not before these moments it is looked for deadlines again.
        self._next_timeouts_ms = 0
        self._next_expirations_ms = 0

    # InitProducerId.

    def needs_producer_id(self, request: InitProducerIdRequest) -> bool:
        """Tell whether `init_producer_id` needs a new producer id."""
        if request.transactional_id is None:
            return True
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            return self._error_of_init(request) is _NONE
        if transaction.is_ending:
            return False
        meaning = transaction.initialization_for(request.producer_id, request.producer_epoch)
        return meaning is Initialization.NEW_PRODUCER_ID

    def init_producer_id(
        self, ticket: Any, request: InitProducerIdRequest, version: int, now_ms: int, new_producer_id: int | None
    ) -> TransactionStep:
        """Give a producer its id and epoch, and leave behind everybody who had an epoch before."""
        step = TransactionStep()
        response = InitProducerIdResponse(producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
        error = self._error_of_init(request)
        if error is _NONE and request.transactional_id is None:
            # Only idempotent: nothing is remembered of it.
            if new_producer_id is None:
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            else:
                response.producer_id, response.producer_epoch = new_producer_id, 0
        elif error is _NONE:
            error, transaction = self._initialize(request, now_ms, new_producer_id, step)
            if error is _NONE and transaction is not None:
                response.producer_id, response.producer_epoch = transaction.producer_id, transaction.producer_epoch
        response.error_code = fenced_error(error, version, INIT_PRODUCER_ID_KNOWS_FENCED_SINCE)
        step.replies.append(Reply(ticket, response))
        return step

    def _error_of_init(self, request: InitProducerIdRequest) -> ErrorCode:
        """Return what is wrong with a request whatever the state is."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        if request.transactional_id is None:
            return _NONE
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if request.enable2_pc:
            # Two-phase commit (KIP-939) is a setting, and off.
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keep_prepared_txn:
            return ErrorCode.UNSUPPORTED_VERSION
        if not 0 < request.transaction_timeout_ms <= self.config.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return _NONE

    def _initialize(
        self, request: InitProducerIdRequest, now_ms: int, new_producer_id: int | None, step: TransactionStep
    ) -> tuple[ErrorCode, TransactionMetadata | None]:
        assert request.transactional_id is not None
        transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        transaction = self._transactions.get(transactional_id)
        is_new_client = request.producer_id == NO_PRODUCER_ID
        if transaction is None:
            if new_producer_id is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
            transaction = TransactionMetadata(transactional_id, new_producer_id, timeout_ms, now_ms)
            self._transactions[transactional_id] = transaction
            meaning = Initialization.BUMP_EPOCH
        elif transaction.is_ending:
            return ErrorCode.CONCURRENT_TRANSACTIONS, None
        else:
            meaning = transaction.initialization_for(request.producer_id, request.producer_epoch)
        match meaning:
            case Initialization.FENCE:
                return ErrorCode.PRODUCER_FENCED, None
            case Initialization.ABORT:
                # The epoch that fences is nobody's: the client comes again, and gets the one after it.
                transaction.fence_and_abort(now_ms)
                self._start_ending(transaction, now_ms, step)
                return ErrorCode.CONCURRENT_TRANSACTIONS, None
            case Initialization.NEW_PRODUCER_ID:
                if new_producer_id is None:
                    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
                transaction.replace_producer_id(new_producer_id, timeout_ms, now_ms, is_new_client=is_new_client)
            case Initialization.BUMP_EPOCH:
                transaction.bump_epoch(timeout_ms, now_ms, is_new_client=is_new_client)
            case Initialization.REPEAT:
                transaction.repeat_initialization(timeout_ms, now_ms)
        step.records.append(transaction.record())
        self._expire_later(transaction)
        return _NONE, transaction

    # AddPartitionsToTxn, AddOffsetsToTxn, and the implicit adding of Produce and TxnOffsetCommit.

    def add_partitions_to_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        is_verify_only: bool,
        client_version: int,
        now_ms: int,
    ) -> tuple[ErrorCode | dict[TopicPartition, ErrorCode], TransactionStep]:
        """Make partitions part of a transaction, which is begun if there is none, or only look whether they are.

        Args:
            client_version: the client's `transaction.version`: 2 for a partition that a Produce of version 12 or later
                adds, and as in Kafka for AddPartitionsToTxn of version 4 or later; else 0.

        Returns:
            One error for all partitions, or those of each; and the step.
        """
        step = TransactionStep()
        if is_verify_only:
            error, transaction = self._transaction_to_verify(transactional_id, producer_id, producer_epoch)
            if transaction is None:
                return error, step
            mine = transaction.partitions
            return {p: _NONE if p in mine else ErrorCode.TRANSACTION_ABORTABLE for p in partitions}, step
        error, record = self.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, client_version, now_ms
        )
        if record is not None:
            step.records.append(record)
        return error, step

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> tuple[ErrorCode, CoordinatorRecord | None]:
        """Make partitions part of a transaction, and return what is to be persisted, if they were not part of it."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        # First of all, because the client may already know itself by the next producer id (KAFKA-18660).
        if transaction.is_ending:
            return ErrorCode.CONCURRENT_TRANSACTIONS, None
        if transaction.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        if transaction.producer_epoch != producer_epoch or producer_epoch == EPOCH_MAX:
            return ErrorCode.PRODUCER_FENCED, None
        if transaction.status is not ONGOING:
            self._timeouts.set(transaction.timer_key, now_ms + transaction.timeout_ms)
        elif transaction.partitions.keys() >= set(partitions):
            return _NONE, None
        transaction.add_partitions(partitions, client_version, now_ms)
        return _NONE, transaction.record()

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        """Tell whether a partition is in the ongoing transaction, before a client without KIP-890 produces to it.

        `abortable_error` makes of this what the client may be told.
        """
        error, transaction = self._transaction_to_verify(transactional_id, producer_id, producer_epoch)
        if transaction is not None and partition not in transaction.partitions:
            return ErrorCode.TRANSACTION_ABORTABLE
        return error

    def _transaction_to_verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> tuple[ErrorCode, TransactionMetadata | None]:
        """Return the transaction, or why the client has none whose partitions could be looked at."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        if transaction.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED, None
        if transaction.is_ending:
            return ErrorCode.CONCURRENT_TRANSACTIONS, None
        return _NONE, transaction

    # EndTxn and markers.

    def needs_producer_id_to_end(self, request: EndTxnRequest, version: int) -> bool:
        """Tell whether `end_transaction` needs a new producer id, because the epochs of this one are used up."""
        transaction = self._transactions.get(request.transactional_id)
        return (
            version >= END_TXN_BUMPS_EPOCH_SINCE
            and transaction is not None
            and transaction.is_epoch_exhausted
            and _error_of_end_v2(transaction, request) is None
        )

    def end_transaction(
        self, ticket: Any, request: EndTxnRequest, version: int, now_ms: int, new_producer_id: int | None
    ) -> TransactionStep:
        """Decide for commit or abort, and have the markers written."""
        step = TransactionStep()
        response = EndTxnResponse()
        transaction = self._transactions.get(request.transactional_id)
        bumps_epoch = version >= END_TXN_BUMPS_EPOCH_SINCE
        error: ErrorCode | None
        if not request.transactional_id:
            error = ErrorCode.INVALID_REQUEST
        elif transaction is None:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            error = (_error_of_end_v2 if bumps_epoch else _error_of_end_v1)(transaction, request)
            needs_id = bumps_epoch and transaction.is_epoch_exhausted
            if error is None and needs_id and new_producer_id is None:
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if error is None:
                client_version = TRANSACTION_VERSION_BUMPS_EPOCH if bumps_epoch else 0
                next_id = new_producer_id if needs_id and new_producer_id is not None else NO_PRODUCER_ID
                transaction.prepare(request.committed, client_version, next_id, now_ms)
                self._start_ending(transaction, now_ms, step)
                error = _NONE
            if error is _NONE and bumps_epoch:
                response.producer_id, response.producer_epoch = transaction.client_identity
        response.error_code = fenced_error(error, version, END_TXN_KNOWS_FENCED_SINCE)
        step.replies.append(Reply(ticket, response))
        return step

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        now_ms: int,
    ) -> TransactionStep:
        """Take note of markers that are written; partitions that are no more count as written.

        The producer id and epoch are those of the markers.
        """
        step = TransactionStep()
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or not transaction.is_ending
            or transaction.producer_id != producer_id
            or transaction.producer_epoch != producer_epoch
        ):
            return step
        for partition in partitions:
            transaction.partitions.pop(partition, None)
        if not transaction.partitions:
            self._complete(transaction, now_ms, step)
        return step

    def _start_ending(self, transaction: TransactionMetadata, now_ms: int, step: TransactionStep) -> None:
        """Record what was decided, and give the markers out."""
        self._timeouts.cancel(transaction.timer_key)
        step.records.append(transaction.record())
        self._give_markers(transaction, now_ms, step)

    def _give_markers(self, transaction: TransactionMetadata, now_ms: int, step: TransactionStep) -> None:
        if not transaction.partitions:
            self._complete(transaction, now_ms, step)
            return
        step.markers.append(
            TransactionMarkers(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.status is PREPARE_COMMIT,
                self.coordinator_epoch,
                tuple(transaction.partitions),
                transaction.client_transaction_version,
            )
        )

    def _complete(self, transaction: TransactionMetadata, now_ms: int, step: TransactionStep) -> None:
        transaction.complete(now_ms)
        step.records.append(transaction.record())
        self._expire_later(transaction)

    # Time.

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        timeout_ms = self._timeouts.next_deadline_ms
        expiration_ms = self._expirations.next_deadline_ms
        moments = []
        if timeout_ms is not None:
            moments.append(max(timeout_ms, self._next_timeouts_ms))
        if expiration_ms is not None:
            moments.append(max(expiration_ms, self._next_expirations_ms))
        return min(moments, default=None)

    @property
    def armings(self) -> int:
        """As `Timers.armings`; what is looked for only so often is looked for later, never earlier."""
        return self._timeouts.armings + self._expirations.armings

    def tick(self, now_ms: int) -> TransactionStep:
        """Abort transactions that took too long, and forget transactional ids that nobody uses.

        Each is looked for only so often, as configured, so that many small changes become one batch.
        """
        step = TransactionStep()
        if now_ms >= self._next_timeouts_ms:
            self._abort_timed_out(now_ms, step)
        if now_ms >= self._next_expirations_ms:
            self._remove_expired(now_ms, step)
        return step

    def _abort_timed_out(self, now_ms: int, step: TransactionStep) -> None:
        count = 0
        for key in self._timeouts.due(now_ms):
            transaction = self._transactions.get(key.group_id)
            if transaction is None or transaction.status is not ONGOING:
                continue
            transaction.fence_and_abort(now_ms)
            self._start_ending(transaction, now_ms, step)
            count += 1
            if count == CHANGES_PER_TICK_MAX:
                return  # The rest has its turn at the next tick, which is due at once.
        if count:
            self._next_timeouts_ms = now_ms + self.config.abort_timed_out_interval_ms

    def _remove_expired(self, now_ms: int, step: TransactionStep) -> None:
        count = 0
        for key in self._expirations.due(now_ms):
            transaction = self._transactions.get(key.group_id)
            # One in use is given its next deadline when its transaction is complete.
            if transaction is None or not transaction.is_idle:
                continue
            del self._transactions[transaction.transactional_id]
            step.records.append(transaction.expire(now_ms))
            count += 1
            if count == CHANGES_PER_TICK_MAX:
                return
        if count:
            self._next_expirations_ms = now_ms + self.config.remove_expired_interval_ms

    def _expire_later(self, transaction: TransactionMetadata) -> None:
        deadline_ms = transaction.last_update_timestamp_ms + self.config.transactional_id_expiration_ms
        self._expirations.set(transaction.timer_key, deadline_ms)

    # Start.

    def replay(self, record: CoordinatorRecord) -> None:
        """Take in a record of the log; raises DecodeError for one that can not be."""
        transactional_id = record.key.transactional_id
        if record.value is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = TransactionMetadata.from_record(transactional_id, record.value)

    def finish_loading(self, now_ms: int) -> TransactionStep:
        """Go on where the coordinator before this one stopped: its markers, and its deadlines."""
        step = TransactionStep()
        for transaction in self._transactions.values():
            if transaction.is_ending:
                self._give_markers(transaction, now_ms, step)
            elif transaction.status is ONGOING:
                deadline_ms = transaction.start_timestamp_ms + transaction.timeout_ms
                self._timeouts.set(transaction.timer_key, deadline_ms)
            else:
                self._expire_later(transaction)
        return step

    def waiting_replies(self, error: ErrorCode) -> _Replies:
        """Return the replies that are owed when the shard moves away: none, since nothing waits here."""
        del error
        return []

    # Operators.

    def describe(self, transactional_id: str) -> TransactionState:
        """Return everything about one transactional id, or why not."""
        return describe_transaction(transactional_id, self._transactions.get(transactional_id))

    def list(
        self,
        state_filters: Collection[str],
        producer_id_filters: Collection[int],
        duration_filter: int,
        transactional_id_pattern: TransactionalIdPattern | None,
        now_ms: int,
    ) -> ListedTransactions:
        """Return the transactional ids that pass every filter; see `list_transactions`."""
        return list_transactions(
            self._transactions.values(),
            state_filters,
            producer_id_filters,
            duration_filter,
            transactional_id_pattern,
            now_ms,
        )


def _error_of_end_v1(transaction: TransactionMetadata, request: EndTxnRequest) -> ErrorCode | None:
    """Return the answer to an EndTxn that leaves the epoch, or None if the transaction is to be ended now."""
    if transaction.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.status is ONGOING:
        return None
    return _error_of_retry(transaction, request)


def _error_of_end_v2(transaction: TransactionMetadata, request: EndTxnRequest) -> ErrorCode | None:
    """Return the answer to an EndTxn that bumps the epoch, or None if the transaction is to be ended now.

    The epoch tells a retry from the end of the next transaction: a retry has the one before.

                    | abort                     | commit
                    | retry       current       | retry       current
    Empty           | fenced      bumps epoch   | fenced      invalid state
    CompleteAbort   | none        bumps epoch   | invalid     invalid state
    CompleteCommit  | invalid     bumps epoch   | none        invalid state
    """
    # First of all, because the client may already know itself by the next producer id (KAFKA-18660).
    if transaction.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.producer_id == request.producer_id:
        is_current = transaction.producer_epoch == request.producer_epoch
        # If the last end did not bump the epoch, the epoch before belongs to a client that was fenced. And the epoch
        # that nobody may hold is no answer to give.
        is_retry = (
            transaction.client_transaction_version >= TRANSACTION_VERSION_BUMPS_EPOCH
            and transaction.producer_epoch == request.producer_epoch + 1 < EPOCH_MAX
        )
    else:
        is_current = False
        is_retry = (
            transaction.previous_producer_id == request.producer_id
            and transaction.producer_epoch == 0
            and request.producer_epoch == EPOCH_MAX - 1
        )
        if not is_retry:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not is_current and not (is_retry and transaction.is_complete):
        return ErrorCode.PRODUCER_FENCED
    if transaction.status is ONGOING:
        return None
    if is_retry:
        return _error_of_retry(transaction, request)
    # Nothing was added to this transaction; that is no reason to refuse to abort it.
    return ErrorCode.INVALID_TXN_STATE if request.committed else None


def _error_of_retry(transaction: TransactionMetadata, request: EndTxnRequest) -> ErrorCode:
    """Tell whether the transaction that is over ended as the client says."""
    if transaction.is_complete and (transaction.status is COMPLETE_COMMIT) == request.committed:
        return _NONE
    return ErrorCode.INVALID_TXN_STATE
