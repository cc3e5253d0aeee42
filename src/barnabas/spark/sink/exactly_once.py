"""How a batch of a streaming query comes into its topics once: transactions, and a decision about them.

    task            begins a transaction of its own, writes, and leaves it open; its handle goes to the driver
    driver          writes the handles down as the decision about the batch (`decisions`), then commits each
    replay          a batch with a decision is not written again: the driver commits what was decided, and that is all

A transactional id is PREFIX-QUERY-TASK-ATTEMPT. It is used again for every batch, so that their number stays small:
the next batch begins when the last one is finished, and to begin aborts what the id had open. Attempts of a task that
run at the same time have ids of their own and do not disturb each other: which one counts is said by the decision.

Rule 1: before the decision everything may be aborted, and is: by `abort_batch`, by the next task with the same id, by
`commit_batch` of the replay, or at last by the coordinator's timeout.
Rule 2: after it nothing that was decided may be aborted. If the coordinator did so, because nobody came back in time,
that is an error, and never a silent gap: the decision is withdrawn if nothing of it came true, and kept otherwise.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from barnabas.client.client import Client
from barnabas.client.connection import ClientError, UnsupportedVersionError
from barnabas.client.sender import TransactionHandle
from barnabas.client.transactional import ENDED_OTHERWISE, Transaction, end_transactions
from barnabas.client.transactions import (
    ONGOING,
    NoOpenTransactionError,
    TransactionDescription,
    abort_transaction,
    describe_transactions,
    list_transactions,
)
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.decisions import Decision, Decisions
from barnabas.spark.sink.encoding import RowEncoder
from barnabas.spark.sink.failures import sentence, told_as_pipeline_errors
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.task_memory import spare_imports
from barnabas.wire.errors import ApiError

ABORTED = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")


def id_prefix(options: SinkOptions, query_id: str) -> str:
    """Return how all transactional ids of a query begin."""
    return f"{options.transactional_id_prefix}-{query_id}-"


def write_in_transaction(
    client: Client,
    options: SinkOptions,
    columns: frozenset[str],
    transactional_id: str,
    batches: Iterator[pa.RecordBatch],
) -> tuple[TransactionHandle | None, int]:
    """Write the rows of a task, leave the transaction open, and return its handle, None without rows, and how many."""
    spare_imports()
    encoder = RowEncoder(client, options, columns)
    transaction: Transaction | None = None
    try:
        with told_as_pipeline_errors("writing"):
            for chunk in encoder.chunks(batches):
                if transaction is None:
                    transaction = Transaction(
                        client, transactional_id, timeout_ms=options.transaction_timeout_ms, options=options.sending
                    )
                transaction.add(partition for partition, _ in chunk)
                for partition, made in chunk:
                    for batch in made:
                        transaction.submit(partition, batch)
                if transaction.has_failed:
                    break
            if transaction is None:
                return None, 0
            transaction.flush()
            return transaction.handle, encoder.rows
    except BaseException:
        if transaction is not None:
            _abort_quietly(client, transaction.handle)
        raise
    finally:
        if transaction is not None:
            transaction.close()


def commit_batch(
    client: Client,
    decisions: Decisions,
    batch_id: int,
    handles: Sequence[TransactionHandle],
    *,
    prefix: str,
    timeout_ms: int,
) -> None:
    """Decide about a batch, unless that was done before, and do what was decided.

    Raises:
        PipelineError: Transactions timed out, or a coordinator can not be reached. What was decided stays so.
    """
    with told_as_pipeline_errors(f"committing batch {batch_id}"):
        decision = decisions.read(batch_id)
        if decision is None and handles:
            _check_open(client, batch_id, handles, timeout_ms)
            decision = decisions.decide(batch_id, tuple(handles))
        if decision is not None and not decision.is_finished:
            _do(client, decisions, decision, timeout_ms)
        abort_leftovers(client, prefix)
    decisions.prune(batch_id)


def abort_batch(client: Client, decisions: Decisions, batch_id: int, *, prefix: str) -> None:
    """Abort what a batch has open. Spark calls for this also when a commit failed: what was decided stays."""
    decision = decisions.read_any(batch_id)
    decided = (
        frozenset(each.transactional_id for each in decision.transactions) if decision is not None else frozenset()
    )
    try:
        abort_leftovers(client, prefix, but=decided)
    except (ApiError, ClientError):
        # Spark has its reason to abort, which is the one to be shown; the coordinator aborts in time anyway.
        return


def abort_leftovers(client: Client, prefix: str, *, but: frozenset[str] = frozenset()) -> None:
    """Abort the open transactions of a query: of tasks that were killed, or ran twice, or belonged to a dead driver."""
    try:
        ongoing = list_transactions(client, states=[ONGOING])
    except UnsupportedVersionError:
        return  # Brokers before Kafka 3.0 can not be asked; who uses an id next, or the timeout, aborts in the end.
    for listed in ongoing:
        name = listed.transactional_id
        if not name.startswith(prefix) or name in but:
            continue
        try:
            abort_transaction(client, name)
        except NoOpenTransactionError:
            continue  # Its own task was quicker.


def _abort_quietly(client: Client, handle: TransactionHandle) -> None:
    try:
        end_transactions(client, [handle], committed=False)
    except (ApiError, ClientError):
        # There is an error on its way already; whoever uses the id next, or the timeout, aborts it.
        return


def _check_open(client: Client, batch_id: int, handles: Sequence[TransactionHandle], timeout_ms: int) -> None:
    """Refuse to decide for what can not be committed any more."""
    try:
        described = describe_transactions(client, [handle.transactional_id for handle in handles])
    except UnsupportedVersionError:
        return  # Brokers before Kafka 3.0 can not be asked; committing will tell.
    for handle in handles:
        found = described[handle.transactional_id]
        if isinstance(found, TransactionDescription):
            is_same = (found.producer_id, found.producer_epoch) == (handle.producer_id, handle.producer_epoch)
            if is_same and found.state == ONGOING:
                continue
            state = found.state if is_same else f"{found.state} under another producer"
        else:
            state = sentence(found)
        raise PipelineError(
            f"batch {batch_id} was not committed, because the transaction {handle.transactional_id!r} is not open "
            f"any more ({state}); a batch may take as long as option 'kafka.transaction.timeout.ms' says "
            f"({timeout_ms:,} ms): give it more time, or less to do, and start the query again"
        )


def _do(client: Client, decisions: Decisions, decision: Decision, timeout_ms: int) -> None:
    """Commit what was decided; to do so twice is no different from once."""
    refused: dict[TransactionHandle, ApiError] = {}
    for handle, error in end_transactions(client, decision.transactions, committed=True).items():
        if error is not None and error.code not in ENDED_OTHERWISE:
            raise error
        if error is not None:
            refused[handle] = error
    if not refused:
        decisions.finish(decision.batch_id)
        return
    count = len(decision.transactions)
    away = f"nobody committed them within option 'kafka.transaction.timeout.ms' ({timeout_ms:,} ms)"
    if len(refused) == count and all(_was_aborted(client, handle) for handle in refused):
        decisions.withdraw(decision.batch_id)
        raise PipelineError(
            f"batch {decision.batch_id} was decided, but its transactions were aborted, because {away}; "
            "nothing of it was written, so start the query again and it will be"
        )
    raise PipelineError(
        f"batch {decision.batch_id} is in its topics in part: {len(refused)} of {count} transactions could not be "
        f"committed, most likely because {away}; their records are missing. "
        f"To have the whole batch written again, with the other records twice, delete "
        f"{decisions.path(decision.batch_id)} and start the query again. "
        f"The first reason: {sentence(next(iter(refused.values())))}"
    )


def _was_aborted(client: Client, handle: TransactionHandle) -> bool:
    """Tell whether it is sure that a transaction was aborted; the coordinator takes the next epoch to do so."""
    try:
        found = describe_transactions(client, [handle.transactional_id])[handle.transactional_id]
    except UnsupportedVersionError:
        return False
    if isinstance(found, ApiError):
        return False
    is_same = found.producer_id == handle.producer_id
    is_next = found.producer_epoch - handle.producer_epoch in (0, 1)
    return is_same and is_next and found.state in ABORTED
