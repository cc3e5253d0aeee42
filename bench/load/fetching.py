"""Reads a topic back: as a load, timed, or to compare every batch with the one that was sent.

A partition holds copies of one batch, so the place of every batch in an answer is known without reading the ones before
it. The timed load looks at the last batch of each answer only; the check looks at all bytes of all batches.

Rule 1: a log is right when it holds exactly as many batches as were acknowledged, at contiguous offsets, byte for byte
as they were sent except for the two fields that the broker owns: base offset and leader epoch.
"""

import socket
import time
from dataclasses import dataclass

from barnabas.records.batch import BASE_OFFSET_POSITION, HEADER_SIZE, LEADER_EPOCH_POSITION, MAGIC_POSITION, PREFIX
from barnabas.wire.apis import APIS, request_encoder, response_decoder
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from bench.load.requests import CLIENT_ID, build_partition_batch, records_per_batch
from bench.load.spec import LoadError, LoadReport, LoadSpec, quantile

FETCH = APIS[1]
FETCH_VERSION = 12
PARTITION_BYTES_MAX = 1 << 20
MAX_WAIT_MS = 500
# Partitions in one request; a topic of a thousand is read in parts.
REQUEST_PARTITIONS_MAX = 100
REQUEST_BYTES_MAX = 32 << 20
SILENCE_S_MAX = 30.0
# Size and correlation id, and the tagged fields of the header.
ANSWER_HEADER_BYTES = 9

# What the broker may change of a batch, and what it may not.
assert BASE_OFFSET_POSITION == 0
assert PREFIX.size == MAGIC_POSITION == LEADER_EPOCH_POSITION + 4


@dataclass(slots=True, kw_only=True)
class PartitionProgress:
    """How far a partition is read. Every batch of it is `batch`."""

    batch: bytes
    batches_wanted: int
    batches_seen: int = 0
    faults: int = 0


class FetchLoad:
    """One connection that reads a topic from its beginning to what was acknowledged."""

    def __init__(self, spec: LoadSpec, acknowledged: list[int]) -> None:
        self._spec = spec
        self._records = records_per_batch(spec)
        self._progress = {
            partition: PartitionProgress(batch=build_partition_batch(spec, partition), batches_wanted=wanted)
            for partition, wanted in enumerate(acknowledged)
            if wanted
        }
        self._socket = socket.create_connection(("127.0.0.1", spec.port), timeout=SILENCE_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(REQUEST_BYTES_MAX + (1 << 20))

    def read(self, *, compare: bool) -> tuple[int, list[int]]:
        """Read all once: the bytes of batches that came, and the time of every request in nanoseconds."""
        total = 0
        times = []
        for progress in self._progress.values():
            progress.batches_seen = 0
        while unread := [
            p for p, progress in self._progress.items() if progress.batches_seen < progress.batches_wanted
        ]:
            started = time.perf_counter_ns()
            frame = self._exchange(self._request(unread[:REQUEST_PARTITIONS_MAX]))
            times.append(time.perf_counter_ns() - started)
            taken = sum(self._take(partition, compare) for partition in self._partitions(frame))
            if not taken:
                raise LoadError(f"nothing comes of partitions {unread[:10]}, though more was acknowledged")
            total += taken
        return total, times

    def measure(self) -> LoadReport:
        """Read all again and again until the time of the load is over."""
        total, seconds, cpu = 0, 0.0, 0.0
        times: list[int] = []
        while seconds < self._spec.seconds:
            cpu_before, started = time.process_time(), time.perf_counter()
            size, pass_times = self.read(compare=False)
            seconds += time.perf_counter() - started
            cpu += time.process_time() - cpu_before
            total += size
            times += pass_times
        times.sort()
        return LoadReport(
            seconds=seconds,
            requests=len(times),
            bytes=total,
            p50_us=quantile(times, 0.5) / 1e3,
            p99_us=quantile(times, 0.99) / 1e3,
            p999_us=quantile(times, 0.999) / 1e3,
            generator_busy=cpu / seconds,
            acknowledged=[progress.batches_wanted for progress in self._progress.values()],
        )

    @property
    def faults(self) -> int:
        """Batches that are not in the log as they were sent."""
        return sum(progress.faults for progress in self._progress.values())

    def _request(self, partitions: list[int]) -> bytes:
        wanted = [
            FetchPartition(
                partition=partition,
                fetch_offset=self._progress[partition].batches_seen * self._records,
                partition_max_bytes=PARTITION_BYTES_MAX,
            )
            for partition in partitions
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=min(REQUEST_BYTES_MAX, len(partitions) * PARTITION_BYTES_MAX),
            topics=[FetchTopic(topic=self._spec.topic, partitions=wanted)],
        )
        header = RequestHeader(FETCH.key, FETCH_VERSION, 1, CLIENT_ID)
        return b"".join(request_frame(FETCH, header, request_encoder(FETCH, FETCH_VERSION)(request)))

    def _exchange(self, request: bytes) -> memoryview:
        """Send a request and receive its answer into the one buffer."""
        self._socket.sendall(request)
        view = memoryview(self._buffer)
        end = 4
        received = 0
        while received < end:
            count = self._socket.recv_into(view[received:])
            if not count:
                raise LoadError("the broker closed a connection")
            received += count
            if end == 4 and received >= 4:
                end += int.from_bytes(view[:4], "big")
                if end > len(view):
                    raise LoadError(f"an answer has {end} bytes, though {REQUEST_BYTES_MAX} were asked for")
        return view[:end]

    def _partitions(self, frame: memoryview) -> list[PartitionData]:
        response, _ = response_decoder(FETCH, FETCH_VERSION)(frame, ANSWER_HEADER_BYTES)
        if response.error_code or len(response.responses) != 1:
            raise LoadError(f"a fetch is answered with {response}")
        partitions: list[PartitionData] = response.responses[0].partitions
        for partition in partitions:
            if partition.error_code:
                raise LoadError(f"the fetch of partition {partition.partition_index} has error {partition.error_code}")
        return partitions

    def _take(self, partition: PartitionData, compare: bool) -> int:
        """Count the whole batches of a partition's answer, and return their bytes. The last one may be cut off."""
        progress = self._progress[partition.partition_index]
        records = memoryview(partition.records or b"")
        size = len(progress.batch)
        count = len(records) // size
        for index in range(count) if compare else range(max(0, count - 1), count):
            batch = records[index * size : (index + 1) * size]
            base_offset = (progress.batches_seen + index) * self._records
            if not _is_copy(batch, progress.batch, base_offset, HEADER_SIZE if not compare else size):
                progress.faults += 1
        progress.batches_seen += count
        return count * size


def _is_copy(batch: memoryview, sent: bytes, base_offset: int, compared_bytes: int) -> bool:
    """Whether a batch is the one that was sent, at this offset, as far as it is compared."""
    offset, length, _ = PREFIX.unpack_from(batch)
    if offset != base_offset or length != len(sent) - 12:
        return False
    return bytes(batch[MAGIC_POSITION:compared_bytes]) == sent[MAGIC_POSITION:compared_bytes]
