"""A raw load generator for the Kafka protocol, in a process of its own: `python -m bench.load COMMAND SPEC`."""
