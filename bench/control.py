"""Questions to a broker around a load, one at a time: make and delete topics, ask for end offsets and metadata."""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.wire.apis import APIS, request_encoder, response_decoder
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.messages.configs import (
    IncrementalAlterConfigsReqAlterableConfig,
    IncrementalAlterConfigsReqAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from bench.load.spec import LoadError

METADATA, LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS, ALTER_CONFIGS = 3, 2, 19, 20, 44
VERSIONS = {METADATA: 9, LIST_OFFSETS: 6, CREATE_TOPICS: 5, DELETE_TOPICS: 6, ALTER_CONFIGS: 1}
LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE = 2
TIMEOUT_S = 60.0
TIMEOUT_MS = int(TIMEOUT_S * 1000)
# Size and correlation id, and the tagged fields of the header: all versions above are flexible.
ANSWER_HEADER_BYTES = 9


class Control:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, key: int, request: Any) -> None:
        """Send a request."""
        api, version = APIS[key], VERSIONS[key]
        header = RequestHeader(key, version, key, "bench")
        self._socket.sendall(b"".join(request_frame(api, header, request_encoder(api, version)(request))))

    def receive(self, key: int) -> Any:
        """Receive the answer to a request of this API."""
        size = int.from_bytes(self._receive_bytes(4), "big")
        frame = self._receive_bytes(size)
        response, _ = response_decoder(APIS[key], VERSIONS[key])(frame, ANSWER_HEADER_BYTES - 4)
        return response

    def ask(self, key: int, request: Any) -> Any:
        """Send a request and receive its answer."""
        self.send(key, request)
        return self.receive(key)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic and wait until every partition of it has a leader."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in (settings or {}).items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        result = self.ask(CREATE_TOPICS, request).topics[0]
        if result.error_code:
            raise LoadError(f"topic {topic} is not created: error {result.error_code}, {result.error_message}")
        self.wait_for(topic, partitions)

    def wait_for(self, topic: str, partitions: int) -> None:
        """Wait until every partition of a topic answers."""
        self._wait(lambda: self._leaders(topic) == partitions, f"topic {topic} has no leaders")
        # A leader that is named may still be opening its log.
        self._wait(lambda: self._offsets(topic, partitions, LATEST) is not None, f"topic {topic} is not led")

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        changes = [IncrementalAlterConfigsReqAlterableConfig(name=name, value=text) for name, text in settings.items()]
        resource = IncrementalAlterConfigsReqAlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes
        )
        result = self.ask(ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
        if result.error_code:
            raise LoadError(f"topic {topic} is not altered: error {result.error_code}, {result.error_message}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=TIMEOUT_MS)
        result = self.ask(DELETE_TOPICS, request).responses[0]
        if result.error_code:
            raise LoadError(f"topic {topic} is not deleted: error {result.error_code}, {result.error_message}")

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """The end offset of every partition."""
        return self.offsets(topic, partitions, LATEST)

    def offsets(self, topic: str, partitions: int, timestamp: int) -> list[int]:
        """The first or the end offset of every partition, by EARLIEST or LATEST."""
        offsets = self._offsets(topic, partitions, timestamp)
        if offsets is None:
            raise LoadError(f"the offsets of {topic} are not known")
        return offsets

    def _offsets(self, topic: str, partitions: int, timestamp: int) -> list[int] | None:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
        found = self.ask(LIST_OFFSETS, request).topics[0].partitions
        if any(partition.error_code for partition in found):
            return None
        offsets = {partition.partition_index: partition.offset for partition in found}
        return [offsets[index] for index in range(partitions)]

    def _leaders(self, topic: str) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found = self.ask(METADATA, request).topics[0]
        return sum(partition.leader_id >= 0 for partition in found.partitions)

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise LoadError(f"{otherwise} after {TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def _receive_bytes(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise LoadError("the broker closed a connection")
            data += part
        return bytes(data)


def answers_metadata(port: int) -> bool:
    """Whether there is a broker that knows itself: the end of its start."""
    try:
        control = Control(port)
    except ConnectionRefusedError:
        return False
    try:
        return len(control.ask(METADATA, MetadataRequest(topics=[])).brokers) == 1
    except (ConnectionError, LoadError):
        return False
    finally:
        control.close()
