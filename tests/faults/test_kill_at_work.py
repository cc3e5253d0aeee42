"""kill -9 at the moment at which a broker rolls, cleans, deletes or writes a checkpoint, again and again, under load.

The folder is watched, and the broker is killed as soon as a file shows up that only such work makes. What is promised:
every record that was acknowledged is there (of a compacted topic: the last of each key), at its offset; nothing is gone
that retention may not take, what was deleted by request stays deleted; indexes fit; and the next start says that logs
were recovered.

BARNABAS_KILLS=50 kills more often, BARNABAS_SEED repeats the choices of the clients.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.storage.files import TEMPORARY_SUFFIX
from barnabas.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX
from checker.care.clients import check_everything
from checker.care.run import BY_AGE, BY_SIZE, CLIENTS, KEYED, SETTINGS, TOPICS, care_of, guarded
from checker.history import History, Trouble, read_history
from checker.run import join_clients, start_client
from checker.workload.world import World
from tests.broker.turning import WAIT_SECONDS
from tests.durability.killing import faults_found, new_seed

KILLS = int(os.environ.get("BARNABAS_KILLS", "2"))
"""How often at each kind of work."""
QUICK = {
    **SETTINGS,
    "log.cleaner.backoff.ms": 50,
    "log.retention.check.interval.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 50,
    "log.flush.start.offset.checkpoint.interval.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 50,
}
SMALL = {"segment.bytes": "8000", "retention.bytes": "40000"}


def segments(folder: Path, topic: str) -> set[str]:
    return {name for name in os.listdir(folder / f"{topic}-0") if name.endswith(LOG_SUFFIX)}


def with_suffix(*suffixes: str) -> Callable[[Path, str], bool]:
    return lambda data, folder: any(name.endswith(suffixes) for name in os.listdir(data / folder))


# What to look at, and what tells that the work is under way.
SIGNS: dict[str, tuple[str, Callable[[Path, str], bool]]] = {
    "clean": (f"{KEYED}-0", with_suffix(CLEANED_SUFFIX)),
    "swap": (f"{KEYED}-0", with_suffix(DELETED_SUFFIX, ".swap")),
    "delete": (f"{BY_SIZE}-0", with_suffix(DELETED_SUFFIX)),
    "checkpoint": ("", with_suffix(TEMPORARY_SUFFIX)),
}


def wait_for_sign(data: Path, work: str) -> None:
    """Watch as closely as possible: some of these files are there for less than a millisecond."""
    clock = SystemClock()
    deadline = clock.monotonic_seconds() + WAIT_SECONDS
    if work == "roll":
        before = segments(data, BY_AGE)
        while segments(data, BY_AGE) <= before:
            assert clock.monotonic_seconds() < deadline, "nothing was rolled"
        return
    folder, is_seen = SIGNS[work]
    while not is_seen(data, folder):
        assert clock.monotonic_seconds() < deadline, f"no sign of a {work}"


def test_a_broker_that_is_killed_at_work_keeps_its_word(tmp_path: Path) -> None:
    seed, data = new_seed(), tmp_path / "data"
    works = ["roll", *SIGNS] * KILLS
    random.Random(seed).shuffle(works)
    history = History(tmp_path / "history.jsonl")
    with Broker(data=data, settings=QUICK) as broker:
        world = World(bootstrap_servers=broker.bootstrap_servers, history=history, seed=seed)
        care = care_of(world, retention_bytes=int(SMALL["retention.bytes"]))
        with Client(broker.bootstrap_servers) as client:
            new = [
                NewTopic(name=name, partitions=count, configs={**more, **{k: v for k, v in SMALL.items() if k in more}})
                for name, (count, more) in TOPICS.items()
            ]
            assert not create_topics(client, new)
        threads = [start_client(world, name, guarded(care, run)) for name, run in CLIENTS]
        try:
            for work in works:
                wait_for_sign(data, work)
                assert "Traceback" not in broker.log, broker.log
                broker.kill()
                broker.start()
                assert "the last shutdown was not clean, " in broker.log
        finally:
            world.stopping.set()
            join_clients(world, threads)
        check_everything(care)
    history.close()
    troubles = [one.body.what for one in read_history(history.path) if isinstance(one.body, Trouble)]
    assert not troubles, troubles[:5]
    assert care.counts["keyed records"] > 0
    assert care.counts["rolling records"] > 0
    assert faults_found(data) == ""
