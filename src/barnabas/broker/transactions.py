"""Transactions: the transaction coordinator of this broker: a machine for each partition of `__transaction_state`.

    EndTxn --> ask --> the id's shard --> TransactionCoordinator --> record, reply, markers
    Produce in a transaction --> admit: is the partition part of the transaction? (KIP-890)

Rule 1: what a step has to be written into other partitions is written when the step itself is safe.
Rule 2: a partition is part of a transaction, safely, before the first record of the transaction is appended to it:
otherwise a crash leaves records that no marker would ever decide.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinator_shards import CoordinatorShards, Producer, Shard, ShardOptions
from barnabas.broker.dynamic_config import DynamicConfig
from barnabas.broker.groups import Groups
from barnabas.broker.internal_topics import TRANSACTION_TOPIC
from barnabas.broker.partition import Partition
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.request_channel import Request
from barnabas.broker.scheduler import IoPool
from barnabas.broker.ticket import Ticket
from barnabas.broker.transaction_markers import Done, EndMarker, TransactionMarkers
from barnabas.clock import Clock
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.coordination.records import TRANSACTION_KINDS
from barnabas.coordination.step import Step
from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.coordination.transaction_coordinator import TransactionCoordinator, TransactionStep

Operation = Callable[["TransactionCoordinator", Ticket, int, int | None], "TransactionStep"]
"""(the machine, where the answer goes, the time, a producer id if it needs one) -> what is to be done."""

# What a client that writes is told instead: it does not talk to the coordinator and can only try again.
_COORDINATOR_IS_AWAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
IMPLICIT_CLIENT_VERSION = 2
"""The `transaction.version` of a client that does not add partitions to transactions itself."""


def has_open_transaction(partition: Partition, producer_id: int, epoch: int) -> bool:
    """Tell whether a partition has records of the transaction that a producer is in."""
    known = partition.log.producers.producers.get(producer_id)
    return known is not None and known.transaction_first_offset != NO_OFFSET and known.epoch == epoch


class Transactions:
    """The transactional ids that this broker coordinates."""

    def __init__(
        self,
        config: DynamicConfig,
        cache: MetadataCache,
        replica_manager: ReplicaManager,
        groups: Groups,
        producer_ids: ProducerIds,
        pool: IoPool,
        clock: Clock,
    ) -> None:
        self._config = config
        self._producer_ids = producer_ids
        # The end of the log behind what was last added to a transaction, where that was not on the disk at once.
        self._unsafe: dict[str, int] = {}
        self.markers = TransactionMarkers(replica_manager, groups, clock)
        self.shards: CoordinatorShards[TransactionCoordinator] = CoordinatorShards(
            ShardOptions(
                topic=TRANSACTION_TOPIC,
                kinds=TRANSACTION_KINDS,
                make=self._make,
                cache=cache,
                replica_manager=replica_manager,
                pool=pool,
                clock=clock,
            )
        )
        self.shards.after_step = self._write_markers

    def _make(self, partition: Partition) -> "TransactionCoordinator":
        from barnabas.coordination.transaction_coordinator import TransactionCoordinator

        return TransactionCoordinator(self._config.settings.transactions, partition.leader_epoch)

    # Requests.

    def ask(self, request: Request, body: Any, transactional_id: str, operation: Operation) -> Any:
        """Let the machine of a transactional id answer a request; raises ApiError while it is not here."""
        shard = self.shards.shard_of(transactional_id)
        ticket = Ticket(request, body)
        self.shards.carry_out(shard, operation(shard.machine, ticket, self.shards.now_ms(), None))
        return ticket.outcome()

    def ask_with_producer_id(self, request: Request, body: Any, transactional_id: str, operation: Operation) -> Any:
        """Do the same with a producer id that nobody has yet, which may have to be fetched first."""
        self.shards.shard_of(transactional_id)
        ticket = Ticket(request, body)

        def got(found: int | ApiError) -> None:
            try:
                if isinstance(found, ApiError):
                    raise found
                shard = self.shards.shard_of(transactional_id)
            except ApiError as error:
                ticket.refuse(error)
                return
            self.shards.carry_out(shard, operation(shard.machine, ticket, self.shards.now_ms(), found))

        self._producer_ids.next(got)
        return ticket.outcome()

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        client_version: int,
        *,
        is_verify_only: bool = False,
    ) -> tuple["Shard[TransactionCoordinator]", dict[TopicPartition, ErrorCode]]:
        """Make partitions part of a transaction, or only tell whether they are; returns the shard, and what each got.

        The answer is to be given when the shard is safe. Raises ApiError when nothing could be done.
        """
        shard = self.shards.shard_of(transactional_id)
        producer_id, epoch = producer
        codes, step = shard.machine.add_partitions_to_transaction(
            transactional_id, producer_id, epoch, partitions, is_verify_only, client_version, self.shards.now_ms()
        )
        self._keep(shard, transactional_id, step)
        if isinstance(codes, ErrorCode):
            codes = dict.fromkeys(partitions, codes)
        return shard, codes

    def admit(
        self, transactional_id: str, producer: Producer, partition: Partition, *, implicit: bool, knows_abortable: bool
    ) -> None:
        """Raise ApiError unless records of a transaction may be appended to a partition now (KIP-890).

        A partition that already has records of the transaction takes more. Otherwise the client has added it before,
        or it is added here, which newer clients leave to the broker (`implicit`).

        Args:
            knows_abortable: whether the client knows that TRANSACTION_ABORTABLE lets it go on after an abort.
        """
        if has_open_transaction(partition, *producer):
            return
        if not implicit and not self._config.settings.transactions.partition_verification_enable:
            return
        name = partition.topic_partition
        try:
            shard = self.shards.shard_of(transactional_id)
            if implicit:
                code = self._add(shard, transactional_id, producer, name)
            else:
                code = shard.machine.verify(transactional_id, *producer, name)
        except ApiError as error:
            if error.code in _COORDINATOR_IS_AWAY:
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from None
            raise
        if code is ErrorCode.NONE:
            if not self._is_kept(shard, transactional_id):
                message = f"{name} is not part of the transaction of {transactional_id} yet; it will be in a moment"
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
            return
        from barnabas.coordination.transaction_coordinator import abortable_error

        code = abortable_error(code, knows_abortable=knows_abortable)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and not implicit:
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        raise ApiError(code, f"{name} is not part of an ongoing transaction of {transactional_id}")

    def _add(
        self, shard: "Shard[TransactionCoordinator]", transactional_id: str, producer: Producer, name: TopicPartition
    ) -> ErrorCode:
        """Make a partition part of a transaction, and tell whether it may be; what was added need not be safe yet."""
        code, record = shard.machine.add_partitions(
            transactional_id, *producer, (name,), IMPLICIT_CLIENT_VERSION, self.shards.now_ms()
        )
        if record is not None:
            try:
                self.shards.persist(shard, (record,))
            except ApiError as error:
                raise ApiError(ErrorCode.NOT_COORDINATOR, error.message) from None
            self._note(shard, transactional_id)
        return code

    def _keep(self, shard: "Shard[TransactionCoordinator]", transactional_id: str, step: Step) -> None:
        """Write down what was added to a transaction."""
        if not self.shards.carry_out(shard, step):
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"the transaction of {transactional_id} could not be kept")
        if step.records:
            self._note(shard, transactional_id)

    def _note(self, shard: "Shard[TransactionCoordinator]", transactional_id: str) -> None:
        """Note how far the log must be safe for what was added to be."""
        if not shard.is_safe:
            self._unsafe[transactional_id] = shard.partition.log.log_end_offset

    def _is_kept(self, shard: "Shard[TransactionCoordinator]", transactional_id: str) -> bool:
        """Tell whether what was added is safe. What others add in the meantime, which never ends, does not count."""
        if not shard.is_safe_to(self._unsafe.get(transactional_id, shard.loaded_end_offset)):
            return False
        self._unsafe.pop(transactional_id, None)
        return True

    # Markers.

    def _write_markers(self, shard: "Shard[TransactionCoordinator]", step: Step) -> None:
        for wanted in getattr(step, "markers", ()):  # A step that only tells something has none.
            marker = EndMarker(wanted.producer_id, wanted.producer_epoch, wanted.is_commit, wanted.coordinator_epoch)
            done = self._when_written(shard, wanted.transactional_id, marker)
            self.markers.write_until_done(marker, wanted.partitions, done, lambda: shard.is_loaded)

    def _when_written(self, shard: "Shard[TransactionCoordinator]", transactional_id: str, marker: EndMarker) -> Done:
        def written(partitions: Sequence[TopicPartition]) -> None:
            if shard.is_loaded:  # One that was unloaded meanwhile finds out by itself, when it is loaded again.
                step = shard.machine.markers_written(
                    transactional_id, marker.producer_id, marker.producer_epoch, partitions, self.shards.now_ms()
                )
                self.shards.carry_out(shard, step)

        return written
