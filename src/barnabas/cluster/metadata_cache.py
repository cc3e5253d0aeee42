"""The metadata as request handling reads it: topics, partitions and settings with types, made from the tree.

Values come from the MetadataTree. Requests read; only the controller asks for a part to be read again after a commit.

Rule 1: after every refresh the cache equals one that is made anew from the same tree.
Rule 2: images are never changed, only replaced: whoever holds one holds a consistent moment of a topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from barnabas.cluster import nodes
from barnabas.cluster.nodes import PartitionState
from barnabas.cluster.topics import collision_key
from barnabas.cluster.tree import MetadataTree

__all__ = ["MetadataCache", "PartitionState", "TopicImage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic at one moment."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    """By number of partition."""
    config: Mapping[str, str]
    """The topic's own settings only; what is not here is as the broker's configuration says."""


class MetadataCache:
    """A typed view of a tree; raises NodeValueError for a node that can not be read."""

    def __init__(self, tree: MetadataTree) -> None:
        self._tree = tree
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        # So that a new topic need not be compared with every other.
        self.names_by_collision_key: dict[str, set[str]] = {}
        self.broker_configs: dict[int, Mapping[str, str]] = {}
        for name in tree.children(nodes.TOPICS):
            self.refresh_topic(name)
        self.refresh_broker_configs()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, or None before the first start of a controller."""
        node = self._tree.get(nodes.CLUSTER_ID)
        return None if node is None else nodes.decode_cluster_id(node.value)

    def refresh_topic(self, name: str) -> TopicImage | None:
        """Read a topic again, and return it, or None when it is gone."""
        image = self._read_topic(name)
        old = self.topics.pop(name, None)
        if old is not None:
            self._forget(old)
        if image is not None:
            self.topics[name] = image
            self.topics_by_id[image.topic_id.bytes] = image
            self.names_by_collision_key.setdefault(collision_key(name), set()).add(name)
        return image

    def _forget(self, image: TopicImage) -> None:
        if self.topics_by_id.get(image.topic_id.bytes) is image:
            del self.topics_by_id[image.topic_id.bytes]
        key = collision_key(image.name)
        self.names_by_collision_key[key].discard(image.name)
        if not self.names_by_collision_key[key]:
            del self.names_by_collision_key[key]

    def refresh_broker_configs(self) -> None:
        """Read the settings of all brokers again."""
        configs: dict[int, Mapping[str, str]] = {}
        for name in self._tree.children(nodes.BROKER_CONFIGS):
            path = f"{nodes.BROKER_CONFIGS}/{name}"
            if name != nodes.DEFAULT_BROKER_NAME and not name.isdecimal():
                raise nodes.NodeValueError(path, f"{name!r} is not the number of a broker")
            broker = nodes.DEFAULT_BROKER if name == nodes.DEFAULT_BROKER_NAME else int(name)
            configs[broker] = self._read_config(path)
        self.broker_configs = configs

    def _read_topic(self, name: str) -> TopicImage | None:
        path = nodes.topic_path(name)
        node = self._tree.get(path)
        if node is None:
            return None
        topic_id, replicas = nodes.decode_topic(path, node.value)
        states = tuple(self._read_state(name, partition, brokers) for partition, brokers in enumerate(replicas))
        config = self._read_config(nodes.topic_config_path(name))
        return TopicImage(name=name, topic_id=topic_id, partitions=states, config=config)

    def _read_state(self, name: str, partition: int, replicas: tuple[int, ...]) -> PartitionState:
        path = nodes.state_path(name, partition)
        node = self._tree.get(path)
        if node is None:
            # A Kafka writes the topic first and elects the leaders after that.
            return PartitionState(nodes.NO_LEADER, 0, replicas, ())
        leader, leader_epoch, isr = nodes.decode_state(path, node.value)
        return PartitionState(leader, leader_epoch, replicas, isr)

    def _read_config(self, path: str) -> Mapping[str, str]:
        node = self._tree.get(path)
        return MappingProxyType({} if node is None else nodes.decode_config(path, node.value))
