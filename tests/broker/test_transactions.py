"""Transactions over the protocol: what is visible when, who is fenced, and what a restart or a clock does to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.internal_topics import TRANSACTION_TOPIC
from barnabas.client.connection import Connection
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.records.batch import read_header
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transaction_admin import DescribeTransactionsRequest
from tests.broker.asking import connected, create_topic, fetch, incremental, topic_changes
from tests.broker.coordinating import (
    GROUP,
    TRANSACTION,
    add,
    commit_in,
    committed,
    end,
    find,
    init,
    produce_in,
)
from tests.broker.turning import on_loop, until

READ_COMMITTED = 1
FAST = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker for all tests but those that restart one."""
    with Broker(in_process=True, settings=FAST) as broker, connected(broker) as connection:
        find(connection, "any", GROUP)
        find(connection, "any", TRANSACTION)
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """A connection to it."""
    with connected(broker) as connection:
        yield connection


def visible(connection: Connection, topic: str, partition: int = 0) -> int:
    """How many records a consumer sees that reads what is committed."""
    data = fetch(connection, topic, 0, partition, isolation_level=READ_COMMITTED)
    aborted = {one.producer_id for one in data.aborted_transactions or ()}
    view, position, count = memoryview(data.records or b""), 0, 0
    while position < len(view):
        header = read_header(view, position)
        count += 0 if header.is_control or header.producer_id in aborted else header.count
        position += header.size
    return count


def state_of(connection: Connection, transactional_id: str) -> str:
    """The state of a transactional id, as an operator sees it."""
    (one,) = connection.request(DescribeTransactionsRequest(transactional_ids=[transactional_id])).transaction_states
    return str(one.transaction_state)


def read_up_to(connection: Connection, topic: str, isolation_level: int) -> int:
    """Up to where a consumer can read."""
    data = fetch(connection, topic, 0, isolation_level=isolation_level)
    return int(data.last_stable_offset if isolation_level else data.high_watermark)


@pytest.mark.parametrize("version", [9, 12])
def test_records_are_seen_when_the_transaction_is_committed(connection: Connection, version: int) -> None:
    topic = f"commit-{version}"
    create_topic(connection, topic, 2)
    producer = init(connection, topic)
    if version < 12:
        assert add(connection, producer, (topic, 0), (topic, 1)) == [0, 0]
    for partition in (0, 1):
        assert produce_in(connection, producer, topic, partition, version=version) == ErrorCode.NONE
    assert (visible(connection, topic), read_up_to(connection, topic, 1), read_up_to(connection, topic, 0)) == (0, 0, 1)
    assert state_of(connection, topic) == "Ongoing"
    assert end(connection, producer, version=5 if version >= 12 else 3) is ErrorCode.NONE
    assert (visible(connection, topic, 0), visible(connection, topic, 1)) == (1, 1)
    assert state_of(connection, topic) == "CompleteCommit"


def test_records_of_an_aborted_transaction_are_never_seen(connection: Connection) -> None:
    create_topic(connection, "abort")
    producer = init(connection, "abort")
    assert produce_in(connection, producer, "abort") == ErrorCode.NONE
    assert end(connection, producer, is_commit=False) is ErrorCode.NONE
    data = fetch(connection, "abort", 0, isolation_level=READ_COMMITTED)
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()] == [
        (producer.producer_id, 0)
    ]
    assert data.last_stable_offset == 2


def test_a_partition_that_was_not_added_is_refused(connection: Connection) -> None:
    create_topic(connection, "verify")
    producer = init(connection, "verify")
    assert produce_in(connection, producer, "verify", version=9) == ErrorCode.INVALID_TXN_STATE
    assert produce_in(connection, producer, "verify", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert read_up_to(connection, "verify", 0) == 0


def test_a_late_produce_can_not_touch_the_next_transaction(connection: Connection) -> None:
    """KIP-890: every end of a transaction raises the epoch, so that what was under way before it is told apart."""
    create_topic(connection, "late")
    producer = init(connection, "late")
    late = init(connection, "late")
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    producer = init(connection, "late")
    assert produce_in(connection, producer, "late") == ErrorCode.NONE
    assert end(connection, producer) is ErrorCode.NONE
    assert produce_in(connection, late, "late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(connection, late) is ErrorCode.PRODUCER_FENCED
    assert produce_in(connection, producer, "late") == ErrorCode.NONE
    assert end(connection, producer) is ErrorCode.NONE
    assert visible(connection, "late") == 2


def test_a_producer_that_starts_again_ends_what_it_left_open(connection: Connection) -> None:
    create_topic(connection, "zombie")
    zombie = init(connection, "zombie")
    assert produce_in(connection, zombie, "zombie") == ErrorCode.NONE
    producer = init(connection, "zombie")
    assert (producer.producer_id, producer.epoch > zombie.epoch) == (zombie.producer_id, True)
    assert produce_in(connection, zombie, "zombie") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(connection, zombie) is ErrorCode.PRODUCER_FENCED
    assert end(connection, zombie, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert visible(connection, "zombie") == 0
    assert read_up_to(connection, "zombie", 1) == 2


def test_offsets_of_a_transaction_count_when_it_is_committed(connection: Connection) -> None:
    create_topic(connection, "offsets")
    producer = init(connection, "offsets")
    for is_commit, expected in ((False, -1), (True, 6)):
        assert commit_in(connection, producer, "offsets", {("offsets", 0): 6}) == [0]
        assert committed(connection, "offsets", "offsets")[0] == -1
        found = committed(connection, "offsets", "offsets", require_stable=True)
        assert found == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert end(connection, producer, is_commit=is_commit) is ErrorCode.NONE
        assert committed(connection, "offsets", "offsets", require_stable=True) == (expected, 0)


def test_offsets_of_older_clients_need_the_group_in_the_transaction(connection: Connection) -> None:
    create_topic(connection, "older")
    producer = init(connection, "older")
    assert commit_in(connection, producer, "older", {("older", 0): 6}, version=3) == [ErrorCode.INVALID_TXN_STATE]
    assert add(connection, producer, ("older", 0), ("older", 7)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_fenced_producer_commits_no_offsets(connection: Connection) -> None:
    create_topic(connection, "fenced")
    old = init(connection, "fenced")
    init(connection, "fenced")
    codes = commit_in(connection, old, "fenced", {("fenced", 0): 6})
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_the_next_version_of_an_offset_commit_can_go_on_after_an_abort(connection: Connection) -> None:
    create_topic(connection, "not-added")
    producer = init(connection, "not-added")
    codes = [commit_in(connection, producer, "any", {("not-added", 0): 1}, version=version) for version in (3, 4)]
    assert codes == [[ErrorCode.INVALID_TXN_STATE], [ErrorCode.TRANSACTION_ABORTABLE]]
    codes = [commit_in(connection, producer, "any", {("nowhere", 0): 1, ("not-added", 7): 1}, version=3)]
    assert codes == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]


def test_internal_topics_are_no_part_of_a_clients_transaction(connection: Connection) -> None:
    create_topic(connection, "internal")
    producer = init(connection, "internal")
    codes = add(connection, producer, ("__transaction_state", 0), ("internal", 0), ("__consumer_offsets", 0))
    assert codes == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert state_of(connection, "internal") == "Empty"


def test_what_others_add_does_not_keep_a_transaction_waiting_for_the_disk() -> None:
    """With `flush.messages=1` a busy log always ends in something that is not on the disk yet."""
    settings = {**FAST, "transaction.state.log.num.partitions": "1"}
    with Broker(in_process=True, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "t", 2)
        find(connection, "one", TRANSACTION)
        one, other = init(connection, "one"), init(connection, "other")
        assert add(connection, one, ("t", 0)) == [0]
        connection.request(incremental(topic_changes(TRANSACTION_TOPIC, ("flush.messages", 0, "1"))))
        flusher = broker.server.services.replica_manager.flusher
        held: list[Any] = []
        on_loop(broker, lambda: setattr(flusher, "request", held.append))
        # What the other one adds itself is not safe, and so its record has to wait; nobody else's has.
        assert produce_in(connection, other, "t", 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produce_in(connection, other, "t", 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produce_in(connection, one, "t", 0, version=11) == ErrorCode.NONE
        on_loop(broker, lambda: delattr(flusher, "request"))
        on_loop(broker, lambda: flusher.request(held[0]))
        until(lambda: produce_in(connection, other, "t", 1) == ErrorCode.NONE)


def test_a_batch_of_a_transaction_needs_a_transactional_id(connection: Connection) -> None:
    create_topic(connection, "anonymous")
    producer = init(connection, "anonymous")
    producer.transactional_id = ""
    assert produce_in(connection, producer, "anonymous") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer.transactional_id = "nobody"
    assert produce_in(connection, producer, "anonymous") == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    with Broker(in_process=True, data=tmp_path, settings=FAST) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "g", GROUP)
        find(connection, "tx", TRANSACTION)
        producer = init(connection, "tx")
        assert produce_in(connection, producer, "t") == ErrorCode.NONE
        assert commit_in(connection, producer, "g", {("t", 0): 1}) == [0]
    with Broker(in_process=True, data=tmp_path, settings=FAST) as broker, connected(broker) as connection:
        services = broker.server.services
        until(lambda: not services.transactions.shards.is_loading and not services.groups.shards.is_loading)
        assert state_of(connection, "tx") == "Ongoing"
        assert committed(connection, "g", "t", require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert produce_in(connection, producer, "t") == ErrorCode.NONE
        assert end(connection, producer) is ErrorCode.NONE
        assert visible(connection, "t") == 2
        assert committed(connection, "g", "t", require_stable=True) == (1, 0)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    clock = ManualClock()
    with Broker(in_process=True, settings=FAST, clock=clock) as broker, connected(broker) as connection:
        create_topic(connection, "t")
        find(connection, "tx", TRANSACTION)
        producer = init(connection, "tx", transaction_timeout_ms=5_000)
        assert produce_in(connection, producer, "t", timestamp=clock.now_ms()) == ErrorCode.NONE
        for _ in range(3):
            clock.advance(10_000)
        until(lambda: read_up_to(connection, "t", 1) == 2)
        assert visible(connection, "t") == 0
        assert state_of(connection, "tx") == "CompleteAbort"
        assert produce_in(connection, producer, "t", timestamp=clock.now_ms()) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transactional_id_needs_its_coordinator() -> None:
    with Broker(in_process=True) as broker, connected(broker) as connection:
        answer = connection.request(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 4)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
