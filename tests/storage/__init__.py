"""Tests of barnabas.storage."""
