"""Tests of the handlers, over a broker on a thread."""
