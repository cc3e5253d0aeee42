"""Tests of barnabas.broker: requests, partitions, delayed operations."""
