"""One long run: a broker that compacts, deletes and is restarted under load, measured every second, and checked.

    start --> clients and nemesis --> kill --> clients alone, in one long life --> kill --> read all --> stop, verify

Rule 1: the first part has the faults. In the second nobody does harm, so that one life is long enough to be judged.
Rule 2: everything that is chosen is chosen by the seed.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from checker.analysis import analyse, fault_counts
from checker.care import clients
from checker.care.clients import Care
from checker.care.keyed_ledger import KeyedLedger
from checker.care.page import page
from checker.care.rolling_ledger import Retention, RollingLedger
from checker.care.samples import Level, Sample, Sampler, growth, judge
from checker.history import Fault, History, Operation, read_history
from checker.model import Finding
from checker.nemesis import Nemesis
from checker.run import join_clients, start_client, verify
from checker.workload.raw import GaveUpError
from checker.workload.world import World, partition_name

KEYED, BY_SIZE, BY_AGE = "accounts", "rolling", "recent"
KEYED_PARTITIONS = 2
TOMBSTONE_MS = 8_000
RETENTION_BYTES = 300_000
RETENTION_MS = 4_000
SHARE_WITH_FAULTS = 0.6

SETTINGS = {
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.segment.delete.delay.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "log.retention.ms": -1,
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    KEYED: (
        KEYED_PARTITIONS,
        {
            "cleanup.policy": "compact",
            "segment.bytes": "60000",
            "min.cleanable.dirty.ratio": "0.05",
            "delete.retention.ms": str(TOMBSTONE_MS),
        },
    ),
    BY_SIZE: (1, {"segment.bytes": "60000", "retention.bytes": str(RETENTION_BYTES), "retention.ms": "-1"}),
    BY_AGE: (1, {"segment.bytes": "60000", "segment.ms": "1500", "retention.ms": str(RETENTION_MS)}),
}

CLIENTS: tuple[tuple[str, Callable[[Care, str], None]], ...] = (
    *((f"keyed-writer-{number}", clients.run_keyed_writer) for number in range(2)),
    *((f"keyed-reader-{number}", clients.run_keyed_reader) for number in range(2)),
    *((f"rolling-writer-{number}", clients.run_rolling_writer) for number in range(2)),
    *((f"rolling-reader-{number}", clients.run_rolling_reader) for number in range(2)),
    ("remover", clients.run_remover),
    ("churner", clients.run_churner),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CareResult:
    """What came of a long run."""

    seed: int
    findings: list[Finding]
    counts: Counter[str]
    faults: Counter[str]
    samples: list[Sample]
    levels: list[Level]
    page: Path


def care_of(world: World, retention_bytes: int = RETENTION_BYTES) -> Care:
    """The ledgers of all partitions; what they find is trouble."""

    def complain(kind: str, sentence: str) -> None:
        world.trouble(kind, sentence)

    keyed = [partition_name(KEYED, index) for index in range(KEYED_PARTITIONS)]
    by_size, by_age = partition_name(BY_SIZE, 0), partition_name(BY_AGE, 0)
    return Care(
        world=world,
        keyed={name: KeyedLedger(name, complain) for name in keyed},
        rolling={
            by_size: RollingLedger(by_size, Retention(size_bytes=retention_bytes), complain),
            by_age: RollingLedger(by_age, Retention(age_ms=RETENTION_MS), complain),
        },
        tombstone_s=TOMBSTONE_MS / 2000,
    )


def settings_for(seed: int) -> dict[str, object]:
    """The settings of the broker, some of them chosen by the seed."""
    chance = random.Random(f"{seed} care settings")
    return {**SETTINGS, "log.flush.interval.messages": chance.choice([1, 2**63 - 1, 2**63 - 1])}


def run_care(seed: int, seconds: float, folder: Path) -> CareResult:
    """Run for some seconds, and find out whether the broker kept its word and stayed level."""
    history = History(folder / "history.jsonl")
    data = folder / "data"
    with Broker(data=data, settings=settings_for(seed)) as broker:
        world = World(bootstrap_servers=broker.bootstrap_servers, history=history, seed=seed)
        care = care_of(world)
        nemesis = Nemesis(broker, history, seed)
        with Client(broker.bootstrap_servers) as client:
            topics = [NewTopic(name=name, partitions=count, configs=more) for name, (count, more) in TOPICS.items()]
            failures = create_topics(client, topics)
            assert not failures, failures
        sampler = Sampler(lambda: broker.pid if broker.is_running else None, data, history.now)
        threads = [start_client(world, name, guarded(care, run)) for name, run in CLIENTS]
        try:
            nemesis.run(history.now() + seconds * SHARE_WITH_FAULTS)
            nemesis.do("kill")  # A short run may have had pauses only, and the long life is to begin with a recovery.
            SystemClock().sleep(seconds * (1 - SHARE_WITH_FAULTS))
        finally:
            samples = sampler.stop()
            world.stopping.set()
            join_clients(world, threads)
        nemesis.do("kill")
        clients.check_everything(care)
        nemesis.stop()
    verify(world, data)
    history.close()
    return _result(seed, read_history(history.path), care, samples, folder / "report.html")


def guarded(care: Care, run: Callable[[Care, str], None]) -> Callable[[World, str], None]:
    """A client that stops where it can not go on."""

    def client(_: World, name: str) -> None:
        try:
            run(care, name)
        except GaveUpError:
            pass  # Why is written down.

    return client


def _result(seed: int, operations: list[Operation], care: Care, samples: list[Sample], path: Path) -> CareResult:
    levels = judge(samples)
    findings = [*analyse(operations), *growth(levels)]
    faults = [
        (operation.completed, operation.body.action) for operation in operations if isinstance(operation.body, Fault)
    ]
    path.write_text(page(f"Long run, seed {seed}", samples, faults, levels, care.counts, findings), encoding="utf-8")
    return CareResult(
        seed=seed,
        findings=findings,
        counts=care.counts,
        faults=fault_counts(operations),
        samples=samples,
        levels=levels,
        page=path,
    )
