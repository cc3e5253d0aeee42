"""Mode "upsert": of every key of a partition, the last record; what the log cleaner leaves of a compacted topic.

Keys are divided into buckets by their hash. A commit reads the files of the buckets that it has keys of, puts its own
records to theirs, and writes those buckets anew (copy on write):

    data/<attempt>/bucket=3/part-....parquet

Rule 1: the same key in two partitions is two keys, as it is for a broker.
Rule 2: a record without a value deletes its key, and is not kept itself: later records have higher offsets, and earlier
ones are not read again.
Rule 3: a record without a key is no earlier one of another, and can not be in a bucket: all are kept as dead letters.
"""

import re
from collections.abc import Iterable

from pyspark.sql import DataFrame, Window, functions

from barnabas.spark.archives.archive import Archive
from barnabas.spark.archives.decoding import UNDECODABLE

BUCKETS_DEFAULT = 16
BUCKET = "bucket"

_IN_A_PATH = re.compile(rf"/{BUCKET}=(\d+)/")


def with_keys_needed(rows: DataFrame) -> DataFrame:
    """Return the rows, those without a key marked as undecodable."""
    return rows.withColumn(UNDECODABLE, functions.col(UNDECODABLE) | functions.col("key").isNull())


def without_deleted(latest: DataFrame) -> DataFrame:
    """Return the records that are left of the last ones of their keys: all but deletions."""
    return latest.where("value IS NOT NULL OR key IS NULL")


def last_of_keys(rows: DataFrame) -> DataFrame:
    """Return the last record of every key of a partition, deletions included, and all records without a key."""
    own = functions.when(functions.col("key").isNull(), functions.col("offset"))
    latest_first = Window.partitionBy("partition", "key", own).orderBy(functions.desc("offset"))
    return rows.withColumn("_place", functions.row_number().over(latest_first)).where("_place = 1").drop("_place")


def files_of_buckets(names: Iterable[str], buckets: Iterable[int]) -> list[str]:
    """Return those files that have keys of some buckets."""
    wanted = set(buckets)
    return [name for name in names if (found := _IN_A_PATH.search(name)) and int(found[1]) in wanted]


def merged_buckets(archive: Archive, rows: DataFrame, folder: str) -> tuple[str, ...]:
    """Write the buckets of these rows anew into a folder, and return the files whose rows are in there now."""

    def in_buckets(frame: DataFrame) -> DataFrame:
        # Not what a topic is partitioned by: of that, a partition has only a few values.
        return frame.withColumn(
            BUCKET, functions.pmod(functions.xxhash64("key"), functions.lit(archive.description.buckets)).cast("int")
        )

    latest = in_buckets(last_of_keys(rows))
    touched = sorted(row[0] for row in latest.select(BUCKET).distinct().collect())
    replaced = files_of_buckets(archive.current_files(), touched)
    both = latest
    if replaced:
        paths = [archive.files.pattern(name) for name in replaced]
        kept = rows.sparkSession.read.schema(rows.schema).parquet(*paths)
        both = last_of_keys(rows.unionByName(kept))
        both = in_buckets(both)
    left = without_deleted(both).repartition(max(1, len(touched)), BUCKET)
    left.sortWithinPartitions(BUCKET, "partition", "offset").write.partitionBy(BUCKET).parquet(
        archive.files.path(folder)
    )
    return tuple(replaced)
