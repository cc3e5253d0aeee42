"""Transactions from end to end, with everything that can go wrong, against partitions that are only lists.

Clients of both transaction versions, several with the same transactional id, produce, commit and abort; requests and
answers get lost, old clients go on as if nothing had happened, transactions time out, the coordinator crashes before
and after its batch is written, and markers come late, twice, or from the coordinator before.

What must hold is told of the data of each transaction as its client meant it:
- all of it gets the same outcome, on all partitions;
- it is committed only if its client asked for that, and for certain if it was told so;
- when everything has calmed down, no partition has an open transaction.
"""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.coordination.records import TRANSACTION_KINDS, decode, encode
from barnabas.coordination.step import CoordinatorRecord
from barnabas.coordination.transaction import TransactionMetadata
from barnabas.coordination.transaction_coordinator import TransactionCoordinator, TransactionMarkers, TransactionStep
from barnabas.coordination.transaction_records import TransactionLogKey, TransactionLogValue
from barnabas.coordinator_config import TransactionConfig
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.transactions import EndTxnRequest, EndTxnResponse

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
TIMEOUT_MS = 10_000
FATES = st.sampled_from(["answered"] * 6 + ["lost", "not appended"])
"""Of a step: all went well; it is in the log, but the client never hears of it; the coordinator crashed before."""
WHO = st.sampled_from(["a", "a", "a", "old", "0", "1", "2"])
"""Who acts: mostly the client that a transactional id belongs to."""
FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE)


@dataclass(eq=False)
class Intent:
    """A transaction as its client means it."""

    number: int
    outcomes: set[bool] = field(default_factory=set)
    appended: int = 0
    closed: int = 0
    end: bool | None = None
    """What the client asked for, once it did: commit or abort."""
    may_be_committed: bool = False
    """Whether an answer to a commit is owed, or was good."""
    is_answered: bool = False

    def check(self) -> None:
        assert len(self.outcomes) <= 1, f"transaction {self.number} is committed in part"
        if True in self.outcomes:
            assert self.may_be_committed, f"transaction {self.number} is committed, and nobody asked for it"
        if False in self.outcomes:
            assert not (self.is_answered and self.end), f"transaction {self.number} is aborted, but was told committed"


@dataclass(eq=False)
class ModelProducer:
    """What a partition knows of a producer id."""

    epoch: int = -1
    coordinator_epoch: int = -1
    open: list[Intent] | None = None
    guard: object | None = None
    """Allows the first data of a transaction, until a marker is written (KIP-890)."""


class ModelPartition:
    """A log that remembers nothing but open transactions."""

    def __init__(self) -> None:
        self.producers: dict[int, ModelProducer] = {}

    def producer(self, producer_id: int) -> ModelProducer:
        return self.producers.setdefault(producer_id, ModelProducer())

    def append(self, producer_id: int, epoch: int, intent: Intent, guard: object) -> bool:
        known = self.producer(producer_id)
        if epoch < known.epoch or (known.open is None and known.guard is not guard):
            return False
        assert known.open is None or epoch == known.epoch, "a new epoch while a transaction of the old one is open"
        known.epoch = epoch
        known.open = [*(known.open or ()), intent]
        intent.appended += 1
        return True

    def write_marker(self, markers: TransactionMarkers) -> bool:
        """End what is open, unless somebody newer was here."""
        known = self.producer(markers.producer_id)
        if markers.producer_epoch < known.epoch or markers.coordinator_epoch < known.coordinator_epoch:
            return False
        if markers.transaction_version >= 2 and markers.producer_epoch == known.epoch and known.open is not None:
            return False
        known.epoch, known.coordinator_epoch = markers.producer_epoch, markers.coordinator_epoch
        known.guard = None
        for intent in known.open or ():
            intent.outcomes.add(markers.is_commit)
            intent.closed += 1
            intent.check()
        known.open = None
        return True


@dataclass(eq=False)
class ModelClient:
    """A producer; it goes on also after it was fenced."""

    transactional_id: str
    version: int
    producer_id: int = -1
    epoch: int = -1
    intent: Intent | None = None
    added: set[TopicPartition] = field(default_factory=set)

    def begin(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.intent = None
        self.added = set()


@dataclass(eq=False)
class LateProduce:
    """Data that is on its way: verified, but not yet appended."""

    client: ModelClient
    producer_id: int
    epoch: int
    partition: TopicPartition
    intent: Intent
    guard: object


@dataclass(eq=False)
class Sending:
    """A marker for one partition that is on its way."""

    markers: TransactionMarkers
    partition: TopicPartition


class TransactionMachine(RuleBasedStateMachine):
    """The world."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.log: dict[bytes, bytes | None] = {}
        self.coordinator_epoch = -1
        self.coordinator = self.loaded()
        self.sendings: list[Sending] = []
        self.partitions = {partition: ModelPartition() for partition in PARTITIONS}
        self.clients: list[ModelClient] = []
        self.late: list[LateProduce] = []
        self.intents: list[Intent] = []
        self.producer_ids = count(1000)
        self.tickets = count()
        self.reports: list[Sending] = []
        self.owners: dict[tuple[int, int], ModelClient] = {}
        # This one is near the end of its epochs.
        old = TransactionLogValue(
            producer_id=500, producer_epoch=32_762, transaction_timeout_ms=TIMEOUT_MS, transaction_partitions=None
        )
        self.append([CoordinatorRecord(TransactionLogKey(transactional_id="old"), old)])
        self.restart()
        self.clients += [ModelClient("a", 2), ModelClient("a", 0), ModelClient("a", 2), ModelClient("old", 2)]
        self.current = {"a": self.clients[0], "old": self.clients[3]}

    # The log.

    def append(self, records: list[CoordinatorRecord]) -> None:
        for record in records:
            key, value = encode(record)
            self.log[key] = value

    def loaded(self) -> TransactionCoordinator:
        """A coordinator made from the log, before it goes on."""
        coordinator = TransactionCoordinator(TransactionConfig(), self.coordinator_epoch)
        for key, value in self.log.items():
            record = decode(TRANSACTION_KINDS, key, value)
            assert record is not None
            coordinator.replay(record)
        return coordinator

    def restart(self) -> None:
        self.coordinator_epoch += 1
        self.coordinator = self.loaded()
        self.carry_out(self.coordinator.finish_loading(self.now_ms))

    def carry_out(self, step: TransactionStep) -> None:
        self.append(step.records)
        for markers in step.markers:
            self.sendings += [Sending(markers, partition) for partition in markers.partitions]

    def carried_out(self, step: TransactionStep, fate: str) -> bool:
        """Whether the answer of a step arrives."""
        if fate == "not appended":
            self.restart()
            return False
        self.carry_out(step)
        return fate == "answered"

    # Clients.

    def client(self, who: str) -> ModelClient:
        """The client that a transactional id belongs to now, or any by its number, mostly one that was left behind."""
        client = self.current[who] if who in self.current else self.clients[int(who)]
        if client.producer_id < 0:
            self.initialize_until_it_is_done(client)
        return client

    def initialize_until_it_is_done(self, client: ModelClient) -> None:
        before = client.producer_id, client.epoch
        for _ in range(3):
            self.initialize_client(client, False, "answered")
            if (client.producer_id, client.epoch) != before:
                return
            self.all_markers_arrive()
        raise AssertionError("a client never gets to be initialized")

    def take_identity(self, client: ModelClient, response: InitProducerIdResponse | EndTxnResponse) -> None:
        identity = response.producer_id, response.producer_epoch
        assert response.producer_epoch < 32_767, "the epoch that nobody may hold"
        assert self.owners.setdefault(identity, client) is client, "two clients are the same producer"
        client.begin(*identity)

    def initialize_client(self, client: ModelClient, says_who: bool, fate: str) -> None:
        request = InitProducerIdRequest(transactional_id=client.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        if says_who:
            request.producer_id, request.producer_epoch = client.producer_id, client.epoch
        ticket = next(self.tickets)
        new_id = next(self.producer_ids) if self.coordinator.needs_producer_id(request) else None
        step = self.coordinator.init_producer_id(ticket, request, 5, self.now_ms, new_id)
        ((answered, response),) = step.replies
        assert answered == ticket
        assert isinstance(response, InitProducerIdResponse)
        if self.carried_out(step, fate) and response.error_code == ErrorCode.NONE:
            self.take_identity(client, response)
            self.current[client.transactional_id] = client

    @rule(
        who=WHO,
        partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        fate=FATES,
        is_late=st.sampled_from([False, False, True]),
    )
    def produce(self, who: str, partitions: set[TopicPartition], fate: str, is_late: bool) -> None:
        client = self.client(who)
        for partition in sorted(partitions):
            self.produce_to(client, partition, fate)
        if not is_late:
            for late in [late for late in self.late if late.client is client]:
                self.late.remove(late)
                self.arrive(late)

    def produce_to(self, client: ModelClient, partition: TopicPartition, fate: str) -> None:
        if client.intent is not None and client.intent.end is not None:
            return  # First it must hear how that ended.
        if client.version == 0 and partition not in client.added:
            if not self.add(client, partition, fate):
                return
            client.added.add(partition)
        known = self.partitions[partition].producer(client.producer_id)
        if known.open is not None and client.epoch > known.epoch:
            return  # The leader answers CONCURRENT_TRANSACTIONS: the markers are still to come (KAFKA-18575).
        guard = object()
        if known.open is None and not self.may_begin(client, partition, fate):
            return
        if known.open is None:
            # Several may wait at the same time for the first to be appended.
            known.guard = guard = known.guard or guard
        if client.intent is None:
            client.intent = Intent(len(self.intents))
            self.intents.append(client.intent)
        self.late.append(
            LateProduce(client, client.producer_id, client.epoch, partition, client.intent, guard=known.guard or guard)
        )

    def add(self, client: ModelClient, partition: TopicPartition, fate: str) -> bool:
        error, step = self.coordinator.add_partitions_to_transaction(
            client.transactional_id,
            client.producer_id,
            client.epoch,
            [partition],
            False,
            client.version,
            self.now_ms,
        )
        return self.carried_out(step, fate) and error is ErrorCode.NONE

    def may_begin(self, client: ModelClient, partition: TopicPartition, fate: str) -> bool:
        """What the partition's leader asks before the first data of a transaction."""
        if client.version == 2:
            return self.add(client, partition, fate)
        error = self.coordinator.verify(client.transactional_id, client.producer_id, client.epoch, partition)
        return partition in client.added and error is ErrorCode.NONE

    @precondition(lambda self: self.late)
    @rule(choice=st.integers(0, 20))
    def data_arrives(self, choice: int) -> None:
        self.arrive(self.late.pop(choice % len(self.late)))

    def arrive(self, late: LateProduce) -> None:
        self.partitions[late.partition].append(late.producer_id, late.epoch, late.intent, late.guard)

    @rule(who=WHO, is_commit=st.booleans(), fate=FATES, gives_up=st.booleans())
    def end(self, who: str, is_commit: bool, fate: str, gives_up: bool) -> None:
        client = self.client(who)
        intent = client.intent
        if intent is None and client.version == 0:
            return
        if intent is None:
            is_commit = False  # Nothing was sent; only an abort is asked for then.
        else:
            is_commit = intent.end = is_commit if intent.end is None else intent.end
            if client.version == 0:
                # Without KIP-890 data that comes later than the end may land in the next transaction.
                self.late = [late for late in self.late if late.client is not client]
        version = 5 if client.version == 2 else 4
        request = EndTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            committed=is_commit,
        )
        ticket = next(self.tickets)
        new_id = next(self.producer_ids) if self.coordinator.needs_producer_id_to_end(request, version) else None
        step = self.coordinator.end_transaction(ticket, request, version, self.now_ms, new_id)
        ((answered, response),) = step.replies
        assert answered == ticket
        assert isinstance(response, EndTxnResponse)
        is_good = response.error_code == ErrorCode.NONE
        if intent is not None and is_commit and is_good and fate != "not appended":
            intent.may_be_committed = True
        is_heard = self.carried_out(step, fate)
        if is_heard and gives_up and response.error_code in FATAL:
            client.begin(-1, -1)
        if not is_heard or not is_good:
            return
        if intent is not None:
            intent.is_answered = True
            intent.check()
        if version == 5:
            self.take_identity(client, response)
        else:
            client.begin(client.producer_id, client.epoch)

    @rule(who=WHO, partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1), is_commit=st.booleans(), fate=FATES)
    def produce_and_end(self, who: str, partitions: set[TopicPartition], is_commit: bool, fate: str) -> None:
        self.produce(who=who, partitions=partitions, fate="answered", is_late=False)
        self.end(who=who, is_commit=is_commit, fate=fate, gives_up=True)

    # Markers.

    @precondition(lambda self: self.sendings)
    @rule(choice=st.integers(0, 20), is_reported=st.booleans(), comes_again=st.booleans())
    def marker_arrives(self, choice: int, is_reported: bool, comes_again: bool) -> None:
        self.deliver(self.sendings.pop(choice % len(self.sendings)), is_reported, comes_again)

    @precondition(lambda self: self.sendings)
    @rule()
    def all_markers_arrive(self) -> None:
        while self.sendings:
            self.deliver(self.sendings.pop(0), is_reported=True, comes_again=False)

    def deliver(self, sending: Sending, is_reported: bool, comes_again: bool) -> None:
        markers = sending.markers
        is_from_before = markers.coordinator_epoch < self.coordinator_epoch
        is_awaited = not is_from_before and self.is_awaited(sending)
        is_written = self.partitions[sending.partition].write_marker(markers)
        assert is_written or not is_awaited, "a marker that the coordinator waits for is refused"
        if is_from_before:
            return  # Nobody is left to hear of it.
        # Without KIP-890 the next transaction has the same epoch, and could be mistaken for the one before. So whoever
        # sends markers must send and report them no more once they were reported; with KIP-890 it does no harm.
        if comes_again and markers.transaction_version >= 2:
            self.reports.append(sending)
            self.sendings.append(sending)
        if is_reported:
            self.report(sending)
        else:
            self.sendings.append(sending)

    @precondition(lambda self: self.reports)
    @rule(choice=st.integers(0, 20))
    def report_arrives_late(self, choice: int) -> None:
        self.report(self.reports.pop(choice % len(self.reports)))

    def report(self, sending: Sending) -> None:
        markers = sending.markers
        self.carry_out(
            self.coordinator.markers_written(
                markers.transactional_id,
                markers.producer_id,
                markers.producer_epoch,
                [sending.partition],
                self.now_ms,
            )
        )

    def is_awaited(self, sending: Sending) -> bool:
        state = self.transactions()[sending.markers.transactional_id]
        return (
            state.is_ending
            and sending.partition in state.partitions
            and (state.producer_id, state.producer_epoch)
            == (sending.markers.producer_id, sending.markers.producer_epoch)
        )

    # The world.

    @rule(
        kind=st.sampled_from(["crash", "another starts", "time", "tick that is not appended", "KIP-360"]),
        choice=st.integers(0, 3),
        seconds=st.integers(1, 12),
        fate=FATES,
    )
    def disturbance(self, kind: str, choice: int, seconds: int, fate: str) -> None:
        """All in one rule, so that there is more work than disturbance."""
        match kind:
            case "crash":
                self.restart()
            case "another starts":
                self.initialize_client(self.clients[choice], False, fate)
            case "KIP-360":
                self.initialize_client(self.clients[choice], True, fate)
            case _:
                self.now_ms += seconds * 1000
                is_appended = kind == "time"
                self.carried_out(self.coordinator.tick(self.now_ms), "answered" if is_appended else "not appended")

    # What holds at every moment.

    def transactions(self) -> dict[str, TransactionMetadata]:
        return self.coordinator._transactions

    @invariant()
    def the_log_has_everything(self) -> None:
        recovered = self.loaded()._transactions
        assert recovered.keys() == self.transactions().keys()
        for transactional_id, state in self.transactions().items():
            again = recovered[transactional_id]
            # The two things that a crash may take: KIP-360 retries, and which markers were written.
            again.last_producer_epoch = state.last_producer_epoch
            if state.is_ending:
                assert again.partitions.keys() >= state.partitions.keys()
                again.partitions = state.partitions
            assert again == state

    @invariant()
    def what_is_open_on_a_partition_is_known_to_the_coordinator(self) -> None:
        active = {state.producer_id for state in self.transactions().values() if not state.is_idle}
        for partition in self.partitions.values():
            for producer_id, known in partition.producers.items():
                assert known.open is None or producer_id in active, "a transaction is complete, but not everywhere"

    @invariant()
    def each_transaction_has_one_outcome(self) -> None:
        for intent in self.intents:
            intent.check()

    @invariant()
    def a_deadline_is_there_for_every_ongoing_transaction(self) -> None:
        deadlines = [
            state.start_timestamp_ms + state.timeout_ms
            for state in self.transactions().values()
            if state.status.name == "ONGOING"
        ]
        due = self.coordinator.next_deadline_ms
        if deadlines:
            assert due is not None
            assert due <= max(min(deadlines), self.now_ms + self.coordinator.config.abort_timed_out_interval_ms)

    def teardown(self) -> None:
        """Let everything calm down: nobody asks any more, markers are written, and open transactions time out."""
        self.late.clear()
        for _ in range(3):
            self.all_markers_arrive()
            self.now_ms += TIMEOUT_MS + self.coordinator.config.abort_timed_out_interval_ms
            self.carry_out(self.coordinator.tick(self.now_ms))
        assert not self.sendings
        assert all(state.is_idle for state in self.transactions().values())
        for partition in self.partitions.values():
            assert all(known.open is None for known in partition.producers.values())
        for intent in self.intents:
            assert intent.closed == intent.appended
            intent.check()
            if intent.is_answered and intent.appended:
                assert intent.outcomes == {intent.end}


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=200 if settings.default is None else settings.default.max_examples * 2,
    stateful_step_count=60,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
