"""Clients that speak the protocol themselves, for what confluent-kafka does not do.

`run_raw_transactional` runs transactions as clients of `transaction.version` 2 do (KIP-890): no partition is added by a
request of its own, every end brings a new epoch, and what is not answered is asked for again. `run_watcher` asks for
the offsets of groups.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from barnabas.client.connection import ClientError, Connection
from barnabas.client.options import ClientOptions, parse_bootstrap_servers
from barnabas.clock import SystemClock
from barnabas.records.builder import build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.coordinators import FindCoordinatorRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import EndTxnRequest
from checker.history import READ_COMMITTED, UNKNOWN_OFFSET, Committed, Outcome, Planned, Transaction
from checker.workload.world import (
    INPUT_TOPIC,
    PARTITIONS,
    PATIENCE_S,
    TRANSACTION_TIMEOUT_MS,
    Ongoing,
    Values,
    World,
    padded,
    partition_name,
    place,
)

PAUSE_S = 0.03
RETRY_S = 0.02
RECORDS_MAX = 8
SHARE_ABORTED = 0.2
SHARE_ABANDONED = 0.1
SHARE_UNANSWERED = 0.1
SHARE_ASKED_TWICE = 0.1

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_LATER = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class GaveUpError(Exception):
    """A producer can not go on: it is fenced, or nobody answered for too long."""


class AskingAgain:
    """A connection that is made anew when it breaks; a request is sent again until there is an answer."""

    def __init__(self, world: World, process: str) -> None:
        self._world = world
        self._process = process
        self._connection: Connection | None = None

    def ask(self, message: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        """Return the first answer that does not say to come later."""
        deadline = self._world.history.now() + PATIENCE_S
        while self._world.history.now() < deadline:
            try:
                answer = self.connected().request(message, version)
            except ClientError:
                self.close()
            else:
                if ErrorCode(code_of(answer)) not in _LATER:
                    return answer
            SystemClock().sleep(RETRY_S)
        self._world.trouble(self._process, f"no good answer to {type(message).__name__} within {PATIENCE_S:.0f} s")
        raise GaveUpError

    def connected(self) -> Connection:
        """The connection; raises ClientError if there is none to be had."""
        if self._connection is None or not self._connection.is_open:
            (address,) = parse_bootstrap_servers(self._world.bootstrap_servers)
            self._connection = Connection(address, ClientOptions(client_id=self._process, request_timeout_ms=10_000))
        return self._connection

    def close(self) -> None:
        """Close the connection; whoever asks next gets a new one."""
        if self._connection is not None:
            self._connection.close()


class RawProducer:
    """A transactional producer with its epoch and its sequence numbers."""

    def __init__(self, world: World, transactional_id: str, process: str) -> None:
        self._world = world
        self._id = transactional_id
        self._process = process
        self._asking = AskingAgain(world, process)
        self._sequences: dict[str, int] = defaultdict(int)
        find = FindCoordinatorRequest(key=transactional_id, key_type=1)
        self._asking.ask(find, 3, lambda answer: answer.error_code)
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        answer = self._asking.ask(init, 5, lambda answer: answer.error_code)
        self._check(answer.error_code, "InitProducerId")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def send(self, partition: str, values: list[bytes]) -> int:
        """Append records to a partition in the transaction; returns the offset of the first."""
        now_ms = SystemClock().now_ms()
        batch = build_batch(
            [(now_ms, None, value, ()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        topic, index = place(partition)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=10_000, topic_data=[data])
        answer = self._asking.ask(request, 12, lambda answer: answer.responses[0].partition_responses[0].error_code)
        taken = answer.responses[0].partition_responses[0]
        self._check(taken.error_code, "Produce")
        self._sequences[partition] += len(values)
        return int(taken.base_offset)

    def end(self, is_commit: bool, *, is_asked_twice: bool = False) -> None:
        """Commit or abort, and go on with the epoch that is given; sometimes as if the first answer were lost."""
        request = self._end_request(is_commit)
        answer = self._asking.ask(request, 5, lambda answer: answer.error_code)
        self._check(answer.error_code, "EndTxn")
        if is_asked_twice:
            again = self._asking.ask(request, 5, lambda answer: answer.error_code)
            self._check(again.error_code, "EndTxn, asked again")
            if (again.producer_id, again.producer_epoch) != (answer.producer_id, answer.producer_epoch):
                self._world.trouble(self._process, f"EndTxn asked twice is answered {answer} and {again}")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def end_unanswered(self, is_commit: bool) -> None:
        """Ask for the end and be gone before the answer comes."""
        try:
            self._asking.connected().send(self._end_request(is_commit), 5)
        except ClientError:
            pass
        self.close()

    def close(self) -> None:
        """Be gone."""
        self._asking.close()

    def _end_request(self, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )

    def _check(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        if code not in _FENCED and code != ErrorCode.TRANSACTION_ABORTABLE:
            self._world.trouble(self._process, f"{what} is answered {ErrorCode(code).name}")
        raise GaveUpError


def run_raw_transactional(world: World, name: str) -> None:
    """Run transactions until the run ends; a producer that is fenced or left behind is followed by another one."""
    chance = world.chance(name)
    values = Values(name, chance)
    incarnation = 0
    while not world.stopping.is_set():
        incarnation += 1
        process = f"{name}/{incarnation}"
        try:
            producer = RawProducer(world, name, process)
        except GaveUpError:
            continue
        try:
            while not world.stopping.wait(chance.uniform(0, 2 * PAUSE_S)):
                records = tuple(values.next() for _ in range(chance.randint(1, RECORDS_MAX)))
                if not _run_transaction(world, process, producer, records, chance):
                    break
        finally:
            producer.close()


def _run_transaction(
    world: World, process: str, producer: RawProducer, records: tuple[Planned, ...], chance: random.Random
) -> bool:
    """Run one transaction to whatever end; tells whether the producer can go on."""
    ongoing = Ongoing(world, process, Transaction(records=records))
    fate = chance.random()
    is_commit = chance.random() >= SHARE_ABORTED
    by_partition: dict[str, list[Planned]] = defaultdict(list)
    for planned in records:
        by_partition[planned.partition].append(planned)
    try:
        for partition, together in by_partition.items():
            base_offset = producer.send(partition, [padded(planned.value, chance) for planned in together])
            for delta, planned in enumerate(together):
                ongoing.delivered(planned, base_offset + delta)
        if fate < SHARE_ABANDONED:
            ongoing.gave_up()
            return False
        if is_commit:
            ongoing.asks_to_commit()
        if fate < SHARE_ABANDONED + SHARE_UNANSWERED:
            producer.end_unanswered(is_commit)
            ongoing.gave_up()
            return False
        producer.end(is_commit, is_asked_twice=fate > 1 - SHARE_ASKED_TWICE)
    except GaveUpError:
        ongoing.gave_up()
        return False
    ongoing.over(Outcome.OK if is_commit else Outcome.FAIL)
    return True


def run_watcher(world: World, name: str, groups: tuple[str, ...]) -> None:
    """Ask for the offsets of groups, again and again."""
    chance = world.chance(name)
    asking = AskingAgain(world, name)
    while not world.stopping.wait(chance.uniform(0.02, 0.3)):
        ask_committed(world, name, asking, chance.choice(groups))
    asking.close()


def ask_committed(world: World, name: str, asking: AskingAgain, group: str) -> bool:
    """Ask for all offsets of a group, and write down those that no open transaction may change; were there others?"""
    topics = [OffsetFetchRequestTopics(name=INPUT_TOPIC, partition_indexes=list(range(PARTITIONS)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
    number = world.history.invoke(name, Committed(group=group))
    offsets = {}
    try:
        (found,) = asking.connected().request(request, 9).groups
    except ClientError:
        asking.close()
        world.history.complete(number, name, Outcome.FAIL, Committed(group=group))
        return False
    for topic in found.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE:
                offset = partition.committed_offset if partition.committed_offset >= 0 else UNKNOWN_OFFSET
                offsets[partition_name(topic.name, partition.partition_index)] = offset
            elif partition.error_code not in _LATER:
                world.trouble(name, f"OffsetFetch is answered {ErrorCode(partition.error_code).name}")
    outcome = Outcome.OK if found.error_code == ErrorCode.NONE else Outcome.FAIL
    world.history.complete(number, name, outcome, Committed(group=group, offsets=offsets))
    return outcome is Outcome.OK and len(offsets) == PARTITIONS


def end_offsets(asking: AskingAgain, partitions: list[str], isolation: str) -> dict[str, int]:
    """Where partitions end for readers of one isolation level."""
    ends = {}
    for name in partitions:
        topic, index = place(name)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(isolation == READ_COMMITTED),
            topics=[
                ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
            ],
        )
        answer = asking.ask(request, 6, lambda answer: answer.topics[0].partitions[0].error_code)
        ends[name] = int(answer.topics[0].partitions[0].offset)
    return ends
