"""Tests of barnabas.spark.jobs."""
