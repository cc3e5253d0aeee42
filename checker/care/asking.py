"""What the clients of the long run ask a broker, again and again until it answers: to append, to fetch, to delete.

Rule 1: a writer is idempotent, and has one request under way: what is not answered is sent again as it was, and the
broker keeps it once. So a record has one offset, and the order of sending is the order in the log.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.fetched import whole_batches
from barnabas.clock import SystemClock
from barnabas.records.builder import build_batch
from barnabas.records.codecs import Codec
from barnabas.records.record import Record
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from checker.workload.raw import AskingAgain, GaveUpError
from checker.workload.world import World, place

EARLIEST = -2
FETCH_BYTES = 200_000

NewRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a fetch was answered with."""

    error: ErrorCode
    log_start_offset: int
    high_watermark: int
    records: tuple[Record, ...]
    next_offset: int
    """Behind the last batch: compaction may have left fewer records in it than it has offsets."""


class Writer:
    """An idempotent producer."""

    def __init__(self, world: World, process: str, codec: Codec = Codec.NONE) -> None:
        self._world = world
        self._process = process
        self._codec = codec
        self._asking = AskingAgain(world, process)
        self._sequences: dict[str, int] = defaultdict(int)
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = self._asking.ask(init, 4, lambda answer: answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def send(self, partition: str, records: Sequence[NewRecord]) -> int:
        """Append records, and return the offset of the first; raises GaveUpError."""
        batch = build_batch(
            records,
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
        )
        topic, index = place(partition)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        answer = self._asking.ask(request, 9, lambda answer: answer.responses[0].partition_responses[0].error_code)
        taken = answer.responses[0].partition_responses[0]
        if taken.error_code != ErrorCode.NONE:
            self._world.trouble(self._process, f"Produce to {partition}: {ErrorCode(taken.error_code).name}")
            raise GaveUpError
        self._sequences[partition] += len(records)
        return int(taken.base_offset)

    def close(self) -> None:
        """Be gone."""
        self._asking.close()


def fetch(asking: AskingAgain, partition: str, offset: int) -> Fetched:
    """Fetch what is there from an offset on, without waiting for more; raises GaveUpError."""
    topic, index = place(partition)
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    request = FetchRequest(topics=topics, max_bytes=FETCH_BYTES, min_bytes=0, max_wait_ms=0, session_epoch=-1)
    answer = asking.ask(request, 12, lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code)
    found = answer.responses[0].partitions[0]
    records: list[Record] = []
    next_offset = offset
    if found.records is not None:
        for batch in whole_batches(memoryview(found.records)):
            batch.check()
            records += [record for record in batch.records() if record.offset >= offset]
            next_offset = batch.last_offset + 1
    return Fetched(
        error=ErrorCode(found.error_code),
        log_start_offset=found.log_start_offset,
        high_watermark=found.high_watermark,
        records=tuple(records),
        next_offset=next_offset,
    )


def start_offset(asking: AskingAgain, partition: str) -> int:
    """Where a partition starts; raises GaveUpError."""
    topic, index = place(partition)
    wanted = ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    answer = asking.ask(request, 6, lambda answer: answer.topics[0].partitions[0].error_code)
    return int(answer.topics[0].partitions[0].offset)


def delete_records(asking: AskingAgain, partition: str, offset: int) -> Any:
    """Delete the records below an offset, and return the answer of the partition; raises GaveUpError."""
    topic, index = place(partition)
    wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000)
    answer = asking.ask(request, 2, lambda answer: answer.topics[0].partitions[0].error_code)
    return answer.topics[0].partitions[0]


def now_ms() -> int:
    """The time that records are given."""
    return SystemClock().now_ms()
