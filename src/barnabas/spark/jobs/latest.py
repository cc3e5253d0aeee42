"""The latest record of every key, as an expression over records.

Rule 1: within a partition the record with the highest offset is the latest, whatever its timestamp.
Rule 2: a key that is in several partitions, because the topic got more of them or a producer chose them itself, has one
latest record in each. Offsets of different partitions can not be compared, so that of these the one with the highest
timestamp counts; of equal ones that with the highest offset, and then the highest partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")


def latest_in_partitions(records: DataFrame) -> DataFrame:
    """Return COLUMNS, a row for every key of every partition, tombstones among them."""
    last = functions.max_by(functions.struct("value", "offset", "timestamp", "headers"), "offset").alias("last")
    in_a_partition = records.where("key IS NOT NULL").groupBy("partition", "key").agg(last)
    return in_a_partition.select("partition", "key", "last.*").select(*COLUMNS)


def latest_of_keys(records: DataFrame) -> DataFrame:
    """Return COLUMNS, a row a key, tombstones among them, and `partitions`: how many of them have the key."""
    place = functions.struct("timestamp", "offset", "partition")
    latest = functions.max_by(functions.struct(*COLUMNS), place).alias("latest")
    of_a_key = latest_in_partitions(records).groupBy("key").agg(latest, functions.count("*").alias("partitions"))
    return of_a_key.select("latest.*", "partitions")
