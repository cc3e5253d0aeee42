"""Batch queries: `spark.read.format("barnabas")`. The driver asks for offsets and plans tasks, which then read.

Rule 1: offsets are resolved when Spark plans the query, and the tasks read just these, whatever arrives meanwhile.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.client.client import Client
from barnabas.model import TopicPartition
from barnabas.spark.connecting import read_cluster, shared_client
from barnabas.spark.source.failures import plain_errors
from barnabas.spark.source.offsets import assigned_partitions, check_in_range, resolve_limit, sample_densities
from barnabas.spark.source.options import SourceOptions, read_batch_options
from barnabas.spark.source.planning import OffsetRange, SplitRules, split_ranges
from barnabas.spark.source.range_partition import RangePartition

# A range of fewer offsets is not worth a look at how large its records are.
_SAMPLED_SIZE_MIN = 64


class BatchReader(DataSourceReader):
    """A query's options, and the tasks that they mean."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options; raises OptionError."""
        self._cluster = read_cluster(options)
        self._options = read_batch_options(options)

    def partitions(self) -> Sequence[RangePartition]:
        """Plan the tasks, on the driver; raises PipelineError."""
        with plain_errors("planning the query"):
            client = shared_client(self._cluster)
            ranges = resolve_ranges(client, self._options)
            densities = sample_densities(client, sampled_starts(ranges, self._options))
            return [RangePartition(each) for each in split_ranges(ranges, split_rules(self._options), densities)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's range, on an executor."""
        # The driver, which never reads, is spared what reading takes to import.
        from barnabas.spark.source.range_rows import read_rows

        return read_rows(self._cluster, self._options, partition)


def resolve_ranges(client: Client, options: SourceOptions) -> list[OffsetRange]:
    """Return what a batch query reads of each partition."""
    assigned = assigned_partitions(client, options.subscription)
    isolation = options.isolation

    def checked(offsets: Mapping[TopicPartition, int], *, is_start: bool) -> dict[TopicPartition, int]:
        limit = options.start if is_start else options.end
        return check_in_range(client, limit, offsets, isolation, fail_on_data_loss=options.fail_on_data_loss)

    is_late_an_error = options.is_late_start_an_error
    start = resolve_limit(client, assigned.partitions, options.start, isolation, is_late_an_error=is_late_an_error)
    start = checked(start, is_start=True)
    end = checked(resolve_limit(client, assigned.partitions, options.end, isolation), is_start=False)
    return [
        OffsetRange(
            partition=partition,
            topic_id=assigned.topic_ids[partition.topic],
            start_offset=start[partition],
            end_offset=end[partition],
        )
        for partition in assigned.partitions
    ]


def sampled_starts(ranges: Sequence[OffsetRange], options: SourceOptions) -> dict[TopicPartition, int]:
    """Return where to look for how large records are; nowhere, where that would change nothing."""
    if not options.max_bytes_per_partition:
        return {}
    return {each.partition: each.start_offset for each in ranges if each.size >= _SAMPLED_SIZE_MIN}


def split_rules(options: SourceOptions) -> SplitRules:
    """Return how the options divide work."""
    return SplitRules(
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        max_bytes_per_partition=options.max_bytes_per_partition,
    )
