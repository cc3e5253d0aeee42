"""`df.write.format("barnabas")`: every task writes its rows, and Spark is told when they are acknowledged.

The writer is made on the driver, where options and columns are checked, and pickled to the tasks.

Rule 1: at least once, as Spark's own sink: a batch that is sent again is recognised by the broker, but a task that is
tried again writes its rows again. Exactly once is for streaming queries: see `stream_writer`.
Rule 2: nothing is written before the whole query was found good: unknown options, wrong columns and save modes that
would have to delete records are refused on the driver.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.sender import Sender
from barnabas.spark.connecting import Cluster, read_cluster, shared_client
from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.encoding import RowEncoder
from barnabas.spark.sink.failures import told_as_pipeline_errors
from barnabas.spark.sink.options import SinkOptions, read_options
from barnabas.spark.sink.schema import check_schema
from barnabas.spark.task_memory import spare_imports


@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):
    """What a task has done."""

    rows: int


def write_at_least_once(
    cluster: Cluster, options: SinkOptions, columns: frozenset[str], batches: Iterator[pa.RecordBatch]
) -> int:
    """Write the rows of a task and wait until they are acknowledged; returns how many they are."""
    spare_imports()
    client = shared_client(cluster)
    encoder = RowEncoder(client, options, columns)
    sender = Sender(client, options.sending)
    try:
        with told_as_pipeline_errors("writing"):
            for chunk in encoder.chunks(batches):
                for partition, made in chunk:
                    for batch in made:
                        sender.submit(partition, batch)
                if sender.has_failed:
                    break
            sender.flush()
    finally:
        sender.close()
    return encoder.rows


class BatchWriter(DataSourceArrowWriter):
    """The sink of a batch query; raises PipelineError when the query makes no sense."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError(
                "mode 'overwrite' would have to delete what is in the topic, which is not done here; "
                "use mode 'append', and delete records or the topic by yourself first"
            )
        self._options = read_options(options, is_streaming=False)
        self._cluster = read_cluster(options)
        self._columns = check_schema(schema, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return RowsWritten(write_at_least_once(self._cluster, self._options, self._columns, iterator))
