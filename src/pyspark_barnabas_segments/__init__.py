"""Spark imports every module named `pyspark_...` and registers one format for each: `barnabas-segments`."""

from barnabas.spark.segments.data_source import SegmentsDataSource as DefaultSource

__all__ = ["DefaultSource"]
