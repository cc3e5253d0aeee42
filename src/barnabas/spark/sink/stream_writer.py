"""`df.writeStream.format("barnabas")`: exactly once by transactions (see `exactly_once`), or at least once on request.

Spark makes a writer on the driver for every batch, pickles it to the tasks, and makes another one to commit or abort,
in another process: nothing is kept in `self` from one to the other but what the options and the checkpoint say.

Rule 1: which batches have a decision is read on the driver when the writer is made, and goes to the tasks with it; they
need not see the checkpoint. Nobody decides about a batch between that and its tasks.
Rule 2: a batch is left out only for a decision that was checked to be about it (`Decisions.read`). Spark has planned
the batch when it makes the writer, so that the newest plan in the checkpoint is the one to check.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.sender import TransactionHandle
from barnabas.spark.connecting import read_cluster, shared_client
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.decisions import Decisions
from barnabas.spark.sink.exactly_once import abort_batch, commit_batch, id_prefix, write_in_transaction
from barnabas.spark.sink.options import read_options
from barnabas.spark.sink.schema import check_schema
from barnabas.spark.sink.writer import RowsWritten, write_at_least_once

_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class TransactionWritten(WriterCommitMessage):
    """What a task has left open; None when it had no rows, or wrote none because the batch has a decision."""

    transaction: TransactionHandle | None
    rows: int
    has_decision: bool


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query; raises PipelineError when the query makes no sense."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options, is_streaming=True)
        self._cluster = read_cluster(options)
        self._columns = check_schema(schema, self._options.topic)
        self._prefix = ""
        self._decided: frozenset[int] = frozenset()
        self._checked: int | None = None
        if self._options.is_exactly_once:
            decisions = self._decisions()
            self._prefix = id_prefix(self._options, decisions.query_id())
            self._decided = frozenset(decisions.batch_ids())
            self._checked = decisions.current_batch()
            if self._checked in self._decided:
                decisions.read(self._checked)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        if not self._options.is_exactly_once:
            return RowsWritten(write_at_least_once(self._cluster, self._options, self._columns, iterator))
        context = TaskContext.get()
        batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
        if context is None or batch_id is None:
            raise PipelineError(
                "Spark does not tell which batch this is, so that it can not be written exactly once; "
                "the option 'deliveryGuarantee' can be at-least-once"
            )
        if int(batch_id) in self._decided:
            if int(batch_id) != self._checked:
                raise PipelineError(
                    f"there is a decision about batch {batch_id}, but the newest batch that Spark has planned in "
                    f"{self._options.checkpoint_location} is {self._checked}: start the query again"
                )
            for _ in iterator:  # Spark wants its rows taken.
                pass
            return TransactionWritten(None, 0, True)
        handle, rows = write_in_transaction(
            shared_client(self._cluster),
            self._options,
            self._columns,
            f"{self._prefix}{context.partitionId()}-{context.attemptNumber()}",
            iterator,
        )
        return TransactionWritten(handle, rows, False)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Decide about a batch and commit it, on the driver."""
        if not self._options.is_exactly_once:
            return
        written = [each for each in messages if isinstance(each, TransactionWritten)]
        if any(each.has_decision for each in written) and batchId not in self._decided:
            raise PipelineError(
                f"the decision about batch {batchId} was there when its tasks began and is gone now; "
                "start the query again"
            )
        commit_batch(
            shared_client(self._cluster),
            self._decisions(),
            batchId,
            [each.transaction for each in written if each.transaction is not None],
            prefix=self._prefix,
            timeout_ms=self._options.transaction_timeout_ms,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Abort what a batch has open, on the driver."""
        if self._options.is_exactly_once:
            abort_batch(shared_client(self._cluster), self._decisions(), batchId, prefix=self._prefix)

    def _decisions(self) -> Decisions:
        assert self._options.checkpoint_location is not None
        return Decisions(self._options.checkpoint_location)
