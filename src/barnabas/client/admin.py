"""What an administrator asks a cluster: topics, partitions and settings. Functions over a `Client`.

Rule 1: what is asked for several topics at once has an answer for each. The functions return the errors by name, and an
empty dictionary when all went well.
Rule 2: changes go to the controller, and are asked for again only when it was the wrong one or could not be reached.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from barnabas.client.answers import error_of
from barnabas.client.client import Client
from barnabas.client.metadata import ClusterMetadata, TopicMetadata, UnknownTopicError
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsReqAlterableConfig,
    IncrementalAlterConfigsReqAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

BROKER_DEFAULT = -1
"""As a number of partitions or replicas: the broker's own setting decides (KIP-464)."""

# Brokers hear of a change a moment after the controller has answered; a caller that goes on at once should not notice.
SETTLE_TIMEOUT_MS = 5_000

Failures = dict[str, ApiError]


class ResourceType(IntEnum):
    """What settings belong to."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where the value of a setting comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    """What is done to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting. The value of a sensitive one is never told, and None."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_overridden(self) -> bool:
        """Whether somebody set it for this very topic."""
        return self.source == ConfigSource.DYNAMIC_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A change of one setting."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


def describe_cluster(client: Client) -> ClusterMetadata:
    """Return the brokers and the controller as they are now."""
    return client.retrying(lambda: client.fetch_metadata([]))


def list_topics(client: Client, *, internal: bool = False) -> list[TopicMetadata]:
    """Return all topics by name, those of the broker itself only where asked for."""
    topics = client.retrying(lambda: client.fetch_metadata(None)).topics
    return [topics[name] for name in sorted(topics) if internal or not topics[name].is_internal]


def describe_topics(client: Client, names: Sequence[str]) -> list[TopicMetadata]:
    """Return topics as they are now, in the order of the names; raises UnknownTopicError, or ApiError."""
    answer = client.retrying(lambda: client.fetch_metadata(names))
    for name, code in answer.missing.items():
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"there is no topic {name!r}")
        raise error_of(code, f"topic {name!r} can not be described")
    return [answer.topics[name] for name in names]


def create_topics(client: Client, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Failures:
    """Create topics; returns when the brokers know of them."""
    question = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=client.options.request_timeout_ms,
        validate_only=validate_only,
    )
    answer = _ask_controller(client, question, lambda answer: answer.topics)
    failures = _failures((row.name, row.error_code, row.error_message) for row in answer)
    if not validate_only:
        created = [row.name for row in answer if row.name not in failures]
        _settle(client, created, lambda cluster: all(_has_leaders(cluster, name) for name in created))
    return failures


def delete_topics(client: Client, names: Sequence[str]) -> Failures:
    """Delete topics; returns when the brokers have forgotten them."""
    question = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=client.options.request_timeout_ms,
    )
    answer = _ask_controller(client, question, lambda answer: answer.responses)
    failures = _failures((row.name, row.error_code, row.error_message) for row in answer)
    deleted = [name for name in names if name not in failures]
    _settle(client, deleted, lambda cluster: not any(name in cluster.topics for name in deleted))
    client.forget_metadata()
    return failures


def create_partitions(client: Client, counts: Mapping[str, int]) -> Failures:
    """Raise the number of partitions of topics to these; returns when the brokers know of them."""
    question = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=client.options.request_timeout_ms,
    )
    answer = _ask_controller(client, question, lambda answer: answer.results)
    failures = _failures((row.name, row.error_code, row.error_message) for row in answer)
    grown = {name: count for name, count in counts.items() if name not in failures}

    def has_grown(cluster: ClusterMetadata) -> bool:
        return all(
            _has_leaders(cluster, name) and len(cluster.topics[name].partitions) >= count
            for name, count in grown.items()
        )

    _settle(client, list(grown), has_grown)
    return failures


def describe_configs(
    client: Client, names: Sequence[str], resource_type: ResourceType = ResourceType.TOPIC
) -> dict[str, dict[str, ConfigEntry]]:
    """Return every setting of topics, or of brokers by their id as text; raises ApiError for the first that fails."""
    question = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
            for name in names
        ]
    )

    def attempt() -> dict[str, dict[str, ConfigEntry]]:
        # The settings of a broker are known to that broker only.
        is_broker = resource_type == ResourceType.BROKER and len(names) == 1
        connection = client.connection_to(int(names[0])) if is_broker else client.any_connection()
        rows = connection.request(question).results
        for row in rows:
            if row.error_code != ErrorCode.NONE:
                raise error_of(row.error_code, f"the settings of {row.resource_name!r}", row.error_message)
        return {row.resource_name: {entry.name: _entry(entry) for entry in row.configs} for row in rows}

    return client.retrying(attempt)


def alter_configs(
    client: Client,
    changes: Mapping[str, Sequence[ConfigChange]],
    resource_type: ResourceType = ResourceType.TOPIC,
) -> Failures:
    """Change some settings of topics, and leave the others as they are (KIP-339)."""
    question = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsReqAlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsReqAlterableConfig(
                        name=change.name, config_operation=change.operation, value=change.value
                    )
                    for change in of_name
                ],
            )
            for name, of_name in changes.items()
        ]
    )
    answer = _ask_controller(client, question, lambda answer: answer.responses)
    return _failures((row.resource_name, row.error_code, row.error_message) for row in answer)


def _entry(row: Any) -> ConfigEntry:
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=row.config_source,
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
    )


def _ask_controller(client: Client, question: Any, rows_of: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the rows of the controller's answer, once whoever answers is the controller."""

    def attempt() -> list[Any]:
        rows = rows_of(client.connection_to_controller().request(question))
        if any(row.error_code == ErrorCode.NOT_CONTROLLER for row in rows):
            raise error_of(ErrorCode.NOT_CONTROLLER, "the controller has changed")
        return rows

    return client.retrying(attempt)


def _failures(rows: Iterable[tuple[str, int, str | None]]) -> Failures:
    return {name: error_of(code, f"{name!r}", message) for name, code, message in rows if code != ErrorCode.NONE}


def _has_leaders(cluster: ClusterMetadata, name: str) -> bool:
    topic = cluster.topics.get(name)
    return topic is not None and all(partition.leader_id >= 0 for partition in topic.partitions)


def _settle(client: Client, names: Sequence[str], is_settled: Callable[[ClusterMetadata], bool]) -> None:
    """Wait until a change shows in the metadata; the change itself is done, so that not seeing it is no error."""
    if not names:
        return
    deadline = client.clock.monotonic_seconds() + SETTLE_TIMEOUT_MS / 1000
    while not is_settled(client.retrying(lambda: client.fetch_metadata(names))):
        if client.clock.monotonic_seconds() >= deadline:
            return
        client.clock.sleep(client.options.retry_backoff_ms / 1000)
