"""A loop that a test turns by hand, and words for what a controller is asked in tests."""

import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.clock import ManualClock
from barnabas.cluster.controller import Controller, NewTopic
from barnabas.cluster.metadata_cache import MetadataCache, TopicImage
from barnabas.cluster.store import MetadataStore
from barnabas.wire.errors import ApiError, ErrorCode

WAIT_SECONDS = 60


class Loop:
    """What `loop.call_soon_threadsafe` does, with the test's thread as the loop's."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        self._calls.put((function, arguments))

    def run_until(self, is_reached: Callable[[], object]) -> None:
        while not is_reached():
            self.run_one()

    def run_one(self) -> None:
        function, arguments = self._calls.get(timeout=WAIT_SECONDS)
        function(*arguments)

    def result(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        """Ask, turn the loop until `done` was called, and return what with."""
        results: list[Any] = []
        ask(results.append)
        self.run_until(lambda: results)
        assert len(results) == 1
        return results[0]


def check_config(overrides: Mapping[str, str]) -> None:
    """Refuse one setting, for the tests that need a refusal."""
    if "bad" in overrides:
        raise ApiError(ErrorCode.INVALID_CONFIG, "there is no setting bad")


class Cluster:
    """A store, a cache and a started controller over one folder."""

    def __init__(self, folder: Path, loop: Loop, clock: ManualClock, brokers: tuple[int, ...]) -> None:
        self.loop = loop
        self.store = MetadataStore(str(folder / "metadata.sqlite"), loop.call_soon)
        self.cache = MetadataCache(self.store.tree)
        self.clock = clock
        self.controller = Controller(self.store, self.cache, brokers[0], clock, check_config)
        self.controller.live_brokers = lambda: list(brokers)  # type: ignore[method-assign]
        self.events: list[tuple[str, TopicImage]] = []
        self.controller.on_topic_change = lambda image: self.events.append(("change", image))
        self.controller.on_topic_deleted = lambda image: self.events.append(("deleted", image))
        self.start_result = loop.result(self.controller.start)

    def create(self, name: str, partitions: int = 1, **more: Any) -> Any:
        new = NewTopic(**{"name": name, "num_partitions": partitions, "replication_factor": 1, **more})
        return self.loop.result(lambda done: self.controller.create_topic(new, done))

    def delete(self, name: str) -> Any:
        return self.loop.result(lambda done: self.controller.delete_topic(name, done))

    def extend(self, name: str, total: int, assignments: list[list[int]] | None = None, **more: Any) -> Any:
        return self.loop.result(lambda done: self.controller.create_partitions(name, total, assignments, done, **more))

    def alter(self, name: str, overrides: dict[str, str]) -> Any:
        return self.loop.result(lambda done: self.controller.alter_topic_config(name, lambda _: overrides, done))

    def settle(self) -> None:
        """Wait for everything that was handed to the store."""
        self.loop.result(lambda done: self.store.commit([], done))

    def check_cache(self) -> None:
        """The cache is what a cache made anew from the same tree is."""
        fresh = MetadataCache(self.store.tree)
        assert self.cache.topics == fresh.topics
        assert self.cache.topics_by_id == fresh.topics_by_id
        assert self.cache.names_by_collision_key == fresh.names_by_collision_key
        assert self.cache.broker_configs == fresh.broker_configs
        assert self.cache.cluster_id == fresh.cluster_id


@contextmanager
def running(folder: Path, *, clock: ManualClock | None = None, brokers: tuple[int, ...] = (0,)) -> Iterator[Cluster]:
    """A cluster that is closed in order, and whose cache is right, at the end."""
    cluster = Cluster(folder, Loop(), clock or ManualClock(), brokers)
    try:
        yield cluster
        cluster.check_cache()
    finally:
        cluster.store.close()
