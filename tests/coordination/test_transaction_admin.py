"""What operators are told; the filters one by one are in transaction_scenarios/operators.txt."""

import re

import pytest

from barnabas.coordination.transaction import (
    DEAD,
    ONGOING,
    PREPARE_COMMIT,
    STATUS_NAMES,
    TransactionMetadata,
    TransactionStatus,
)
from barnabas.coordination.transaction_admin import describe_transaction, list_transactions, unknown_state_filters
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.transaction_admin import TopicData, TransactionState


def metadata(name: str, status: TransactionStatus, start_ms: int = 1000) -> TransactionMetadata:
    return TransactionMetadata(name, 7, 60_000, 2000, producer_epoch=3, status=status, start_timestamp_ms=start_ms)


def test_everything_is_told_about_a_transaction() -> None:
    transaction = metadata("t", ONGOING)
    for partition in (TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)):
        transaction.partitions[partition] = None
    assert describe_transaction("t", transaction) == TransactionState(
        transactional_id="t",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=1000,
        producer_id=7,
        producer_epoch=3,
        topics=[TopicData(topic="b", partitions=[1, 0]), TopicData(topic="a", partitions=[0])],
    )


@pytest.mark.parametrize("transaction", [None, metadata("t", DEAD)])
def test_a_transactional_id_that_is_not_there(transaction: TransactionMetadata | None) -> None:
    state = describe_transaction("t", transaction)
    assert (state.error_code, state.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "t")


def test_an_empty_transactional_id_is_no_request() -> None:
    assert describe_transaction("", None).error_code == ErrorCode.INVALID_REQUEST


def test_names_of_states_that_there_are_not() -> None:
    assert unknown_state_filters(["Ongoing", "ongoing", "Lost", *STATUS_NAMES.values()]) == ["ongoing", "Lost"]


def test_filters_are_joined_by_and() -> None:
    transactions = [metadata("one", ONGOING), metadata("two", ONGOING, 1900), metadata("three", PREPARE_COMMIT)]

    def names(states: list[str], ids: list[int], duration: int, pattern: str | None) -> list[str]:
        compiled = None if pattern is None else re.compile(pattern)
        listed = list_transactions(transactions, states, ids, duration, compiled, 2000)
        return [item.transactional_id for item in listed]

    assert names([], [], -1, None) == ["one", "two", "three"]
    assert names(["Ongoing"], [], -1, None) == ["one", "two"]
    assert names(["Ongoing"], [7, 8], 100, None) == ["one"]
    assert names([], [8], -1, None) == []
    assert names([], [], 99, "t.*") == ["two", "three"]
    assert names([], [], -1, "t") == []
    assert names([], [], 0, None) == ["one", "two", "three"]
