"""Transactions of our own producer: begun here and ended there, against real brokers; and brokers that refuse."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaError

from barnabas.client.client import Client
from barnabas.client.offsets import LATEST, IsolationLevel, offsets_at
from barnabas.client.sender import ProduceError, Sender, SendOptions
from barnabas.client.transactional import ENDED_OTHERWISE, Transaction, end_transactions
from barnabas.client.transactions import TransactionDescription, abort_transaction, describe_transactions
from barnabas.model import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.wire.errors import ApiError, ErrorCode
from tests.client.brokers import topic_name

TIMEOUT_MS = 60_000
DEADLINE_SECONDS = 30


def batch(*values: bytes) -> bytearray:
    return build_batch([(1_000, None, value, ()) for value in values])


def committed_values(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[bytes]:
    """What a client of the field reads when it only wants what is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic_name("readers"),
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    ended = 0
    try:
        while ended < partitions:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None, "the end of the topic was not reached in time"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    finally:
        consumer.close()
    return sorted(values)


def state_of(client: Client, transactional_id: str) -> str:
    described = describe_transactions(client, [transactional_id])[transactional_id]
    assert isinstance(described, TransactionDescription), described
    return described.state


def test_a_transaction_is_ended_by_another_client_and_again(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    names = [topic_name("kept"), topic_name("dropped")]
    kept, dropped = (Transaction(client, name, timeout_ms=TIMEOUT_MS) for name in names)
    kept.add(both)
    for partition in both:
        # Several batches a partition, so that sequences go on within the transaction.
        kept.submit(partition, batch(b"kept 1", b"kept 2"))
        kept.submit(partition, batch(b"kept 3"))
    dropped.submit(both[0], batch(b"dropped"))
    kept.flush()
    dropped.flush()
    assert kept.records_acknowledged == 6
    assert (kept.partitions, dropped.partitions) == (frozenset(both), frozenset(both[:1]))
    assert set(offsets_at(client, both, LATEST, IsolationLevel.READ_COMMITTED).values()) == {0}
    kept.close()
    dropped.close()

    with Client(bootstrap_servers) as driver:
        assert end_transactions(driver, [dropped.handle], committed=False) == {dropped.handle: None}
        for _ in range(2):
            assert end_transactions(driver, [kept.handle], committed=True) == {kept.handle: None}
        # What ended in one way does not end in the other.
        for handle, committed in ((kept.handle, False), (dropped.handle, True)):
            refused = end_transactions(driver, [handle], committed=committed)[handle]
            assert isinstance(refused, ApiError)
            assert refused.code in ENDED_OTHERWISE
            assert handle.transactional_id in str(refused)
    assert committed_values(bootstrap_servers, topic, 2) == [b"kept 1"] * 2 + [b"kept 2"] * 2 + [b"kept 3"] * 2


def test_a_new_transaction_of_an_id_aborts_and_fences_the_old_one(
    client: Client, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic, name = make_topic(), topic_name("fenced")
    partition = TopicPartition(topic, 0)
    old = Transaction(client, name, timeout_ms=TIMEOUT_MS)
    old.submit(partition, batch(b"old"))
    old.flush()
    new = Transaction(client, name, timeout_ms=TIMEOUT_MS)
    new.submit(partition, batch(b"new"))
    new.flush()
    old.submit(partition, batch(b"too late"))
    with pytest.raises(ProduceError, match=f"1 record was not acknowledged by {partition}: "):
        old.flush()
    refused = end_transactions(client, [old.handle], committed=True)[old.handle]
    assert isinstance(refused, ApiError)
    assert refused.code in ENDED_OTHERWISE
    assert end_transactions(client, [new.handle], committed=True) == {new.handle: None}
    assert committed_values(bootstrap_servers, topic) == [b"new"]
    old.close()
    new.close()


def test_what_the_coordinator_aborted_is_not_committed(client: Client, make_topic: Callable[..., str]) -> None:
    """A timeout does to a transaction what an operator does: it aborts, under a newer epoch."""
    name = topic_name("aborted")
    transaction = Transaction(client, name, timeout_ms=TIMEOUT_MS)
    transaction.submit(TopicPartition(make_topic(), 0), batch(b"value"))
    transaction.flush()
    transaction.close()
    assert state_of(client, name) == "Ongoing"
    abort_transaction(client, name)
    refused = end_transactions(client, [transaction.handle], committed=True)[transaction.handle]
    assert isinstance(refused, ApiError)
    assert refused.code in ENDED_OTHERWISE


def test_the_coordinator_says_what_it_does_not_want(client: Client, make_topic: Callable[..., str]) -> None:
    name, partition = topic_name("refused"), TopicPartition(make_topic(), 0)
    with pytest.raises(ApiError, match=f"INVALID_TRANSACTION_TIMEOUT: beginning a transaction of '{name}'"):
        Transaction(client, name, timeout_ms=2_000_000_000)
    stranger = Transaction(client, name, timeout_ms=TIMEOUT_MS)
    stranger.handle = replace(stranger.handle, producer_id=stranger.handle.producer_id + 1_000_000)
    with pytest.raises(ApiError, match=f"INVALID_PRODUCER_ID_MAPPING: adding {partition} to the transaction of"):
        stranger.add([partition])
    never = end_transactions(client, [stranger.handle], committed=True)[stranger.handle]
    assert isinstance(never, ApiError)
    assert never.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_needs_every_acknowledgement(client: Client) -> None:
    handle = Transaction(client, topic_name("acks"), timeout_ms=TIMEOUT_MS).handle
    with pytest.raises(ValueError, match="a transaction needs acks=all"):
        Sender(client, SendOptions(acks=1), transaction=handle)
