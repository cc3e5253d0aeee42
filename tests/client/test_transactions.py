"""Transactions against real brokers, opened by a client of the field; and brokers of other times."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from barnabas.client.client import Client
from barnabas.client.connection import UnsupportedVersionError
from barnabas.client.offsets import LATEST, IsolationLevel, offsets_at
from barnabas.client.transactions import (
    NoOpenTransactionError,
    TransactionDescription,
    abort_in_partition,
    abort_transaction,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.producers import (
    DescribeProducersResponse,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.wire.messages.transaction_admin import (
    DescribeTransactionsResponse,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.wire.schema import Versions
from tests.client.brokers import topic_name
from tests.client.fake_broker import FakeBroker, after
from tests.client.open_transactions import DEADLINE_SECONDS, open_transaction
from tests.client.test_coordinators import here


def described(client: Client, transactional_id: str) -> TransactionDescription:
    answer = describe_transactions(client, [transactional_id])[transactional_id]
    assert isinstance(answer, TransactionDescription), answer
    return answer


def ids(client: Client, **filters: Any) -> list[str]:
    return [each.transactional_id for each in list_transactions(client, **filters)]


def test_a_transaction_is_seen_and_aborted(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic, name = make_topic(), topic_name("billing")
    partition = TopicPartition(topic, 0)
    producer = open_transaction(bootstrap_servers, name, topic, **{"transaction.timeout.ms": 50_000})
    seen = described(client, name)
    assert (seen.state, seen.timeout_ms, seen.partitions) == ("Ongoing", 50_000, (partition,))
    assert seen.is_under_way
    assert seen.start_timestamp is not None
    assert abs(client.clock.now_ms() - seen.start_timestamp) < 60_000
    assert seen.coordinator_id in client.cluster().nodes
    (state,) = describe_producers(client, [partition])[partition]
    assert (state.producer_id, state.transaction_start_offset) == (seen.producer_id, 0)
    assert offsets_at(client, [partition], LATEST, IsolationLevel.READ_COMMITTED) == {partition: 0}

    assert abort_transaction(client, name) == seen
    assert offsets_at(client, [partition], LATEST, IsolationLevel.READ_COMMITTED) == {partition: 2}
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_SECONDS)
    over = described(client, name)
    assert (over.is_under_way, over.start_timestamp, over.partitions) == (False, None, ())
    assert over.producer_epoch > seen.producer_epoch
    with pytest.raises(NoOpenTransactionError, match=rf"'{name}' has no open transaction \({over.state}\)"):
        abort_transaction(client, name)


def test_an_id_that_nobody_uses_stays_unused(client: Client) -> None:
    missing = topic_name("missing")
    with pytest.raises(ApiError, match=f"TRANSACTIONAL_ID_NOT_FOUND: there is no transactional id '{missing}'"):
        abort_transaction(client, missing)
    assert missing not in ids(client)


def test_transactions_are_listed_by_state_age_and_pattern(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic, name = make_topic(), topic_name("listed")
    producer = open_transaction(bootstrap_servers, name, topic)
    (listed,) = [each for each in list_transactions(client) if each.transactional_id == name]
    assert (listed.state, listed.producer_id) == ("Ongoing", described(client, name).producer_id)
    assert ids(client, pattern=f"{name[:-1]}.*") == [name]
    assert ids(client, pattern=name[:-1]) == []
    assert name in ids(client, states=["Ongoing", "PrepareAbort"], older_than_ms=0)
    assert name not in ids(client, states=["Ongoing"], older_than_ms=3_600_000)
    assert name not in ids(client, states=["Empty"])
    with pytest.raises(ApiError, match="INVALID_REGULAR_EXPRESSION"):
        list_transactions(client, pattern="(")
    producer.abort_transaction(DEADLINE_SECONDS)


def test_a_transaction_is_aborted_in_its_partition(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic, name = make_topic(), topic_name("hanging")
    partition = TopicPartition(topic, 0)
    with pytest.raises(NoOpenTransactionError, match=f"{topic}-0 begins at offset 3; it has no open transaction"):
        abort_in_partition(client, partition, 3)
    producer = open_transaction(bootstrap_servers, name, topic)
    seen = described(client, name)
    with pytest.raises(NoOpenTransactionError, match=rf"begin at 0 \(producer {seen.producer_id}\)"):
        abort_in_partition(client, partition, 3)
    aborted = abort_in_partition(client, partition, 0)
    assert (aborted.producer_id, aborted.producer_epoch) == (seen.producer_id, seen.producer_epoch)
    assert offsets_at(client, [partition], LATEST, IsolationLevel.READ_COMMITTED) == {partition: 2}
    (state,) = describe_producers(client, [partition])[partition]
    assert state.transaction_start_offset is None
    producer.abort_transaction(DEADLINE_SECONDS)


def test_filters_that_an_old_broker_does_not_know_are_refused() -> None:
    def list_all(message: Any, version: int) -> Any:
        return ListTransactionsResponse()

    versions = {"ListTransactions": Versions(0, 0)}
    with (
        FakeBroker({"ListTransactions": list_all}, versions=versions) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        assert list_transactions(client, states=["Ongoing"]) == []
        with pytest.raises(UnsupportedVersionError, match="too old to filter transactions"):
            list_transactions(client, older_than_ms=5)
        with pytest.raises(UnsupportedVersionError, match="too old to filter transactions"):
            list_transactions(client, pattern="x")


@pytest.mark.parametrize(("state", "word"), [("PrepareCommit", "committed"), ("PrepareAbort", "aborted")])
def test_a_transaction_that_is_about_to_end_is_left_alone(state: str, word: str) -> None:
    def describe(message: Any, version: int) -> Any:
        rows = [TransactionState(transactional_id=name, transaction_state=state) for name in message.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=rows)

    with (
        FakeBroker({"FindCoordinator": here, "DescribeTransactions": describe}) as broker,
        Client(broker.bootstrap_servers) as client,
        pytest.raises(NoOpenTransactionError, match=rf"'tx' has a transaction that is being {word} \({state}\)"),
    ):
        abort_transaction(client, "tx")


def test_an_abort_takes_as_long_as_it_takes_and_may_be_refused() -> None:
    def describe(message: Any, version: int) -> Any:
        row = TransactionState(transactional_id="tx", transaction_state="Ongoing", transaction_timeout_ms=7)
        return DescribeTransactionsResponse(transaction_states=[row])

    def denied(message: Any, version: int) -> Any:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    concurrent = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    done = InitProducerIdResponse(producer_id=5, producer_epoch=2)
    handlers = {
        "FindCoordinator": here,
        "DescribeTransactions": describe,
        "InitProducerId": after(concurrent, concurrent, done, then=denied),
    }
    with FakeBroker(handlers) as broker, Client(broker.bootstrap_servers, clock=ManualClock()) as client:
        abort_transaction(client, "tx")
        asked = broker.named("InitProducerId")
        assert len(asked) == 3
        assert (asked[0].message.transaction_timeout_ms, asked[0].message.producer_id) == (7, -1)
        with pytest.raises(ApiError, match="aborting the transaction of 'tx'"):
            abort_transaction(client, "tx")


def test_a_marker_that_is_refused_is_an_error() -> None:
    def describe(message: Any, version: int) -> Any:
        producer = ProducerState(producer_id=9, producer_epoch=1, coordinator_epoch=-1, current_txn_start_offset=4)
        partitions = [PartitionResponse(partition_index=0, active_producers=[producer])]
        return DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=partitions)])

    def write(message: Any, version: int) -> Any:
        row = WritableTxnMarkerPartitionResult(partition_index=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        topics = [WritableTxnMarkerTopicResult(name="t", partitions=[row])]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=9, topics=topics)])

    with (
        FakeBroker({"DescribeProducers": describe, "WriteTxnMarkers": write}, topics={"t": 1}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        with pytest.raises(ApiError, match="aborting the transaction of producer 9 in t-0"):
            abort_in_partition(client, TopicPartition("t", 0), 4)
        (marker,) = broker.named("WriteTxnMarkers")[0].message.markers
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result) == (1, 0, False)


def test_a_partition_that_can_not_tell_its_producers_is_an_error() -> None:
    def describe(message: Any, version: int) -> Any:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = [PartitionResponse(partition_index=0, error_code=code, error_message="no")]
        return DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=partitions)])

    with (
        FakeBroker({"DescribeProducers": describe}, topics={"t": 1}) as broker,
        Client(broker.bootstrap_servers) as client,
        pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: the producers of t-0: no"),
    ):
        describe_producers(client, [TopicPartition("t", 0)])
