"""Tells a session of both formats. Spark finds them by itself, but not where this package came with `--py-files`."""

from pyspark.sql import SparkSession

from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.segments.data_source import SegmentsDataSource


def register(spark: SparkSession) -> None:
    """Make `barnabas` and `barnabas-segments` known to a session."""
    spark.dataSource.register(BarnabasDataSource)
    spark.dataSource.register(SegmentsDataSource)
