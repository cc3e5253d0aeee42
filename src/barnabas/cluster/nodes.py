"""The paths and the JSON of every node of the metadata tree, as Kafka has them in ZooKeeper.

Values are encoded here for the controller, and decoded here for the cache.

Rule 1: what is written is what Kafka writes, with no more fields than Kafka's, but for the marker of a deleted topic:
Kafka leaves it empty and keeps the topic's own nodes until the logs are gone; ours carries the topic id and the
number of partitions, because one commit takes the topic away.
Rule 2: fields that nobody here knows are ignored, as Kafka does. A value that can not be read is a NodeValueError
that names the node.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from barnabas.storage.checkpoint import decode_topic_id, encode_topic_id

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_IDS = "/latest_producer_id_block"
ADOPTED = "/admin/adopted"
"""Not one of Kafka's: it says that the topics that were on the disk before there was metadata are known here."""

ROOT_NODES = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
)
"""The nodes that are there before anything else, parents first."""

DEFAULT_BROKER = -1
DEFAULT_BROKER_NAME = "<default>"

NO_LEADER = -1


class NodeValueError(Exception):
    """The value of a node can not be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the metadata node {path} can not be read: {reason}")
        self.path = path


class PartitionState(NamedTuple):
    """Who has a partition and who leads it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class PendingDeletion(NamedTuple):
    """A topic that is deleted, but whose logs may still be there."""

    name: str
    topic_id: UUID
    partition_count: int


def topic_path(name: str) -> str:
    """`/brokers/topics/orders`"""
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    """`/brokers/topics/orders/partitions`"""
    return f"{TOPICS}/{name}/partitions"


def partition_path(name: str, partition: int) -> str:
    """`/brokers/topics/orders/partitions/0`"""
    return f"{TOPICS}/{name}/partitions/{partition}"


def state_path(name: str, partition: int) -> str:
    """`/brokers/topics/orders/partitions/0/state`"""
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def topic_config_path(name: str) -> str:
    """`/config/topics/orders`"""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config_path(node: int) -> str:
    """`/config/brokers/0`, or `/config/brokers/<default>` for the node DEFAULT_BROKER."""
    return f"{BROKER_CONFIGS}/{DEFAULT_BROKER_NAME if node == DEFAULT_BROKER else node}"


def delete_topic_path(name: str) -> str:
    """`/admin/delete_topics/orders`"""
    return f"{DELETE_TOPICS}/{name}"


def encode(value: object) -> bytes:
    """Return JSON without spaces, as Kafka writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


T = TypeVar("T")


def _decode(path: str, value: bytes, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of a JSON value; whatever does not fit is a NodeValueError."""
    try:
        return read(json.loads(value))
    except KeyError as error:
        raise NodeValueError(path, f"the field {error} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise NodeValueError(path, str(error)) from None


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the value of /cluster/id."""
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(value: bytes) -> str:
    """Return the id in the value of /cluster/id."""
    return _decode(CLUSTER_ID, value, lambda fields: str(fields["id"]))


def encode_topic(topic_id: UUID, replicas: Iterable[Sequence[int]]) -> bytes:
    """Return the value of a topic's node: its id, and the replicas of each partition."""
    return encode(
        {
            "version": 3,
            "topic_id": encode_topic_id(topic_id),
            "partitions": {str(partition): list(brokers) for partition, brokers in enumerate(replicas)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def decode_topic(path: str, value: bytes) -> tuple[UUID, list[tuple[int, ...]]]:
    """Return the id of a topic and the replicas of each partition."""

    def read(fields: Any) -> tuple[UUID, list[tuple[int, ...]]]:
        partitions = {int(partition): tuple(map(int, brokers)) for partition, brokers in fields["partitions"].items()}
        if sorted(partitions) != list(range(len(partitions))):
            raise ValueError(f"its partitions are {sorted(partitions)}, which leaves some out")
        return decode_topic_id(fields["topic_id"]), [partitions[number] for number in range(len(partitions))]

    return _decode(path, value, read)


def encode_state(state: PartitionState, controller_epoch: int) -> bytes:
    """Return the value of a partition's state; the replicas are in the topic's node."""
    return encode(
        {
            "controller_epoch": controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_state(path: str, value: bytes) -> tuple[int, int, tuple[int, ...]]:
    """Return the leader, the leader epoch and the replicas in sync."""
    return _decode(
        path, value, lambda fields: (int(fields["leader"]), int(fields["leader_epoch"]), tuple(map(int, fields["isr"])))
    )


def encode_config(overrides: Mapping[str, str]) -> bytes:
    """Return the value of the settings of a topic or broker."""
    return encode({"version": 1, "config": dict(overrides)})


def decode_config(path: str, value: bytes) -> dict[str, str]:
    """Return the settings of a topic or broker."""
    return _decode(path, value, lambda fields: {str(name): str(setting) for name, setting in fields["config"].items()})


def encode_config_change(entity_path: str) -> bytes:
    """Return the value that tells brokers whose settings to read again, as in `topics/orders`."""
    return encode({"version": 2, "entity_path": entity_path})


def encode_controller(node_id: int, now_ms: int) -> bytes:
    """Return the value of /controller; Kafka writes the time as a text."""
    return encode({"version": 1, "brokerid": node_id, "timestamp": str(now_ms)})


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the value of /controller_epoch, which is the bare number."""
    return str(epoch).encode()


def decode_controller_epoch(value: bytes) -> int:
    """Return the number in /controller_epoch."""
    return _decode(CONTROLLER_EPOCH, value, int)


def encode_producer_ids(node_id: int, block: range) -> bytes:
    """Return the value that says who has the last block of producer ids; its end is inclusive in Kafka's JSON."""
    return encode({"version": 1, "broker": node_id, "block_start": str(block.start), "block_end": str(block.stop - 1)})


def decode_producer_ids(value: bytes) -> range:
    """Return the last block of producer ids that was handed out."""
    return _decode(PRODUCER_IDS, value, lambda fields: range(int(fields["block_start"]), int(fields["block_end"]) + 1))


def encode_deletion(topic_id: UUID, partition_count: int) -> bytes:
    """Return the value of the marker of a deleted topic."""
    return encode({"version": 1, "topic_id": encode_topic_id(topic_id), "partitions": partition_count})


def decode_deletion(name: str, value: bytes) -> PendingDeletion:
    """Return what the marker of a deleted topic says."""
    return _decode(
        delete_topic_path(name),
        value,
        lambda fields: PendingDeletion(name, decode_topic_id(fields["topic_id"]), int(fields["partitions"])),
    )
