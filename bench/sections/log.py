"""The log on disk: append, recovery, opening, reading and the kernel, on one core.

Every figure is from this one run. Appends are measured against a bare `pwrite` of the same bytes, in turns, because
what a write to the page cache costs changes from minute to minute.
"""

import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.records import kernel
from barnabas.records.batch import HEADER_SIZE, read_header
from barnabas.records.builder import build_batch
from barnabas.storage.files import OsFiles
from barnabas.storage.loader import LastKnown, load_log
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager, LogManagerOptions
from barnabas.storage.log_types import LogOptions
from barnabas.storage.segment import OpenSegments
from bench.measurement import Measurement

RECORD_BYTES = 100
BATCH_BYTES = 65536
ROUNDS = 21
APPENDS_A_ROUND = 400
GB = 1e9

PARTITIONS = 1000
SEGMENTS_A_PARTITION = 10


def run() -> Iterator[Measurement]:
    """Measure everything on one core, in a folder that is removed afterwards."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        yield from _kernel()
        yield from _append(folder)
        yield from _recovery(folder, BATCH_BYTES, 1 << 30, floor=1.5)
        yield from _recovery(folder, 1024, 128 << 20, floor=None)
        yield from _random_reads(folder)
        yield from _clean_open(folder)
    finally:
        shutil.rmtree(folder)
        os.sched_setaffinity(0, cores)


def _batch(size: int) -> bytearray:
    now_ms = SystemClock().now_ms()
    records = [(now_ms, None, os.urandom(RECORD_BYTES), ()) for _ in range(max(1, size // (RECORD_BYTES + 10)))]
    return build_batch(records)


def _open(directory: Path, known: LastKnown, **settings: int) -> Log:
    return load_log(
        LogOptions(
            files=OsFiles(),
            clock=SystemClock(),
            directory=str(directory),
            config=LogConfig(**settings),  # type: ignore[arg-type]
            open_segments=OpenSegments(),
        ),
        known,
    )


def _cpu(action: Callable[[], None]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _kernel() -> Iterator[Measurement]:
    batch = _batch(BATCH_BYTES)
    header = read_header(batch)
    body = memoryview(batch)[HEADER_SIZE:]

    def check() -> None:
        for _ in range(200):
            kernel.check_records(body, header.count, True, header.last_offset_delta)

    check()
    seconds = statistics.median(_cpu(check) for _ in range(ROUNDS))
    yield Measurement(
        name="check a 100-byte record",
        value=seconds / 200 / header.count * 1e9,
        unit="ns",
        floor=20,
        note="compiled" if kernel.COMPILED else "NOT compiled",
    )


def _append(folder: Path) -> Iterator[Measurement]:
    batch = memoryview(_batch(BATCH_BYTES))
    log = _open(folder / "append-0", LastKnown(), segment_bytes=1 << 30)
    bare = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    position = 0

    def append() -> None:
        for _ in range(APPENDS_A_ROUND):
            log.append_as_leader(batch, 0)

    def write() -> None:
        nonlocal position
        for _ in range(APPENDS_A_ROUND):
            os.pwrite(bare, batch, position)
            position += len(batch)

    append()
    write()
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(_cpu(write))
        ours.append(_cpu(append))
    size = APPENDS_A_ROUND * len(batch) / GB
    log.abandon()
    os.close(bare)
    ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    cpu = statistics.median(ours) / size
    yield Measurement(
        name="append, 64 KB batches", value=cpu, unit="CPU s/GB", note=f"{1 / cpu:.2f} GB/s, every record checked"
    )
    yield Measurement(name="bare pwrite of the same", value=statistics.median(theirs) / size, unit="CPU s/GB")
    yield Measurement(name="append against bare pwrite", value=ratio, unit="x", floor=2, note="median of the rounds")


def _recovery(folder: Path, batch_bytes: int, total_bytes: int, floor: float | None) -> Iterator[Measurement]:
    directory = folder / f"recovery{batch_bytes}-0"
    batch = memoryview(_batch(batch_bytes))
    log = _open(directory, LastKnown(), segment_bytes=256 << 20)
    for _ in range(total_bytes // len(batch)):
        log.append_as_leader(batch, 0)
    size = log.size_bytes / GB
    log.abandon()
    walls, cpus = [], []
    for _ in range(5):
        started, cpu = time.perf_counter(), time.process_time()
        recovered = _open(directory, LastKnown(), segment_bytes=256 << 20)
        walls.append(time.perf_counter() - started)
        cpus.append(time.process_time() - cpu)
        assert recovered.log_end_offset == log.log_end_offset
        recovered.abandon()
    shutil.rmtree(directory)
    label = f"{batch_bytes // 1024} KB"
    yield Measurement(
        name=f"recovery with index rebuild, {label} batches",
        value=size / statistics.median(walls),
        unit="GB/s",
        floor=floor,
        lower_is_better=False,
        note=f"warm, {statistics.median(cpus) / size:.2f} CPU s/GB",
    )


def _random_reads(folder: Path) -> Iterator[Measurement]:
    batch = memoryview(_batch(BATCH_BYTES))
    log = _open(folder / "read-0", LastKnown(), segment_bytes=40 * len(batch))
    while len(log.segments) < 100:
        log.append_as_leader(batch, 0)
    log.update_high_watermark(log.log_end_offset)
    chance = random.Random(1)
    offsets = [chance.randrange(log.log_end_offset) for _ in range(20_000)]

    def read() -> None:
        for offset in offsets:
            log.read(offset, 1 << 20, log.high_watermark, min_one_message=True)

    read()
    seconds = statistics.median(_cpu(read) for _ in range(5))
    log.abandon()
    yield Measurement(
        name="find a random offset, 100 segments", value=seconds / len(offsets) * 1e6, unit="us", floor=30
    )


def _manager(folder: Path) -> LogManager:
    return LogManager(
        LogManagerOptions(
            files=OsFiles(),
            clock=SystemClock(),
            config=LogManagerConfig(log_dirs=(str(folder / "open"),)),
            topic_config=lambda _: LogConfig(),
        )
    )


def _clean_open(folder: Path) -> Iterator[Measurement]:
    manager = _manager(folder)
    manager.start()
    batch = memoryview(_batch(1024))
    for partition in range(PARTITIONS):
        log = manager.get_or_create_log(TopicPartition("bench", partition))
        for segment in range(SEGMENTS_A_PARTITION):
            log.append_as_leader(batch, 0)
            if segment < SEGMENTS_A_PARTITION - 1:
                log.roll()
    manager.shutdown()
    walls, cpus = [], []
    for _ in range(3):
        manager = _manager(folder)
        started, cpu = time.perf_counter(), time.process_time()
        manager.start()
        walls.append(time.perf_counter() - started)
        cpus.append(time.process_time() - cpu)
        assert sum(len(managed.log.segments) for managed in manager.current_logs.values()) == 10_000
        manager.shutdown()
    yield Measurement(
        name="clean open, 1,000 partitions, 10,000 segments",
        value=statistics.median(walls),
        unit="s",
        floor=1.5,
        note=f"{statistics.median(cpus):.2f} CPU s",
    )
