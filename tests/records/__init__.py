"""Tests of the batches, the message sets, the codecs and the kernel."""
