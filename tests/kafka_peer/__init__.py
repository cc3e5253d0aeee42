"""A real Apache Kafka to test against."""
