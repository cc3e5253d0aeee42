"""Transactions: what consumers see of them, exactly-once copies, fencing, and time-outs."""

from collections.abc import Callable

from tests.compat.apart import Apart
from tests.compat.model import (
    ClientError,
    CommittedOffset,
    ConsumerOptions,
    Driver,
    Member,
    MemberOptions,
    NewRecord,
    Producer,
    ProducerOptions,
    Record,
)
from tests.compat.scenarios.scenario import Context, eventually, numbered, numbers_of, read, scenario

READ_COMMITTED = ConsumerOptions(read_committed=True)
READ_ALL = ConsumerOptions(read_committed=False)
# What a producer may hear whose transactional id another one has taken over.
FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
# What it may hear whose transaction the broker has aborted.
TIMED_OUT = (*FENCED, "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "INVALID_PRODUCER_ID_MAPPING")
SHORT_TIMEOUT_MS = 2_000
COPIED = 12


def options_of(transactional_id: str, timeout_ms: int = 60_000) -> ProducerOptions:
    return ProducerOptions(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)


def opened(where: Driver | Apart, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    """A producer that is ready for its first transaction."""
    producer = where.producer(options_of(transactional_id, timeout_ms))
    producer.init_transactions()
    return producer


def transact(producer: Producer, topic: str, records: list[NewRecord], *, commit: bool = True) -> None:
    producer.begin_transaction()
    producer.send(topic, records)
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def fails(call: Callable[[], object], names: tuple[str, ...]) -> None:
    """The call must fail with one of these errors."""
    try:
        call()
    except ClientError as error:
        assert error.name in names, error
    else:
        raise AssertionError(f"it should have failed with one of {names}")


@scenario("Committed transactions are read in order, in all their partitions, by this client and by another.")
def commit_a_transaction(context: Context) -> None:
    topic = context.new_topic(2)
    with opened(context.driver, topic) as producer:
        transact(producer, topic, [*numbered(3), *numbered(3, start=3, partition=1)])
        transact(producer, topic, numbered(2, start=6))
    for driver in (context.driver, context.other()):
        records = read(driver, topic, 8, {0: 0, 1: 0}, READ_COMMITTED)
        by_partition = {n: numbers_of([each for each in records if each.partition == n]) for n in (0, 1)}
        assert by_partition == {0: [0, 1, 2, 6, 7], 1: [3, 4, 5]}
    # The markers of commits have offsets of their own.
    assert context.driver.list_offset(topic, 0, "latest").offset == 7


@scenario("Aborted records are seen by read_uncommitted alone, and a transaction without records may be ended too.")
def abort_a_transaction(context: Context) -> None:
    topic = context.new_topic()
    with opened(context.driver, topic) as producer:
        transact(producer, topic, numbered(3), commit=False)
        transact(producer, topic, numbered(3, start=3))
        transact(producer, topic, numbered(3, start=6), commit=False)
        producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
        transact(producer, topic, numbered(1, start=9))
    for driver in (context.driver, context.other()):
        assert numbers_of(read(driver, topic, 4, options=READ_COMMITTED)) == [3, 4, 5, 9]
        assert numbers_of(read(driver, topic, 10, options=READ_ALL)) == list(range(10))


@scenario("Records behind an open transaction are hidden from read_committed until it is ended.")
def an_open_transaction_hides_what_follows(context: Context) -> None:
    topic = context.new_topic()
    with (
        opened(context.driver, topic) as producer,
        context.driver.consumer(topic, {0: 0}, READ_COMMITTED) as committed,
        context.driver.consumer(topic, {0: 0}, READ_ALL) as uncommitted,
    ):
        context.send(topic, numbered(2))
        producer.begin_transaction()
        producer.send(topic, numbered(2, start=2))
        context.send(topic, numbered(2, start=4))
        assert numbers_of(uncommitted.take(6)) == list(range(6))
        assert numbers_of(committed.take(2)) == [0, 1]
        producer.abort_transaction()
        assert numbers_of(committed.take(2)) == [4, 5]


@scenario("A second producer with the same transactional id aborts the transaction of the first, and fences it.")
def a_zombie_is_fenced(context: Context) -> None:
    topic = context.new_topic()
    with opened(context.driver, topic) as zombie:
        zombie.begin_transaction()
        zombie.send(topic, numbered(2))
        with opened(context.driver, topic) as producer:
            fails(zombie.commit_transaction, FENCED)
            transact(producer, topic, numbered(2, start=2))
    assert numbers_of(read(context.driver, topic, 2, options=READ_COMMITTED)) == [2, 3]
    assert numbers_of(read(context.driver, topic, 4, options=READ_ALL)) == [0, 1, 2, 3]


@scenario("The broker aborts a transaction that takes longer than transaction.timeout.ms; the next producer goes on.")
def a_transaction_times_out(context: Context) -> None:
    topic = context.new_topic()
    with opened(context.driver, topic, SHORT_TIMEOUT_MS) as producer:
        producer.begin_transaction()
        producer.send(topic, numbered(2))
        context.send(topic, numbered(1, start=2))
        assert numbers_of(read(context.driver, topic, 1, options=READ_COMMITTED)) == [2]
        fails(producer.commit_transaction, TIMED_OUT)
    with opened(context.driver, topic) as producer:
        transact(producer, topic, numbered(1, start=3))
    assert numbers_of(read(context.driver, topic, 2, options=READ_COMMITTED)) == [2, 3]


@scenario("Offsets that are sent to a transaction are committed with it, and dropped with it.")
def offsets_in_a_transaction(context: Context) -> None:
    topic = context.new_topic()
    group = f"{topic}-group"
    context.send(topic, numbered(5))
    options = MemberOptions(group=group, topic=topic, read_committed=True)
    with context.driver.member(options) as member, opened(context.driver, topic) as producer:
        poll_until(member, 5)
        producer.begin_transaction()
        producer.send_offsets(topic, {0: 2}, member)
        producer.commit_transaction()
        assert context.driver.committed(group, topic) == {0: CommittedOffset(offset=2)}
        producer.begin_transaction()
        producer.send_offsets(topic, {0: 4}, member)
        producer.abort_transaction()
        assert context.driver.committed(group, topic) == {0: CommittedOffset(offset=2)}


def poll_until(member: Member, count: int) -> list[Record]:
    records: list[Record] = []

    def enough() -> bool:
        records.extend(member.poll(commit=False).records)
        return len(records) >= count

    eventually(enough, f"{count} records come")
    return records


class Copier:
    """Reads a topic as a member of a group and copies it to another, every record once: offsets go with the records."""

    def __init__(self, where: Driver | Apart, source: str, transactional_id: str) -> None:
        self._source = source
        self._member = where.member(
            MemberOptions(group=f"{source}-group", topic=source, session_timeout_ms=2_000, read_committed=True)
        )
        self._producer = opened(where, transactional_id, SHORT_TIMEOUT_MS)
        self._unsent: list[Record] = []
        self.copied = 0

    def close(self) -> None:
        self._producer.__exit__(None, None, None)
        self._member.__exit__(None, None, None)

    def prepare(self, count: int) -> None:
        """Sends `count` records and their offset to a transaction that is not committed."""
        while len(self._unsent) < count:
            self._unsent += poll_until(self._member, 1)
        batch, self._unsent = self._unsent[:count], self._unsent[count:]
        self._producer.begin_transaction()
        self._producer.send(f"{self._source}-copy", [NewRecord(value=record.value) for record in batch])
        self._producer.send_offsets(self._source, {0: batch[-1].offset + 1}, self._member)

    def copy(self, count: int) -> None:
        self.prepare(count)
        self._producer.commit_transaction()
        self.copied += count


def copy_over_a_kill(context: Context, transactional_ids: tuple[str, str]) -> None:
    """A copier is killed with a transaction open; another one goes on."""
    source = context.new_topic()
    target = f"{source}-copy"
    context.driver.create_topic(target, 1, {})
    context.send(source, numbered(COPIED))
    with context.apart() as apart:
        first = Copier(apart, source, f"{source}-{transactional_ids[0]}")
        first.copy(3)
        first.copy(2)
        first.prepare(2)
        apart.kill()
    second = Copier(context.driver, source, f"{source}-{transactional_ids[1]}")
    try:
        second.copy(4)
        second.copy(COPIED - 9)
    finally:
        second.close()
    assert numbers_of(read(context.driver, target, COPIED, options=READ_COMMITTED)) == list(range(COPIED))
    assert context.driver.committed(f"{source}-group", source)[0].offset == COPIED


@scenario("A copier is killed within a transaction; its successor of the same name copies every record exactly once.")
def copy_exactly_once_over_a_kill(context: Context) -> None:
    copy_over_a_kill(context, ("copier", "copier"))


@scenario("The same with a successor of another name: the transaction of the dead one has to time out first.")
def copy_exactly_once_by_another(context: Context) -> None:
    copy_over_a_kill(context, ("one", "two"))


@scenario("The broker is killed within a transaction; the producer commits it when the broker is back.", restarts=True)
def a_transaction_over_a_kill(context: Context) -> None:
    topic = context.new_topic()
    with opened(context.driver, topic) as producer:
        transact(producer, topic, numbered(2))
        producer.begin_transaction()
        producer.send(topic, numbered(2, start=2))
        context.broker.kill()
        context.broker.start()
        producer.send(topic, numbered(2, start=4))
        producer.commit_transaction()
        transact(producer, topic, numbered(2, start=6), commit=False)
    assert numbers_of(read(context.reconnected(), topic, 6, options=READ_COMMITTED)) == list(range(6))


SCENARIOS = [
    commit_a_transaction,
    abort_a_transaction,
    an_open_transaction_hides_what_follows,
    offsets_in_a_transaction,
    a_zombie_is_fenced,
    a_transaction_times_out,
    copy_exactly_once_over_a_kill,
    copy_exactly_once_by_another,
    a_transaction_over_a_kill,
]
