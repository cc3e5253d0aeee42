"""Apache Kafka and this project on the same files."""
