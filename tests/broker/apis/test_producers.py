"""InitProducerId and DescribeProducers: ids that nobody else has, and what a partition remembers of producers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.cluster.controller import PRODUCER_IDS_PER_BLOCK
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.producers import DescribeProducersRequest, InitProducerIdRequest, TopicRequest
from tests.broker.asking import connected, produce
from tests.broker.turning import append
from tests.storage.builders import sent_by

Topic = Callable[..., str]


def new_id(connection: Connection, version: int | None = None, **fields: Any) -> int:
    answer = connection.request(InitProducerIdRequest(transactional_id=None, **fields), version)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    found: int = answer.producer_id
    return found


@pytest.mark.parametrize("version", range(6))
def test_every_call_gets_an_id_of_its_own(connection: Connection, version: int) -> None:
    ids = [new_id(connection, version) for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(one >= 0 for one in ids)


def test_ids_are_unique_over_blocks_and_clients(broker: Broker) -> None:
    with connected(broker) as first, connected(broker) as second:
        ids = []
        for _ in range(PRODUCER_IDS_PER_BLOCK // 2 + 10):
            for one in (first, second):
                one.send(InitProducerIdRequest(transactional_id=None))
            ids += [one.receive().producer_id for one in (first, second)]
    assert len(set(ids)) == len(ids)


def test_ids_are_unique_over_a_restart_and_a_kill(tmp_path: Path) -> None:
    ids = []
    with Broker(data=tmp_path) as broker:
        for end in (broker.stop, broker.kill, broker.kill):
            with connected(broker) as connection:
                ids += [new_id(connection) for _ in range(3)]
            end()
            broker.start()
        with connected(broker) as connection:
            ids.append(new_id(connection))
    assert len(set(ids)) == 10


def test_a_producer_that_brings_its_id_gets_a_new_one(connection: Connection) -> None:
    old = new_id(connection)
    assert new_id(connection, 4, producer_id=old, producer_epoch=0) != old


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_that_can_not_be_met_has_no_id(
    connection: Connection, fields: dict[str, Any], code: ErrorCode
) -> None:
    answer = connection.request(InitProducerIdRequest(**fields), 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_what_a_partition_remembers_of_its_producers_is_described(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic(partitions=2)
    now = broker.server.services.clock.now_ms()
    produce(connection, name, sent_by(70, 0, 3, epoch=2, timestamp=now))
    append(broker, name, sent_by(71, 0, 1, transactional=True, timestamp=now))
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 1, 9])])
    (answer,) = connection.request(request).topics
    first, second, missing = answer.partitions
    producers = {one.producer_id: one for one in first.active_producers}
    assert producers.keys() == {70, 71}
    idempotent, transactional = producers[70], producers[71]
    assert (idempotent.producer_epoch, idempotent.last_sequence, idempotent.last_timestamp) == (2, 2, now + 2)
    assert (idempotent.current_txn_start_offset, transactional.current_txn_start_offset) == (-1, 3)
    assert (second.error_code, second.active_producers) == (ErrorCode.NONE, [])
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message
