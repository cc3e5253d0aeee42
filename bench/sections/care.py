"""What a broker does to its logs by itself: recovery after a crash, compaction and retention, beside Apache Kafka.

The same is done to both brokers in turns, and ratios of a round are compared. Where Kafka can not be had, Barnabas is
measured alone, and what compares the two is left out.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.control import EARLIEST, LATEST, Control
from bench.load.keyed import KeyedLoad
from bench.load.measuring import run_generator, wait_for_removal
from bench.load.requests import records_per_batch
from bench.load.spec import LoadError, LoadSpec
from bench.measurement import Measurement
from bench.peers import Peer, start_barnabas, start_kafka
from tests.kafka_peer.jars import KAFKA_VERSION, PeerUnavailableError

SETTINGS = {
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 100,
    "log.initial.task.delay.ms": 500,
}
# By default Kafka waits for 9 s until it believes that the broker that was killed is gone. With these it does not.
IMPATIENT = "broker.session.timeout.ms=1000\nbroker.heartbeat.interval.ms=200\n"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
SEGMENT_BYTES = 100 << 20
BATCH_BYTES = 65536
RECORD_BYTES = 100
WAIT_S_MAX = 300.0
PARTITIONS_RESTARTED = 8
PARTITIONS_RETAINED = 100
SEGMENTS_A_PARTITION = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    rounds: int = 3
    restarted_bytes: int = 4_000_000_000
    compacted_bytes: int = 2_000_000_000
    keys: int = 1_000_000
    # Shorter than a clean takes.
    seconds: float = 2.5
    segments: int = SEGMENTS_A_PARTITION

    @classmethod
    def chosen(cls) -> "Plan":
        """The whole plan, or with BENCH_ROUNDS fewer rounds of less, to see that it works."""
        rounds = int(os.environ.get("BENCH_ROUNDS", "0"))
        if not rounds:
            return cls()
        return cls(
            rounds=rounds,
            restarted_bytes=100_000_000,
            compacted_bytes=400_000_000,
            keys=100_000,
            seconds=1.0,
            segments=10,
        )


def run() -> Iterator[Measurement]:
    """Measure everything, in a folder that is removed afterwards."""
    yield from measure(Plan.chosen())


def measure(plan: Plan, start_other: Callable[..., Peer] | None = start_kafka) -> Iterator[Measurement]:
    """Measure as planned, beside another broker if there is one."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    peers: list[Peer] = []
    try:
        peers.append(start_barnabas(folder / "barnabas", SETTINGS))
        if start_other is not None:
            try:
                peers.append(start_other(folder / "kafka", SETTINGS))
            except PeerUnavailableError as reason:
                yield Measurement(name="Apache Kafka", value=0, unit="brokers", note=f"measured alone: {reason}")
        bench = Care(peers, plan)
        yield from bench.restarts()
        yield from bench.compaction()
        yield from bench.produce_beside_a_clean()
        yield from bench.retention()
    finally:
        for peer in peers:
            peer.close()
        shutil.rmtree(folder)


class Care:
    """Runs everything on one broker or two."""

    def __init__(self, peers: list[Peer], plan: Plan) -> None:
        self._peers = peers
        self._plan = plan
        self._topics = 0

    # After a crash.

    def restarts(self) -> Iterator[Measurement]:
        """Kill a broker that has written much and flushed nothing of it, and wait until every partition answers."""
        seconds: dict[str, list[float]] = {peer.name: [] for peer in self._peers}
        ready: dict[str, list[float]] = {peer.name: [] for peer in self._peers}
        for _ in range(self._plan.rounds):
            for peer in self._peers:
                all_s, ready_s = self._restart(peer)
                seconds[peer.name].append(all_s)
                ready[peer.name].append(ready_s)
                self._say(f"restart, {peer.name}", f"{all_s:.2f} s, first answer after {ready_s:.2f} s")
        gigabytes = self._plan.restarted_bytes / 1e9
        for name, found in seconds.items():
            yield Measurement(
                name=f"restart after kill -9, {name}",
                value=statistics.median(found),
                unit="s",
                note=f"{gigabytes:.1f} GB in {PARTITIONS_RESTARTED} partitions, until all answer; the first answer "
                f"after {statistics.median(ready[name]):.2f} s",
            )
        yield from self._ratio("restart after kill -9, times faster than Kafka", seconds, floor=4)
        for peer in self._peers[1:]:
            yield self._impatient_restart(peer, statistics.median(seconds[self._peers[0].name]))

    def _impatient_restart(self, peer: Peer, ours_s: float) -> Measurement:
        """Restart Kafka once more without its wait for the broker that was killed: what is left is its recovery."""
        with (peer.folder / "server.properties").open("a", encoding="utf-8") as file:
            file.write(IMPATIENT)
        peer.kill()
        peer.start()
        all_s, ready_s = self._restart(peer)
        return Measurement(
            name=f"restart after kill -9, {peer.name} with a session time-out of 1 s",
            value=all_s,
            unit="s",
            note=f"one round; {all_s / ours_s:.2f} x our median; the first answer after {ready_s:.2f} s",
        )

    def _restart(self, peer: Peer) -> tuple[float, float]:
        topic = self._next_topic()
        spec = self._spec(peer, topic, partitions=PARTITIONS_RESTARTED, bytes_max=self._plan.restarted_bytes)
        control = Control(peer.port)
        control.create_topic(topic, PARTITIONS_RESTARTED)
        acknowledged = run_generator(peer, "produce", spec).report.acknowledged
        control.close()
        peer.kill()
        started = time.perf_counter()
        peer.start()
        control = Control(peer.port)
        control.wait_for(topic, PARTITIONS_RESTARTED)
        seconds = time.perf_counter() - started
        expected = [count * records_per_batch(spec) for count in acknowledged]
        if control.end_offsets(topic, PARTITIONS_RESTARTED) != expected:
            raise LoadError(f"{peer.name} lost records of {topic}")
        self._delete(control, peer, topic)
        return seconds, peer.ready_s

    # Compaction.

    def compaction(self) -> Iterator[Measurement]:
        """How fast a log is cleaned whose keys were all written again and again."""
        speeds: dict[str, list[float]] = {peer.name: [] for peer in self._peers}
        for _ in range(self._plan.rounds):
            for peer in self._peers:
                cleaning = self._keyed_topic(peer)
                cleaning.begin()
                cleaning.wait()
                speeds[peer.name].append(cleaning.dirty_bytes / cleaning.seconds / 1e6)
                self._say(f"compaction, {peer.name}", f"{speeds[peer.name][-1]:,.0f} MB/s")
                cleaning.close()
        for name, found in speeds.items():
            yield Measurement(
                name=f"compaction, {name}",
                value=statistics.median(found),
                unit="MB/s",
                floor=150 if name == self._peers[0].name else None,
                lower_is_better=False,
                note=f"{self._plan.compacted_bytes / 1e9:.1f} GB, {self._plan.keys:,} keys, records of {RECORD_BYTES} "
                f"bytes; {min(found):,.0f} to {max(found):,.0f} in {len(found)} rounds",
            )

    def _keyed_topic(self, peer: Peer) -> "Cleaning":
        topic = self._next_topic()
        control = Control(peer.port)
        control.create_topic(topic, 1, {"segment.bytes": str(SEGMENT_BYTES), "cleanup.policy": "delete"})
        KeyedLoad(self._spec(peer, topic, partitions=1, bytes_max=0), self._plan.keys).write(self._plan.compacted_bytes)
        os.sync()  # What is measured next must not wait for this to be written back.
        return Cleaning(peer, control, topic)

    def produce_beside_a_clean(self) -> Iterator[Measurement]:
        """What a clean that goes on at the same time does to clients."""
        for peer in self._peers:
            ratios, calm, beside = [], [], []
            for _ in range(self._plan.rounds):
                cleaning = self._keyed_topic(peer)
                before = self._p99(peer)
                cleaning.begin()
                beside.append(self._p99(peer))
                is_over = cleaning.is_over()
                cleaning.wait()
                # Before it the disk may still be busy with what the topic was filled with.
                calm.append(min(before, self._p99(peer)))
                cleaning.close()
                ratios.append(beside[-1] / calm[-1])
                over = ", the clean ended before the load" if is_over else ""
                self._say(f"p99, {peer.name}", f"{calm[-1]:,.0f} us, beside a clean {beside[-1]:,.0f} us{over}")
            yield Measurement(
                name=f"produce p99 while a clean runs, {peer.name}",
                value=statistics.median(ratios),
                unit="x",
                floor=2 if peer is self._peers[0] else None,
                note=f"{statistics.median(calm):,.0f} us without, {statistics.median(beside):,.0f} us with; 1 KB "
                f"batches one after the other; {min(ratios):.2f} to {max(ratios):.2f}",
            )

    def _p99(self, peer: Peer) -> float:
        topic = self._next_topic()
        control = Control(peer.port)
        control.create_topic(topic, 6)
        spec = LoadSpec(
            port=peer.port,
            topic=topic,
            partitions=6,
            record_bytes=RECORD_BYTES,
            batch_bytes=1000,
            in_flight=1,
            seconds=self._plan.seconds,
        )
        report = run_generator(peer, "produce", spec).report
        self._delete(control, peer, topic)
        return report.p99_us

    # Retention.

    def retention(self) -> Iterator[Measurement]:
        """How long it takes until thousands of segments that are too old are gone for every client."""
        peer = self._peers[0]
        count = PARTITIONS_RETAINED * self._plan.segments
        seconds = []
        for _ in range(self._plan.rounds):
            topic = self._next_topic()
            control = Control(peer.port)
            control.create_topic(topic, PARTITIONS_RETAINED, {"segment.bytes": "1000"})
            spec = LoadSpec(
                port=peer.port,
                topic=topic,
                partitions=PARTITIONS_RETAINED,
                record_bytes=RECORD_BYTES,
                batch_bytes=800,
                seconds=WAIT_S_MAX,
                bytes_max=count * 800,
            )
            run_generator(peer, "produce", spec)
            segments = len(list((peer.folder / "data").glob(f"{topic}-*/*.log")))
            ends = control.offsets(topic, PARTITIONS_RETAINED, LATEST)
            os.sync()
            started = time.perf_counter()
            control.alter_topic(topic, {"retention.ms": "1"})
            while control.offsets(topic, PARTITIONS_RETAINED, EARLIEST) != ends:
                if time.perf_counter() - started > WAIT_S_MAX:
                    raise LoadError("segments that are too old do not go")
                time.sleep(0.03)
            seconds.append((time.perf_counter() - started) / segments * 10_000)
            self._say("retention", f"{seconds[-1]:.2f} s for 10,000 segments ({segments:,} were there)")
            self._delete(control, peer, topic)
        yield Measurement(
            name="retention of 10,000 segments",
            value=statistics.median(seconds),
            unit="s",
            floor=1,
            note=f"in {PARTITIONS_RETAINED} partitions, from the change of retention.ms until no client sees them; "
            f"{min(seconds):.2f} to {max(seconds):.2f}",
        )

    # What they share.

    def _spec(self, peer: Peer, topic: str, *, partitions: int, bytes_max: int) -> LoadSpec:
        return LoadSpec(
            port=peer.port,
            topic=topic,
            partitions=partitions,
            record_bytes=RECORD_BYTES,
            batch_bytes=BATCH_BYTES,
            seconds=WAIT_S_MAX,
            bytes_max=bytes_max,
        )

    def _next_topic(self) -> str:
        self._topics += 1
        return f"care-{self._topics:05}"

    def _delete(self, control: Control, peer: Peer, topic: str) -> None:
        control.delete_topic(topic)
        control.close()
        wait_for_removal(peer, topic)

    def _ratio(self, name: str, seconds: dict[str, list[float]], *, floor: float) -> Iterator[Measurement]:
        if len(self._peers) < 2:
            return
        mine, other = (seconds[peer.name] for peer in self._peers)
        ratios = [theirs / ours for ours, theirs in zip(mine, other, strict=True)]
        yield Measurement(
            name=name,
            value=statistics.median(ratios),
            unit="x",
            floor=floor,
            lower_is_better=False,
            note=f"Kafka {KAFKA_VERSION}; {min(ratios):,.3g} to {max(ratios):,.3g}",
        )

    def _say(self, what: str, figure: str) -> None:
        print(f"{what}: {figure}", file=sys.stderr, flush=True)


class Cleaning:
    """A topic of one partition that waits to be cleaned, and the clean of it."""

    def __init__(self, peer: Peer, control: Control, topic: str) -> None:
        self._peer = peer
        self._control = control
        self._topic = topic
        segments = sorted((peer.folder / "data" / f"{topic}-0").glob("*.log"))
        self._target = int(segments[-1].stem)
        self.dirty_bytes = sum(segment.stat().st_size for segment in segments[:-1])
        self._started = 0.0
        self.seconds = 0.0

    def begin(self) -> None:
        """Let the cleaner have it."""
        self._started = time.perf_counter()
        self._control.alter_topic(self._topic, {"cleanup.policy": "compact"})

    def is_over(self) -> bool:
        """Whether the checkpoint says that everything but the active segment is clean."""
        path = self._peer.folder / "data" / CLEANER_CHECKPOINT
        lines = path.read_text(encoding="utf-8").splitlines()[2:] if path.exists() else []
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in map(str.split, lines)}
        return offsets.get((self._topic, 0), 0) >= self._target

    def wait(self) -> None:
        """Wait until it is clean."""
        while not self.is_over():
            if time.perf_counter() - self._started > WAIT_S_MAX:
                raise LoadError(f"{self._peer.name} does not clean {self._topic}")
            time.sleep(0.01)
        self.seconds = time.perf_counter() - self._started

    def close(self) -> None:
        """Delete the topic."""
        self._control.delete_topic(self._topic)
        self._control.close()
        wait_for_removal(self._peer, self._topic)
