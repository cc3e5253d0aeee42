"""DescribeTransactions and ListTransactions, in every version."""

from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from tests.broker.asking import create_topic
from tests.broker.coordinating import end, init, produce_in


def test_every_transactional_id_that_is_asked_for_is_described(connection: Connection, name: str) -> None:
    create_topic(connection, name, 2)
    producer = init(connection, name, transaction_timeout_ms=12_345)
    produce_in(connection, producer, name, 1)
    answer = connection.request(DescribeTransactionsRequest(transactional_ids=[name, "nobody", ""]))
    found, missing, empty = answer.transaction_states
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 12_345)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(name, [1])]
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_in_every_version(connection: Connection, name: str, version: int) -> None:
    create_topic(connection, name, 2)
    producer = init(connection, name)
    produce_in(connection, producer, name)
    other = init(connection, f"{name}-other")

    def listed(**filters: Any) -> set[str]:
        answer = connection.request(ListTransactionsRequest(**filters), version)
        assert answer.error_code == ErrorCode.NONE
        return {one.transactional_id for one in answer.transaction_states if one.transactional_id.startswith(name)}

    assert listed() == {name, f"{name}-other"}
    assert listed(state_filters=["Ongoing"]) == {name}
    assert listed(producer_id_filters=[other.producer_id]) == {f"{name}-other"}
    if version >= 1:
        assert listed(duration_filter=3_600_000, state_filters=["Ongoing"]) == set()
    if version >= 2:
        assert listed(transactional_id_pattern=f"{name}-o.*") == {f"{name}-other"}
    assert end(connection, producer) is ErrorCode.NONE
    assert listed(state_filters=["CompleteCommit"]) == {name}


def test_states_that_do_not_exist_are_named(connection: Connection, coordinators: None) -> None:
    answer = connection.request(ListTransactionsRequest(state_filters=["Ongoing", "Sleeping"]))
    assert answer.unknown_state_filters == ["Sleeping"]


def test_a_pattern_that_is_none_is_refused(connection: Connection, coordinators: None) -> None:
    answer = connection.request(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
