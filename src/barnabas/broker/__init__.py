"""Requests to answers: the dispatch table, the handlers, and the partitions that this broker leads."""
