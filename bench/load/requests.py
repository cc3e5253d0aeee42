"""The frames of a load, built once before it begins.

A connection sends the frames of its ring in order, again and again. Frames of a ring have one size, and its answers
have one size, so that both sides can count frames by counting bytes. The correlation id is the place in the ring.

    ring    | frame 0 | frame 1 | ... | frame R-1 |     sent as one slice wherever several may go at once
    answer  | size | correlation id | topic | partition | error code 0 | base offset ... |
            |<-------- known before the load: the prefix ------------->|
"""

import math
import random
from dataclasses import dataclass

from barnabas.records.batch import HEADER_SIZE
from barnabas.records.builder import build_batch
from barnabas.wire.apis import APIS, request_encoder, response_encoder
from barnabas.wire.frames import RequestHeader, request_frame, response_frame
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from bench.load.spec import LoadSpec

PRODUCE = APIS[0]
PRODUCE_VERSION = 9
CLIENT_ID = "bench"
TIMEOUT_MS = 30_000

# A ring has at least this many frames, unless that makes it larger than this.
RING_FRAMES_MIN = 64
RING_BYTES_MAX = 1 << 20

# Behind the error code of an answer of one partition: base offset, time, log start offset, no record errors, no
# message, and the tagged fields of partition and topic, then throttle time and tagged fields.
BYTES_BEHIND_ERROR_CODE = 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1


def records_per_batch(spec: LoadSpec) -> int:
    """How many records fit: a record takes some 10 bytes beside its value."""
    return max(1, (spec.batch_bytes - HEADER_SIZE) // (spec.record_bytes + 10))


def build_partition_batch(spec: LoadSpec, partition: int) -> bytes:
    """The batch that is sent to a partition, the same one every time."""
    chance = random.Random(f"{spec.seed} {spec.topic} {partition}")
    count = records_per_batch(spec)
    return bytes(
        build_batch([(spec.timestamp_ms, None, chance.randbytes(spec.record_bytes), ()) for _ in range(count)])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """What one connection sends and what it must be answered."""

    frames: bytes
    frame_bytes: int
    batch_bytes: int
    # The partition of every frame, and the beginning of its answer.
    partitions: list[int]
    prefixes: list[bytes]
    answers: list[bytes]

    @property
    def answer_bytes(self) -> int:
        """The size of every answer."""
        return len(self.answers[0])


def partitions_of(spec: LoadSpec, connection: int) -> list[int]:
    """The partitions that a connection writes to, in its order; connections begin at different ones."""
    if spec.own_partitions:
        return list(range(connection, spec.partitions, spec.connections))
    return [(connection + index) % spec.partitions for index in range(spec.partitions)]


def build_rings(spec: LoadSpec) -> list[Ring]:
    """The rings of all connections."""
    batches: dict[int, bytes] = {}
    rings = []
    for connection in range(spec.connections):
        partitions = partitions_of(spec, connection)
        for partition in partitions:
            if partition not in batches:
                batches[partition] = build_partition_batch(spec, partition)
        rings.append(_build_ring(spec, partitions, batches))
    return rings


def _build_ring(spec: LoadSpec, partitions: list[int], batches: dict[int, bytes]) -> Ring:
    size = len(batches[partitions[0]])
    frames_wanted = max(spec.in_flight, min(RING_FRAMES_MIN, RING_BYTES_MAX // size))
    order = partitions * math.ceil(frames_wanted / len(partitions))
    frames = [produce_frame(spec, partition, batches[partition], slot) for slot, partition in enumerate(order)]
    answers = [_answer(spec, partition, slot) for slot, partition in enumerate(order)]
    assert len({len(frame) for frame in frames}) == 1
    assert len({len(answer) for answer in answers}) == 1
    return Ring(
        frames=b"".join(frames),
        frame_bytes=len(frames[0]),
        batch_bytes=size,
        partitions=order,
        prefixes=[answer[:-BYTES_BEHIND_ERROR_CODE] for answer in answers],
        answers=answers,
    )


def produce_frame(spec: LoadSpec, partition: int, batch: bytes, slot: int) -> bytes:
    """A request with one batch, whose correlation id is its slot."""
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=spec.acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=spec.topic, partition_data=[data])],
    )
    header = RequestHeader(PRODUCE.key, PRODUCE_VERSION, slot, CLIENT_ID)
    return b"".join(request_frame(PRODUCE, header, request_encoder(PRODUCE, PRODUCE_VERSION)(request)))


def _answer(spec: LoadSpec, partition: int, slot: int) -> bytes:
    """The answer of a broker that took the batch, at offset 0."""
    taken = PartitionProduceResponse(index=partition, error_code=0)
    response = ProduceResponse(responses=[TopicProduceResponse(name=spec.topic, partition_responses=[taken])])
    body = response_encoder(PRODUCE, PRODUCE_VERSION)(response)
    return b"".join(response_frame(PRODUCE, PRODUCE_VERSION, slot, body))
