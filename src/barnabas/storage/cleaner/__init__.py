"""The LogCleaner of compacted topics: what is to be cleaned, how, and the process that does it."""
