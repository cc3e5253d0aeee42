"""What a handler can reach: the parts of one broker, in one object.

It is put together at the start (server/broker_server.py) and handed to every handler.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.broker.bulk_loads import BulkLoads
from barnabas.broker.dynamic_config import DynamicConfig
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.groups import Groups
from barnabas.broker.log_retention import LogRetention
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.replica_moves import ReplicaMoves
from barnabas.broker.scheduler import IoPool, Scheduler
from barnabas.broker.topic_changes import TopicChanges
from barnabas.broker.transactions import Transactions
from barnabas.broker_config import Endpoint
from barnabas.clock import Clock
from barnabas.cluster.controller import Controller
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.model import TopicPartition
from barnabas.storage.log_manager import LogManager


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of a broker."""

    node_id: int
    clock: Clock
    scheduler: Scheduler
    pool: IoPool
    config: DynamicConfig
    cache: MetadataCache
    controller: Controller
    log_manager: LogManager
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    topic_changes: TopicChanges
    groups: Groups
    transactions: Transactions
    bulk_loads: BulkLoads
    log_retention: LogRetention
    replica_moves: ReplicaMoves
    cleaning_of: Callable[[TopicPartition], str | None] = lambda _: None
    """Says in a sentence what the cleaner does with a partition, or why not; None where there is nothing to say."""
    first_dirty_offset_of: Callable[[TopicPartition], int | None] = lambda _: None
    """Returns up to where a partition is compacted, or None where it never was."""
    state_name: Callable[[], str] = lambda: "RUNNING"
    """Says what the broker is doing, by Kafka's names."""
    request_count: Callable[[], int] = lambda: 0
    """Returns how many requests were answered since the start."""
    started_seconds: float = 0.0
    """When the broker began to start, by the clock that never jumps."""
    listening: dict[str, Endpoint] = field(default_factory=dict)
    """Where each listener listens, with the port that it got; known once the sockets are open."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which clients compare."""
        return self.cache.cluster_id or ""

    def advertised(self, listener: str, local_host: str) -> Endpoint:
        """Return the address that a client of a listener is told to connect to.

        A listener on every address, without an advertised one, tells the client the address that it came to, which is
        one that it can reach.
        """
        for endpoint in self.config.broker.advertised_listeners:
            if endpoint.name == listener:
                port = endpoint.port or self.listening[listener].port
                return endpoint._replace(port=port)
        endpoint = self.listening[listener]
        return endpoint._replace(host=local_host) if endpoint.host in ("", "0.0.0.0", "::") else endpoint
