"""Tests of barnabas.spark.archives."""
