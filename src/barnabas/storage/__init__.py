"""Batches to disk and back: files, indexes, segments, logs and the LogManager over them, in Kafka's own formats."""
