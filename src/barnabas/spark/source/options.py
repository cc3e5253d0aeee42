"""The options of the source, in one table, and a query's options read into plain values by it.

Names, defaults and precedence are those of Spark's own Kafka source, so that a query changes its format and nothing
else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.fetcher import FetchOptions
from barnabas.client.offsets import IsolationLevel
from barnabas.model import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.options import BOOLEAN, GivenOptions, OptionRow
from barnabas.spark.source.offset_limits import (
    Named,
    OffsetLimit,
    check_batch_limits,
    parse_assignment,
    parse_offsets,
    parse_time,
    parse_times,
)

_JSON_OFFSETS = '{"topic": {"0": 23, "1": -2}}'

SOURCE_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow("subscribe", "", "topics, with commas between", "Topics to read, with all partitions they have or get."),
    OptionRow("subscribePattern", "", "a regular expression", "Topics to read: all whose whole name matches."),
    OptionRow("assign", "", '{"topic": [0, 1]}', "Partitions to read, and no others."),
    OptionRow(
        "startingOffsets",
        "latest; earliest in batch queries",
        f"earliest, latest (streaming only) or {_JSON_OFFSETS}",
        "Where a new query begins; in JSON -2 is earliest and -1 is latest, and every partition must be named.",
    ),
    OptionRow(
        "endingOffsets", "latest", f"latest or {_JSON_OFFSETS}", "Where a query ends; -1 in JSON is latest.", "batch"
    ),
    OptionRow(
        "startingTimestamp",
        "",
        "milliseconds since 1970",
        "Begin at the first record at or after this time in every partition; wins over the other two ways.",
    ),
    OptionRow(
        "endingTimestamp", "", "milliseconds since 1970", "End before the first record at or after this time.", "batch"
    ),
    OptionRow(
        "startingOffsetsByTimestamp",
        "",
        '{"topic": {"0": 1700000000000}}',
        "The same with a time for each partition; wins over startingOffsets.",
    ),
    OptionRow(
        "endingOffsetsByTimestamp",
        "",
        '{"topic": {"0": 1700000000000}}',
        "The same with a time for each partition; wins over endingOffsets.",
        "batch",
    ),
    OptionRow(
        "startingOffsetsByTimestampStrategy",
        "error",
        "error or latest",
        "What to do with a partition that has no record as late as the starting time: fail, or begin at its end.",
    ),
    OptionRow(
        "failOnDataLoss",
        "true",
        BOOLEAN,
        "Whether records that are gone before they were read are an error, or are passed over.",
    ),
    OptionRow("minPartitions", "", "a number from 1 on", "How many tasks at least read a query or batch, roughly."),
    OptionRow("maxRecordsPerPartition", "", "a number from 1 on", "How many offsets a task reads at most."),
    OptionRow(
        "maxBytesPerPartition",
        str(256 * 1024 * 1024),
        "a number from 0 on",
        "How many bytes a task reads at most, estimated from a sample of each partition; 0 never splits by bytes. "
        "Spark's own source does not have it.",
    ),
    OptionRow(
        "maxOffsetsPerTrigger",
        "",
        "a number from 1 on",
        "How many offsets a batch has at most, shared among the partitions by what each has.",
        "streaming",
    ),
    OptionRow(
        "minOffsetsPerTrigger",
        "",
        "a number from 1 on",
        "How many new offsets a batch waits for; without effect under AvailableNow.",
        "streaming",
    ),
    OptionRow(
        "maxTriggerDelay",
        "15m",
        "a time as 30s, 15m or 1h",
        "How long minOffsetsPerTrigger may hold a batch.",
        "streaming",
    ),
    OptionRow("includeHeaders", "false", BOOLEAN, "Whether there is a column with the headers of records."),
    OptionRow(
        "groupIdPrefix", "spark-kafka-source", "a name", "Accepted and without effect: nothing here joins a group."
    ),
    OptionRow(
        "kafka.group.id",
        "",
        "a name",
        "The group that the offsets of every finished batch are committed to, so that tools show the lag.",
        "streaming",
    ),
    OptionRow(
        "kafka.isolation.level",
        "read_uncommitted",
        "read_uncommitted or read_committed",
        "Whether records of open and aborted transactions are read.",
    ),
    OptionRow(
        "kafka.max.partition.fetch.bytes", str(4 * 1024 * 1024), "a number from 1 on", "How much one request asks for."
    ),
    OptionRow("kafka.fetch.max.bytes", str(50 * 1024 * 1024), "a number from 1 on", "The most that an answer brings."),
    OptionRow("kafka.fetch.min.bytes", "1", "a number from 0 on", "How much a broker waits for before it answers."),
    OptionRow("kafka.fetch.max.wait.ms", "500", "milliseconds", "How long it waits for that."),
    OptionRow("kafka.check.crcs", "true", BOOLEAN, "Whether the checksum of every batch is checked."),
    OptionRow(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        "milliseconds",
        "How long a task waits for records that should be there.",
    ),
    OptionRow(
        "fetchOffset.numRetries",
        "3",
        "a number from 0 on",
        "Accepted and without effect: kafka.default.api.timeout.ms says how long offsets are asked for again.",
    ),
    OptionRow("fetchOffset.retryIntervalMs", "1000", "milliseconds", "Accepted and without effect, as above."),
)

REFUSED = {
    "kafka.auto.offset.reset": "is not for a query: set 'startingOffsets' instead",
    "kafka.key.deserializer": "is not for a query: keys are bytes, to be cast or decoded by expressions",
    "kafka.value.deserializer": "is not for a query: values are bytes, to be cast or decoded by expressions",
    "kafka.enable.auto.commit": "is not for a query: Spark keeps its offsets, and 'kafka.group.id' shows them to tools",
    "kafka.interceptor.classes": "is not for a query: nothing may change records on their way",
}
"""Settings of Kafka's consumer that would change what a query means."""

_STREAM_REFUSED = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_WAYS = ("subscribe", "subscribePattern", "assign")

_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions are read: just one of these is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A query's options, read and checked; plain values that travel to the tasks."""

    subscription: Subscription
    start: OffsetLimit
    end: OffsetLimit
    is_late_start_an_error: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    group_id: str | None
    poll_timeout_ms: int
    fetch: FetchOptions

    @property
    def isolation(self) -> IsolationLevel:
        """Whether records of open and aborted transactions are read."""
        return self.fetch.isolation_level


def read_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of `spark.read`; raises OptionError."""
    given = GivenOptions(options, SOURCE_OPTIONS, REFUSED)
    start = _limit(given, "starting", Named.EARLIEST)
    end = _limit(given, "ending", Named.LATEST)
    check_batch_limits(start, end)
    return _read(given, start, end)


def read_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of `spark.readStream`; raises OptionError."""
    given = GivenOptions(options, SOURCE_OPTIONS, REFUSED)
    for name in _STREAM_REFUSED:
        if given.is_given(name):
            raise OptionError(name, "is for batch queries: a stream has no end")
    return _read(given, _limit(given, "starting", Named.LATEST), Named.LATEST)


def _limit(given: GivenOptions, side: str, default: Named) -> OffsetLimit:
    """Read one of three ways to say where a query begins or ends; the first that is given wins."""
    for name, parse in (
        (f"{side}Timestamp", parse_time),
        (f"{side}OffsetsByTimestamp", parse_times),
        (f"{side}Offsets", parse_offsets),
    ):
        text = given.given(name)
        if text is not None:
            return parse(name, text)
    return default


def _read(given: GivenOptions, start: OffsetLimit, end: OffsetLimit) -> SourceOptions:
    for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"):
        given.number(name, 0)  # Without effect, but a number all the same.
    most, least = given.optional_number("maxOffsetsPerTrigger"), given.optional_number("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"is {least}, which is more than 'maxOffsetsPerTrigger', {most}")
    return SourceOptions(
        subscription=_subscription(given),
        start=start,
        end=end,
        is_late_start_an_error=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "error",
        fail_on_data_loss=given.boolean("failOnDataLoss"),
        min_partitions=given.optional_number("minPartitions"),
        max_records_per_partition=given.optional_number("maxRecordsPerPartition"),
        max_bytes_per_partition=given.number("maxBytesPerPartition", 0),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay"),
        include_headers=given.boolean("includeHeaders"),
        group_id=_group_id(given),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", 0),
        fetch=_fetch(given),
    )


def _group_id(given: GivenOptions) -> str | None:
    group_id = given.given("kafka.group.id")
    if group_id == "":
        raise OptionError("kafka.group.id", "is empty, but offsets are committed to a group with a name")
    return group_id


def _fetch(given: GivenOptions) -> FetchOptions:
    level = given.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"))
    return FetchOptions(
        fetch_max_wait_ms=given.number("kafka.fetch.max.wait.ms", 0),
        fetch_min_bytes=given.number("kafka.fetch.min.bytes", 0),
        fetch_max_bytes=given.number("kafka.fetch.max.bytes"),
        max_partition_fetch_bytes=given.number("kafka.max.partition.fetch.bytes"),
        isolation_level=IsolationLevel[level.upper()],
        check_crcs=given.boolean("kafka.check.crcs"),
    )


def _subscription(given: GivenOptions) -> Subscription:
    way = given.only_one(_WAYS)
    if way is None:
        raise OptionError("subscribe", "is needed, or 'subscribePattern' or 'assign' instead: what to read")
    if way == "assign":
        return Subscription(partitions=parse_assignment("assign", given.text("assign")))
    return Subscription(topics=given.words("subscribe"), pattern=given.pattern("subscribePattern"))


def _duration_ms(given: GivenOptions, name: str) -> int:
    match = _DURATION.fullmatch(given.text(name).lower())
    if match is None:
        raise OptionError(name, f"is a time as 30s, 15m or 1h, but {given.text(name)!r} was given")
    return int(int(match[1]) * _UNIT_MS[match[2] or "ms"])
