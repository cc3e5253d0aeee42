"""kill -9 while topics are created, grown and deleted: what was acknowledged stays, and there is no half topic."""

import random
import threading
from pathlib import Path

from barnabas.client.admin import NewTopic, create_partitions, create_topics, delete_topics, list_topics
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.producer import Producer
from barnabas.clock import SystemClock
from barnabas.embedded import Broker
from barnabas.storage.log_directory import FolderKind, parse_folder
from barnabas.wire.errors import ApiError, ErrorCode
from tests.broker.turning import until
from tests.durability.killing import KILLS, faults_found, kill_and_start, new_seed
from tests.durability.load import OPTIONS

ALIVE_SECONDS_MAX = 0.3
CHANGES_MIN = 3
PARTITIONS_MAX = 8
TOPICS_MAX = 12


class Catalogue:
    """Somebody who changes topics all the time, and what the broker must have because of it.

    `partitions` is by topic; while a change is under way, `under_way` names it and how many it had and may have:
    None is no topic.
    """

    def __init__(self, bootstrap_servers: str, chance: random.Random) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._chance = chance
        self._mutex = threading.Lock()
        self._stopping = threading.Event()
        self._partitions: dict[str, int] = {}
        self._under_way: tuple[str, int | None, int | None] | None = None
        self._created = 0
        self.changes = 0
        self.failures: list[str] = []
        self.thread = threading.Thread(target=self._run, name="catalogue")

    def stop(self) -> None:
        """End after the change that is under way."""
        self._stopping.set()
        self.thread.join()

    def expected(self) -> tuple[dict[str, int], tuple[str, int | None, int | None] | None]:
        """Return what there is for sure, without the topic of a change that is under way; and that change."""
        with self._mutex:
            return dict(self._partitions), self._under_way

    def _run(self) -> None:
        with Client(self._bootstrap_servers, OPTIONS) as client:
            while not self._stopping.is_set():
                try:
                    self._change(client)
                except (ApiError, ClientError) as error:
                    self.failures.append(repr(error))
                    return

    def _change(self, client: Client) -> None:
        name = self._chance.choice(sorted(self._partitions)) if self._partitions else ""
        dice = self._chance.random()
        if not name or (dice < 0.5 and len(self._partitions) < TOPICS_MAX):
            self._create(client)
        elif dice < 0.7 and self._partitions[name] < PARTITIONS_MAX:
            count = self._partitions[name] + 1
            self._begin(name, count)
            # An attempt whose answer was lost was made: then it has as many already.
            self._end(name, count, create_partitions(client, {name: count}), ErrorCode.INVALID_PARTITIONS)
        else:
            self._begin(name, None)
            self._end(name, None, delete_topics(client, [name]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _create(self, client: Client) -> None:
        self._created += 1
        # A name that was deleted comes again now and then.
        name = f"topic-{self._created % 20}"
        if name in self._partitions:
            return
        count = self._chance.randint(1, PARTITIONS_MAX)
        self._begin(name, count)
        topic = NewTopic(name=name, partitions=count, replication_factor=1)
        self._end(name, count, create_topics(client, [topic]), ErrorCode.TOPIC_ALREADY_EXISTS)

    def _begin(self, name: str, count: int | None) -> None:
        with self._mutex:
            self._under_way = (name, self._partitions.pop(name, None), count)

    def _end(self, name: str, count: int | None, failures: dict[str, ApiError], made_before: ErrorCode) -> None:
        self.failures += [str(error) for error in failures.values() if error.code != made_before]
        with self._mutex:
            self._under_way = None
            if count is not None:
                self._partitions[name] = count
            self.changes += 1


def check_topics(client: Client, catalogue: Catalogue) -> None:
    """Check that the broker has what it promised, and nothing that it took back."""
    before, under_way_before = catalogue.expected()
    found = {topic.name: len(topic.partitions) for topic in list_topics(client)}
    after, under_way_after = catalogue.expected()
    assert not catalogue.failures, catalogue.failures
    # Whatever changed while the broker was asked may be seen as it was, or as it is.
    possible: dict[str, set[int | None]] = {name: {count} for name, count in before.items()}
    for name, count in after.items():
        possible.setdefault(name, {None}).add(count)
    for change in (under_way_before, under_way_after):
        if change is not None:
            possible.setdefault(change[0], set()).update(change[1:])
    for name in set(before) - set(after):
        possible[name].add(None)
    unsure = {name for name, counts in possible.items() if len(counts) > 1}
    assert {name: count for name, count in found.items() if name not in unsure} == {
        name: next(iter(counts)) for name, counts in possible.items() if len(counts) == 1
    }
    for name in unsure:
        assert found.get(name) in possible[name], f"{name} has {found.get(name)} partitions, not {possible[name]}"


def check_folders(data: Path, topics: dict[str, int]) -> None:
    """Check that the logs of all topics are there, whole, and no others."""
    expected = {f"{name}-{index}" for name, count in topics.items() for index in range(count)}
    folders = {path.name for path in data.iterdir() if path.is_dir()}
    current = {
        name for name in folders if (folder := parse_folder(name)) is not None and folder.kind is FolderKind.CURRENT
    }
    assert current == expected
    for name in expected:
        assert (data / name / "partition.metadata").exists()


def test_topics_are_whole_and_promised_changes_stay(tmp_path: Path) -> None:
    seed = new_seed()
    chance, clock = random.Random(seed), SystemClock()
    data = tmp_path / "data"
    kills = 0
    with Broker(data=data) as broker, Client(broker.bootstrap_servers, OPTIONS) as client:
        catalogue = Catalogue(broker.bootstrap_servers, random.Random(f"{seed} catalogue"))
        catalogue.thread.start()
        try:
            while kills < KILLS and not catalogue.failures:
                count = catalogue.changes
                until(lambda count=count: catalogue.changes >= count + CHANGES_MIN or catalogue.failures)  # type: ignore[misc]
                clock.sleep(chance.uniform(0, ALIVE_SECONDS_MAX))
                kills += kill_and_start(broker, chance)
                check_topics(client, catalogue)
        finally:
            catalogue.stop()
        check_topics(client, catalogue)
        topics, under_way = catalogue.expected()
        assert under_way is None
        check_folders(data, topics)
        with Producer(client) as producer:
            for name, partitions in topics.items():
                for partition in range(partitions):
                    producer.send(name, b"value", partition=partition)
        assert producer.records_acknowledged == sum(topics.values())
        broker.stop()
        assert faults_found(data) == ""
    print(f"{kills} kills, {catalogue.changes} changes, {len(topics)} topics in the end")
