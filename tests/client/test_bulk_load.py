"""Asking for adoption: what is answered, what a lost answer does, and what Kafka says."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.client.bulk_load import NoBulkLoadError, adopt_segments, adopted_load
from barnabas.client.client import Client
from barnabas.client.connection import Connection, ConnectionFailedError
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.storage.files import OsFiles
from barnabas.wire.apis import ADOPT_SEGMENTS_KEY
from barnabas.wire.errors import ApiError, ErrorCode
from tests.broker.asking import connected, create_topic
from tests.storage.builders import batch_of
from tests.storage.loading import stage


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with Broker(in_process=True) as broker:
        with connected(broker) as connection:
            create_topic(connection, "orders", 2)
        for index in range(2):
            name = TopicPartition("orders", index)
            stage(OsFiles(), str(broker.data / str(name)), name, "one", [[batch_of(3)]])
        yield broker


def test_a_load_is_adopted_once(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        assert adopted_load(client, "one", "orders") == []
        ranges = adopt_segments(client, "one", "orders", [0, 1])
        assert [(one.partition, one.base_offset, one.end_offset) for one in ranges] == [(0, 0, 3), (1, 0, 3)]
        assert adopted_load(client, "one", "orders") == ranges
        with pytest.raises(ApiError, match="load one was adopted before") as raised:
            adopt_segments(client, "one", "orders", [0, 1])
        assert raised.value.code is ErrorCode.DUPLICATE_RESOURCE


def test_a_lost_answer_is_asked_for_again(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        sent = Connection.request

        def lose_the_first(connection: Connection, message: Any, version: int | None = None) -> Any:
            answer = sent(connection, message, version)
            if type(message).__name__ == "AdoptSegmentsRequest" and answer.error_code == ErrorCode.NONE:
                connection.close()
                raise ConnectionFailedError(connection.address, "the test cut it")
            return answer

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Connection, "request", lose_the_first)
            ranges = adopt_segments(client, "one", "orders", [0, 1])
        assert [(one.partition, one.base_offset, one.end_offset) for one in ranges] == [(0, 0, 3), (1, 0, 3)]


def test_a_broker_without_the_api_is_said_to_be_none_of_ours(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka answers ApiVersions; tests/spark/segments/test_adopting.py asks a real one."""
    with Client(broker.bootstrap_servers) as client:
        greet = Connection._greet

        def greet_as_kafka(connection: Connection) -> None:
            greet(connection)
            del connection._supported[ADOPT_SEGMENTS_KEY]

        monkeypatch.setattr(Connection, "_greet", greet_as_kafka)
        with pytest.raises(NoBulkLoadError, match=r"bulk load needs a Barnabas broker, and 127\.0\.0\.1"):
            adopt_segments(client, "one", "orders", [0])
