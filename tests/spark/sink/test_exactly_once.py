"""The course of a batch without Spark: tasks, decision, commit, replay, and everything that can happen in between."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas import Broker
from barnabas.client.client import Client
from barnabas.client.connection import UnsupportedVersionError
from barnabas.client.sender import TransactionHandle
from barnabas.client.transactional import end_transactions
from barnabas.client.transactions import abort_transaction, list_transactions
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink import exactly_once
from barnabas.spark.sink.decisions import DECIDED, FINISHED, Decisions
from barnabas.spark.sink.exactly_once import abort_batch, commit_batch, id_prefix, write_in_transaction
from barnabas.spark.sink.options import read_options
from barnabas.wire.errors import ErrorCode
from tests.spark.sink.topics import make_topic, read_topic, values

OPTIONS = {"checkpointLocation": "unused", "transactionalIdPrefix": "test"}
PREFIX = "test-query-"
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
DEADLINE_SECONDS = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True, settings=SETTINGS) as running:
        yield running


class Query:
    """A query by hand."""

    def __init__(self, broker: Broker, client: Client, folder: Path) -> None:
        self.broker = broker
        self.client = client
        self.topic = make_topic(broker.bootstrap_servers)
        (folder / "metadata").write_text('{"id":"query"}')
        self.decisions = Decisions(str(folder), str)
        self.options = read_options({**OPTIONS, "topic": self.topic}, is_streaming=True)

    def task(self, number: int, *rows: str, attempt: int = 0) -> TransactionHandle:
        batch = pa.record_batch({"value": pa.array([row.encode() for row in rows], pa.binary())})
        handle, count = write_in_transaction(
            self.client, self.options, frozenset({"value"}), f"{PREFIX}{number}-{attempt}", iter([batch])
        )
        assert handle is not None
        assert count == len(rows)
        return handle

    def commit(self, batch_id: int, *handles: TransactionHandle) -> None:
        commit_batch(self.client, self.decisions, batch_id, handles, prefix=PREFIX, timeout_ms=1_000)

    def abort(self, batch_id: int) -> None:
        abort_batch(self.client, self.decisions, batch_id, prefix=PREFIX)

    def committed(self) -> dict[bytes | None, int]:
        return dict(values(read_topic(self.broker.bootstrap_servers, self.topic)))

    def open_ids(self) -> list[str]:
        return [each.transactional_id for each in list_transactions(self.client, states=["Ongoing"])]


@pytest.fixture
def query(broker: Broker, tmp_path: Path) -> Iterator[Query]:
    with Client(broker.bootstrap_servers) as client:
        made = Query(broker, client, tmp_path)
        yield made
        made.abort(-1)


def test_ids_of_a_query_begin_alike(query: Query) -> None:
    assert id_prefix(query.options, "query") == PREFIX


def test_batches_are_committed_and_a_finished_one_is_left_alone(query: Query) -> None:
    query.commit(0, query.task(0, "a", "b"), query.task(1, "c"))
    query.commit(1, query.task(0, "d"))
    assert query.decisions.batch_ids() == {0: FINISHED, 1: FINISHED}
    query.commit(1)
    query.commit(2)
    assert query.decisions.batch_ids() == {0: FINISHED, 1: FINISHED}
    assert query.committed() == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}


def test_a_decision_that_was_not_done_is_done_by_the_replay(query: Query) -> None:
    """The driver died between the decision and the last commit; one transaction was committed already."""
    handles = query.task(0, "a"), query.task(1, "b")
    query.decisions.decide(5, handles)
    assert end_transactions(query.client, handles[:1], committed=True) == {handles[0]: None}
    query.commit(5)
    assert query.decisions.batch_ids() == {5: FINISHED}
    assert query.committed() == {b"a": 1, b"b": 1}


def test_what_nobody_decided_for_is_aborted(query: Query) -> None:
    """Attempts that were killed or ran twice, and a task of the dead driver whose slot is empty this time."""
    query.task(0, "lost with the driver")
    query.task(1, "lost too")
    query.task(2, "killed", attempt=0)
    kept = query.task(0, "a"), query.task(2, "b", attempt=1)
    query.commit(0, *kept)
    assert query.open_ids() == []
    assert query.committed() == {b"a": 1, b"b": 1}


def test_brokers_that_do_not_list_transactions_are_written_to_all_the_same(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before Kafka 3.0."""

    def refuse(*arguments: object, **named: object) -> None:
        raise UnsupportedVersionError("too old")

    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "list_transactions", refuse)
        patched.setattr(exactly_once, "describe_transactions", refuse)
        query.commit(0, query.task(0, "a"))
        query.abort(1)
    assert query.decisions.batch_ids() == {0: FINISHED}
    assert query.committed() == {b"a": 1}


def test_a_decision_about_another_plan_is_neither_done_nor_overruled(query: Query, tmp_path: Path) -> None:
    decided = query.task(0, "a")
    Decisions(str(tmp_path), lambda number: f"old plan of {number}").decide(3, (decided,))
    new = query.task(1, "a"), query.task(2, "b")
    with pytest.raises(PipelineError, match=r"3\.decided is about batch 3 as it was planned before"):
        query.commit(3, *new)
    query.abort(3)
    assert query.open_ids() == [decided.transactional_id]
    assert query.committed() == {}


def test_an_abort_leaves_decided_transactions_alone(query: Query) -> None:
    """Spark aborts after a commit that failed, and then the decision has been made."""
    decided, other = query.task(0, "a"), query.task(1, "b")
    query.decisions.decide(3, (decided,))
    query.abort(3)
    assert query.open_ids() == [decided.transactional_id]
    query.commit(3)
    query.task(0, "c")
    query.abort(4)
    assert query.open_ids() == []
    assert other.transactional_id != decided.transactional_id
    assert query.committed() == {b"a": 1}


def test_a_transaction_that_timed_out_before_the_decision_fails_the_batch(query: Query) -> None:
    handles = query.task(0, "a"), query.task(1, "b")
    abort_transaction(query.client, handles[1].transactional_id)
    with pytest.raises(
        PipelineError,
        match=r"batch 9 was not committed, because the transaction 'test-query-1-0' is not open any more "
        r"\(.*option 'kafka.transaction.timeout.ms' says \(1,000 ms\)",
    ):
        query.commit(9, *handles)
    assert query.decisions.batch_ids() == {}
    query.abort(9)
    assert query.committed() == {}


def test_a_decision_of_which_nothing_came_true_is_withdrawn(query: Query) -> None:
    """Nobody came back until the coordinator had aborted everything; then the batch can be written anew."""
    query.options = replace(query.options, transaction_timeout_ms=2_000)
    query.decisions.decide(9, (query.task(0, "a"), query.task(1, "b")))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while query.open_ids():
        assert time.monotonic() < deadline, "the coordinator did not abort in time"
    with pytest.raises(
        PipelineError, match=r"^batch 9 was decided, but its transactions were aborted, because .*\(1,000 ms"
    ):
        query.commit(9)
    assert query.decisions.batch_ids() == {}
    query.options = replace(query.options, transaction_timeout_ms=60_000)
    query.commit(9, query.task(0, "a", "b"))
    assert query.committed() == {b"a": 1, b"b": 1}


def test_a_decision_is_not_withdrawn_when_nobody_knows(query: Query) -> None:
    """Somebody used the id again, and what became of the transaction before is forgotten."""
    handle = query.task(0, "a")
    query.decisions.decide(9, (handle,))
    abort_transaction(query.client, handle.transactional_id)
    with pytest.raises(PipelineError, match=r"^batch 9 is in its topics in part: 1 of 1 transactions could not be"):
        query.commit(9)
    assert query.decisions.batch_ids() == {9: DECIDED}


def test_a_batch_that_came_true_in_part_is_said_loudly(query: Query) -> None:
    handles = query.task(0, "a"), query.task(1, "b")
    query.decisions.decide(9, handles)
    assert end_transactions(query.client, handles[:1], committed=True) == {handles[0]: None}
    abort_transaction(query.client, handles[1].transactional_id)
    with pytest.raises(
        PipelineError,
        match=r"batch 9 is in its topics in part: 1 of 2 transactions could not be committed.* delete .*/9.decided and",
    ):
        query.commit(9)
    assert query.decisions.batch_ids() == {9: DECIDED}


def test_a_task_that_fails_leaves_nothing_open(query: Query) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([b"x" * 5_000_000] * 2, pa.binary())})

    with pytest.raises(PipelineError, match=r"makes a batch of 5,000,.* bytes by itself, but the topic's max.message"):
        write_in_transaction(query.client, query.options, frozenset({"value"}), f"{PREFIX}0-0", rows())
    assert query.open_ids() == []
    query.broker.faults.error("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(PipelineError, match=r"writing failed: 1 record was not acknowledged by .*TOPIC_AUTHORIZATION"):
        query.task(0, "refused")
    assert query.open_ids() == []


def test_without_rows_there_is_no_transaction(query: Query) -> None:
    found = write_in_transaction(query.client, query.options, frozenset({"value"}), f"{PREFIX}0-0", iter(()))
    assert found == (None, 0)
    assert not [each for each in list_transactions(query.client) if each.transactional_id == f"{PREFIX}0-7"]
