"""One run: a broker, its clients, the nemesis, the reading of everything at the end, and the analysis.

    start --> clients and nemesis for some seconds --> clients finish --> one more kill --> read all --> stop, verify

Rule 1: everything that is chosen is chosen by the seed, the broker's settings too. What threads make of it differs from
run to run all the same; the history is kept, and is what a finding is looked up in.
"""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from checker.analysis import analyse
from checker.history import READ_COMMITTED, READ_UNCOMMITTED, FinalRead, History, Operation, Seen, read_history
from checker.model import Finding
from checker.nemesis import Nemesis
from checker.workload import consumers, producers, raw, transforms
from checker.workload.world import (
    HEARTBEAT_MS,
    INPUT_TOPIC,
    OUTPUT_PARTITIONS,
    OUTPUT_TOPIC,
    PARTITIONS,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    World,
    partition_name,
)

CLASSIC_GROUP, CONSUMER_GROUP = "classic", "consumer"
GROUPS = (CLASSIC_GROUP, CONSUMER_GROUP, transforms.GROUP)
NAME = "final"
VERIFY_TIMEOUT_S = 120
# Longer than a client's patience: whoever is still busy then is stuck.
JOIN_TIMEOUT_S = 3 * PATIENCE_S
LOGS = [
    *(partition_name(INPUT_TOPIC, index) for index in range(PARTITIONS)),
    *(partition_name(OUTPUT_TOPIC, index) for index in range(OUTPUT_PARTITIONS)),
]

Client_ = tuple[str, Callable[[World, str], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a run."""

    seed: int
    history: Path
    operations: list[Operation]
    findings: list[Finding]


def settings_for(seed: int) -> dict[str, object]:
    """The settings of the broker: what makes waiting short, and some that the seed chooses."""
    chance = random.Random(f"{seed} settings")
    return {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
        "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "offsets.topic.num.partitions": chance.choice([1, 3, 50]),
        "transaction.state.log.num.partitions": chance.choice([1, 3, 50]),
        # Segments are rolled all the time, those of the coordinators too.
        "log.segment.bytes": chance.choice([20_000, 200_000, 1 << 30]),
        "offsets.topic.segment.bytes": chance.choice([20_000, 100 << 20]),
        "transaction.state.log.segment.bytes": chance.choice([20_000, 100 << 20]),
        # With every record on the disk before it counts, all answers come later than what they are about.
        "log.flush.interval.messages": chance.choice([1, 2**63 - 1, 2**63 - 1]),
    }


def clients(chance: random.Random) -> list[Client_]:
    """Everybody who takes part."""
    protocol = chance.choice(["classic", "consumer"])
    return [
        *((f"plain-{number}", producers.run_plain) for number in range(2)),
        *((f"transactional-{number}", producers.run_transactional) for number in range(2)),
        *((f"raw-{number}", raw.run_raw_transactional) for number in range(2)),
        ("committed", lambda world, name: consumers.run_assigned(world, name, READ_COMMITTED)),
        ("uncommitted", lambda world, name: consumers.run_assigned(world, name, READ_UNCOMMITTED)),
        *(
            (f"{group}-{number}", lambda world, name, group=group: consumers.run_member(world, name, group, group))
            for group in (CLASSIC_GROUP, CONSUMER_GROUP)
            for number in range(2)
        ),
        *(
            (f"transformer-{number}", lambda world, name: transforms.run_transformer(world, name, protocol))
            for number in range(2)
        ),
        ("watcher", lambda world, name: raw.run_watcher(world, name, GROUPS)),
    ]


def run(seed: int, seconds: float, folder: Path) -> Result:
    """Run for some seconds, and find out whether the broker kept its word. Data and history are left in the folder."""
    history = History(folder / "history.jsonl")
    with Broker(data=folder / "data", settings=settings_for(seed)) as broker:
        world = World(bootstrap_servers=broker.bootstrap_servers, history=history, seed=seed)
        nemesis = Nemesis(broker, history, seed)
        with Client(broker.bootstrap_servers) as client:
            topics = {INPUT_TOPIC: PARTITIONS, OUTPUT_TOPIC: OUTPUT_PARTITIONS}
            failures = create_topics(client, [NewTopic(name=name, partitions=count) for name, count in topics.items()])
            assert not failures, failures
        threads = [start_client(world, name, client) for name, client in clients(world.chance("clients"))]
        try:
            nemesis.run(history.now() + seconds)
        finally:
            world.stopping.set()
            join_clients(world, threads)
        nemesis.do("kill")
        read_everything(world)
        nemesis.stop()
    verify(world, folder / "data")
    history.close()
    operations = read_history(history.path)
    return Result(seed=seed, history=history.path, operations=operations, findings=analyse(operations))


def start_client(world: World, name: str, client: Callable[[World, str], None]) -> threading.Thread:
    """Let a client run on a thread; what it fails with is trouble."""

    def guarded() -> None:
        try:
            client(world, name)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is a finding)
            world.trouble(name, f"the client failed: {error!r}")

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread


def join_clients(world: World, threads: list[threading.Thread]) -> None:
    """Wait for clients to finish; one that does not is trouble."""
    deadline = world.history.now() + JOIN_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, deadline - world.history.now()))
        if thread.is_alive():
            world.trouble(thread.name, f"still busy {JOIN_TIMEOUT_S:.0f} s after the last fault")


def read_everything(world: World) -> None:
    """Wait until every transaction is over, and read all partitions at both levels, and the offsets of all groups."""
    asking = raw.AskingAgain(world, NAME)
    deadline = world.history.now() + PATIENCE_S
    while True:
        ends = raw.end_offsets(asking, LOGS, READ_UNCOMMITTED)
        stable_ends = raw.end_offsets(asking, LOGS, READ_COMMITTED)
        if ends == stable_ends or world.history.now() > deadline:
            break
        SystemClock().sleep(0.1)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        _read_all(world, isolation, ends, stable_ends)
    for group in GROUPS:
        while not raw.ask_committed(world, NAME, asking, group):
            if world.history.now() > deadline + PATIENCE_S:
                world.trouble(NAME, f"the offsets of {group} do not become stable")
                break
            SystemClock().sleep(0.1)
    asking.close()


def _read_all(world: World, isolation: str, ends: dict[str, int], stable_ends: dict[str, int]) -> None:
    reader = consumers.Reader(world, f"{NAME}-{isolation}", isolation)
    reader.begin(dict.fromkeys(LOGS, 0))
    found: dict[str, list[Seen]] = {name: [] for name in LOGS}
    deadline = world.history.now() + PATIENCE_S
    while world.history.now() < deadline and any(reader.ends.get(name, -1) < end for name, end in ends.items()):
        for record in reader.poll(1000):
            found[record.partition].append(record)
    reader.consumer.close()
    for name in LOGS:
        body = FinalRead(
            isolation=isolation,
            partition=name,
            records=tuple(found[name]),
            position=reader.ends.get(name, 0),
            last_stable_offset=stable_ends[name],
            high_watermark=ends[name],
        )
        world.history.note(NAME, body)


def verify(world: World, data: Path) -> None:
    """Let `barnabas verify` look at the folder; what it finds is trouble."""
    command = [sys.executable, "-m", "barnabas.cli.main", "verify", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VERIFY_TIMEOUT_S)
    if done.returncode:
        world.trouble("verify", f"barnabas verify: {(done.stdout + done.stderr)[-2000:]}")
