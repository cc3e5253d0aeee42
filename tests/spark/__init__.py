"""Tests of the pipeline: real Spark, real brokers, and Spark's own Kafka connector beside ours."""
