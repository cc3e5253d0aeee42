"""A client of a cluster: it finds brokers from a bootstrap list, knows who leads what, and asks again where that helps.

    with Client("127.0.0.1:9092") as client:
        client.topic("orders").partitions
        client.request(InitProducerIdRequest(...))      # to any broker
        client.connection_to_controller()               # what `admin`, `offsets`, `fetcher`, `sender` are made of

Connections are opened when they are needed, one to an address, and kept. Metadata is asked for when a topic is first
named, and anew after an answer that contradicts it.

Rule 1: a connection that can not be opened is only tried again once some broker has answered: a client with a wrong
address says so at once.
Rule 2: no threads, no state outside the object; a client is used by one thread, and closed.
"""

from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.answers import error_of, is_retriable
from barnabas.client.connection import Connection, ConnectionFailedError
from barnabas.client.metadata import (
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    UnknownPartitionError,
    UnknownTopicError,
    metadata_request,
    read_metadata,
)
from barnabas.client.options import Address, ClientOptions, parse_bootstrap_servers
from barnabas.client.retry import Retry
from barnabas.clock import SystemClock, WaitingClock
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode

Result = TypeVar("Result")

# A topic that is created by asking is there after a moment. One that is not, never will be: nobody waits a minute.
AUTO_CREATION_TIMEOUT_MS = 5_000


class Client:
    """Connections to a cluster, and what is known of it."""

    def __init__(
        self,
        bootstrap_servers: str,
        options: ClientOptions | None = None,
        *,
        clock: WaitingClock | None = None,
    ) -> None:
        """Args:
        bootstrap_servers: `host:port`, several with commas between; the first that answers is used.
        options: How to behave.
        clock: What to take the time from, and to wait by.

        Raises:
            ValueError: An address can not be read. Nothing is connected before the first request.
        """
        self.options = ClientOptions() if options is None else options
        self.clock: WaitingClock = SystemClock() if clock is None else clock
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self._connections: dict[Address, Connection] = {}
        self._cluster: ClusterMetadata | None = None
        self._is_fresh = False
        self._topics: dict[str, TopicMetadata] = {}

    # Connections

    def connection(self, address: Address) -> Connection:
        """Return the connection to an address, opened now if there is none; raises ConnectionFailedError."""
        known = self._connections.get(address)
        if known is not None and known.is_open:
            return known
        opened = Connection(address, self.options, self.clock)
        self._connections[address] = opened
        return opened

    def any_connection(self) -> Connection:
        """Return a connection to some broker: an open one, or to a known broker, or to one of the bootstrap list."""
        for connection in self._connections.values():
            if connection.is_open and connection.in_flight == 0:
                return connection
        known = [] if self._cluster is None else [node.address for node in self._cluster.nodes.values()]
        failures: list[ConnectionFailedError] = []
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return self.connection(address)
            except ConnectionFailedError as error:
                failures.append(error)
        raise failures[-1]

    def connection_to(self, node_id: int) -> Connection:
        """Return the connection to a broker by its id."""
        return self.connection(self.address_of(node_id))

    def own_connection_to(self, node_id: int) -> Connection:
        """Open a connection that is only the caller's: with answers on their way, no metadata could be asked for."""
        return Connection(self.address_of(node_id), self.options, self.clock)

    def address_of(self, node_id: int) -> Address:
        """Return where a broker listens; raises ApiError when it is not alive."""
        node = self.cluster().nodes.get(node_id)
        if node is None:
            raise error_of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not among the live ones")
        return node.address

    def connection_to_controller(self) -> Connection:
        """Return the connection to the controller, or to any broker where the metadata names none."""
        controller_id = self.cluster().controller_id
        return self.connection_to(controller_id) if controller_id >= 0 else self.any_connection()

    # Metadata

    def fetch_metadata(
        self, topics: Sequence[str] | None, *, allow_auto_topic_creation: bool = False
    ) -> ClusterMetadata:
        """Ask a broker about these topics, or about all where None, and remember what it says."""
        connection = self.any_connection()
        version = connection.version_of("Metadata")
        question = metadata_request(topics, allow_auto_topic_creation=allow_auto_topic_creation, version=version)
        answer = read_metadata(connection.request(question, version))
        self._cluster, self._is_fresh = answer, True
        for name in answer.missing:
            self._topics.pop(name, None)
        self._topics.update(answer.topics)
        return answer

    def cluster(self) -> ClusterMetadata:
        """Return the brokers, as they were last heard of."""
        if self._cluster is None or not self._is_fresh:
            return self.fetch_metadata([])
        return self._cluster

    def topic(self, name: str, *, allow_auto_topic_creation: bool = False) -> TopicMetadata:
        """Return a topic as it was last heard of; raises UnknownTopicError at once when there is none."""
        known = self._topics.get(name)
        if known is not None:
            return known
        retry = self.retry(AUTO_CREATION_TIMEOUT_MS if allow_auto_topic_creation else None)
        while True:
            answer = self.retrying(
                lambda: self.fetch_metadata([name], allow_auto_topic_creation=allow_auto_topic_creation)
            )
            if name in answer.topics:
                return answer.topics[name]
            code = answer.missing.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                unknown = UnknownTopicError(f"there is no topic {name!r}")
                if not allow_auto_topic_creation:
                    raise unknown
                retry.pause(unknown)
                continue
            error = error_of(code, f"topic {name!r} can not be used")
            if not is_retriable(error):
                raise error
            retry.pause(error)

    def partition(self, partition: TopicPartition) -> PartitionMetadata:
        """Return a partition as it was last heard of; raises UnknownTopicError."""
        partitions = self.topic(partition.topic).partitions
        if not 0 <= partition.partition < len(partitions):
            raise UnknownPartitionError(partition.topic, partition.partition, len(partitions))
        return partitions[partition.partition]

    def leader_of(self, partition: TopicPartition) -> int:
        """Return the id of the broker that leads a partition; raises ApiError while there is none."""
        leader_id = self.partition(partition).leader_id
        if leader_id < 0:
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return leader_id

    def by_leader(self, partitions: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions by the broker that leads them; raises ApiError when one has no leader."""
        missing = sorted({partition.topic for partition in partitions} - self._topics.keys())
        if len(missing) > 1:
            self.fetch_metadata(missing)  # One question for all of them, instead of one for each.
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            led.setdefault(self.leader_of(partition), []).append(partition)
        return led

    def forget_metadata(self) -> None:
        """Ask anew before anything that is known of topics and brokers is used again."""
        self._topics.clear()
        # The brokers stay known as addresses to ask at, for the case that the bootstrap list is gone by now.
        self._is_fresh = False

    # Requests

    def request(self, message: Any, version: int | None = None) -> Any:
        """Ask any broker, and another one when the connection breaks; codes in the answer are for the caller."""
        return self.retrying(lambda: self.any_connection().request(message, version))

    def retry(self, timeout_ms: int | None = None) -> Retry:
        """Return a fresh count of attempts."""
        return Retry(self.clock, self.options, timeout_ms)

    def retrying(self, attempt: Callable[[], Result], timeout_ms: int | None = None) -> Result:
        """Call until there is a result, an error that no further call can mend, or no time left."""
        retry = self.retry(timeout_ms)
        while True:
            try:
                return attempt()
            except (ApiError, ConnectionFailedError) as error:
                if not self.is_worth_another_attempt(error):
                    raise
                self.forget_metadata()
                retry.pause(error)

    def is_worth_another_attempt(self, error: ApiError | ConnectionFailedError) -> bool:
        """Tell whether an error may be gone at the next attempt."""
        if isinstance(error, ApiError):
            return is_retriable(error)
        return self._cluster is not None

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
