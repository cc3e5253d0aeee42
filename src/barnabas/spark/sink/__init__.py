"""What is written: rows to batches, plain or in transactions that a streaming batch commits once."""
