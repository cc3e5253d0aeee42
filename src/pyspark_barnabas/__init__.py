"""Spark imports every module named `pyspark_...` and registers its `DefaultSource`: the format `barnabas`."""

from barnabas.spark.data_source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
