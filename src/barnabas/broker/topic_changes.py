"""TopicChanges: from a change of the metadata to the logs on this broker, and the answer after both.

    CreateTopics --> Controller: durable in the metadata --> on_topic_change --> ReplicaManager: logs made in the pool
                                                        \\--> done, when the logs are there

Rule 1: the metadata comes first. After a crash between the two, the start makes the logs that are missing and removes
those of topics that were deleted.
Rule 2: a client that is told that its topic exists can write to it at once.
Rule 3: the logs of a topic are made by one change at a time: the next may need the same folders, be it of the same
topic with more partitions, or of another one that took the name of a topic that was deleted.
Rule 4: a deletion is in the metadata until no power cut brings the logs back. What is deleted in one turn of the loop
is settled together, since the price is that of the folder and not that of the topic.
Rule 5: logs that could not be made, for want of room on the disk, are tried again while their topic exists.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.broker.dynamic_config import ALL_BROKERS, DynamicConfig
from barnabas.broker.internal_topics import COORDINATOR_TOPICS, internal_topic
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.cluster.controller import Controller, NewTopic
from barnabas.cluster.metadata_cache import MetadataCache, TopicImage
from barnabas.model import TopicPartition
from barnabas.storage.log_manager import LogManager
from barnabas.wire.errors import ApiError, ErrorCode

RETRY_MS = 10_000
"""How long logs that could not be made wait for the next attempt."""

logger = logging.getLogger(__name__)

Done = Callable[[Any], None]
"""Takes a TopicImage, or an ApiError."""


Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From the settings that a broker has been given to those that it is to have; raises ApiError."""


@dataclass(slots=True)
class _Making:
    """Logs that are being made, or will be, and who waits for them."""

    image: TopicImage
    is_new: bool
    is_retry: bool = False
    waiting: list[Callable[[list[ApiError]], None]] = field(default_factory=list)


class TopicChanges:
    """Carries out what the controller decides."""

    def __init__(
        self,
        controller: Controller,
        cache: MetadataCache,
        config: DynamicConfig,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._config = config
        self._logs = log_manager
        self._replicas = replica_manager
        # By topic; the first of each is being made. A topic is here while there is one.
        self._making: dict[str, deque[_Making]] = {}
        # Topics whose logs are being removed, each with who waits for that.
        self._removing: dict[str, list[Callable[[ApiError | None], None]]] = {}
        # Those of them that only have to be settled, which happens in the next turn of the loop.
        self._unsettled: list[str] = []
        # Topics that lack logs, and whether these are new; a timer runs while there are any.
        self._incomplete: dict[str, bool] = {}
        # The first is being committed.
        self._broker_changes: deque[tuple[int | None, Change, Done]] = deque()
        self.listeners: list[Callable[[str], None]] = []
        """Told of a topic that is there, with all its logs, that has more partitions, or that is gone."""
        controller.on_topic_change = self._on_topic_change
        controller.on_topic_deleted = self._on_topic_deleted

    # Asked for by requests.

    def create(self, new: NewTopic, done: Done, *, validate_only: bool = False) -> None:
        """Create a topic."""
        self._controller.create_topic(new, self._when_made(done), validate_only=validate_only)

    def create_partitions(
        self, name: str, total: int, assignments: Sequence[Sequence[int]] | None, done: Done, *, validate_only: bool
    ) -> None:
        """Give a topic more partitions."""
        then = self._when_made(done)
        self._controller.create_partitions(name, total, assignments, then, validate_only=validate_only)

    def delete(self, name: str, done: Done) -> None:
        """Delete a topic; whoever is told that it is gone can create it again."""

        def then(result: Any) -> None:
            if name not in self._removing:
                done(result)
            elif isinstance(result, ApiError):
                self._removing[name].append(lambda _: done(result))
            else:
                self._removing[name].append(lambda error: done(error or result))

        self._controller.delete_topic(name, then)

    def alter_broker_config(self, node_id: int | None, change: Change, done: Done) -> None:
        """Change settings of this broker, or with None of all, each change on what the one before it left."""
        self._broker_changes.append((node_id, change, done))
        if len(self._broker_changes) == 1:
            self._alter_first_broker()

    def _alter_first_broker(self) -> None:
        node_id, change, done = self._broker_changes[0]

        def then(result: Any) -> None:
            if not isinstance(result, ApiError):
                self._config.refresh()
                for name in self._cache.topics:
                    self._logs.update_topic_config(name)
            self._broker_changes.popleft()
            if self._broker_changes:
                self._alter_first_broker()
            done(result)

        try:
            overrides = change(self._config.overrides_of(ALL_BROKERS if node_id is None else node_id))
            self._config.check_broker_overrides(overrides)
        except ApiError as error:
            then(error)
            return
        self._controller.alter_broker_config(node_id, overrides, then)

    def _when_made(self, done: Done) -> Done:
        def then(result: Any) -> None:
            if isinstance(result, TopicImage):
                self.when_made(result.name, lambda errors: done(errors[0] if errors else result))
            else:
                done(result)

        return then

    def when_made(self, name: str, done: Callable[[list[ApiError]], None]) -> None:
        """Call back when all logs of a topic are there that are being made now, which may be at once."""
        if name in self._making:
            self._making[name][-1].waiting.append(done)
        else:
            done([])

    # Told by the controller.

    def _on_topic_change(self, image: TopicImage) -> None:
        self._logs.update_topic_config(image.name)
        self._make(image, is_new=True)

    def _make(self, image: TopicImage, *, is_new: bool, is_retry: bool = False) -> None:
        queue = self._making.setdefault(image.name, deque())
        queue.append(_Making(image, is_new, is_retry))
        if len(queue) == 1:
            self._make_first(image.name)

    def _make_first(self, name: str) -> None:
        queue = self._making[name]
        making = queue[0]

        def made(errors: list[ApiError]) -> None:
            queue.popleft()
            if queue:
                self._make_first(name)
            else:
                del self._making[name]
            self._logs.update_topic_config(name)  # They may have been changed while the logs were made.
            if errors:
                self._make_later(making)
            for error in [] if making.is_retry else errors:
                logger.error("%s: %s", name, error)
            self._tell(name)
            for one in making.waiting:
                one(errors)

        current = self._cache.topics.get(name)
        if current is None or current.topic_id != making.image.topic_id:
            made([])  # It was deleted while this waited for its turn.
        else:
            self._replicas.become_leader_or_follower(making.image, made, is_new=making.is_new)

    def _make_later(self, making: _Making) -> None:
        """Try again in a while to make logs, except those that are in a directory that is offline until a restart."""
        name = making.image.name
        partitions = (TopicPartition(name, index) for index in range(len(making.image.partitions)))
        elsewhere = (self._replicas.partitions, self._logs.offline_partitions, self._logs.loading.current)
        if all(any(it in place for place in elsewhere) for it in partitions):
            return
        if not self._incomplete:
            self._replicas.scheduler.call_later(RETRY_MS, self._make_incomplete)
        self._incomplete[name] = making.is_new

    def _make_incomplete(self) -> None:
        incomplete, self._incomplete = self._incomplete, {}
        for name, is_new in incomplete.items():
            image = self._cache.topics.get(name)
            if image is not None:
                self._make(image, is_new=is_new, is_retry=True)

    def _on_topic_deleted(self, image: TopicImage) -> None:
        self._remove(image.name, len(image.partitions))

    def _remove(self, name: str, partition_count: int) -> None:
        partitions = [TopicPartition(name, index) for index in range(partition_count)]
        self._replicas.stop_replicas(partitions)
        self._replicas.topic_stats.forget(name)
        self._removing[name] = []
        self._tell(name)
        # Logs that are being made at this moment are removed when they are there; only then is the name free.
        self.when_made(name, lambda _: self._replicas.when_let_go(partitions, lambda: self._settle_soon(name)))

    def _settle_soon(self, name: str) -> None:
        if not self._unsettled:
            self._replicas.scheduler.loop.call_soon(self._settle)
        self._unsettled.append(name)

    def _settle(self) -> None:
        """Make the deletions of the last turn last, and only then free the names and answer."""
        names, self._unsettled = self._unsettled, []
        error: ApiError | None = None
        if not self._replicas.settle_deletions():
            message = "the deletion may not be on the disk; it is finished at the next start"
            error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)
            logger.error("%s: %s", ", ".join(names), message)
        for name in names:
            if error is None:
                self._controller.deletion_finished(name)
            for one in self._removing.pop(name):
                one(error)

    def _tell(self, name: str) -> None:
        for listener in self.listeners:
            listener(name)

    # At the start.

    def start(self, done: Done) -> None:
        """Bring logs and metadata together, and call back when every partition is there, or with an ApiError.

        A data directory without metadata of ours is one that Kafka wrote: its topics are taken over as they are.
        """

        def adopted(result: ApiError | None) -> None:
            if result is not None:
                done(result)
            else:
                self._start_topics(done)

        for name, deletion in list(self._controller.pending_deletions.items()):
            self._remove(name, deletion.partition_count)
        if self._controller.has_adopted:
            self._set_strays_aside()
            self._start_topics(done)
        else:
            self._adopt(lambda: self._controller.adoption_finished(adopted))

    def _start_topics(self, done: Done) -> None:
        for image in list(self._cache.topics.values()):
            self._make(image, is_new=False)
        left = len(self._making) + 1

        def one_done(_: list[ApiError]) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done(None)

        for queue in self._making.values():
            queue[-1].waiting.append(one_done)
        one_done([])

    def _set_strays_aside(self) -> None:
        for partition in list(self._logs.current_logs):
            image = self._cache.topics.get(partition.topic)
            if image is None or partition.partition >= len(image.partitions):
                kept = self._logs.set_aside(partition)
                logger.warning("%s belongs to no topic that is known here, and is kept as %s", partition, kept)

    def _adopted_config(self, name: str) -> Mapping[str, str]:
        """Return the settings of a topic that Kafka wrote: until somebody sets its own, the broker's limits must not
        delete what these may have kept for ever."""
        if name in COORDINATOR_TOPICS:
            return internal_topic(name, self._config.settings, 1).config
        defaults = self._config.settings.topics
        limits = {
            "retention.ms": defaults.retention_ms,
            "retention.bytes": defaults.retention_bytes,
            "retention.topic.bytes": defaults.retention_topic_bytes,
        }
        return {limit: "-1" for limit, value in limits.items() if value != -1}

    def _adopt(self, done: Callable[[], None]) -> None:
        found: dict[str, dict[int, Any]] = {}
        assert not self._logs.loading.current, "whose ids are not known yet"
        for partition, managed in self._logs.current_logs.items():
            if partition.topic not in self._cache.topics:  # It is, if an earlier start was cut off in the middle.
                found.setdefault(partition.topic, {})[partition.partition] = managed.topic_id
        left = len(found) + 1

        def one_done(result: Any) -> None:
            nonlocal left
            left -= 1
            if isinstance(result, ApiError):
                logger.error("a topic that was found on the disk can not be taken over: %s", result)
            if left == 0:
                done()

        for name, partitions in found.items():
            ids = {topic_id for topic_id in partitions.values() if topic_id is not None}
            new = NewTopic(
                name=name,
                num_partitions=max(partitions) + 1,
                replication_factor=1,
                config=self._adopted_config(name),
                topic_id=ids.pop() if len(ids) == 1 else None,
            )
            logger.info(
                "%s was found on the disk, with %d partitions, and is taken over; its settings are not in its files, "
                "and nothing of it is deleted until they are set again",
                name,
                new.num_partitions,
            )
            self.create(new, one_done)
        one_done(None)
