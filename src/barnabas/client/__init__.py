"""A small synchronous client of the protocol: raw batches in and out, against any broker that speaks it."""
