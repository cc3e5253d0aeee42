"""Groups and transactions: how fast members settle, and what commits and transactions cost the broker.

One broker, a process of its own, and clients that speak the protocol from this process. What is compared runs in turns,
and medians are compared; the first round is not counted.
"""

import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.control import Control
from bench.groups.committing import CommitLoad
from bench.groups.frames import GROUP, find_coordinator, open_connection
from bench.groups.settling import Settling
from bench.groups.transacting import Kind, Producing
from bench.load.measuring import wait_for_removal
from bench.load.spec import LoadError
from bench.measurement import Measurement
from bench.peers import Peer, start_barnabas
from bench.process_cost import TICKS_A_SECOND
from bench.sections.broker import allow_open_files

SETTINGS = {"group.initial.rebalance.delay.ms": 0}
GROUPS, MEMBERS_A_GROUP = 100, 10
COMMITTERS, COMMITS_IN_FLIGHT = 8, 5
PARTITIONS = 6
LARGE_BATCH_BYTES, PRODUCE_IN_FLIGHT, BATCHES_A_TRANSACTION = 65536, 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything, in each round."""

    rounds: int = 5
    settlings: int = 3
    commits: int = 4_000
    """On each connection."""
    transactions: int = 1_200
    large_rounds: int = 12
    """Of large batches: what a write to the page cache costs differs most from one moment to the next."""
    large_batches: int = 3_000

    @classmethod
    def chosen(cls) -> "Plan":
        """The whole plan, or with BENCH_ROUNDS fewer rounds and less in each, to see that it works."""
        rounds = int(os.environ.get("BENCH_ROUNDS", "0"))
        if not rounds:
            return cls()
        return cls(rounds=rounds, settlings=1, commits=500, transactions=50, large_rounds=rounds, large_batches=600)


def run() -> Iterator[Measurement]:
    """Measure everything, in a folder that is removed afterwards."""
    yield from measure(Plan.chosen())


def measure(plan: Plan) -> Iterator[Measurement]:
    """Measure as planned."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    peer = None
    try:
        peer = start_barnabas(folder / "barnabas", SETTINGS)
        bench = Bench(peer, plan)
        yield from bench.settling()
        yield from bench.committing()
        yield from bench.transactions()
        yield from bench.throughput()
    finally:
        if peer is not None:
            peer.close()
        shutil.rmtree(folder)


class Bench:
    """Runs the loads on one broker."""

    def __init__(self, peer: Peer, plan: Plan) -> None:
        self._peer = peer
        self._plan = plan
        self._numbers = itertools.count(1)

    def settling(self) -> Iterator[Measurement]:
        """A thousand members join a hundred groups at once."""
        allow_open_files(2 * GROUPS * MEMBERS_A_GROUP)
        with open_connection(self._peer.port) as connection:
            for number in range(GROUPS):
                find_coordinator(connection, f"group-{number}", GROUP)
        self._settle(GROUPS // 10)
        rounds = [self._settle(GROUPS) for _ in range(self._plan.settlings)]
        seconds, cpu_s, requests = (statistics.median(column) for column in zip(*rounds, strict=True))
        yield Measurement(
            name=f"{GROUPS * MEMBERS_A_GROUP:,} members in {GROUPS} groups settle",
            value=seconds,
            unit="s",
            floor=3,
            note=f"{cpu_s:.2f} CPU s of the broker, {requests:,.0f} requests; median of {len(rounds)}",
        )

    def _settle(self, count: int) -> tuple[float, float, int]:
        settling = Settling(self._peer.port, [self._name("settling") for _ in range(count)], MEMBERS_A_GROUP)
        try:
            before = self._peer.cost().cpu_s
            seconds = settling.run()
            return seconds, self._peer.cost().cpu_s - before, settling.requests
        finally:
            settling.close()

    def committing(self) -> Iterator[Measurement]:
        """Members commit as fast as they are answered, several at a time as other loads do, and one at a time."""
        yield self._commits("one offset commit", COMMITS_IN_FLIGHT, floor=60)
        yield self._commits("one offset commit, the next only after its answer", 1, floor=None)

    def _commits(self, name: str, in_flight: int, floor: float | None) -> Measurement:
        topic = self._create_topic(1)
        groups = [self._name("committing") for _ in range(COMMITTERS)]
        load = CommitLoad(self._peer.port, topic, groups, in_flight)
        try:
            cpus, walls = [], []
            for number in range(self._plan.rounds + 1):
                before = self._peer.cost().cpu_s
                seconds = load.run(self._plan.commits)
                if number:
                    cpus.append((self._peer.cost().cpu_s - before) / self._plan.commits / COMMITTERS)
                    walls.append(seconds)
            load.check()
        finally:
            load.close()
        self._delete_topic(topic)
        rate = self._plan.commits * COMMITTERS / statistics.median(walls)
        return Measurement(
            name=name,
            value=statistics.median(cpus) * 1e6,
            unit="us CPU",
            floor=floor,
            note=f"{COMMITTERS} connections, {in_flight} in flight; {rate:,.0f} commits/s; "
            f"{_spread([cpu * 1e6 for cpu in cpus])}",
        )

    def transactions(self) -> Iterator[Measurement]:
        """Transactions of one record a partition, and the same produce requests without one."""
        topic = self._create_topic(PARTITIONS)
        producers = {kind: Producing(self._peer.port, topic, PARTITIONS, kind) for kind in Kind}
        cpus: dict[Kind, list[float]] = {kind: [] for kind in Kind}
        for number in range(self._plan.rounds + 1):
            for kind, producer in producers.items():
                before = self._peer.cost().cpu_s
                producer.run_one_each(self._plan.transactions)
                # The kernel counts in ticks, and with BENCH_ROUNDS a round may be too short for one.
                spent = max(self._peer.cost().cpu_s - before, 1 / TICKS_A_SECOND)
                if number:
                    cpus[kind].append(spent / self._plan.transactions * 1e6)
        self._check(topic, list(producers.values()))
        self._delete_topic(topic)
        plain = statistics.median(cpus[Kind.PLAIN])
        yield Measurement(
            name=f"{PARTITIONS} produce requests of one record",
            value=plain,
            unit="us CPU",
            note=f"idempotent, one after the other; {_spread(cpus[Kind.PLAIN])}",
        )
        for kind in (Kind.VERSION_2, Kind.VERSION_1):
            ratios = [mine / other for mine, other in zip(cpus[kind], cpus[Kind.PLAIN], strict=True)]
            cpu_us, again = statistics.median(cpus[kind]), producers[kind].answers_to_come_again
            yield Measurement(
                name=f"the same in a transaction, {kind.value}",
                value=statistics.median(ratios),
                unit="x",
                floor=3,
                note=f"{cpu_us:,.0f} us CPU; {_spread(ratios)}; told {again} times to come again",
            )
        for producer in producers.values():
            producer.close()

    def throughput(self) -> Iterator[Measurement]:
        """Large batches, in transactions and without; in turns, of which each has the other first."""
        speeds: dict[Kind, list[float]] = {Kind.PLAIN: [], Kind.VERSION_2: []}
        cpus: dict[Kind, list[float]] = {Kind.PLAIN: [], Kind.VERSION_2: []}
        for number in range(self._plan.large_rounds + 1):
            # The first one of a round leaves its pages to the disk while the second one runs.
            for kind in speeds if number % 2 else reversed(speeds):
                mb_per_s, cpu_s_per_gb, busy = self._stream(kind)
                shown = f"{kind.value}: {mb_per_s:,.0f} MB/s, {cpu_s_per_gb:.2f} CPU s/GB, generator {busy:.0%} busy"
                print(shown, file=sys.stderr, flush=True)
                if number:
                    speeds[kind].append(mb_per_s)
                    cpus[kind].append(cpu_s_per_gb)
        for kind, found in speeds.items():
            yield Measurement(
                name=f"produce, 64 KB batches, {kind.value}",
                value=statistics.median(found),
                unit="MB/s",
                note=f"{statistics.median(cpus[kind]):.2f} CPU s/GB; {_spread(found)}",
            )
        ratios = [mine / other for mine, other in zip(speeds[Kind.VERSION_2], speeds[Kind.PLAIN], strict=True)]
        yield Measurement(
            name="produce in transactions against plain",
            value=statistics.median(ratios),
            unit="x",
            floor=0.8,
            lower_is_better=False,
            note=f"MB/s, transactions of {BATCHES_A_TRANSACTION} batches; {_spread(ratios)}",
        )

    def _stream(self, kind: Kind) -> tuple[float, float, float]:
        topic = self._create_topic(PARTITIONS)
        producer = Producing(self._peer.port, topic, PARTITIONS, kind, LARGE_BATCH_BYTES)
        count = self._plan.large_batches
        before, own_before = self._peer.cost().cpu_s, time.process_time()
        seconds = producer.stream(count, PRODUCE_IN_FLIGHT, BATCHES_A_TRANSACTION)
        cpu_s, own_cpu_s = self._peer.cost().cpu_s - before, time.process_time() - own_before
        self._check(topic, [producer])
        producer.close()
        self._delete_topic(topic)
        size = count * producer.batch_bytes
        return size / seconds / 1e6, cpu_s / size * 1e9, own_cpu_s / seconds

    def _check(self, topic: str, producers: list[Producing]) -> None:
        """Every partition ends behind all records, and a marker for each transaction that wrote to it."""
        control = Control(self._peer.port)
        ends = control.end_offsets(topic, PARTITIONS)
        control.close()
        markers = sum(producer.transactions for producer in producers)
        wanted = [sum(producer.sent[index] for producer in producers) + markers for index in range(PARTITIONS)]
        if ends != wanted:
            raise LoadError(f"{topic} ends at {ends}, though {wanted} was acknowledged")

    def _create_topic(self, partitions: int) -> str:
        topic = self._name("bench")
        control = Control(self._peer.port)
        control.create_topic(topic, partitions)
        control.close()
        return topic

    def _delete_topic(self, topic: str) -> None:
        control = Control(self._peer.port)
        control.delete_topic(topic)
        control.close()
        wait_for_removal(self._peer, topic)

    def _name(self, word: str) -> str:
        return f"{word}-{next(self._numbers):05}"


def _spread(values: list[float]) -> str:
    return f"{min(values):,.4g} to {max(values):,.4g} in {len(values)} rounds"
