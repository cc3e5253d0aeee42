"""The words that scenarios use and every client's driver speaks: records, descriptions, errors, and the drivers' calls.

Rule 1: a scenario knows only these words, so that it asks the same of every client.
Rule 2: an error that the broker answered with comes out of every driver as `ClientError` with Kafka's name of it.
Rule 3: what a client cannot do is in its `lacks`, by the names of `Need`, with the reason that the table shows.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from barnabas.wire.errors import ErrorCode

# How long a client may take for anything: far more than it needs, because a shared machine stalls.
DEADLINE_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]
Acks = Literal["0", "1", "all"]
Reset = Literal["none", "earliest", "latest"]
OffsetSpec = Literal["earliest", "latest", "max-timestamp"]
GroupProtocol = Literal["classic", "consumer"]
Assignor = Literal["range", "cooperative-sticky"]


class Need(Enum):
    """What a scenario needs and a client may lack. The values are for people."""

    SNAPPY = "the codec snappy"
    LZ4 = "the codec lz4"
    ZSTD = "the codec zstd"
    NULL_HEADER = "headers without a value"
    NULL_KEY_AND_VALUE = "records with neither key nor value"
    MAX_TIMESTAMP = "the offset of the newest timestamp"
    INCREMENTAL_ALTER = "changing single settings"
    LEGACY_ALTER = "replacing all settings"
    LOG_DIRS = "describing log directories"
    DESCRIBE_PRODUCERS = "describing a partition's producers"
    TOPIC_ID = "topic ids"
    INVALID_RECORD = "the error INVALID_RECORD"
    DESCRIBE_WITHOUT_CREATING = "describing a topic without creating it"
    CONSUMER_PROTOCOL = "groups with the consumer protocol (KIP-848)"
    COOPERATIVE = "incremental rebalances (KIP-429)"
    DELETE_GROUPS = "deleting groups"


CODEC_NEEDS = {"snappy": Need.SNAPPY, "lz4": Need.LZ4, "zstd": Need.ZSTD}


class ClientError(Exception):
    """What a client said went wrong."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(f"{name}: {message}")
        # Kafka's name of the error, or `local: ...` for one that the broker did not send.
        self.name = name


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"local: {code}"


# Why a commit may be refused while a group rebalances; the member commits again when it has polled.
REBALANCING = ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION")


def isolation_level(read_committed: bool) -> str:
    """Every client's word for what a consumer may see of transactions."""
    return "read_committed" if read_committed else "read_uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as a consumer got it."""

    partition: int
    offset: int
    timestamp_ms: int
    # Whether the timestamp is the broker's (LogAppendTime) instead of the producer's.
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a record was written. The offset is -1 where the producer asked for no acknowledgement."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    """An offset that was asked for by time, or by `OffsetSpec`; the timestamp is -1 where there is none."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of a topic or broker, as the broker describes it."""

    value: str | None
    is_default: bool
    is_read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Who has a partition."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic; the id is None where the client does not show it."""

    topic_id: str | None
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster; brokers are `host:port` by their ids."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """What a partition knows of an idempotent producer."""

    producer_id: int
    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer is set up."""

    acks: Acks = "all"
    codec: str = "none"
    # None leaves it to the client.
    idempotent: bool | None = None
    # The client's own limit of a request, where a scenario wants the broker's to be met first.
    request_bytes_max: int = 1024 * 1024
    batch_bytes: int = 16 * 1024
    # With one, the calls of transactions may be used.
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer is set up."""

    reset: Reset = "none"
    # None leaves it to the client.
    read_committed: bool | None = None
    fetch_wait_ms_max: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """How a member of a group is set up."""

    group: str
    topic: str
    protocol: GroupProtocol = "classic"
    # Of the classic protocol; in the other the broker assigns.
    assignor: Assignor = "range"
    # Makes it a static member (KIP-345).
    instance_id: str | None = None
    # Of the classic protocol; in the other it is the broker's.
    session_timeout_ms: int = 30_000
    reset: Reset = "earliest"
    read_committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Where a group goes on in a partition."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What a member got, and how it stands with its group."""

    records: list[Record]
    # The partitions that it owns now.
    assignment: frozenset[int]
    # How often it was given partitions, or had them taken away, since it was opened.
    rebalances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as the broker describes it."""

    # As the client calls it, in upper case without blanks: STABLE, EMPTY, DEAD.
    state: str
    members: int


class Member(AbstractContextManager["Member"], Protocol):
    """An open consumer that is a member of a group. It leaves the group at the end of the block."""

    def poll(self, *, commit: bool) -> Polled:
        """Waits a moment for records. With `commit` they are committed before they are returned, or before their
        partition is taken away, so that no other member gets them."""

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        """Commits these offsets of partitions that it owns."""


class Producer(AbstractContextManager["Producer"], Protocol):
    """An open producer. All but `send` needs a transactional id, and `init_transactions` comes first."""

    def send(self, topic: str, records: Sequence[NewRecord]) -> list[Position]:
        """Produces all of them together, and returns when all are acknowledged; raises the first error."""

    def init_transactions(self) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets(self, topic: str, offsets: Mapping[int, int], member: Member) -> None:
        """Commits offsets for the member's group with the transaction."""

    def commit_transaction(self) -> None: ...

    def abort_transaction(self) -> None: ...


class Consumer(AbstractContextManager["Consumer"], Protocol):
    """An open consumer with assigned partitions."""

    def take(self, count: int) -> list[Record]:
        """The next `count` records; raises `TimeoutError` if they do not come before the deadline."""


class Driver(Protocol):
    """A client, connected to one broker."""

    # What the table calls it, and what `lacks` says of it.
    name: str
    lacks: Mapping[Need, str]

    def close(self) -> None: ...

    def producer(self, options: ProducerOptions) -> Producer: ...

    def consumer(self, topic: str, start: Mapping[int, int], options: ConsumerOptions) -> Consumer:
        """A consumer of these partitions from these offsets; it joins no group."""

    def member(self, options: MemberOptions) -> Member:
        """A consumer that joins a group when it polls."""

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        """The offsets that a group has committed, as an admin client asks."""

    def list_groups(self) -> set[str]: ...

    def describe_group(self, group: str) -> GroupDescription: ...

    def delete_group(self, group: str) -> None: ...

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, FoundOffset | None]:
        """For each partition the first record at or after a time, as a consumer asks; None past the end."""

    def list_offset(self, topic: str, partition: int, spec: OffsetSpec) -> FoundOffset: ...

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def list_topics(self) -> set[str]: ...

    def describe_topic(self, topic: str) -> TopicDescription: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def topic_settings(self, topic: str) -> dict[str, Setting]: ...

    def broker_settings(self, broker_id: int) -> dict[str, Setting]: ...

    def alter_topic(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Changes these settings and no other; None brings the default back."""

    def replace_topic_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Sets these and brings the default of all others back (the old AlterConfigs)."""

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes records before an offset and returns the low watermark."""

    def describe_cluster(self) -> ClusterDescription: ...

    def log_dirs(self, topic: str) -> dict[int, int]:
        """The bytes on disk of each partition of a topic."""

    def describe_producers(self, topic: str, partition: int) -> list[ProducerState]: ...
