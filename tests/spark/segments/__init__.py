"""Tests of barnabas.spark.segments."""
