"""Which topic and partition each row goes to. Pure functions over Arrow columns; nothing is done row by row in Python.

Rule 1: the option `topic` goes before the column topic. A row without either is refused.
Rule 2: the column partition says where a row goes; where it is null, the key does, as Kafka's own partitioner has it;
rows that have neither stay together for about a batch, and then go on to the next partition.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.columns import partitions_of_keys, rows_by_partition
from barnabas.spark.errors import PipelineError

_INT32 = pa.int32()


def rows_by_topic(rows: pa.RecordBatch, topic: str | None) -> Sequence[tuple[str, pa.RecordBatch]]:
    """Return the rows of each topic, in order; raises PipelineError for a row that names none."""
    if topic is not None:
        return [(topic, rows)]
    column = rows.column("topic")
    if column.null_count:
        raise PipelineError("a row has null in column 'topic', and the option 'topic' is not given")
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return [(names[0], rows)]
    return [(names[code], rows.take(indexes)) for code, indexes in rows_by_partition(encoded.indices, len(names))]


def partitions_of_rows(
    rows: pa.RecordBatch, topic: str, partition_count: int, *, first_partition: int, rows_together: int
) -> pa.Int32Array:
    """Return the partition of each row.

    Args:
        rows: Rows of one topic.
        topic: Its name, for the sentence.
        partition_count: How many partitions it has.
        first_partition: Where rows without partition and key begin.
        rows_together: How many rows are for one partition before the next has its turn.

    Raises:
        PipelineError: The column partition has a number that the topic has not.
    """
    names = rows.schema.names
    by_key = partitions_of_keys(rows.column("key"), partition_count) if "key" in names else None
    given = _checked(rows.column("partition"), topic, partition_count) if "partition" in names else None
    chosen = [each for each in (given, by_key) if each is not None]
    if not chosen or all(each.null_count for each in chosen):
        chosen.append(_runs(rows.num_rows, partition_count, first_partition, rows_together))
    return chosen[0] if len(chosen) == 1 else pc.coalesce(*chosen)


def _checked(given: pa.Int32Array, topic: str, partition_count: int) -> pa.Int32Array:
    bounds = pc.min_max(given).as_py()
    for found in (bounds["min"], bounds["max"]):
        if found is not None and not 0 <= found < partition_count:
            raise PipelineError(
                f"a row has {found} in column 'partition', but topic {topic!r} has {partition_count} partitions, from 0"
            )
    return given


def _runs(row_count: int, partition_count: int, first_partition: int, rows_together: int) -> pa.Int32Array:
    ends = [*range(rows_together, row_count, rows_together), row_count]
    values = [(first_partition + number) % partition_count for number in range(len(ends))]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, _INT32), pa.array(values, _INT32))
    return pc.run_end_decode(runs)
