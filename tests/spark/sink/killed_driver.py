"""A driver to be killed: a process of its own that runs a streaming query and dies where it is told to.

    python -m tests.spark.sink.killed_driver SERVERS TOPIC SOURCE CHECKPOINT POINT BATCH

It writes the lines of SOURCE, one file a batch. When batch BATCH reaches POINT, the whole driver is killed as by
kill -9: Python, the JVM and what they started. Each point is reached in the process that Spark runs that part in.

    task            a Python worker is killed after it has written, and Spark tries the task again
    tasks-done      all tasks have written, nobody has decided
    decided         the decision is on the disk, no transaction is committed
    half-committed  the first transaction is committed, the others are not
    committed       all are committed, neither we nor Spark have noted it
    never           the query ends by itself, with exit code 0
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.client import Client
from barnabas.client.sender import TransactionHandle
from barnabas.client.transactional import end_transactions
from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.sink import exactly_once
from barnabas.spark.sink.decisions import Decisions
from barnabas.spark.sink.stream_writer import StreamWriter

POINT = "BARNABAS_TEST_POINT"
BATCH = "BARNABAS_TEST_BATCH"
GROUP = "BARNABAS_TEST_GROUP"


def is_here(point: str, batch_id: int) -> bool:
    """Whether this is where it is to happen."""
    return (os.environ[POINT], int(os.environ[BATCH])) == (point, batch_id)


def kill_driver() -> None:
    """End the driver as a crash of its machine would."""
    os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(StreamWriter):
    """The sink, with places to die at."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write, and die after that."""
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if is_here("task", batch_id) and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Commit, and die at one of the steps."""
        if is_here("tasks-done", batchId):
            kill_driver()

        def end_and_die(
            client: Client, handles: Sequence[TransactionHandle], *, committed: bool
        ) -> dict[TransactionHandle, Any]:
            if is_here("decided", batchId):
                kill_driver()
            if is_here("half-committed", batchId):
                end_transactions(client, handles[:1], committed=committed)
                kill_driver()
            return end_transactions(client, handles, committed=committed)

        def finish_or_die(original: Callable[[Decisions, int], None]) -> Callable[[Decisions, int], None]:
            def finish(decisions: Decisions, batch_id: int) -> None:
                if is_here("committed", batch_id):
                    kill_driver()
                original(decisions, batch_id)

            return finish

        with (
            mock.patch.object(exactly_once, "end_transactions", end_and_die),
            mock.patch.object(Decisions, "finish", finish_or_die(Decisions.finish)),
        ):
            super().commit(messages, batchId)


class DyingDataSource(BarnabasDataSource):
    """The format, with that sink."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Serve `df.writeStream`."""
        return DyingWriter(self.options, schema)


def main(servers: str, topic: str, source: str, checkpoint: str, point: str, batch: str) -> None:
    """Run the query to its end, whichever that is."""
    os.environ.update({POINT: point, BATCH: batch, GROUP: str(os.getpgrp()), "PYSPARK_PYTHON": sys.executable})
    spark = (
        # Four attempts a task, so that a worker may die.
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.dataSource.register(DyingDataSource)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(source)
    query = (
        lines.repartition(2)
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
