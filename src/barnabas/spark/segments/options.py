"""The options of `barnabas-segments`, in two tables, and a query's options read into plain values by them.

Names and meanings are those of the format `barnabas`, as far as they make sense without a broker.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.model import TopicPartition
from barnabas.records.codecs import CODEC_NAMES, Codec
from barnabas.spark.errors import OptionError
from barnabas.spark.options import BOOLEAN, INT32_MAX, GivenOptions, OptionRow
from barnabas.spark.source.offset_limits import (
    Named,
    SpecificOffsets,
    check_batch_limits,
    parse_assignment,
    parse_offsets,
)

_MIB = 1024 * 1024
_JSON_OFFSETS = '{"topic": {"0": 23, "1": -2}}'
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

READ_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow(
        "path",
        "",
        "log directories, with commas between",
        "What to read; also copies of log directories, Kafka's, or the folder of one partition.",
        "batch",
    ),
    OptionRow(
        "subscribe",
        "",
        "topics, with commas between",
        "The topics to read; without one of these three, all but the broker's own.",
        "batch",
    ),
    OptionRow("subscribePattern", "", "a regular expression", "Topics to read: all whose whole name matches.", "batch"),
    OptionRow("assign", "", '{"topic": [0, 1]}', "Partitions to read, and no others.", "batch"),
    OptionRow("startingOffsets", "earliest", f"earliest or {_JSON_OFFSETS}", "Where to begin.", "batch"),
    OptionRow("endingOffsets", "latest", f"latest or {_JSON_OFFSETS}", "Where to end.", "batch"),
    OptionRow("includeHeaders", "false", BOOLEAN, "Whether there is a column with the headers of records.", "batch"),
    OptionRow(
        "kafka.isolation.level",
        "read_uncommitted",
        "read_uncommitted or read_committed",
        "Whether records of open and aborted transactions are read.",
        "batch",
    ),
    OptionRow("kafka.check.crcs", "true", BOOLEAN, "Whether the checksum of every batch is checked.", "batch"),
    OptionRow("failOnDataLoss", "true", BOOLEAN, "Whether offsets that are not there any more are an error.", "batch"),
    OptionRow(
        "minPartitions", "1", "a number from 1 on", "At least so many tasks, as far as the indexes allow.", "batch"
    ),
    OptionRow(
        "maxBytesPerPartition",
        str(64 * _MIB),
        "a number from 1 on",
        "The most bytes that a task reads, about.",
        "batch",
    ),
)
WRITE_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow(
        "path",
        "",
        "log directories, with commas between",
        "Where the data is, as the workers see it; a running broker says it itself.",
        "batch",
    ),
    OptionRow("topic", "", "a topic", "The topic that is loaded.", "batch"),
    OptionRow(
        "kafka.bootstrap.servers",
        "",
        "HOST:PORT",
        "The running broker that adopts the load; without it, that of the path must be stopped.",
        "batch",
    ),
    OptionRow(
        "loadId",
        "a random one",
        "a name",
        "What the load is called: a load of the same name is never adopted twice.",
        "batch",
    ),
    OptionRow("kafka.compression.type", "none", ", ".join(_CODECS), "How batches are compressed.", "batch"),
    OptionRow(
        "batchBytes", str(512 * 1024), "a number from 1 on", "About how large a batch is, before compression.", "batch"
    ),
    OptionRow("segmentBytes", str(1024 * _MIB), "a number from 1 on", "About how large a segment is at most.", "batch"),
    OptionRow("kafka.check.crcs", "true", BOOLEAN, "Whether the broker checks the checksum of every batch.", "batch"),
)

SEGMENT_BYTES_MAX = 2**31 - 1
BATCH_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()
    start: Named | SpecificOffsets = Named.EARLIEST
    end: Named | SpecificOffsets = Named.LATEST
    include_headers: bool = False
    is_committed_only: bool = False
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    min_partitions: int = 1
    max_bytes_per_partition: int = 64 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What is loaded, and how."""

    paths: tuple[str, ...]
    topic: str
    load_id: str | None
    has_broker: bool
    codec: Codec = Codec.NONE
    batch_bytes: int = 512 * 1024
    segment_bytes: int = 1024 * _MIB
    check_crcs: bool = True


def read_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Read the options of `spark.read`; raises OptionError."""
    given = GivenOptions(options, READ_OPTIONS)
    given.only_one(("subscribe", "subscribePattern", "assign"))
    start = parse_offsets("startingOffsets", given.text("startingOffsets"))
    end = parse_offsets("endingOffsets", given.text("endingOffsets"))
    check_batch_limits(start, end)
    assigned = given.given("assign")
    return ReadOptions(
        paths=_paths(given, is_needed=True),
        topics=given.words("subscribe"),
        pattern=given.pattern("subscribePattern"),
        partitions=() if assigned is None else parse_assignment("assign", assigned),
        start=start,
        end=end,
        include_headers=given.boolean("includeHeaders"),
        is_committed_only=given.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"))
        == "read_committed",
        check_crcs=given.boolean("kafka.check.crcs"),
        fail_on_data_loss=given.boolean("failOnDataLoss"),
        min_partitions=given.number("minPartitions", 1, INT32_MAX),
        max_bytes_per_partition=given.number("maxBytesPerPartition"),
    )


def read_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Read the options of `df.write`; raises OptionError."""
    given = GivenOptions(options, WRITE_OPTIONS)
    topic = given.given("topic")
    if not topic:
        raise OptionError("topic", "is needed: the topic to load")
    has_broker = given.is_given("kafka.bootstrap.servers")
    return WriteOptions(
        paths=_paths(given, is_needed=not has_broker),
        topic=topic,
        load_id=given.given("loadId"),
        has_broker=has_broker,
        codec=CODEC_NAMES[given.choice("kafka.compression.type", _CODECS)],
        batch_bytes=given.number("batchBytes", 1, 1 << 30),
        segment_bytes=given.number("segmentBytes", 1, SEGMENT_BYTES_MAX - BATCH_BYTES_MAX),
        check_crcs=given.boolean("kafka.check.crcs"),
    )


def _paths(given: GivenOptions, *, is_needed: bool) -> tuple[str, ...]:
    words = given.words("path")
    if is_needed and not words:
        raise OptionError("path", "is needed: one or more log directories, with commas between")
    return tuple(os.path.abspath(word.removeprefix("file://").removeprefix("file:")) for word in words)
