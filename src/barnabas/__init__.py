"""Barnabas: a log broker that every Kafka client already speaks to, with its data pipeline on Spark."""
