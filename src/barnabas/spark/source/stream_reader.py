"""Streaming queries: `spark.readStream.format("barnabas")`. The driver says how far each batch goes; tasks read it.

Spark keeps one of these in a Python process on the driver as long as the query runs, and makes others for tasks.

Rule 1: places are plain JSON with one order of keys, see `stream_offsets`; a batch is what lies between two of them.
Rule 2: losses are found when a batch is planned, never passed over in silence.
Rule 3: offsets are committed to the group of the query once their batch is finished, for people and tools to see. The
query never reads them, so a commit that fails is a warning, and the next one makes up for it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.offsets import EARLIEST, LATEST, offsets_at
from barnabas.clock import SystemClock
from barnabas.model import TopicPartition
from barnabas.spark.connecting import read_cluster, shared_client
from barnabas.spark.errors import DataLossError, OptionError
from barnabas.spark.source.admission import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from barnabas.spark.source.failures import ALLOW_LOSS, plain_errors
from barnabas.spark.source.offset_limits import Named
from barnabas.spark.source.offsets import assigned_partitions, check_in_range, resolve_limit, sample_densities
from barnabas.spark.source.options import read_stream_options
from barnabas.spark.source.planning import is_worth_a_batch, limit_offsets, split_ranges
from barnabas.spark.source.range_partition import RangePartition
from barnabas.spark.source.reader import sampled_starts, split_rules
from barnabas.spark.source.stream_offsets import (
    Progress,
    StreamOffset,
    appeared,
    from_json,
    progress_between,
    ranges_between,
    to_json,
)
from barnabas.wire.errors import ApiError

logger = logging.getLogger(__name__)

# Tools may see an old offset for a while; a query must not wait for that.
_COMMIT_TIMEOUT_MS = 5_000
_NEEDING_ADMISSION_CONTROL = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's options, and what is only known while it runs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options; raises OptionError."""
        self._cluster = read_cluster(options)
        self._options = read_stream_options(options)
        if not HAS_ADMISSION_CONTROL:
            _refuse_limits(options)
        self._clock = SystemClock()
        self._target: StreamOffset | None = None
        self._latest: StreamOffset | None = None
        self._initial: StreamOffset | None = None
        self._last_batch_seconds: float | None = None
        self._densities: dict[TopicPartition, float] = {}
        self._committed: dict[str, Any] | None = None

    # Places

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where a new query begins."""
        with plain_errors("finding where the stream begins"):
            client = shared_client(self._cluster)
            assigned = assigned_partitions(client, self._options.subscription)
            offsets = resolve_limit(
                client,
                assigned.partitions,
                self._options.start,
                self._options.isolation,
                is_late_an_error=self._options.is_late_start_an_error,
            )
            offsets = check_in_range(
                client,
                self._options.start,
                offsets,
                self._options.isolation,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        return to_json(StreamOffset(offsets=offsets, topic_ids=assigned.topic_ids, is_initial=True))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Remember how far the partitions reach now: the query goes no further."""
        with plain_errors("finding where the stream ends"):
            self._target = self._fetch_latest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return how much a batch has, as far as Spark has a word for it; `latestOffset` knows both limits."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802 (Spark's name)
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return where the next batch ends; `start` itself where there is none. Spark 4.1 gives neither argument."""
        with plain_errors("finding where the next batch ends"):
            if start is None:
                return to_json(replace(self._fetch_latest(), began=self._first_place()))
            begin = from_json(start)
            if not begin.is_initial:
                self._commit(start)
            latest = self._fetch_latest()
            end = self._admitted(begin, latest if self._target is None else self._target, limit)
        if begin.is_initial:
            # The first batch is made even if it is empty, so that the checkpoint has the beginning from now on.
            return to_json(replace(end, began=replace(begin, is_initial=False)))
        return start if end.is_same_place(begin) else to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """Return how far the partitions reached when they were last asked, for the progress of the query."""
        return None if self._latest is None else to_json(self._latest)

    def _first_place(self) -> StreamOffset | None:
        """Return where the query began, if that is a place that moves; for Spark 4.1, which asks for the end first."""
        if self._initial is None and self._options.start is Named.LATEST:
            self._initial = replace(from_json(self.initialOffset()), is_initial=False)
        return self._initial

    def _fetch_latest(self) -> StreamOffset:
        client = shared_client(self._cluster)
        assigned = assigned_partitions(client, self._options.subscription, missing_are_fine=True)
        offsets = offsets_at(client, assigned.partitions, LATEST, self._options.isolation)
        self._latest = StreamOffset(offsets=offsets, topic_ids=assigned.topic_ids)
        return self._latest

    def _admitted(self, begin: StreamOffset, latest: StreamOffset, limit: ReadLimit | None) -> StreamOffset:
        """Return how far the next batch goes of what there is."""
        if limit is None or isinstance(limit, ReadAllAvailable):
            return latest
        starts = self._progress(shared_client(self._cluster), begin, latest).starts
        now = self._clock.monotonic_seconds()
        least = self._options.min_offsets_per_trigger
        if least is not None and self._target is None and self._last_batch_seconds is not None:
            waited_ms = (now - self._last_batch_seconds) * 1000
            if not is_worth_a_batch(starts, latest.offsets, least, waited_ms, self._options.max_trigger_delay_ms):
                return begin
        self._last_batch_seconds = now
        if isinstance(limit, ReadMaxRows):
            return replace(latest, offsets=limit_offsets(starts, latest.offsets, limit.max_rows))
        return latest

    # Batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        """Plan the tasks of a batch, on the driver; raises DataLossError, or PipelineError."""
        first, last = from_json(start), from_json(end)
        if first.is_initial and last.began is not None:
            first = last.began
        with plain_errors("planning a batch"):
            client = shared_client(self._cluster)
            progress = self._progress(client, first, last)
            if progress.losses:
                self._report(progress.losses)
            ranges = ranges_between(progress.starts, last)
            wanted = sampled_starts(ranges, self._options)
            self._densities |= sample_densities(
                client, {each: offset for each, offset in wanted.items() if each not in self._densities}
            )
            return [RangePartition(each) for each in split_ranges(ranges, split_rules(self._options), self._densities)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's range, on an executor."""
        # The driver, which never reads, is spared what reading takes to import.
        from barnabas.spark.source.range_rows import read_rows

        return read_rows(self._cluster, self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that everything before a place is finished."""
        self._commit(end)

    def _progress(self, client: Client, first: StreamOffset, last: StreamOffset) -> Progress:
        new = appeared(first, last)
        earliest: dict[TopicPartition, int] = {}
        if new:
            # A partition that has gone meanwhile is found out by its task; the others' first offsets are needed here.
            there = set(assigned_partitions(client, self._options.subscription, missing_are_fine=True).partitions)
            earliest = offsets_at(client, [each for each in new if each in there], EARLIEST, self._options.isolation)
        return progress_between(first, last, earliest)

    def _report(self, losses: Sequence[str]) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{losses[0]}, so that records may be missing; {ALLOW_LOSS}")
        for loss in losses:
            logger.warning("%s, so that records may be missing", loss)

    def _commit(self, place: dict[str, Any]) -> None:
        """Commit a place to the group of the query, if it has one and that is not done already."""
        group_id = self._options.group_id
        if group_id is None or place == self._committed:
            return
        # Most queries have no group, and every query waits for the imports of its process on the driver.
        from barnabas.client.groups import OffsetAndMetadata, commit_group_offsets

        offsets = {each: OffsetAndMetadata(offset=offset) for each, offset in from_json(place).offsets.items()}
        timeout_ms = min(self._cluster.options.default_api_timeout_ms, _COMMIT_TIMEOUT_MS)
        hasty = replace(self._cluster, options=replace(self._cluster.options, default_api_timeout_ms=timeout_ms))
        try:
            failures = commit_group_offsets(shared_client(hasty), group_id, offsets) if offsets else {}
        except (ApiError, ClientError) as error:
            logger.warning("the offsets of group %r were not committed, tools show older ones: %s", group_id, error)
            return
        if failures:
            first = next(iter(failures.values()))
            logger.warning("%d offsets of group %r were not committed: %s", len(failures), group_id, first)
            return
        self._committed = place


def _refuse_limits(options: Mapping[str, str]) -> None:
    given = {name.lower() for name in options}
    for name in _NEEDING_ADMISSION_CONTROL:
        if name.lower() in given:
            raise OptionError(name, "needs PySpark 4.2 or later, which tells a source how much a batch may have")
