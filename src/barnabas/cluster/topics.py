"""What a valid topic is, where its replicas go, and which operations make, extend and remove one.

Requests come in as plain values and operations go out to the controller, which commits them; nothing here has state.

Rule 1: a refusal is an ApiError with Kafka's code, and a sentence that names the topic and says what is allowed.
Rule 2: whatever is one change to a user is one list of operations, so that no half of a topic is ever durable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID, uuid4

from barnabas.cluster import nodes
from barnabas.cluster.nodes import PartitionState
from barnabas.cluster.tree import Create, Delete, MetadataTree, Operation, Set
from barnabas.model import ZERO_TOPIC_ID
from barnabas.storage.checkpoint import encode_topic_id
from barnabas.wire.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX = 249
"""Kafka's limit: with a partition number and `.<32 hex digits>-delete` the folder's name must fit a file system."""

PARTITIONS_MAX = 10_000
"""How many partitions one request may add, as in Kafka: each is a folder of files, and a number is easily mistyped."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise ApiError INVALID_TOPIC_EXCEPTION unless the name can be a topic's."""
    if not name:
        reason = "the name of a topic can not be empty"
    elif name in (".", ".."):
        reason = f"{name!r} can not be the name of a topic, because it is that of a folder"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = (
            f"{name[:20]!r}... has {len(name)} characters, and the name of a topic has at most {TOPIC_NAME_LENGTH_MAX}"
        )
    elif not _TOPIC_NAME.fullmatch(name):
        reason = f"{name!r} can not be the name of a topic, which has only ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def collision_key(name: str) -> str:
    """Return what two topics must not share: in the names of metrics '.' and '_' are the same."""
    return name.replace(".", "_")


def new_topic_id() -> UUID:
    """Return a random id whose text can be an argument of a command: it never begins with a dash."""
    while True:
        topic_id = uuid4()
        if topic_id != ZERO_TOPIC_ID and not encode_topic_id(topic_id).startswith("-"):
            return topic_id


def assign_replicas(
    brokers: Sequence[int], partitions: int, replication_factor: int, start: int = 0, *, first_partition: int = 0
) -> list[tuple[int, ...]]:
    """Spread replicas over brokers as Kafka does when it knows of no racks (AdminUtils).

    Leaders go round robin from the broker at `start`. The other replicas follow their leader at a distance that grows
    by one with every round, so that the partitions of a broker that fails go to many others. With brokers 0 to 4:

        partition  0          1          2          3          4          5          6
        replicas   0, 1, 2    1, 2, 3    2, 3, 4    3, 4, 0    4, 0, 1    0, 2, 3    1, 3, 4
    """
    count = len(brokers)
    assert 1 <= replication_factor <= count
    shift = start
    assigned = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (partition + start) % count
        followers = [
            (leader + 1 + (shift + follower) % (count - 1)) % count for follower in range(replication_factor - 1)
        ]
        assigned.append(tuple(brokers[place] for place in (leader, *followers)))
    return assigned


def check_partition_count(name: str, count: int) -> None:
    """Raise ApiError INVALID_PARTITIONS unless a topic can have so many new partitions."""
    if not 1 <= count <= PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name} can not get {count} partitions; one request makes 1 to {PARTITIONS_MAX}",
        )


def check_replication_factor(name: str, replication_factor: int, live_brokers: Sequence[int]) -> None:
    """Raise ApiError INVALID_REPLICATION_FACTOR unless there is a broker for each replica."""
    if not 1 <= replication_factor <= len(live_brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name} can not have replication factor {replication_factor};"
            f" it is 1 to the number of live brokers, {len(live_brokers)}",
        )


def check_assignment(
    name: str,
    assignment: Sequence[Sequence[int]],
    live_brokers: Sequence[int],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> None:
    """Raise ApiError INVALID_REPLICA_ASSIGNMENT unless each partition has so many replicas on different live brokers.

    Without a replication factor that of the first partition holds for the others.
    """
    for number, replicas in enumerate(assignment, first_partition):
        if replication_factor is None:
            replication_factor = len(replicas)
        unknown = sorted(set(replicas) - set(live_brokers))
        reason = None
        if not replicas:
            reason = "has no replica, and needs one at least"
        elif len(set(replicas)) != len(replicas):
            reason = f"has replicas {list(replicas)}, which must all be on different brokers"
        elif unknown:
            reason = f"has replicas on {unknown}, and the live brokers are {sorted(live_brokers)}"
        elif len(replicas) != replication_factor:
            reason = f"has {len(replicas)} replicas, and all partitions of the topic must have {replication_factor}"
        if reason is not None:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} of topic {name} {reason}")


def in_partition_order(name: str, assignments: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the replicas by number of partition; raise ApiError INVALID_REPLICA_ASSIGNMENT when one is missing."""
    if len(assignments) > PARTITIONS_MAX:
        check_partition_count(name, len(assignments))
    if sorted(assignments) != list(range(len(assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {name} is assigned partitions {sorted(assignments)[:10]}; they must be 0, 1, 2 and so on",
        )
    return [tuple(assignments[number]) for number in range(len(assignments))]


def new_partitions(assignment: Sequence[tuple[int, ...]]) -> tuple[PartitionState, ...]:
    """Return the first state of partitions: the first replica leads, and all are in sync, since nothing is in them."""
    return tuple(PartitionState(replicas[0], 0, replicas, replicas) for replicas in assignment)


def _create_states(
    name: str, states: Sequence[PartitionState], first_partition: int, controller_epoch: int
) -> Iterator[Operation]:
    for partition, state in enumerate(states, first_partition):
        yield Create(nodes.partition_path(name, partition), b"")
        yield Create(nodes.state_path(name, partition), nodes.encode_state(state, controller_epoch))


def operations_to_create(
    name: str,
    topic_id: UUID,
    states: Sequence[PartitionState],
    config: Mapping[str, str],
    has_config_node: bool,
    controller_epoch: int,
) -> list[Operation]:
    """Return what makes a topic with all its partitions."""
    config_path, config_value = nodes.topic_config_path(name), nodes.encode_config(config)
    return [
        # Kafka leaves the settings of a topic when a deletion is cut short; they are not the new topic's.
        Set(config_path, config_value) if has_config_node else Create(config_path, config_value),
        Create(nodes.topic_path(name), nodes.encode_topic(topic_id, [state.replicas for state in states])),
        Create(nodes.partitions_path(name), b""),
        *_create_states(name, states, 0, controller_epoch),
    ]


def operations_to_extend(
    name: str,
    topic_id: UUID,
    old: Sequence[PartitionState],
    new: Sequence[PartitionState],
    version: int,
    controller_epoch: int,
) -> list[Operation]:
    """Return what gives a topic more partitions, unless its node was changed since it had `version`."""
    replicas = [state.replicas for state in (*old, *new)]
    return [
        Set(nodes.topic_path(name), nodes.encode_topic(topic_id, replicas), version),
        *_create_states(name, new, len(old), controller_epoch),
    ]


def operations_to_remove(tree: MetadataTree, path: str) -> list[Operation]:
    """Return what removes a node and everything below it, whatever that is; nothing when it is not there."""
    if tree.get(path) is None:
        return []
    below = [operation for name in tree.children(path) for operation in operations_to_remove(tree, f"{path}/{name}")]
    return [*below, Delete(path)]
