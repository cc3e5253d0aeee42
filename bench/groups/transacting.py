"""Transactions, and the same records without one, by a producer that speaks the protocol on one connection.

In a transaction it is a client of transaction.version 2, whose partitions are added by Produce 12, or of version 1,
which adds them all by one AddPartitionsToTxn before. It sends one request after the other, or keeps some in flight.

Rule 1: what a producer sends has the sequence numbers that a broker expects, so the checksum of a batch is made anew
for every request. That is a cost of the generator, the same with and without transactions.
"""

import time
from enum import Enum
from typing import Any

from barnabas.records.batch import BASE_SEQUENCE_POSITION, PRODUCER_EPOCH_POSITION, PRODUCER_ID_POSITION, restamp_crc
from barnabas.records.builder import build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from bench.groups.frames import SILENCE_S_MAX, TRANSACTION, find_coordinator, open_connection, wait_or_raise
from bench.load.spec import LoadError

RECORD_BYTES = 100
TRANSACTION_TIMEOUT_MS = 60_000
TIMEOUT_MS = 30_000


class Kind(Enum):
    """How records are sent."""

    PLAIN = "without transactions"
    VERSION_1 = "transaction.version 1"
    VERSION_2 = "transaction.version 2"


# Produce and EndTxn as clients of each kind send them.
PRODUCE_VERSIONS = {Kind.PLAIN: 12, Kind.VERSION_1: 11, Kind.VERSION_2: 12}
END_VERSIONS = {Kind.VERSION_1: 4, Kind.VERSION_2: 5}
ADD_VERSION, INIT_VERSION = 3, 5


class Producing:
    """An idempotent producer; it has its id, and the coordinator is there, from construction on."""

    def __init__(self, port: int, topic: str, partitions: int, kind: Kind, batch_bytes: int = 1) -> None:
        self._connection = open_connection(port)
        self._topic = topic
        self._kind = kind
        self._id = None if kind is Kind.PLAIN else f"{kind.name} of {topic}"
        self._records = max(1, batch_bytes // (RECORD_BYTES + 10))
        now_ms = time.time_ns() // 1_000_000
        rows = [(now_ms, None, bytes([index % 256]) * RECORD_BYTES, ()) for index in range(self._records)]
        is_transactional = kind is not Kind.PLAIN
        self._batches = [
            build_batch(rows, producer_id=0, producer_epoch=0, base_sequence=0, transactional=is_transactional)
            for _ in range(partitions)
        ]
        self._sequences = [0] * partitions
        self.sent = [0] * partitions
        """Records, by partition."""
        self.transactions = 0
        self.answers_to_come_again = 0
        self._init()

    @property
    def batch_bytes(self) -> int:
        """The size of a batch."""
        return len(self._batches[0])

    def run_one_each(self, count: int) -> None:
        """So many times: one batch for every partition, each in a request of its own, and the end of a transaction."""
        for _ in range(count):
            self._begin()
            for partition in range(len(self._batches)):
                self._answered(self._connection.request(self._next(partition), PRODUCE_VERSIONS[self._kind]))
            self._end()

    def stream(self, count: int, in_flight: int, batches_a_transaction: int) -> float:
        """Send so many batches, some in flight, over all partitions in turn; returns the seconds."""
        started = time.perf_counter()
        waiting = 0
        for number in range(count):
            if number % batches_a_transaction == 0:
                waiting = self._drain(waiting, 0)
                if number:
                    self._end()
                self._begin()
            waiting = self._drain(waiting, in_flight - 1)
            self._connection.send(self._next(number % len(self._batches)), PRODUCE_VERSIONS[self._kind])
            waiting += 1
        self._drain(waiting, 0)
        self._end()
        return time.perf_counter() - started

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _drain(self, waiting: int, until: int) -> int:
        while waiting > until:
            self._answered(self._connection.receive())
            waiting -= 1
        return waiting

    def _init(self) -> None:
        if self._id is not None:
            find_coordinator(self._connection, self._id, TRANSACTION)
        deadline = time.monotonic() + SILENCE_S_MAX
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        while True:
            answer = self._connection.request(request, INIT_VERSION)
            if answer.error_code == ErrorCode.NONE:
                break
            wait_or_raise(answer.error_code, deadline, "InitProducerId")
        self._set_producer(answer.producer_id, answer.producer_epoch)

    def _set_producer(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        for batch in self._batches:
            batch[PRODUCER_ID_POSITION : PRODUCER_ID_POSITION + 8] = producer_id.to_bytes(8, "big")
            batch[PRODUCER_EPOCH_POSITION : PRODUCER_EPOCH_POSITION + 2] = epoch.to_bytes(2, "big")

    def _next(self, partition: int) -> ProduceRequest:
        batch = self._batches[partition]
        sequence = self._sequences[partition]
        batch[BASE_SEQUENCE_POSITION : BASE_SEQUENCE_POSITION + 4] = sequence.to_bytes(4, "big")
        restamp_crc(batch, 0, len(batch))
        self._sequences[partition] += self._records
        self.sent[partition] += self._records
        data = PartitionProduceData(index=partition, records=batch)
        return ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )

    def _answered(self, answer: Any) -> None:
        taken = answer.responses[0].partition_responses[0]
        if taken.error_code != ErrorCode.NONE:
            raise LoadError(f"a produce request is answered {ErrorCode(taken.error_code).name}: {taken.error_message}")

    def _begin(self) -> None:
        if self._kind is not Kind.VERSION_1:
            return
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=list(range(len(self._batches))))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id or "",
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=topics,
        )
        while True:
            answer = self._connection.request(request, ADD_VERSION)
            results = answer.results_by_topic_v3_and_below[0].results_by_partition
            codes = {result.partition_error_code for result in results}
            if codes == {ErrorCode.NONE}:
                return
            self._come_again(codes, "AddPartitionsToTxn")

    def _end(self) -> None:
        if self._kind is Kind.PLAIN:
            return
        request = EndTxnRequest(
            transactional_id=self._id or "",
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        answer = self._connection.request(request, END_VERSIONS[self._kind])
        if answer.error_code != ErrorCode.NONE:
            raise LoadError(f"EndTxn is answered {ErrorCode(answer.error_code).name}")
        self.transactions += 1
        if self._kind is Kind.VERSION_2:
            self._set_producer(answer.producer_id, answer.producer_epoch)
            self._sequences = [0] * len(self._batches)

    def _come_again(self, codes: set[int], what: str) -> None:
        if codes != {ErrorCode.CONCURRENT_TRANSACTIONS}:
            raise LoadError(f"{what} is answered {[ErrorCode(code).name for code in codes]}")
        self.answers_to_come_again += 1
