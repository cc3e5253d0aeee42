"""A checker in the style of Jepsen's Kafka workload: load, faults, a history of every operation, and its analysis."""
