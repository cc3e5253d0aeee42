"""The broker: produce, fetch, latency, memory and start, beside Apache Kafka in the same run.

The same loads run on both brokers in turns, and medians of the rounds are compared. Where Kafka can not be had,
Barnabas is measured alone, and the figures that compare the two are left out. Every load is checked: what was
acknowledged is in the log, and comes back byte for byte.
"""

import itertools
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from barnabas.wire.messages.metadata import MetadataRequest
from bench.control import METADATA, Control
from bench.load.measuring import Loaded, Sample, count_faults, produce, run_generator, wait_for_removal
from bench.load.process import measure_generator
from bench.load.spec import LoadSpec
from bench.measurement import Measurement
from bench.peers import KAFKA_JAVA_OPTIONS, Peer, start_barnabas, start_kafka
from bench.process_cost import ProcessCost
from tests.kafka_peer.jars import KAFKA_VERSION, PeerUnavailableError

PARTITIONS = 6
CONNECTIONS_OF_MEMORY_FIGURE = 10
MANY_CONNECTIONS = 1000
MANY_PARTITIONS = 1000
MANY_PRODUCERS = 100
# A broker that has just answered still finishes its start.
SETTLE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long everything lasts."""

    rounds: int = 3
    seconds: float = 4.0
    fetch_seconds: float = 2.0
    # A JVM compiles what it runs often, and is not done after 10 s of load: Kafka gets this much before it is measured.
    warm_seconds: float = 20.0
    starts: int = 5
    # A load ends early when it has written this much, so that the kernel need not write back while it lasts.
    bytes_max: int = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A figure of Barnabas divided by the same figure of Kafka, and what the quotient must keep."""

    what: str
    of: Callable[[Sample], float]
    floor: float
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load by name; its own figure is requests a second, or megabytes."""

    name: str
    record_bytes: int
    batch_bytes: int
    connections: int = 1
    in_flight: int = 5
    counts_requests: bool = False
    share_of_time: float = 1.0
    ratios: tuple[Ratio, ...] = ()

    def spec(self, port: int, topic: str, plan: Plan) -> LoadSpec:
        """The load for one topic of one broker."""
        return LoadSpec(
            port=port,
            topic=topic,
            partitions=PARTITIONS,
            record_bytes=self.record_bytes,
            batch_bytes=self.batch_bytes,
            connections=self.connections,
            in_flight=self.in_flight,
            seconds=plan.seconds * self.share_of_time,
            bytes_max=plan.bytes_max,
        )


def _mb_per_s(sample: Sample) -> float:
    return sample.report.mb_per_s


def _requests_per_s(sample: Sample) -> float:
    return sample.report.requests_per_s


def _cpu_s_per_gb(sample: Sample) -> float:
    return sample.cpu_s_per_gb


def _p50_us(sample: Sample) -> float:
    return sample.report.p50_us


LARGE_BATCHES = Load(
    name="produce, 64 KB batches",
    record_bytes=100,
    batch_bytes=65536,
    ratios=(
        Ratio(what="MB/s", of=_mb_per_s, floor=4),
        Ratio(what="CPU s/GB", of=_cpu_s_per_gb, floor=0.25, lower_is_better=True),
    ),
)
HUGE_BATCHES = Load(
    name="produce, 1 MB batches",
    record_bytes=1024,
    batch_bytes=1_000_000,
    ratios=(Ratio(what="MB/s", of=_mb_per_s, floor=2.5),),
)
SMALL_BATCHES = Load(
    name="produce, 1 KB batches, 4 connections",
    record_bytes=100,
    batch_bytes=1000,
    connections=4,
    counts_requests=True,
    ratios=(Ratio(what="requests/s", of=_requests_per_s, floor=3),),
)
ONE_RECORD = Load(
    name="one record, acks=all",
    record_bytes=100,
    batch_bytes=1,
    in_flight=1,
    counts_requests=True,
    share_of_time=0.5,
    ratios=(Ratio(what="p50", of=_p50_us, floor=0.5, lower_is_better=True),),
)
ONE_RECORD_MANY = replace(ONE_RECORD, name="one record, acks=all, 16 connections", connections=16, ratios=())
LOADS = (LARGE_BATCHES, HUGE_BATCHES, SMALL_BATCHES, ONE_RECORD, ONE_RECORD_MANY)
FETCH = replace(
    LARGE_BATCHES,
    name="fetch, 1 MB a partition, warm",
    ratios=(Ratio(what="MB/s", of=_mb_per_s, floor=1),),
)


def run() -> Iterator[Measurement]:
    """Measure everything, in a folder that is removed afterwards."""
    # Whoever ends the benchmark early ends the brokers and removes the data too.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield from measure(Plan())
    finally:
        signal.signal(signal.SIGTERM, before)


def measure(plan: Plan) -> Iterator[Measurement]:
    """Measure as planned."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    peers: list[Peer] = []
    bench = Bench(plan)
    try:
        yield from bench.generator()
        yield from _starts(folder, plan, peers)
        for peer in peers:
            bench.warm(peer)
        yield from bench.loads(peers)
        yield from bench.memory(peers)
        for peer in peers:
            yield from bench.many(peer)
        yield bench.checked()
    finally:
        for peer in peers:
            peer.close()
        shutil.rmtree(folder)


def _starts(folder: Path, plan: Plan, peers: list[Peer]) -> Iterator[Measurement]:
    """Start the brokers; those that go on running are added to `peers`, Kafka first."""
    ready, resident = [], []
    for number in range(plan.starts):
        peer = start_barnabas(folder / f"barnabas-{number}")
        time.sleep(SETTLE_S)
        ready.append(peer.ready_s)
        resident.append(peer.cost().resident_mb)
        if number < plan.starts - 1:
            peer.close()
        else:
            peers.append(peer)
    note = f"median of {plan.starts} starts with empty data folders, {min(ready):.2f} to {max(ready):.2f}"
    yield Measurement(name="ready, Barnabas", value=statistics.median(ready), unit="s", floor=0.4, note=note)
    yield Measurement(name="RSS after start, Barnabas", value=statistics.median(resident), unit="MB", floor=80)
    try:
        kafka = start_kafka(folder / "kafka")
    except PeerUnavailableError as error:
        yield Measurement(name="Kafkas in this run", value=0, unit="", note=f"Barnabas alone is measured: {error}")
        return
    peers.insert(0, kafka)
    time.sleep(SETTLE_S)
    options = " ".join(KAFKA_JAVA_OPTIONS[:4])
    yield Measurement(name="Kafkas in this run", value=1, unit="", note=f"Apache Kafka {KAFKA_VERSION}, {options}")
    yield Measurement(name="ready, Kafka", value=kafka.ready_s, unit="s", note="one start")
    yield Measurement(name="RSS after start, Kafka", value=kafka.cost().resident_mb, unit="MB")


class Bench:
    """Runs loads and remembers what was found in the logs."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._numbers = itertools.count(1)
        self._checked = 0
        self._faults = 0
        self._faulty: list[str] = []

    def generator(self) -> Iterator[Measurement]:
        """What the generator reaches by itself: with a broker behind it, all figures are lower."""
        plan = replace(self._plan, seconds=min(1.5, self._plan.seconds), bytes_max=1 << 40)
        for load, unit in ((LARGE_BATCHES, "MB/s"), (SMALL_BATCHES, "requests/s")):
            report = measure_generator(load.spec(0, self._topic(), plan))
            value = report.requests_per_s if load.counts_requests else report.mb_per_s
            yield Measurement(
                name=f"{load.name}, no broker",
                value=value,
                unit=unit,
                note="the generator alone, against a server that only counts bytes",
            )

    def warm(self, peer: Peer) -> None:
        """Let a broker run every path for a while."""
        loads = (LARGE_BATCHES, HUGE_BATCHES, SMALL_BATCHES, ONE_RECORD)
        seconds = self._plan.warm_seconds if peer.name == "Kafka" else min(4.0, self._plan.warm_seconds)
        plan = replace(self._plan, seconds=seconds / len(loads))
        for load in loads:
            self._run(peer, load, plan, fetch_seconds=0.5 if load is LARGE_BATCHES else 0.0)

    def loads(self, peers: list[Peer]) -> Iterator[Measurement]:
        """All loads on all brokers in turns."""
        for load in LOADS:
            fetch_seconds = self._plan.fetch_seconds if load is LARGE_BATCHES else 0.0
            found: dict[str, list[Loaded]] = {peer.name: [] for peer in peers}
            for _ in range(self._plan.rounds):
                for peer in peers:
                    found[peer.name].append(self._run(peer, load, self._plan, fetch_seconds))
            yield from rows(load, {name: [loaded.produced for loaded in rounds] for name, rounds in found.items()})
            if load is LARGE_BATCHES:
                fetched = {
                    name: [loaded.fetched for loaded in rounds if loaded.fetched is not None]
                    for name, rounds in found.items()
                }
                yield from rows(FETCH, fetched)

    def memory(self, peers: list[Peer]) -> Iterator[Measurement]:
        """The most memory that a broker took while ten connections wrote."""
        plan = replace(self._plan, seconds=self._plan.seconds / 2, bytes_max=self._plan.bytes_max // 2)
        for peer in peers:
            resident = {}
            for load in (LARGE_BATCHES, HUGE_BATCHES, SMALL_BATCHES):
                wide = replace(load, connections=CONNECTIONS_OF_MEMORY_FIGURE)
                resident[load.name] = self._run(peer, wide, plan, 0.0).produced.resident_mb_max
            yield Measurement(
                name=f"RSS under load, {CONNECTIONS_OF_MEMORY_FIGURE} connections, {peer.name}",
                value=max(resident.values()),
                unit="MB",
                floor=200 if peer.name == "Barnabas" else None,
                note="64 KB, 1 MB, 1 KB batches: " + ", ".join(f"{value:.0f}" for value in resident.values()),
            )

    def many(self, peer: Peer) -> Iterator[Measurement]:
        """A thousand connections, a thousand partitions and a hundred producers, and what each costs."""
        allow_open_files(2 * MANY_CONNECTIONS)
        before, started = peer.cost(), time.perf_counter()
        connections: list[Control] = []
        try:
            # One after the other: a broker may keep fewer waiting than come at once, and then they wait for a second.
            for _ in range(MANY_CONNECTIONS):
                connections.append(Control(peer.port))
                connections[-1].ask(METADATA, MetadataRequest(topics=[]))
            yield _cost_row(peer, before, f"{MANY_CONNECTIONS:,} connections, each answered", started)
            before, started = peer.cost(), time.perf_counter()
            for connection in connections:
                connection.send(METADATA, MetadataRequest(topics=[]))
            for connection in connections:
                connection.receive(METADATA)
            yield _cost_row(peer, before, f"{MANY_CONNECTIONS:,} connections, all asking at once", started)
            topic = self._topic()
            before, started = peer.cost(), time.perf_counter()
            connections[0].create_topic(topic, MANY_PARTITIONS)
            yield _cost_row(peer, before, f"topic of {MANY_PARTITIONS:,} partitions, led", started)
            name = f"{MANY_PRODUCERS} producers at once, 1 KB batches, {MANY_PARTITIONS:,} partitions"
            load = replace(SMALL_BATCHES, name=name, connections=MANY_PRODUCERS, ratios=())
            spec = replace(load.spec(peer.port, topic, self._plan), partitions=MANY_PARTITIONS, own_partitions=True)
            # The first append to a partition opens its files, which is another figure than the appends after it.
            first = run_generator(peer, "produce", replace(spec, bytes_max=2 * MANY_PARTITIONS * load.batch_bytes))
            yield Measurement(
                name=f"first batches of {MANY_PARTITIONS:,} partitions, {peer.name}",
                value=first.report.seconds,
                unit="s",
                note=f"{first.report.requests:,} requests, {first.cpu_s:.2f} CPU s; RSS {first.resident_mb_max:.0f} MB",
            )
            sample = run_generator(peer, "produce", spec)
            both = zip(first.report.acknowledged, sample.report.acknowledged, strict=True)
            self._count(peer, load, sample, count_faults(connections[0], spec, [sum(pair) for pair in both]))
            connections[0].delete_topic(topic)
        finally:
            for connection in connections:
                connection.close()
        wait_for_removal(peer, topic)
        yield from rows(load, {peer.name: [sample]})

    def checked(self) -> Measurement:
        """Whether everything that was acknowledged could be read back."""
        return Measurement(
            name="acknowledged batches not read back as sent",
            value=self._faults,
            unit="batches",
            floor=0,
            note="; ".join([f"of {self._checked:,} that were compared byte for byte", *self._faulty]),
        )

    def _run(self, peer: Peer, load: Load, plan: Plan, fetch_seconds: float) -> Loaded:
        loaded = produce(peer, load.spec(peer.port, self._topic(), plan), fetch_seconds=fetch_seconds)
        self._count(peer, load, loaded.produced, loaded.faults)
        return loaded

    def _count(self, peer: Peer, load: Load, sample: Sample, faults: int) -> None:
        """Remember what was checked, and show how far we are."""
        self._checked += sample.report.requests
        self._faults += faults
        if faults:
            self._faulty.append(f"{faults} in {load.name}, {peer.name}")
        shown = f"{peer.name}, {load.name}: {_described(sample)}" + (f", {faults} FAULTS" if faults else "")
        print(shown, file=sys.stderr, flush=True)

    def _topic(self) -> str:
        # Names of one length, so that all loads have frames of the same size.
        return f"bench-{next(self._numbers):04}"


def _median(samples: list[Sample], of: Callable[[Sample], float]) -> float:
    return statistics.median(of(sample) for sample in samples)


def rows(load: Load, found: dict[str, list[Sample]]) -> Iterator[Measurement]:
    """The figures of each broker, then those that compare them."""
    for name, samples in found.items():
        yield Measurement(
            name=f"{load.name}, {name}",
            value=_median(samples, _requests_per_s if load.counts_requests else _mb_per_s),
            unit="requests/s" if load.counts_requests else "MB/s",
            note=_note(load, samples),
        )
    if "Kafka" not in found:
        return
    for ratio in load.ratios:
        ours, theirs = _median(found["Barnabas"], ratio.of), _median(found["Kafka"], ratio.of)
        yield Measurement(
            name=f"{load.name}, {ratio.what} against Kafka",
            value=ours / theirs,
            unit="x",
            floor=ratio.floor,
            lower_is_better=ratio.lower_is_better,
            note=f"{ours:,.4g} and {theirs:,.4g}",
        )


def _note(load: Load, samples: list[Sample]) -> str:
    p50, p99, p999 = (
        _median(samples, lambda sample, name=name: getattr(sample.report, name))  # type: ignore[misc]
        for name in ("p50_us", "p99_us", "p999_us")
    )
    if load.counts_requests:
        cpu = f"{_median(samples, lambda sample: sample.cpu_us_per_request):.1f} us CPU each"
    else:
        cpu = f"{_median(samples, _cpu_s_per_gb):.2f} CPU s/GB"
    resident = max(sample.resident_mb_max for sample in samples)
    busy = _median(samples, lambda sample: sample.report.generator_busy)
    return (
        f"p50 {p50:,.0f}, p99 {p99:,.0f}, p99.9 {p999:,.0f} us; {cpu}; RSS {resident:.0f} MB; generator {busy:.0%} busy"
    )


def _described(sample: Sample) -> str:
    report = sample.report
    return (
        f"{report.mb_per_s:,.1f} MB/s, {report.requests_per_s:,.0f} requests/s, p50 {report.p50_us:,.0f} us, "
        f"{sample.cpu_s_per_gb:.2f} CPU s/GB, {sample.cpu_us_per_request:.1f} us CPU a request"
    )


def _cost_row(peer: Peer, before: ProcessCost, name: str, started: float) -> Measurement:
    seconds = time.perf_counter() - started
    after = peer.cost()
    more = after.resident_mb - before.resident_mb
    note = f"{after.cpu_s - before.cpu_s:.2f} CPU s; RSS {after.resident_mb:.0f} MB, {more:+.1f}"
    return Measurement(name=f"{name}, {peer.name}", value=seconds, unit="s", note=note)


def allow_open_files(count: int) -> None:
    """Let this process have so many files and sockets open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
