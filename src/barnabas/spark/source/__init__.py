"""What is read: options, offsets by name and time, ranges for tasks, and the readers of batches and streams."""
