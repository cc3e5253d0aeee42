"""What a task does: the records of an offset range, from the broker that leads the partition to Arrow for Spark.

Bytes come from a `RangeReader`, whose next request is under way while an answer is decoded, and go through a
`RowBuilder`, which makes no Python object for a record. Batch and streaming queries have the same tasks.

Rule 1: records that are gone are an error, unless the query says otherwise: then it goes on with what is there.
Rule 2: offsets without a record, which compaction and transactions leave, are nothing to speak of.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.fetched import FetchedBatch
from barnabas.client.fetcher import TopicRecreatedError
from barnabas.client.metadata import UnknownTopicError
from barnabas.client.offsets import EARLIEST, offsets_at
from barnabas.client.range_reader import RangeEndError, RangeReader
from barnabas.spark.columns import RowBuilder
from barnabas.spark.connecting import Cluster, shared_client
from barnabas.spark.errors import DataLossError
from barnabas.spark.source.failures import ALLOW_LOSS, plain_errors
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.range_partition import RangePartition
from barnabas.spark.task_memory import spare_imports
from barnabas.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)

# Small enough to stay in the processor's caches, large enough that the cost of a batch in Spark does not show.
ROWS_MAX = 16 * 1024
BYTES_MAX = 8 * 1024 * 1024


def read_rows(cluster: Cluster, options: SourceOptions, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range; raises PipelineError, or DataLossError."""
    if not isinstance(partition, RangePartition):
        return  # A query of nothing has one task all the same, which Spark gives None.
    spare_imports()
    wanted = partition.offset_range
    with plain_errors(f"reading {wanted.partition} from offset {wanted.start_offset} to {wanted.end_offset}"):
        yield from _read(shared_client(cluster), options, wanted)


def _read(client: Client, options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    rows = RowBuilder(wanted.partition, include_headers=options.include_headers)
    next_start: int | None = wanted.start_offset
    while next_start is not None:
        start, next_start = next_start, None
        reader = RangeReader(
            client,
            wanted.partition,
            wanted.topic_id,
            start,
            wanted.end_offset,
            options.fetch,
            timeout_ms=options.poll_timeout_ms,
        )
        try:
            for fetched in reader:
                for batch in fetched.batches():
                    if _is_behind(batch, wanted.end_offset):
                        break
                    # A batch that is there may begin with records that are deleted.
                    rows.add(batch, start, wanted.end_offset)
                    if rows.rows >= ROWS_MAX or rows.bytes >= BYTES_MAX:
                        yield rows.take()
        except (ApiError, ClientError) as error:
            next_start = _after_loss(client, options, wanted, reader.position, error)
    if rows.rows:
        yield rows.take()


def _is_behind(batch: FetchedBatch, end_offset: int) -> bool:
    return batch.header is not None and batch.header.base_offset >= end_offset


def _after_loss(
    client: Client, options: SourceOptions, wanted: OffsetRange, position: int, error: ApiError | ClientError
) -> int | None:
    """Return where to go on after records are gone, or None where nothing is left; raises what is no loss."""
    is_out_of_range = isinstance(error, ApiError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    if not is_out_of_range and not isinstance(error, TopicRecreatedError | UnknownTopicError | RangeEndError):
        raise error
    first = offsets_at(client, [wanted.partition], EARLIEST)[wanted.partition] if is_out_of_range else None
    what = f"records of {wanted.partition} from offset {position} to {wanted.end_offset} are gone"
    why = f"the first that is there has offset {first}" if first is not None else str(error)
    if options.fail_on_data_loss:
        raise DataLossError(f"{what}: {why}; {ALLOW_LOSS}")
    logger.warning("%s and are passed over: %s", what, why)
    return first if first is not None and position < first < wanted.end_offset else None
