"""Groups: the group coordinator of this broker: a machine for every partition of `__consumer_offsets` that it leads.

    JoinGroup --> ask --> the group's shard --> GroupCoordinator --> records, replies (broker/coordinator_shards.py)

The machines are imported when the first of them is made: a broker without groups starts without them.
"""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from barnabas.broker.coordinator_shards import CoordinatorShards, Producer, Shard, ShardOptions
from barnabas.broker.dynamic_config import DynamicConfig
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.partition import Partition
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.request_channel import Request
from barnabas.broker.scheduler import IoPool
from barnabas.broker.ticket import Ticket
from barnabas.clock import Clock
from barnabas.cluster.metadata_cache import MetadataCache, TopicImage
from barnabas.coordination.records import GROUP_KINDS
from barnabas.coordination.step import CoordinatorRecord, Step, TopicDescription
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.coordination.group_coordinator import GroupCoordinator

Operation = Callable[["GroupCoordinator", Ticket, int], Step]
"""(the machine, where the answer goes, the time) -> what is to be done."""


class CachedTopics:
    """The topics of the metadata, as coordinators see them."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        # Images are never changed, only replaced, so a description is good as long as its image is the topic's.
        self._known: dict[str, tuple[TopicImage, TopicDescription]] = {}

    def by_name(self, name: str) -> TopicDescription | None:
        """Return a topic by its name."""
        image = self._cache.topics.get(name)
        if image is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known[0] is not image:
            description = TopicDescription(name, image.topic_id.bytes, len(image.partitions))
            known = self._known[name] = (image, description)
        return known[1]

    def by_id(self, topic_id: bytes) -> TopicDescription | None:
        """Return a topic by its id."""
        image = self._cache.topics_by_id.get(topic_id)
        return None if image is None else self.by_name(image.name)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._cache.topics.keys()


class Groups:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        config: DynamicConfig,
        cache: MetadataCache,
        replica_manager: ReplicaManager,
        pool: IoPool,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = CachedTopics(cache)
        self.shards: CoordinatorShards[GroupCoordinator] = CoordinatorShards(
            ShardOptions(
                topic=GROUP_TOPIC,
                kinds=GROUP_KINDS,
                make=self._make,
                cache=cache,
                replica_manager=replica_manager,
                pool=pool,
                clock=clock,
            )
        )
        self.shards.replay_pending = _replay_pending

    def _make(self, _: Partition) -> "GroupCoordinator":
        from barnabas.coordination.group_coordinator import GroupCoordinator

        return GroupCoordinator(self._config.settings.groups, self._topics, lambda: str(uuid4()))

    def ask(self, request: Request, body: Any, group_id: str, operation: Operation) -> Any:
        """Let the machine of a group answer a request; raises ApiError while it is not here."""
        shard = self.shards.shard_of(group_id)
        return self.ask_shard(shard, Ticket(request, body), operation)

    def ask_shard(
        self,
        shard: "Shard[GroupCoordinator]",
        ticket: Ticket,
        operation: Operation,
        producer: Producer | None = None,
    ) -> Any:
        """Let a machine answer a request, in a transaction of a producer if there is one."""
        step = operation(shard.machine, ticket, self.shards.now_ms())
        self.shards.carry_out(shard, step, producer)
        return ticket.outcome()

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Let groups see that topics came, went or grew."""
        for shard in self.shards.loaded:
            self.shards.carry_out(shard, shard.machine.on_topics_changed(names, self.shards.now_ms()))

    def complete_transaction(self, index: int, producer_id: int, is_commit: bool) -> None:
        """Let offsets that a producer committed in a transaction count, or not; its marker is in the partition now."""
        shard = self.shards.find_loaded(index)
        if shard is not None:  # One that is loading will read the marker.
            shard.machine.complete_transaction(producer_id, is_commit)

    def check_producer(self, shard: "Shard[GroupCoordinator]", producer: Producer) -> None:
        """Raise ApiError for a producer that was replaced, before the machine takes its offsets."""
        producer_id, epoch = producer
        known = shard.partition.log.producers.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            message = f"epoch {epoch} of producer {producer_id} is over; the current one is {known.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)


def _replay_pending(machine: "GroupCoordinator", producer_id: int, record: CoordinatorRecord) -> None:
    machine.replay_transactional(producer_id, record)
