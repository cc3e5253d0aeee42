"""One transactional id: which state may follow which, epochs and producer ids, and the record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREVIOUS_STATUSES,
    STATUS_NAMES,
    Initialization,
    TransactionMetadata,
    TransactionStatus,
    is_epoch_exhausted,
)
from barnabas.coordination.transaction_records import TransactionLogValue, TransactionPartitions
from barnabas.model import TopicPartition
from barnabas.wire.primitives import DecodeError

ORDERS = TopicPartition("orders", 0)


def metadata(status: TransactionStatus = EMPTY, epoch: int = 5) -> TransactionMetadata:
    """A transactional id in the middle of its life."""
    return TransactionMetadata("t", 1000, 60_000, 100, producer_epoch=epoch, status=status)


def ongoing(epoch: int = 5) -> TransactionMetadata:
    transaction = metadata(epoch=epoch)
    transaction.add_partitions([ORDERS], 2, 200)
    return transaction


def value_of(transaction: TransactionMetadata) -> TransactionLogValue:
    """The value of its record."""
    value = transaction.record().value
    assert isinstance(value, TransactionLogValue)
    return value


def test_states_have_kafkas_names_and_numbers() -> None:
    assert [STATUS_NAMES[status] for status in sorted(TransactionStatus)] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_every_state_can_be_reached_and_only_dead_is_final() -> None:
    assert set(PREVIOUS_STATUSES) == set(TransactionStatus)
    left = {previous for statuses in PREVIOUS_STATUSES.values() for previous in statuses}
    assert set(TransactionStatus) - left == {TransactionStatus.DEAD}


@pytest.mark.parametrize("status", [PREPARE_COMMIT, PREPARE_ABORT, TransactionStatus.DEAD])
def test_nothing_is_added_to_a_transaction_that_is_being_ended(status: TransactionStatus) -> None:
    with pytest.raises(AssertionError):
        metadata(status).add_partitions([ORDERS], 2, 200)


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_what_began_can_be_committed(status: TransactionStatus) -> None:
    with pytest.raises(AssertionError):
        metadata(status).prepare(True, 2, NO_PRODUCER_ID, 200)
    with pytest.raises(AssertionError):
        metadata(status).prepare(False, 0, NO_PRODUCER_ID, 200)
    metadata(status).prepare(False, 2, NO_PRODUCER_ID, 200)


def test_a_transaction_is_not_complete_while_a_marker_is_missing() -> None:
    transaction = ongoing()
    transaction.prepare(True, 2, NO_PRODUCER_ID, 300)
    with pytest.raises(AssertionError):
        transaction.complete(400)
    transaction.partitions.clear()
    transaction.complete(400)
    assert transaction.status is COMPLETE_COMMIT


@pytest.mark.parametrize(("client_version", "epoch", "last"), [(0, 5, -1), (1, 5, -1), (2, 6, 5)])
def test_the_epoch_is_bumped_from_version_2_on(client_version: int, epoch: int, last: int) -> None:
    transaction = ongoing()
    transaction.prepare(True, client_version, NO_PRODUCER_ID, 300)
    assert (transaction.producer_epoch, transaction.last_producer_epoch) == (epoch, last)
    assert transaction.client_transaction_version == client_version


def test_the_coordinators_own_abort_bumps_the_epoch_once() -> None:
    transaction = ongoing()
    transaction.fence_and_abort(300)
    assert (transaction.status, transaction.producer_epoch) == (PREPARE_ABORT, 6)
    assert transaction.client_transaction_version == 2


def test_a_new_client_makes_the_last_epoch_nobodys() -> None:
    """Or else an old client's retry would be answered with the new one's epoch."""
    transaction = metadata()
    transaction.bump_epoch(60_000, 200, is_new_client=False)
    assert (transaction.producer_epoch, transaction.last_producer_epoch) == (6, 5)
    transaction.bump_epoch(60_000, 200, is_new_client=True)
    assert (transaction.producer_epoch, transaction.last_producer_epoch) == (7, -1)
    transaction.replace_producer_id(2000, 60_000, 200, is_new_client=False)
    assert (transaction.producer_id, transaction.producer_epoch, transaction.last_producer_epoch) == (2000, 0, 7)
    transaction.replace_producer_id(3000, 60_000, 200, is_new_client=True)
    assert (transaction.previous_producer_id, transaction.last_producer_epoch) == (2000, -1)


def test_the_time_of_the_start_is_that_of_the_first_partition() -> None:
    transaction = ongoing()
    transaction.add_partitions([TopicPartition("orders", 1)], 2, 250)
    assert (transaction.start_timestamp_ms, transaction.last_update_timestamp_ms) == (200, 250)
    transaction.prepare(True, 2, NO_PRODUCER_ID, 300)
    assert (transaction.start_timestamp_ms, transaction.last_update_timestamp_ms) == (200, 300)
    transaction.partitions.clear()
    transaction.complete(400)
    transaction.add_partitions([ORDERS], 2, 500)
    assert transaction.start_timestamp_ms == 500


def test_a_used_up_producer_id_is_replaced_when_the_transaction_is_complete() -> None:
    transaction = ongoing(EPOCH_MAX - 1)
    transaction.prepare(True, 2, 2000, 300)
    assert (transaction.producer_id, transaction.producer_epoch) == (1000, EPOCH_MAX)
    assert transaction.client_identity == (2000, 0)
    transaction.partitions.clear()
    transaction.complete(400)
    assert (transaction.producer_id, transaction.producer_epoch, transaction.previous_producer_id) == (2000, 0, 1000)
    assert transaction.client_identity == (2000, 0)


def test_a_transaction_of_the_last_epoch_can_still_be_ended() -> None:
    transaction = ongoing(EPOCH_MAX)
    transaction.fence_and_abort(300)
    assert transaction.producer_epoch == EPOCH_MAX


@pytest.mark.parametrize(
    ("epoch", "exhausted"), [(0, False), (EPOCH_MAX - 2, False), (EPOCH_MAX - 1, True), (EPOCH_MAX, True)]
)
def test_the_last_epoch_but_one_is_the_last_for_clients(epoch: int, exhausted: bool) -> None:
    assert is_epoch_exhausted(epoch) is exhausted


@pytest.mark.parametrize(
    ("epoch", "last", "expected", "meaning"),
    [
        (5, -1, (-1, -1), Initialization.BUMP_EPOCH),
        (5, -1, (1000, 5), Initialization.BUMP_EPOCH),
        (5, 4, (1000, 4), Initialization.REPEAT),
        (5, -1, (1000, 4), Initialization.FENCE),
        (5, 4, (1000, 3), Initialization.FENCE),
        (5, 4, (1000, 6), Initialization.FENCE),
        (5, 4, (7, 5), Initialization.FENCE),
        (EPOCH_MAX - 1, -1, (-1, -1), Initialization.NEW_PRODUCER_ID),
        (EPOCH_MAX - 1, -1, (1000, EPOCH_MAX - 1), Initialization.NEW_PRODUCER_ID),
        (EPOCH_MAX - 1, EPOCH_MAX - 2, (1000, EPOCH_MAX - 2), Initialization.REPEAT),
        (EPOCH_MAX, EPOCH_MAX - 1, (1000, EPOCH_MAX - 1), Initialization.FENCE),
        (EPOCH_MAX, EPOCH_MAX - 1, (-1, -1), Initialization.NEW_PRODUCER_ID),
    ],
)
def test_what_an_init_producer_id_means(
    epoch: int, last: int, expected: tuple[int, int], meaning: Initialization
) -> None:
    transaction = metadata(epoch=epoch)
    transaction.last_producer_epoch = last
    assert transaction.initialization_for(*expected) is meaning


@pytest.mark.parametrize(
    ("expected", "meaning"),
    [
        ((-1, -1), Initialization.ABORT),
        ((1000, 5), Initialization.ABORT),
        ((1000, 4), Initialization.FENCE),
        ((7, 5), Initialization.FENCE),
    ],
)
def test_an_old_client_does_not_abort_a_newer_ones_transaction(
    expected: tuple[int, int], meaning: Initialization
) -> None:
    assert ongoing().initialization_for(*expected) is meaning


def test_the_record_of_an_ongoing_transaction() -> None:
    transaction = ongoing()
    transaction.add_partitions([TopicPartition("payments", 7), TopicPartition("orders", 3)], 2, 250)
    record = transaction.record()
    assert record.key.transactional_id == "t"
    assert record.value == TransactionLogValue(
        producer_id=1000,
        previous_producer_id=1000,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[
            TransactionPartitions(topic="orders", partition_ids=[0, 3]),
            TransactionPartitions(topic="payments", partition_ids=[7]),
        ],
        transaction_last_update_timestamp_ms=250,
        transaction_start_timestamp_ms=200,
        client_transaction_version=2,
    )


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    assert value_of(metadata()).transaction_partitions is None
    assert value_of(metadata(COMPLETE_ABORT)).transaction_partitions == []


def test_a_record_does_not_change_with_the_state() -> None:
    transaction = ongoing()
    value = value_of(transaction)
    transaction.add_partitions([TopicPartition("orders", 9)], 2, 300)
    assert value.transaction_partitions == [TransactionPartitions(topic="orders", partition_ids=[0])]


@pytest.mark.parametrize("status", [-1, 6, 7, 8])
def test_a_status_that_is_never_written_is_damage(status: int) -> None:
    with pytest.raises(DecodeError, match=f"status {status}"):
        TransactionMetadata.from_record("t", TransactionLogValue(transaction_status=status))


@given(
    status=st.sampled_from([EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]),
    numbers=st.tuples(*[st.integers(-1, 2**31 - 1)] * 6),
    epoch=st.integers(0, EPOCH_MAX),
    partitions=st.sets(st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 100))),
)
def test_the_record_has_everything_but_the_last_epoch(
    status: TransactionStatus, numbers: tuple[int, ...], epoch: int, partitions: set[TopicPartition]
) -> None:
    producer_id, timeout_ms, now_ms, previous, following, start_ms = numbers
    transaction = TransactionMetadata(
        "t", producer_id, timeout_ms, now_ms, previous, following, epoch, status=status, start_timestamp_ms=start_ms
    )
    if status is not EMPTY:
        transaction.partitions = dict.fromkeys(partitions)
    assert TransactionMetadata.from_record("t", value_of(transaction)) == transaction
