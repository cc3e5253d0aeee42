"""The topics in which coordinators keep their state: what they are called, how they are made, who is where in them.

    group "orders" --> java_hash % 50 --> __consumer_offsets-17 --> the shard that coordinates the group

Rule 1: clients neither create nor write them. The first client that asks for a coordinator makes the broker create the
topic of that coordinator.
Rule 2: which partition a name belongs to is the same as in Kafka, so that a log directory can move either way.
"""

from functools import lru_cache

from barnabas.broker_config import Settings
from barnabas.cluster.controller import NewTopic

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__cluster_metadata"})
COORDINATOR_TOPICS = (GROUP_TOPIC, TRANSACTION_TOPIC)

KEYS_MAX = 10_000
"""So many names are remembered with their partition: every request of a group asks for it."""


def java_hash(text: str) -> int:
    """Return what `String.hashCode` returns: over UTF-16, in 32 bits with a sign."""
    value = 0
    encoded = text.encode("utf-16-be", errors="surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=KEYS_MAX)
def partition_for(key: str, partition_count: int) -> int:
    """Return which partition of an internal topic a group or a transactional id belongs to."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count


def internal_topic(name: str, settings: Settings, broker_count: int) -> NewTopic:
    """Return an internal topic as it is to be created, with no more replicas than there are brokers."""
    groups, transactions = settings.groups, settings.transactions
    if name == GROUP_TOPIC:
        partitions, replicas = groups.offsets_topic_num_partitions, groups.offsets_topic_replication_factor
        # Nobody but the coordinator reads it, so it may be compressed as the coordinator likes.
        config = {"compression.type": "producer", "segment.bytes": str(groups.offsets_topic_segment_bytes)}
    else:
        partitions, replicas = transactions.topic_num_partitions, transactions.topic_replication_factor
        config = {
            "compression.type": "uncompressed",
            "segment.bytes": str(transactions.topic_segment_bytes),
            "min.insync.replicas": str(min(transactions.topic_min_isr, replicas, broker_count)),
            "unclean.leader.election.enable": "false",
        }
    return NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=min(replicas, broker_count),
        config={"cleanup.policy": "compact", **config},
    )
