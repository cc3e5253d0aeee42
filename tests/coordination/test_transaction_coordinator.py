"""The coordinator's single duties; whole stories are in transaction_scenarios/*.txt, and test_transaction_model.py."""

from typing import Any

import pytest

from barnabas.coordination.step import CoordinatorRecord, Reply, Step
from barnabas.coordination.transaction import EPOCH_MAX
from barnabas.coordination.transaction_coordinator import (
    CHANGES_PER_TICK_MAX,
    TransactionCoordinator,
    TransactionMarkers,
    TransactionStep,
    abortable_error,
    fenced_error,
)
from barnabas.coordination.transaction_records import TransactionLogKey, TransactionLogValue
from barnabas.coordinator_config import TransactionConfig
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.transactions import EndTxnRequest, EndTxnResponse
from barnabas.wire.primitives import DecodeError

NOW_MS = 1_000_000
ORDERS = [TopicPartition("orders", number) for number in range(3)]


def coordinator() -> TransactionCoordinator:
    return TransactionCoordinator(TransactionConfig(), 7)


def statuses_of(step: TransactionStep) -> list[int]:
    """The states that a step records."""
    values: list[Any] = [record.value for record in step.records]
    return [value.transaction_status for value in values]


def init(machine: TransactionCoordinator, transactional_id: str = "t", new_id: int | None = 1000) -> Any:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    step = machine.init_producer_id("ticket", request, 5, NOW_MS, new_id)
    return step.replies[0].message


def add(
    machine: TransactionCoordinator, partitions: list[TopicPartition], epoch: int = 0, *, verify: bool = False
) -> Any:
    return machine.add_partitions_to_transaction("t", 1000, epoch, partitions, verify, 2, NOW_MS)


def end(machine: TransactionCoordinator, epoch: int = 0, new_id: int | None = None) -> tuple[EndTxnResponse, Any]:
    request = EndTxnRequest(transactional_id="t", producer_id=1000, producer_epoch=epoch, committed=True)
    step = machine.end_transaction("ticket", request, 5, NOW_MS, new_id)
    message = step.replies[0].message
    assert isinstance(message, EndTxnResponse)
    return message, step


def loaded(epoch: int, status: int = 0, partitions: Any = None) -> TransactionCoordinator:
    machine = coordinator()
    value = TransactionLogValue(
        producer_id=1000,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=partitions,
        transaction_start_timestamp_ms=NOW_MS,
        client_transaction_version=2,
    )
    machine.replay(CoordinatorRecord(TransactionLogKey(transactional_id="t"), value))
    return machine


def test_steps_are_added_with_their_markers() -> None:
    markers = TransactionMarkers("t", 1, 2, True, 7, tuple(ORDERS), 2)
    record = CoordinatorRecord("key", None)
    step = TransactionStep()
    step.add(TransactionStep(records=[record], markers=[markers]))
    step.add(Step(replies=[Reply("ticket", "message")]))
    assert (step.records, step.replies, step.markers) == ([record], [Reply("ticket", "message")], [markers])


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 2, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 1, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_older_versions_know_fencing_by_another_name(error: ErrorCode, version: int, told: ErrorCode) -> None:
    assert fenced_error(error, version, 2) is told


def test_what_a_producer_is_told_of_a_failed_verification() -> None:
    assert abortable_error(ErrorCode.TRANSACTION_ABORTABLE, knows_abortable=True) is ErrorCode.TRANSACTION_ABORTABLE
    assert abortable_error(ErrorCode.TRANSACTION_ABORTABLE, knows_abortable=False) is ErrorCode.INVALID_TXN_STATE
    assert abortable_error(ErrorCode.PRODUCER_FENCED, knows_abortable=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert abortable_error(ErrorCode.NONE, knows_abortable=False) is ErrorCode.NONE


# Producer ids from outside.


def test_a_new_producer_id_is_needed_for_whoever_has_none() -> None:
    machine = coordinator()
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    assert machine.needs_producer_id(request)
    assert machine.needs_producer_id(InitProducerIdRequest(transactional_id=None))
    assert not machine.needs_producer_id(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=0))
    assert not machine.needs_producer_id(InitProducerIdRequest(transactional_id=""))
    init(machine)
    assert not machine.needs_producer_id(request)


def test_without_a_producer_id_the_client_is_asked_to_come_again() -> None:
    machine = coordinator()
    assert init(machine, new_id=None).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert machine.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    step = machine.init_producer_id("ticket", InitProducerIdRequest(transactional_id=None), 5, NOW_MS, None)
    assert step.replies[0].message.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_used_up_producer_id_is_replaced_at_the_end() -> None:
    machine = loaded(EPOCH_MAX - 1)
    request = EndTxnRequest(transactional_id="t", producer_id=1000, producer_epoch=EPOCH_MAX - 1, committed=True)
    assert not machine.needs_producer_id_to_end(request, 5), "there is nothing to end"
    add(machine, ORDERS, EPOCH_MAX - 1)
    assert machine.needs_producer_id_to_end(request, 5)
    assert not machine.needs_producer_id_to_end(request, 4)
    response, step = end(machine, EPOCH_MAX - 1)
    assert (response.error_code, step.records) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    response, step = end(machine, EPOCH_MAX - 1, 2000)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 2000, 0)
    assert not machine.needs_producer_id_to_end(request, 5), "it is being ended"
    assert step.markers == [TransactionMarkers("t", 1000, EPOCH_MAX, True, 7, tuple(ORDERS), 2)]


def test_a_used_up_producer_id_is_replaced_at_an_init() -> None:
    machine = loaded(EPOCH_MAX - 1)
    assert machine.needs_producer_id(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
    assert init(machine, new_id=None).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    response = init(machine, new_id=2000)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 2000, 0)


def test_a_new_producer_id_that_is_not_needed_is_not_used() -> None:
    machine = coordinator()
    init(machine, new_id=1000)
    assert init(machine, new_id=2000).producer_id == 1000
    add(machine, ORDERS, 1)
    response, step = end(machine, 1, new_id=3000)
    assert (response.producer_id, response.producer_epoch) == (1000, 2)
    assert step.records[0].value.next_producer_id == -1


# Requests that can not be.


def test_an_empty_transactional_id_is_no_request() -> None:
    machine = coordinator()
    assert init(machine, "").error_code == ErrorCode.INVALID_REQUEST
    step = machine.end_transaction("ticket", EndTxnRequest(), 5, NOW_MS, None)
    assert step.replies == [Reply("ticket", EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))]
    assert machine.verify("", 1, 0, ORDERS[0]) is ErrorCode.INVALID_REQUEST
    for verify_only in (False, True):
        error, _ = machine.add_partitions_to_transaction("", 1, 0, ORDERS, verify_only, 2, NOW_MS)
        assert error is ErrorCode.INVALID_REQUEST


def test_two_phase_commit_is_refused() -> None:
    machine = coordinator()
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000, enable2_pc=True)
    step = machine.init_producer_id("ticket", request, 6, NOW_MS, 1000)
    assert step.replies[0].message == InitProducerIdResponse(
        error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1
    )
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000, keep_prepared_txn=True)
    step = machine.init_producer_id("ticket", request, 6, NOW_MS, 1000)
    assert step.replies[0].message.error_code == ErrorCode.UNSUPPORTED_VERSION


# Partitions.


def test_partitions_are_verified_one_by_one() -> None:
    machine = coordinator()
    init(machine)
    add(machine, ORDERS[:2])
    outcome, step = add(machine, ORDERS, verify=True)
    assert outcome == {ORDERS[0]: 0, ORDERS[1]: 0, ORDERS[2]: ErrorCode.TRANSACTION_ABORTABLE}
    assert step == TransactionStep()
    assert add(machine, ORDERS, epoch=3, verify=True) == (ErrorCode.PRODUCER_FENCED, TransactionStep())
    assert machine.verify("t", 1000, 0, ORDERS[0]) is ErrorCode.NONE
    assert machine.verify("t", 1000, 0, ORDERS[2]) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_transaction_without_partitions_ends_without_markers() -> None:
    machine = coordinator()
    init(machine)
    add(machine, [])
    assert machine.describe("t").transaction_state == "Ongoing"
    response, step = end(machine)
    assert (response.error_code, step.markers) == (0, [])
    assert machine.describe("t").transaction_state == "CompleteCommit"


def test_a_partition_that_is_no_more_counts_as_written() -> None:
    """The caller reports it like any other; one that was never in the transaction changes nothing."""
    machine = coordinator()
    init(machine)
    add(machine, ORDERS)
    end(machine)
    assert machine.markers_written("t", 1000, 1, [TopicPartition("gone", 0)], NOW_MS) == TransactionStep()
    step = machine.markers_written("t", 1000, 1, ORDERS, NOW_MS)
    assert statuses_of(step) == [4]


# Time.


def test_a_tick_does_not_make_a_batch_of_any_size() -> None:
    machine = coordinator()
    count = CHANGES_PER_TICK_MAX + 1
    for number in range(count):
        init(machine, f"t{number}", number)
        machine.add_partitions_to_transaction(f"t{number}", number, 0, ORDERS, False, 2, NOW_MS)
    assert machine.next_deadline_ms == NOW_MS + 60_000
    later_ms = NOW_MS + 60_000
    assert len(machine.tick(later_ms).records) == CHANGES_PER_TICK_MAX
    assert machine.next_deadline_ms == later_ms
    assert len(machine.tick(later_ms).records) == 1
    for number in range(count):
        machine.markers_written(f"t{number}", number, 1, ORDERS, later_ms)
    much_later_ms = later_ms + machine.config.transactional_id_expiration_ms
    assert machine.next_deadline_ms == much_later_ms
    assert machine.tick(much_later_ms - 1) == TransactionStep()
    assert len(machine.tick(much_later_ms).records) == CHANGES_PER_TICK_MAX
    assert [record.value for record in machine.tick(much_later_ms).records] == [None]
    assert machine.next_deadline_ms is None
    assert machine.list([], [], -1, None, much_later_ms) == []


def test_a_transaction_that_ended_does_not_time_out() -> None:
    machine = coordinator()
    init(machine)
    add(machine, ORDERS)
    end(machine)
    assert machine.tick(NOW_MS + 60_000) == TransactionStep()
    machine.markers_written("t", 1000, 1, ORDERS, NOW_MS)
    add(machine, ORDERS, 1)
    assert machine.next_deadline_ms == NOW_MS + 60_000


# Start.


def test_a_tombstone_deletes_and_damage_is_told() -> None:
    machine = loaded(3)
    key = TransactionLogKey(transactional_id="t")
    with pytest.raises(DecodeError):
        machine.replay(CoordinatorRecord(key, TransactionLogValue(transaction_status=9)))
    machine.replay(CoordinatorRecord(key, None))
    machine.replay(CoordinatorRecord(key, None))
    assert machine.describe("t").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_transaction_that_was_decided_without_partitions_is_completed_at_the_start() -> None:
    machine = loaded(3, status=2, partitions=[])
    step = machine.finish_loading(NOW_MS)
    assert statuses_of(step) == [4]
    assert step.markers == []


def test_nobody_waits() -> None:
    assert coordinator().waiting_replies(ErrorCode.NOT_COORDINATOR) == []
