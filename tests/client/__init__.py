"""Tests of the client, against scripted servers and against real brokers."""
