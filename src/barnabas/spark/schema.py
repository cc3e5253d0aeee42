"""The columns of records, as Spark and as Arrow name them: those of Spark's own Kafka source.

key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,
headers array<struct<key string, value binary>>      only where they are asked for
"""

import inspect
from functools import cache

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADER_TYPE = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS = StructField("headers", ArrayType(HEADER_TYPE))
# Only keys and values may be missing. What is never null is neither looked at for that by Spark nor marked by Parquet.
_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType(), nullable=False),
    StructField("partition", IntegerType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("timestampType", IntegerType(), nullable=False),
)


def spark_schema(*, include_headers: bool) -> StructType:
    """Return the schema of what is read."""
    return StructType([*_COLUMNS, HEADERS] if include_headers else list(_COLUMNS))


@cache
def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Return the same as Arrow has it; Spark compares the two field by field."""
    # Spark 4.1 takes no time zone, because it knows only this one; later versions have none unless they are told.
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = spark_schema(include_headers=include_headers)
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
