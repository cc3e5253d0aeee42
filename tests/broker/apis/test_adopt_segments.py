"""AdoptSegments: the request, its answers, and that other clients do not mind the API."""

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.storage.files import OsFiles
from barnabas.wire.apis import ADOPT_SEGMENTS_KEY, PRIVATE_KEYS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.adopt_segments import AdoptSegmentsRequest
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from tests.broker.asking import connected, create_topic, fetch, offsets_of
from tests.storage.builders import batch_of
from tests.storage.loading import stage


def test_a_load_is_adopted_and_told_again_when_it_is_repeated() -> None:
    with Broker(in_process=True) as broker, connected(broker) as connection:
        create_topic(connection, "orders", 2)
        for index in range(2):
            name = TopicPartition("orders", index)
            stage(OsFiles(), str(broker.data / str(name)), name, "one", [[batch_of(3)]])
        question = AdoptSegmentsRequest(load_id="one", topic="orders", partitions=[1, 0])
        answer = connection.request(question)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        ranges = [(one.partition_index, one.base_offset, one.end_offset) for one in answer.partitions]
        assert ranges == [(1, 0, 3), (0, 0, 3)]
        again = connection.request(question)
        assert again.error_code == ErrorCode.DUPLICATE_RESOURCE
        assert "load one was adopted before" in again.error_message
        assert again.partitions == answer.partitions
        assert offsets_of(fetch(connection, "orders", 0, 1)) == [0, 1, 2]


def test_a_refusal_is_in_words(connection: Connection) -> None:
    answer = connection.request(AdoptSegmentsRequest(load_id="a/b", topic="orders", partitions=[0]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "'a/b' is no load id" in answer.error_message
    assert answer.partitions == []


def test_the_key_is_far_from_kafka_s_and_other_clients_pass_over_it() -> None:
    assert min(PRIVATE_KEYS) > 10_000
    with Broker(in_process=True) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders")
            told = connection.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            assert ADOPT_SEGMENTS_KEY in [row.api_key for row in told.api_keys]
        servers = broker.bootstrap_servers
        assert "orders" in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        assert "orders" in consumer.list_topics(timeout=30).topics
        consumer.close()
        admin = KafkaAdminClient(bootstrap_servers=servers)
        assert "orders" in admin.list_topics()
        admin.close()
