"""Bytes to messages and back: pure, without sockets, files or clocks."""
