"""Consumer groups and transactions as pure state machines: requests and time in, replies and records to persist out."""
