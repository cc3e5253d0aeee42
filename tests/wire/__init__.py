"""Tests of barnabas.wire."""
