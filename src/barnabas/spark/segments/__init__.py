"""Log directories as DataFrames, without a broker: segments read in parallel, and written for a broker to adopt."""
