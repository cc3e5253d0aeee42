"""Tests of barnabas.spark.source."""
