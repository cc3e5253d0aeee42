"""Tests of barnabas.server: sockets, connections, start and stop."""
