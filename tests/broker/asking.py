"""Words for tests that speak the protocol to a broker: connect, create a topic, produce a batch, fetch what is there.

with Broker(in_process=True) as broker, connected(broker) as connection:
    create_topic(connection, "orders", partitions=3)
    answer = produce(connection, "orders", batch_of(5))           # tests.storage.builders has batch_of and sent_by
    assert offsets_of(fetch(connection, "orders", 0)) == [0, 1, 2, 3, 4]
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from barnabas.client.connection import Connection
from barnabas.client.options import ClientOptions, parse_bootstrap_servers
from barnabas.embedded import Broker
from barnabas.records.batch import read_header
from barnabas.records.record import Record, batch_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.configs import (
    IncrementalAlterConfigsReqAlterableConfig,
    IncrementalAlterConfigsReqAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


@contextmanager
def connected(broker: Broker, client_id: str = "test", **options: Any) -> Iterator[Connection]:
    """A connection to a broker."""
    (address,) = parse_bootstrap_servers(broker.bootstrap_servers)
    with Connection(address, ClientOptions(client_id=client_id, **options)) as connection:
        yield connection


def create_topic(
    connection: Connection, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
) -> bytes:
    """Create a topic, and return its id."""
    configs = [CreatableTopicConfig(name=key, value=str(value)) for key, value in (config or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    (result,) = connection.request(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == ErrorCode.NONE, result
    topic_id: bytes = result.topic_id
    return topic_id


def produce_request(topic: str, batches: Mapping[int, Any], *, acks: int = -1, **fields: Any) -> ProduceRequest:
    """A produce request for some partitions of one topic."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    fields.setdefault("timeout_ms", 30_000)
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=data)], **fields)


def produce(
    connection: Connection, topic: str, batch: Any, partition: int = 0, *, version: int = 9, acks: int = -1
) -> PartitionProduceResponse:
    """Produce one batch, and return what its partition was answered."""
    answer = connection.request(produce_request(topic, {partition: batch}, acks=acks), version)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


def fetch_request(topic: str, offsets: Mapping[int, int], **fields: Any) -> FetchRequest:
    """A fetch of some partitions of one topic; it does not wait unless it is told to."""
    max_bytes = fields.pop("partition_max_bytes", 1 << 20)
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in offsets.items()
    ]
    fields.setdefault("max_bytes", 50 << 20)
    fields.setdefault("min_bytes", 1)
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], **fields)


def fetch(connection: Connection, topic: str, offset: int, partition: int = 0, **fields: Any) -> PartitionData:
    """Fetch one partition without a session, and return its answer."""
    version = fields.pop("version", 12)
    answer = connection.request(fetch_request(topic, {partition: offset}, **fields), version)
    assert answer.error_code == ErrorCode.NONE
    found: PartitionData = answer.responses[0].partitions[0]
    return found


def records_of(data: PartitionData) -> list[Record]:
    """The records of a fetched partition; a batch that is cut off at the end is left out, as clients do."""
    assert data.records is not None
    view, position = memoryview(data.records), 0
    records: list[Record] = []
    while len(view) - position >= 61:
        header = read_header(view, position)
        if header.size > len(view) - position:
            break
        records += batch_records(view, header, position)
        position += header.size
    return records


def offsets_of(data: PartitionData) -> list[int]:
    """The offsets of the records of a fetched partition."""
    return [record.offset for record in records_of(data)]


def changes(resource_type: int, name: str, *changed: tuple[str, int, str | None]) -> Any:
    """A resource of IncrementalAlterConfigs: names with 0 (set), 1 (delete), 2 (append) or 3 (subtract), and values."""
    configs = [
        IncrementalAlterConfigsReqAlterableConfig(name=setting, config_operation=operation, value=value)
        for setting, operation, value in changed
    ]
    return IncrementalAlterConfigsReqAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )


def topic_changes(name: str, *changed: tuple[str, int, str | None]) -> Any:
    """Changes of the settings of a topic."""
    return changes(2, name, *changed)


def broker_changes(name: str, *changed: tuple[str, int, str | None]) -> Any:
    """Changes of the settings of a broker by its number, or with no name of all."""
    return changes(4, name, *changed)


def incremental(*resources: Any, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    """A request that changes single settings."""
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
