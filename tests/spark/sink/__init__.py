"""Tests of barnabas.spark.sink."""
