"""The controller: creates, extends, configures and deletes topics, and hands out producer ids.

Requests come from the broker's handlers on the loop's thread. What they change is committed to the MetadataStore; when
that is durable the cache reads it again, the broker is told by `on_topic_change` or `on_topic_deleted`, and then the
request's `done` gets the result, or an ApiError.

Rule 1: changes of the same topic are done one after the other, in the order they were asked for, each planned on what
the one before it left. Topics whose names collide count as the same. Changes of different topics share transactions.
Rule 2: a plan that the tree does not fit any more (with ZooKeeper, somebody else was faster) is made again on the new
state, and its checks with it, so that the answer is the one that holds now.
Rule 3: `done` is called exactly once, on the loop's thread. A refusal that needs no commit is told before the method
returns.
Rule 4: the leader epoch of a partition stays while its leader does.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from barnabas.clock import Clock
from barnabas.cluster import nodes, topics
from barnabas.cluster.metadata_cache import MetadataCache, TopicImage
from barnabas.cluster.nodes import NodeValueError, PartitionState, PendingDeletion
from barnabas.cluster.store import MetadataStore
from barnabas.cluster.topics import collision_key
from barnabas.cluster.tree import Create, Delete, Operation, Set, TreeError
from barnabas.model import ZERO_TOPIC_ID
from barnabas.storage.checkpoint import encode_topic_id
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

PRODUCER_IDS_PER_BLOCK = 1_000
PRODUCER_ID_MAX = 2**63 - 1
CONFIG_CHANGE_SECONDS_MAX = 600.0
ATTEMPTS_MAX = 10
DEFAULT_COUNT = -1
"""In a new topic with assignments, the number of partitions and the replication factor: the assignments say both."""

Done = Callable[[Any], None]
"""Takes what the change made, or an ApiError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that is asked for, either by counts or by assignments with both counts DEFAULT_COUNT."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    topic_id: UUID | None = None
    """Adopted logs bring their id; for any other topic one is made."""


@dataclass(slots=True, kw_only=True)
class _Change:
    """A change on its way: how to plan its operations, and what to do when they are durable."""

    key: str
    """Changes with the same key wait for each other."""
    plan: Callable[[], Sequence[Operation]]
    """Raises ApiError to refuse; no operations at all mean that there is nothing to commit."""
    finish: Callable[[list[str]], Any]
    """Gets the path of each operation and returns what `done` is told."""
    done: Done
    refresh: Callable[[], object] = lambda: None
    """Brings the cache up to date before a plan is made again."""
    attempts: int = 0


def _ignore(_: Any) -> None:
    pass


def _as_answer(change: _Change, error: Exception) -> ApiError:
    """Return what a client is told: a refusal as it is, and anything else as the failure of the disk that it is."""
    if isinstance(error, ApiError):
        return error
    logger.error("a change of %s failed: %s", change.key, error)
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata could not be changed: {error}")


class Controller:
    """Changes the metadata of the cluster; see the rules at the top of the file.

    Args:
        store: where changes are made durable.
        cache: the view of the store's tree that is kept up to date here.
        node_id: the number of this broker.
        clock: how the age of notifications is known.
        check_config: raises ApiError INVALID_CONFIG for overrides of a topic that are not right.
    """

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        node_id: int,
        clock: Clock,
        check_config: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._store = store
        self._cache = cache
        self._node_id = node_id
        self._clock = clock
        self._check_config = check_config
        self.on_topic_change: Callable[[TopicImage], None] = _ignore
        self.on_topic_deleted: Callable[[TopicImage], None] = _ignore
        self.controller_epoch = 0
        self.producer_id_floor = 0
        """No id below this is handed out: logs may remember producers of another broker, or of lost metadata."""
        self.is_producer_id_floor_known = True
        """Whether all logs were asked; until then the first block of ids is not handed out."""
        # A key is here while one of its changes is committed; the others wait in the queue.
        self._waiting: dict[str, deque[_Change]] = {}
        # When each notification was first seen. Nodes have no time of their own, and a restart begins anew.
        self._config_changes_seen: dict[str, float] = {}
        self.pending_deletions: dict[str, PendingDeletion] = {}
        for name in store.tree.children(nodes.DELETE_TOPICS):
            # A topic is never made again before the deletion is finished, so a marker beside a topic is a left-over.
            if name not in cache.topics:
                node = store.tree.get(nodes.delete_topic_path(name))
                assert node is not None
                self.pending_deletions[name] = nodes.decode_deletion(name, node.value)

    def live_brokers(self) -> list[int]:
        """Return the brokers that can have replicas, in order."""
        return [self._node_id]

    def start(self, done: Done, *, cluster_id: str | None = None) -> None:
        """Make the root nodes and the cluster's id where they are missing, and begin a new controller epoch.

        `done` gets the cluster's id, which is `cluster_id` where one is given, or a random one, or the one that was
        there; an ApiError when that is another than the given one. On a disk that is full the epoch is new in memory
        only: nothing else could be decided in it that would last.
        """
        random_id = encode_topic_id(topics.new_topic_id())
        tree = self._store.tree

        def plan() -> list[Operation]:
            old_id = self._cache.cluster_id
            if old_id is not None and cluster_id not in (None, old_id):
                raise ApiError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID, f"the metadata is of cluster {old_id}, not of {cluster_id}"
                )
            operations: list[Operation] = [Create(path, b"") for path in nodes.ROOT_NODES if tree.get(path) is None]
            if old_id is None:
                operations.append(Create(nodes.CLUSTER_ID, nodes.encode_cluster_id(cluster_id or random_id)))
            epoch_node = tree.get(nodes.CONTROLLER_EPOCH)
            self.controller_epoch = 1 if epoch_node is None else nodes.decode_controller_epoch(epoch_node.value) + 1
            operations.append(self._put(nodes.CONTROLLER_EPOCH, nodes.encode_controller_epoch(self.controller_epoch)))
            operations.append(self._put(nodes.CONTROLLER, nodes.encode_controller(self._node_id, self._clock.now_ms())))
            for name in tree.children(nodes.DELETE_TOPICS):
                if name in self._cache.topics:
                    operations.append(Delete(nodes.delete_topic_path(name)))
            return operations

        def finish(_: list[str]) -> str | None:
            self._see_config_changes()
            return self._cache.cluster_id

        def committed(result: Any) -> None:
            is_full = isinstance(result, ApiError) and result.code is ErrorCode.KAFKA_STORAGE_ERROR
            if is_full and not self._store.has_failed and self._cache.cluster_id is not None:
                logger.warning("controller epoch %d is not written down: the disk is full", self.controller_epoch)
                result = finish([])
            done(result)

        self._submit(_Change(key=nodes.CONTROLLER, plan=plan, finish=finish, done=committed))

    def create_topic(self, new: NewTopic, done: Done, *, validate_only: bool = False) -> None:
        """Create a topic; `done` gets its TopicImage, or an ApiError."""
        name = new.name
        topic_id = new.topic_id or topics.new_topic_id()
        states: tuple[PartitionState, ...] = ()

        def plan() -> list[Operation]:
            nonlocal states
            self._check_new_name(name)
            if topic_id == ZERO_TOPIC_ID or topic_id.bytes in self._cache.topics_by_id:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"topic {name} can not have the id {topic_id}, which is taken"
                )
            states = topics.new_partitions(self._assign_new(new))
            self._check_config(new.config)
            if validate_only:
                return []
            has_config_node = self._store.tree.get(nodes.topic_config_path(name)) is not None
            return topics.operations_to_create(
                name, topic_id, states, new.config, has_config_node, self.controller_epoch
            )

        def finish(_: list[str]) -> TopicImage:
            if validate_only:
                return TopicImage(name=name, topic_id=topic_id, partitions=states, config=new.config)
            return self._changed(name)

        self._submit_for_topic(name, plan, finish, done)

    def delete_topic(self, name: str, done: Done) -> None:
        """Delete a topic; `done` gets what it was, while its logs are still to be removed.

        The name stays taken until `deletion_finished`, so that a new topic never finds the logs of the old one.
        """

        def plan() -> list[Operation]:
            image = self._existing(name)
            tree = self._store.tree
            marker = nodes.encode_deletion(image.topic_id, len(image.partitions))
            return [
                *topics.operations_to_remove(tree, nodes.topic_path(name)),
                *topics.operations_to_remove(tree, nodes.topic_config_path(name)),
                self._put(nodes.delete_topic_path(name), marker),
            ]

        def finish(_: list[str]) -> TopicImage:
            image = self._cache.topics[name]
            self._cache.refresh_topic(name)
            self.pending_deletions[name] = PendingDeletion(name, image.topic_id, len(image.partitions))
            self.on_topic_deleted(image)
            return image

        self._submit_for_topic(name, plan, finish, done)

    def deletion_finished(self, name: str) -> None:
        """Say that the logs of a deleted topic are gone; the name is free for topics asked for after this call."""
        self.pending_deletions.pop(name, None)
        path = nodes.delete_topic_path(name)

        def plan() -> list[Operation]:
            return [] if self._store.tree.get(path) is None else [Delete(path)]

        self._submit_for_topic(name, plan, _ignore, _ignore)

    def create_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        done: Done,
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions, `total` in all; `assignments` are the replicas of the new ones, in order."""
        states: tuple[PartitionState, ...] = ()

        def plan() -> list[Operation]:
            nonlocal states
            image = self._existing(name)
            states = topics.new_partitions(self._assign_more(image, total, assignments))
            if validate_only:
                return []
            node = self._store.tree.get(nodes.topic_path(name))
            assert node is not None
            return topics.operations_to_extend(
                name, image.topic_id, image.partitions, states, node.version, self.controller_epoch
            )

        def finish(_: list[str]) -> TopicImage:
            if validate_only:
                image = self._cache.topics[name]
                partitions = (*image.partitions, *states)
                return TopicImage(name=name, topic_id=image.topic_id, partitions=partitions, config=image.config)
            return self._changed(name)

        self._submit_for_topic(name, plan, finish, done)

    def alter_topic_config(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], done: Done
    ) -> None:
        """Change the overrides of a topic; `done` gets its TopicImage.

        `change` makes the new overrides from those that the topic has when it is its turn, so that of two changes that
        come together neither is lost; it may raise ApiError.
        """

        def plan() -> list[Operation]:
            overrides = change(self._existing(name).config)
            self._check_config(overrides)
            return [
                self._put(nodes.topic_config_path(name), nodes.encode_config(overrides)),
                Create(nodes.CONFIG_CHANGE_PREFIX, nodes.encode_config_change(f"topics/{name}"), is_sequential=True),
            ]

        def finish(_: list[str]) -> TopicImage:
            self._see_config_changes()
            return self._changed(name)

        self._submit_for_topic(name, plan, finish, done)

    def alter_broker_config(self, node: int | None, overrides: Mapping[str, str], done: Done) -> None:
        """Replace all overrides of a broker, or with None the defaults of all; `done` gets them as they are now."""
        broker = nodes.DEFAULT_BROKER if node is None else node
        path = nodes.broker_config_path(broker)
        entity_path = path.removeprefix("/config/")

        def plan() -> list[Operation]:
            if node is not None and node < 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no broker {node}; their numbers begin with 0")
            return [
                self._put(path, nodes.encode_config(overrides)),
                Create(nodes.CONFIG_CHANGE_PREFIX, nodes.encode_config_change(entity_path), is_sequential=True),
            ]

        def finish(_: list[str]) -> Mapping[str, str]:
            self._see_config_changes()
            self._cache.refresh_broker_configs()
            return self._cache.broker_configs[broker]

        self._submit(_Change(key=path, plan=plan, finish=finish, done=done))

    def allocate_producer_ids(self, done: Done) -> None:
        """Hand out the next block of producer ids, which nobody else ever gets; `done` gets a range."""
        block = range(0)

        def plan() -> list[Operation]:
            nonlocal block
            node = self._store.tree.get(nodes.PRODUCER_IDS)
            start = 0 if node is None else nodes.decode_producer_ids(node.value).stop
            if node is None and not self.is_producer_id_floor_known:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "logs are being recovered")
            start = max(start, self.producer_id_floor)
            if start > PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids there are have been handed out")
            block = range(start, start + PRODUCER_IDS_PER_BLOCK)
            value = nodes.encode_producer_ids(self._node_id, block)
            if node is None:
                return [Create(nodes.PRODUCER_IDS, value)]
            return [Set(nodes.PRODUCER_IDS, value, node.version)]

        self._submit(_Change(key=nodes.PRODUCER_IDS, plan=plan, finish=lambda _: block, done=done))

    @property
    def has_adopted(self) -> bool:
        """Whether the topics that were on the disk before there was metadata are known."""
        return self._store.tree.get(nodes.ADOPTED) is not None

    def adoption_finished(self, done: Done) -> None:
        """Say that they are; a start that is cut off before this begins the adoption again."""
        self._submit(
            _Change(
                key=nodes.ADOPTED,
                plan=lambda: [] if self.has_adopted else [Create(nodes.ADOPTED, b"")],
                finish=lambda _: None,
                done=done,
            )
        )

    def remove_old_config_changes(self) -> None:
        """Remove the notifications that every broker has had ten minutes to read."""
        self._see_config_changes()
        deadline = self._clock.monotonic_seconds() - CONFIG_CHANGE_SECONDS_MAX

        def plan() -> list[Operation]:
            # The nodes that are there now, not those of the last attempt: with ZooKeeper others remove them too.
            self._see_config_changes()
            return [
                Delete(f"{nodes.CONFIG_CHANGES}/{name}")
                for name, seen in self._config_changes_seen.items()
                if seen <= deadline
            ]

        self._submit(
            _Change(key=nodes.CONFIG_CHANGES, plan=plan, finish=lambda _: self._see_config_changes(), done=_ignore)
        )

    # What the changes are made of.

    def _check_new_name(self, name: str) -> None:
        topics.check_topic_name(name)
        if name in self._cache.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        if name in self.pending_deletions:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is still being deleted")
        others = self._cache.names_by_collision_key.get(collision_key(name))
        if others:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} collides with {min(others)}: names must differ in more than '.' and '_'",
            )

    def _assign_new(self, new: NewTopic) -> list[tuple[int, ...]]:
        if new.assignments:
            if (new.num_partitions, new.replication_factor) != (DEFAULT_COUNT, DEFAULT_COUNT):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"topic {new.name} has assignments, so that its number of partitions and replication factor must"
                    f" be -1, not {new.num_partitions} and {new.replication_factor}",
                )
            assignment = topics.in_partition_order(new.name, new.assignments)
            topics.check_assignment(new.name, assignment, self.live_brokers())
            return assignment
        topics.check_partition_count(new.name, new.num_partitions)
        topics.check_replication_factor(new.name, new.replication_factor, self.live_brokers())
        # Another start for every topic, so that not all first partitions are led by the first broker.
        return topics.assign_replicas(
            self.live_brokers(), new.num_partitions, new.replication_factor, start=len(self._cache.topics)
        )

    def _assign_more(
        self, image: TopicImage, total: int, assignments: Sequence[Sequence[int]] | None
    ) -> list[tuple[int, ...]]:
        count = len(image.partitions)
        if total <= count:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {image.name} has {count} partitions and can only get more than that, not {total}",
            )
        topics.check_partition_count(image.name, total - count)
        brokers = self.live_brokers()
        first = image.partitions[0].replicas
        if assignments is None:
            topics.check_replication_factor(image.name, len(first), brokers)
            start = brokers.index(first[0]) if first[0] in brokers else 0
            return topics.assign_replicas(brokers, total - count, len(first), start, first_partition=count)
        if len(assignments) != total - count:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic {image.name} gets {total - count} more partitions, but {len(assignments)} are assigned",
            )
        topics.check_assignment(image.name, assignments, brokers, first_partition=count, replication_factor=len(first))
        return [tuple(replicas) for replicas in assignments]

    def _existing(self, name: str) -> TopicImage:
        image = self._cache.topics.get(name)
        if image is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return image

    def _changed(self, name: str) -> TopicImage:
        """Return a topic as it is after a commit, when the broker knows it too."""
        image = self._cache.refresh_topic(name)
        assert image is not None, "changes of a topic are done one after the other"
        self.on_topic_change(image)
        return image

    def _put(self, path: str, value: bytes) -> Operation:
        return Create(path, value) if self._store.tree.get(path) is None else Set(path, value)

    def _see_config_changes(self) -> None:
        now = self._clock.monotonic_seconds()
        seen = self._config_changes_seen
        self._config_changes_seen = {
            name: seen.get(name, now) for name in self._store.tree.children(nodes.CONFIG_CHANGES)
        }

    # How changes are done one after the other.

    def _submit_for_topic(
        self, name: str, plan: Callable[[], Sequence[Operation]], finish: Callable[[list[str]], Any], done: Done
    ) -> None:
        # No slash begins the name of a topic, so that these keys never meet those that are paths.
        self._submit(
            _Change(
                key=collision_key(name),
                plan=plan,
                finish=finish,
                done=done,
                refresh=lambda: self._cache.refresh_topic(name),
            )
        )

    def _submit(self, change: _Change) -> None:
        waiting = self._waiting.get(change.key)
        if waiting is not None:
            waiting.append(change)
            return
        self._waiting[change.key] = deque([change])
        self._begin_next(change.key)

    def _begin_next(self, key: str) -> None:
        """Begin changes of a key until one needs a commit, or none is left."""
        waiting = self._waiting[key]
        while waiting:
            change = waiting.popleft()
            try:
                if self._begin(change):
                    return
            except BaseException:
                # A bug in one change is told to whoever asked for it, and those behind it go on.
                self._begin_next(key)
                raise
        del self._waiting[key]

    def _begin(self, change: _Change) -> bool:
        """Commit a change, or answer it where there is nothing to commit; tell whether it is on its way."""
        try:
            if change.attempts:
                change.refresh()
            operations = change.plan()
            if operations:
                self._store.commit(operations, partial(self._committed, change))
                return True
            answer = change.finish([])
        except (ApiError, NodeValueError) as error:
            answer = _as_answer(change, error)
        change.done(answer)
        return False

    def _committed(self, change: _Change, result: list[str] | Exception) -> None:
        change.attempts += 1
        if isinstance(result, TreeError) and change.attempts < ATTEMPTS_MAX:
            self._waiting[change.key].appendleft(change)
            self._begin_next(change.key)
            return
        try:
            change.done(self._answer(change, result))
        finally:
            # Whatever happens to this change, those behind it go on.
            self._begin_next(change.key)

    def _answer(self, change: _Change, result: list[str] | Exception) -> Any:
        if isinstance(result, TreeError):
            logger.error("a change of %s did not fit the metadata %d times: %s", change.key, change.attempts, result)
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata keeps changing: {result}")
        if isinstance(result, Exception):
            return _as_answer(change, result)
        try:
            return change.finish(result)
        except (ApiError, NodeValueError) as error:
            return _as_answer(change, error)
