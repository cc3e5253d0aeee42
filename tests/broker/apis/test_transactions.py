"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and WriteTxnMarkers, in every version."""

from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.embedded import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.asking import create_topic, fetch
from tests.broker.coordinating import TransactionalProducer, commit_in, end, init, produce_in
from tests.broker.turning import append
from tests.storage.builders import sent_by


def adding(
    producer: TransactionalProducer, version: int, topic: str, partitions: list[int], *, verify_only: bool = False
) -> Any:
    named = [AddPartitionsToTxnTopic(name=topic, partitions=partitions)]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=named,
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=named,
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def codes(answer: Any, version: int) -> list[int]:
    topics = answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
    return [one.partition_error_code for topic in topics for one in topic.results_by_partition]


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_all_or_none(connection: Connection, name: str, version: int) -> None:
    create_topic(connection, name, 2)
    producer = init(connection, name)
    answer = connection.request(adding(producer, version, name, [0, 1]), version)
    assert codes(answer, version) == [0, 0]
    answer = connection.request(adding(producer, version, name, [0, 7]), version)
    assert codes(answer, version) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(6))
def test_a_producer_that_was_replaced_is_told_so_in_the_words_of_its_version(
    connection: Connection, name: str, version: int
) -> None:
    create_topic(connection, name)
    old = init(connection, name)
    init(connection, name)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
    assert codes(connection.request(adding(old, version, name, [0]), version), version) == [fenced]
    if version < 5:
        offsets = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=old.producer_id, producer_epoch=old.epoch, group_id="g"
        )
        assert connection.request(offsets, version).error_code == fenced
    ending = EndTxnRequest(transactional_id=name, producer_id=old.producer_id, producer_epoch=old.epoch)
    assert connection.request(ending, version).error_code == fenced


def test_many_transactions_are_answered_and_verified(connection: Connection, name: str) -> None:
    create_topic(connection, name, 2)
    first, second = init(connection, name), init(connection, f"{name}-2")
    assert codes(connection.request(adding(first, 5, name, [0]), 5), 5) == [0]
    request = adding(first, 5, name, [0, 1], verify_only=True)
    request.transactions += adding(second, 5, name, [0], verify_only=True).transactions
    answer = connection.request(request, 5)
    assert [one.transactional_id for one in answer.results_by_transaction] == [name, f"{name}-2"]
    assert codes(answer, 5) == [0, ErrorCode.TRANSACTION_ABORTABLE]
    other = answer.results_by_transaction[1].topic_results[0].results_by_partition[0]
    assert other.partition_error_code != ErrorCode.NONE
    assert codes(connection.request(adding(first, 4, name, [1], verify_only=True), 4), 4) == [
        ErrorCode.INVALID_TXN_STATE
    ]


@pytest.mark.parametrize("version", range(5))
def test_the_offsets_of_a_group_are_added(connection: Connection, name: str, version: int) -> None:
    create_topic(connection, name)
    producer = init(connection, name)
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id=name
    )
    assert connection.request(request, version).error_code == ErrorCode.NONE
    assert commit_in(connection, producer, name, {(name, 0): 3}, version=3) == [0]
    assert end(connection, producer, version=version) is ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_an_end_is_answered_again_when_it_is_sent_again(connection: Connection, name: str, version: int) -> None:
    create_topic(connection, name)
    producer = init(connection, name)
    connection.request(adding(producer, 3, name, [0]), 3)
    produce_in(connection, producer, name, version=11)
    request = EndTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    first, second = connection.request(request, version), connection.request(request, version)
    assert (first.error_code, second.error_code) == (0, 0)
    if version >= 5:
        assert first.producer_epoch == second.producer_epoch == producer.epoch + 1
    request.committed = False
    assert connection.request(request, version).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [1, 2])
def test_an_operator_ends_a_transaction_that_hangs(
    connection: Connection, broker: Broker, name: str, version: int
) -> None:
    create_topic(connection, name)
    now = broker.server.services.clock.now_ms()
    append(broker, name, sent_by(4711, 0, 1, transactional=True, timestamp=now))
    assert fetch(connection, name, 0, isolation_level=1).last_stable_offset == 0
    marker = WritableTxnMarker(
        producer_id=4711,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=[0, 5]),
            WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
        ],
    )
    (answer,) = connection.request(WriteTxnMarkersRequest(markers=[marker]), version).markers
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0, unknown, unknown]
    assert fetch(connection, name, 0, isolation_level=1).last_stable_offset == 2


def test_a_transactional_id_that_nobody_has_is_refused(connection: Connection, name: str) -> None:
    request = EndTxnRequest(transactional_id="nobody", producer_id=1, producer_epoch=0)
    assert connection.request(request, 3).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert connection.request(EndTxnRequest(transactional_id=""), 3).error_code == ErrorCode.INVALID_REQUEST
