"""Compares the records of a topic with those of its archive, in Spark: first by blocks of offsets, then by record.

    topic     -> fingerprints of blocks -+
                                         +-> blocks that differ -> their records, side by side -> what is wrong
    archive   -> fingerprints of blocks -+

A fingerprint is how many records there are, how many different offsets, and the sum of a hash of every record, so that
it does not depend on the order that records come in. Where nothing is wrong, each side is read once, and nothing but
fingerprints moves between the machines.

Rule 1: only offsets that both sides can have are compared; of others it is seen whether the archive has them twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, functions
from pyspark.sql.functions import col

from barnabas.spark.jobs.archived import within
from barnabas.spark.jobs.topic import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The different offsets of a block are counted by a bitmap, which has so many bits in Spark.
BLOCK_OFFSETS = 32_768
_EXAMPLES_MAX = 1_000
_BLOCK = ("partition", "is_common", "block")

WRONG = ("missing", "doubled", "changed", "unknown")


@dataclass(slots=True, kw_only=True)
class PartitionCounts:
    """What was compared of a partition, and what differs."""

    topic_records: int = 0
    archive_records: int = 0
    other_records: int = 0
    """Records of the archive with offsets that the topic does not have any more."""
    topic_checksum: int = 0
    archive_checksum: int = 0
    missing: int = 0
    doubled: int = 0
    changed: int = 0
    unknown: int = 0
    examples: dict[str, list[int]] = field(default_factory=dict)


def compare(topic: DataFrame, archive: DataFrame, common: Mapping[int, Span]) -> dict[int, PartitionCounts]:
    """Compare two sets of records over the offsets that both can have; raises what Spark raises."""
    ours, theirs = _hashed(topic, common), _hashed(archive, common)
    blocks = (
        _fingerprints(ours, "topic")
        .join(_fingerprints(theirs, "archive"), list(_BLOCK), "full")
        .na.fill(0, ["topic_records", "archive_records", "archive_offsets"])
        .na.fill(0, ["topic_checksum", "archive_checksum"])
        .persist()
    )
    try:
        counts = _totals(blocks)
        spans = _differing(blocks)
    finally:
        blocks.unpersist()
    if spans:
        _name_differences(within(ours, spans), within(theirs, spans), counts)
    return counts


def _hashed(records: DataFrame, common: Mapping[int, Span]) -> DataFrame:
    """Return where each record is, and the hash of what it has."""
    is_common = functions.lit(False)
    for partition, span in common.items():
        is_common |= (col("partition") == partition) & (col("offset") >= span.start) & (col("offset") < span.end)
    # The hash passes over what is null, so that it has to be told of it: a key without a value is no value without key.
    headers = functions.coalesce("headers", functions.expr("array()"))
    is_null = functions.transform("headers", lambda header: header["value"].isNull())
    content: list[Column | str] = [col("key").isNull(), "key", col("value").isNull(), "value"]
    content += [functions.size(headers), "headers", is_null, "timestamp", "partition", "offset"]
    return records.select(
        "partition",
        "offset",
        is_common.alias("is_common"),
        functions.floor(col("offset") / BLOCK_OFFSETS).alias("block"),
        functions.xxhash64(*content).alias("hash"),
    )


def _fingerprints(hashed: DataFrame, side: str) -> DataFrame:
    offsets = functions.bitmap_count(functions.bitmap_construct_agg(col("offset") % BLOCK_OFFSETS))
    return hashed.groupBy(*_BLOCK).agg(
        functions.count("*").alias(f"{side}_records"),
        offsets.alias(f"{side}_offsets"),
        functions.sum(col("hash").cast("decimal(20,0)")).alias(f"{side}_checksum"),
    )


def _totals(blocks: DataFrame) -> dict[int, PartitionCounts]:
    def common(name: str) -> Column:
        return functions.sum(functions.when(col("is_common"), col(name)).otherwise(0)).alias(name)

    sums = ("topic_records", "archive_records", "topic_checksum", "archive_checksum")
    others = functions.sum(functions.when(col("is_common"), 0).otherwise(col("archive_records")))
    rows = blocks.groupBy("partition").agg(*(common(name) for name in sums), others.alias("other_records")).collect()
    return {
        row["partition"]: PartitionCounts(
            topic_records=row["topic_records"],
            archive_records=row["archive_records"],
            other_records=row["other_records"],
            topic_checksum=int(row["topic_checksum"]),
            archive_checksum=int(row["archive_checksum"]),
        )
        for row in rows
    }


def _differing(blocks: DataFrame) -> dict[int, Span]:
    """Return, for each partition, from where to where there are blocks that differ."""
    differs = col("is_common") & (
        (col("topic_records") != col("archive_records")) | (col("topic_checksum") != col("archive_checksum"))
    )
    rows = (
        blocks.where(differs | (col("archive_records") != col("archive_offsets")))
        .groupBy("partition")
        .agg(functions.min("block").alias("first"), functions.max("block").alias("last"))
        .collect()
    )
    return {
        row["partition"]: Span(start=row["first"] * BLOCK_OFFSETS, end=(row["last"] + 1) * BLOCK_OFFSETS)
        for row in rows
    }


def _name_differences(ours: DataFrame, theirs: DataFrame, counts: Mapping[int, PartitionCounts]) -> None:
    """Look at single records, and write down how many differ and which are the first of them."""
    copies = theirs.groupBy("partition", "offset", "is_common").agg(
        functions.count("*").alias("copies"), functions.collect_set("hash").alias("hashes")
    )
    both = ours.select("partition", "offset", "is_common", "hash").join(
        copies, ["partition", "offset", "is_common"], "full"
    )
    in_topic, in_archive = col("hash").isNotNull(), col("copies").isNotNull()
    wrong = {
        "missing": in_topic & ~in_archive,
        "doubled": functions.coalesce(col("copies") > 1, functions.lit(False)),
        "changed": in_topic & in_archive & (col("hashes") != functions.array("hash")),
        "unknown": ~in_topic & col("is_common"),
    }
    rows = both.select("partition", "offset", *(each.alias(name) for name, each in wrong.items()))
    rows = rows.where(" OR ".join(WRONG)).persist()
    try:
        sums = [functions.count_if(col(name)).alias(name) for name in WRONG]
        found = rows.groupBy("partition").agg(*sums).collect()
        for row in found:
            for name in WRONG:
                setattr(counts[row["partition"]], name, row[name])
        for name in WRONG:
            if not any(row[name] for row in found):
                continue
            for row in rows.where(name).orderBy("partition", "offset").limit(_EXAMPLES_MAX).collect():
                counts[row["partition"]].examples.setdefault(name, []).append(row["offset"])
    finally:
        rows.unpersist()
